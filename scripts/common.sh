# Sourced by the other scripts: where things are, who is root, how a step is told. Not run by itself.
# shellcheck shell=bash disable=SC2034

# Debian leaves these out for users other than root, and cron for all
export PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin"
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
STATE=$ROOT/.cache/setup # logs, stamps and the pid of an engine that we started
VENV=$ROOT/.venv
EXIT_SETUP=3 # the machine cannot; the same code as esrally-ebs has
export ROOT STATE VENV EXIT_SETUP

# Variables of the user's that the commands, apt, debootstrap, AWS and Rally understand; sudo would drop them.
KEPT_VARIABLES=$(compgen -e | grep -xiE 'ESRALLY_EBS_[A-Z_]+|ES_IMAGE|AWS_[A-Z0-9_]+|RALLY_(HOME|REPORTING_[A-Z_]+)|(https?|ftp|all|no)_proxy' |
    paste -sd, || true)

# Made by root in a user's checkout, it must not be closed to that user afterwards.
make_state() {
    mkdir -p "$STATE"
    [ "$(id -u)" -ne 0 ] || chown --reference="$ROOT" "$ROOT/.cache" "$STATE"
}

say() { printf '==> %s\n' "$*"; }
complain() { printf '%s\n' "$*" >&2; }

# Words as they can be pasted into a shell, whatever is in them.
quoted() {
    local text
    printf -v text '%q ' "$@"
    echo "${text% }"
}

# The same of the race, but for the value of --client-options, which may hold a password.
masked() {
    local word before='' shown=()
    for word in "$@"; do
        [ "$before" != --client-options ] || word='...'
        before=$word
        shown+=("${word/#--client-options=*/--client-options=...}")
    done
    quoted "${shown[@]}"
}

# AS_ROOT is the words to put before a command that needs root: none for root, sudo where it works.
AS_ROOT=()
have_root=yes # asked by the scripts that source this
if [ "$(id -u)" -ne 0 ]; then
    AS_ROOT=(sudo ${KEPT_VARIABLES:+"--preserve-env=$KEPT_VARIABLES"})
    if ! command -v sudo >/dev/null 2>&1 || ! { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
        have_root=no
        AS_ROOT=()
    fi
    # The race runs as root, so what counts is root's engine: a user's own, such as a rootless one, is not it.
    unset DOCKER_HOST
    export DOCKER_CONTEXT=default
fi

as_root() { "${AS_ROOT[@]}" "$@"; }

have() { command -v "$1" >/dev/null 2>&1; }
fits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; }

python_that_fits() {
    local candidate candidates=(python3 python3.13 python3.12 python3.11)
    if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        if have "$candidate" && fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# shellcheck disable=SC2016 # the inner shell's own $1
root_has() { as_root sh -c 'command -v "$1"' sh "$1" >/dev/null 2>&1; }
engine_answers() { as_root timeout 20 docker info >/dev/null 2>&1; }

# For root: a plugin in a user's ~/.docker is out of its reach.
have_compose() {
    if [ "$have_root" = yes ]; then
        as_root docker compose version >/dev/null 2>&1
    else
        DOCKER_CONFIG=/nonexistent docker compose version >/dev/null 2>&1
    fi
}

# The docker client, as the user (who may be logged in to a registry) where the user may, else as root.
docker_client() {
    if [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
        as_root docker "$@"
    else
        docker "$@"
    fi
}

# step NAME COMMAND...: run it with its output in a log; say how it ended and how long it took. Not to be called behind
# if, && or ||: bash would then go on after a command of the step that failed.
step() {
    local name=$1 began=$SECONDS code
    shift
    set +e
    (
        set -e
        "$@"
    ) >"$STATE/$name.log" 2>&1
    code=$?
    set -e
    local took=$((SECONDS - began))
    printf '%s %s\n' "$took" "$name" >>"$STATE/times"
    if [ "$code" -ne 0 ]; then
        complain "==> $name: failed after $took s with exit code $code; the end of $STATE/$name.log:"
        tail -n 15 "$STATE/$name.log" | sed 's/^/    /' >&2
        return "$EXIT_SETUP"
    fi
    say "$name: $(tail -n 1 "$STATE/$name.log") ($took s)"
}
