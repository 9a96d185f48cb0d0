#!/usr/bin/env bash
# Runs the main job in an environment that setup.sh has made, prints its report and where the time went.
# RACE_ARGS holds further flags for Rally. The exit code is Rally's.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"
LOG=$ROOT/.cache/race.log

read -ra more <<<"${RACE_ARGS:-}"
race=("$VENV/bin/esrally" race --track-path=tracks/noaa-ebs "${more[@]}")

if [ "$have_root" = no ]; then
    complain "the race attaches block devices, for which it needs root; someone with root must run:"
    complain "    cd $(quoted "$ROOT") && $(masked "${race[@]}")"
    exit "$EXIT_SETUP"
fi

say "$(masked "${race[@]}")"
mkdir -p "$(dirname "$LOG")"
rm -f "$LOG" && (umask 077 && : >"$LOG") # Rally may print what it was given
say "output also goes to $LOG"
began=$SECONDS code=0
if [ -t 1 ] && command -v script >/dev/null; then
    # A terminal of its own: Rally shows progress only on one.
    script --quiet --return --flush --command "${AS_ROOT[*]} ${race[*]@Q}" "$LOG" || code=$?
else
    as_root "${race[@]}" 2>&1 | tee --ignore-interrupts "$LOG" || code=${PIPESTATUS[0]}
fi
race_s=$((SECONDS - began))

if [ "$code" -eq 0 ]; then
    say "report"
    "$VENV/bin/esrally-ebs" report latest || code=$? # by sudo, too, the session is the user's own
else
    complain "==> the race ended with exit code $code; see $LOG, and 'esrally-ebs sessions' for what was kept"
fi

say "where the time went"
sed -n 's/^\([0-9]*\) \(.*\)$/    set-up, \2: \1 s/p' "$STATE/times" 2>/dev/null || true
if [ "$code" -eq 0 ]; then "$VENV/bin/python" scripts/stages.py || true; fi
printf '    race, all: %s s\n    report: %s s\n' "$race_s" "$((SECONDS - began - race_s))"
exit "$code"
