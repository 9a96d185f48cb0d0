# Sourced by the other scripts: where things are, who is root, how a step is told. Not run by itself.
# shellcheck shell=bash disable=SC2034

export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" # Debian leaves these out for users other than root
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
STATE=$ROOT/.cache/setup # logs, stamps and the pid of an engine that we started
VENV=$ROOT/.venv
EXIT_SETUP=3 # the machine cannot; the same code as esrally-ebs has
export ROOT STATE VENV EXIT_SETUP

# Variables of the user's that the commands understand; sudo would drop them.
KEPT_VARIABLES=ESRALLY_EBS_HOME,ESRALLY_EBS_RUN,ES_IMAGE

say() { printf '==> %s\n' "$*"; }
complain() { printf '%s\n' "$*" >&2; }

# AS_ROOT is the words to put before a command that needs root: none for root, sudo where it works.
AS_ROOT=()
have_root=yes # asked by the scripts that source this
if [ "$(id -u)" -ne 0 ]; then
    AS_ROOT=(sudo "--preserve-env=$KEPT_VARIABLES")
    if ! command -v sudo >/dev/null 2>&1 || ! { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
        have_root=no
        AS_ROOT=()
    fi
fi

as_root() { "${AS_ROOT[@]}" "$@"; }

# The docker client, as the user where the user may, else as root.
engine_answers() { timeout 20 docker info >/dev/null 2>&1; }
docker_client() {
    if [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
        as_root docker "$@"
    else
        docker "$@"
    fi
}

# step NAME COMMAND...: run it with its output in a log; say how it ended and how long it took.
step() {
    local name=$1 began=$SECONDS code=0
    shift
    "$@" >"$STATE/$name.log" 2>&1 || code=$?
    local took=$((SECONDS - began))
    printf '%s %s\n' "$took" "$name" >>"$STATE/times"
    if [ "$code" -ne 0 ]; then
        complain "==> $name: failed after $took s with exit code $code; the end of $STATE/$name.log:"
        tail -n 15 "$STATE/$name.log" | sed 's/^/    /' >&2
        return "$code"
    fi
    say "$name: $(tail -n 1 "$STATE/$name.log") ($took s)"
}
