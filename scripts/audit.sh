#!/usr/bin/env bash
# Looks up every package of .venv in the Python package index's list of known vulnerabilities. Needs that service, so
# `make lint` does not do it. Exit code 1: a vulnerability, or a package that could not be looked up.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

place=$ROOT/.cache/audit-venv # not in .venv: what is audited must not hold the auditor's own packages
[ -x "$place/bin/pip-audit" ] || {
    "$VENV/bin/python" -m venv "$place"
    "$place/bin/pip" install --quiet --disable-pip-version-check pip-audit==2.10.1
}
listed=$ROOT/.cache/audited.txt
"$VENV/bin/python" -m pip freeze --exclude-editable >"$listed"
# --strict: a service that knows none of the packages would else look like a clean bill of health
"$place/bin/pip-audit" --strict --progress-spinner off --no-deps --disable-pip --requirement "$listed"
