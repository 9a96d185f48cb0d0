#!/usr/bin/env bash
# Runs both test suites in an environment that setup.sh has made: what needs nothing but time, and what needs root, Docker
# and block devices. Both run, unless there is no root; the exit code is that of the first that failed. Tests marked long,
# of both, run when TEST_MARKS is "system". What only the tests of AWS need (a stand-in for it) is installed meanwhile; without it
# they are skipped.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

read -ra more <<<"${TEST_ARGS:-}"
marks=${TEST_MARKS:-system and not long}
unit_marks="not system and not long"
[ "$marks" != system ] || unit_marks="not system"
python=$VENV/bin/python
make_state

# Two processes; tests of one file share what they build. To debug, call pytest itself.
unit_tests() { nice "$python" -m pytest -n 2 --dist loadfile -m "$unit_marks" "${more[@]}"; }

# What measures nothing may run beside what does, at a lower priority: it then takes what the other leaves.
beside() {
    local unit=0 system=0
    # first: the other lane comes to such a test within minutes
    scripts/moto.sh >"$STATE/moto.log" 2>&1 ||
        complain "==> moto: could not be installed, its tests are skipped; see $STATE/moto.log"
    unit_tests || unit=$?
    as_root nice "$python" -m pytest -n 2 --dist loadfile -m "($marks) and beside" "${more[@]}" || system=$?
    say "these took $SECONDS s; exit codes: unit tests $unit, system tests $system"
    return $((unit ? unit : system))
}

if [ "$have_root" = no ]; then
    say "unit tests: no root, no network"
    unit_tests || exit
    complain "they attach block devices and there is neither root nor sudo here; someone with root must run:"
    complain "    cd $(quoted "$ROOT") && $(quoted .venv/bin/python -m pytest -m "$marks" "${more[@]}")"
    exit "$EXIT_SETUP"
fi

measured=0 others=0
say "system tests: root, Docker, block devices; unit tests meanwhile, their output follows (and is in $STATE/tests.log)"
beside >"$STATE/tests.log" 2>&1 &
lane=$!
as_root "$python" -m pytest --durations=30 -m "($marks) and not beside" "${more[@]}" || measured=$?
wait "$lane" || others=$?
cat "$STATE/tests.log"
say "system tests that measure: exit code $measured; the other tests: exit code $others; $SECONDS s"
exit $((others ? others : measured))
