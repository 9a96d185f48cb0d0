#!/usr/bin/env bash
# Runs both test suites in an environment that setup.sh has made: first what needs nothing but time, then what needs
# root, Docker and block devices. Both run, unless there is no root; the exit code is that of the first suite that
# failed. Tests marked long run when TEST_MARKS is "system". What only the tests of AWS need (a stand-in for it) is installed beside the unit tests; without it they
# are skipped.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

read -ra more <<<"${TEST_ARGS:-}"
unit=0 system=0
marks=${TEST_MARKS:-system and not long}
make_state
scripts/moto.sh >"$STATE/moto.log" 2>&1 &
moto=$!
began=$SECONDS
say "unit tests: no root, no network"
# two processes (to debug: TEST_ARGS="-n0 --pdb"); tests of one file share what they build
"$VENV/bin/python" -m pytest -n 2 --dist loadfile -m "not system" "${more[@]}" || unit=$?
unit_s=$((SECONDS - began))

if wait "$moto"; then
    say "moto: $(tail -n 1 "$STATE/moto.log")"
else
    complain "==> moto: could not be installed, its tests are skipped; see $STATE/moto.log"
fi

say "system tests: root, Docker, block devices"
began=$SECONDS
if [ "$have_root" = yes ]; then
    as_root "$VENV/bin/python" -m pytest --durations=30 -m "$marks" "${more[@]}" || system=$?
else
    complain "they attach block devices and there is neither root nor sudo here; someone with root must run:"
    complain "    cd $(quoted "$ROOT") && $(quoted .venv/bin/python -m pytest -m "$marks" "${more[@]}")"
    system=$EXIT_SETUP
fi

say "unit tests: exit code $unit after $unit_s s; system tests: exit code $system after $((SECONDS - began)) s"
if [ "$unit" -ne 0 ]; then exit "$unit"; fi
exit "$system"
