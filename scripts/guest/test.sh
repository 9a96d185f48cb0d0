#!/usr/bin/env bash
# Boots Debian guests under QEMU and tests in them what this machine's kernel may lack: tests/guest/host_*.py.
#
#   GUEST_TESTS  what pytest is to run; default: all of tests/guest/host_*.py
#   CUTS         how often the power is cut; default 6
#
# Exit code: pytest's, 2 for a wrong CUTS, or 3 where something is missing.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
cd "$ROOT"

if ! [[ ${CUTS:-6} =~ ^[1-9][0-9]*$ ]]; then
    complain "CUTS=$CUTS: how often is the power to be cut? give a whole number of 1 or more"
    exit 2
fi
missing=()
have qemu-system-x86_64 || missing+=(qemu-system-x86)
have qemu-img || missing+=(qemu-utils)
have debootstrap || missing+=(debootstrap)
if [ "${#missing[@]}" -gt 0 ]; then
    complain "the guest needs ${missing[*]}: apt-get install ${missing[*]}"
    exit "$EXIT_SETUP"
fi
scripts/moto.sh
as_root scripts/guest/build.sh
"$VENV/bin/python" -m compileall -q esrally_ebs tests/support # emulated, compiling takes minutes
read -ra tests <<<"${GUEST_TESTS:-$(echo tests/guest/host_*.py)}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$VENV/bin/python" -m pytest -v --log-cli-level=INFO --durations=0 --log-file=.cache/guest/test.log --basetemp="$work/guests" "${tests[@]}"
