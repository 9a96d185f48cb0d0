#!/usr/bin/env bash
# Writes requirements.txt: the newest packages that fit setup.cfg (its extra "lint" has all the others), on every Python
# that the pack takes, with the hashes of their files. What set-up installs changes by this alone.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

place=$ROOT/.cache/lock-venv # not in .venv: uv is no part of what is locked
[ -x "$place/bin/uv" ] || {
    "$VENV/bin/python" -m venv "$place"
    "$place/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
}
# what venv itself brings of pip is as old as the Python, with known vulnerabilities; setuptools builds the pack
printf 'pip\nsetuptools\n' | "$place/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --extra lint \
    --generate-hashes --no-annotate --no-emit-find-links --custom-compile-command 'make lock' \
    --output-file requirements.txt setup.cfg -
