#!/usr/bin/env bash
# clean.sh:     end what killed sessions left behind, remove the caches of tests and lint.
# clean.sh all: also .venv, the logs and an engine that set-up started.
# What ran as root belongs to root, so root is asked for; without it, what may be removed is, and the rest is named.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

code=0
paths=(.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist)
if [ -x "$VENV/bin/esrally-ebs" ]; then as_root "$VENV/bin/esrally-ebs" clean || code=$?; fi
if [ "${1:-}" = all ]; then
    scripts/engine.sh stop || code=$?
    paths+=(.venv .tox .cache esrally_ebs.egg-info)
fi
if ! said=$(as_root rm -rf "${paths[@]}" 2>&1); then
    code=$EXIT_SETUP
    [ "$have_root" = no ] || complain "$said" # without root a line for each file would hide the one below
fi
if [ "$code" -ne 0 ] && [ "$have_root" = no ]; then
    complain "some of it belongs to root; someone with root must run: cd $(quoted "$ROOT") && scripts/clean.sh $*"
fi
exit "$code"
