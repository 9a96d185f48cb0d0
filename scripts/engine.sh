#!/usr/bin/env bash
# engine.sh start: make a Docker engine answer, by systemd, by its init script, or by dockerd itself.
# engine.sh stop:  end the engine that start has started, and no other.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
make_state
OURS=$STATE/engine.pid # "<pid> <start time in ticks>": a pid alone may be another process by now
WAIT_S=40

start_ticks() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

wait_for_engine() {
    local until=$((SECONDS + WAIT_S))
    while [ "$SECONDS" -lt "$until" ]; do
        engine_answers && return 0
        sleep 0.5
    done
    return 1
}

remember() {
    local pid
    pid=$(as_root cat /var/run/docker.pid)
    echo "$pid $(start_ticks "$pid")" >"$OURS"
}

start() {
    local log=$STATE/dockerd.log
    if engine_answers; then
        echo "the Docker engine answers already"
        return
    fi
    if [ -d /run/systemd/system ]; then
        log="'journalctl -u docker'"
        as_root systemctl start docker && wait_for_engine && echo "started by systemd" && return
    elif [ -x /etc/init.d/docker ] && as_root service docker start && wait_for_engine; then
        remember
        echo "started by its init script"
        return
    else
        # No init at all, as in most containers: a session of its own keeps Ctrl-C from it.
        as_root setsid nohup dockerd >>"$STATE/dockerd.log" 2>&1 </dev/null &
        wait_for_engine && remember && echo "dockerd started; its log is $STATE/dockerd.log" && return
    fi
    complain "the Docker engine does not answer root within $WAIT_S s; see $log or /var/log/docker.log, start it and" \
        "run this again"
    return "$EXIT_SETUP"
}

stop() {
    local pid ticks
    [ -f "$OURS" ] || { echo "no engine of ours runs" && return; }
    read -r pid ticks <"$OURS"
    rm -f "$OURS"
    [ "$(start_ticks "$pid")" = "$ticks" ] || { echo "our engine has ended already" && return; }
    as_root kill "$pid"
    for _ in $(seq 40); do
        [ -d "/proc/$pid" ] || break
        sleep 0.5
    done
    echo "our engine (pid $pid) is stopped"
}

case "${1:-}" in
start | stop) "$1" ;;
*)
    complain "usage: scripts/engine.sh start|stop"
    exit 2
    ;;
esac
