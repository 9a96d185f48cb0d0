#!/usr/bin/env bash
# Brings a Debian or Ubuntu machine to where the race and the tests can run. Safe to run again: what is there
# already is used, and a second run takes seconds.
#
#   PYTHON       the Python (3.11 to 3.13) to make .venv with; default: the first that fits
#   ES_IMAGE     the Elasticsearch image to use; default: the official one, else one built here
#   FOR_TESTS    any text: also Chromium and btrfs-progs, which some tests skip without; default: not
#   PULL_WAIT_S  how long a registry may take to answer before the image is built here; default 20
#
# Exit code 3: the machine cannot. Where root is needed and neither root nor sudo is there, the commands are printed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

OFFICIAL_IMAGE=docker.elastic.co/elasticsearch/elasticsearch:8.8.2
LOCAL_IMAGE=esrally-ebs/elasticsearch:8.8.2
MEMORY_MAPS=262144 # of one process, as Elasticsearch asks for
PULL_WAIT_S=${PULL_WAIT_S:-20}
APT=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)

# --- what is missing -------------------------------------------------------------------------------------

# The version that apt would install, or nothing.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: *//p' | grep -v '(none)' || true; }
at_least() { [ -n "$1" ] && dpkg --compare-versions "$1" ge "$2"; }

# What apt has of it; nothing where it has none that fits, or PYTHON says which to take.
python_packages() {
    local version name
    if [ -n "${PYTHON:-}" ]; then return; fi
    version=$(candidate python3)
    if at_least "$version" 3.11 && ! at_least "$version" 3.14; then
        echo python3 python3-venv
        return
    fi
    for name in python3.13 python3.12 python3.11; do
        [ -n "$(candidate "$name-venv")" ] && echo "$name $name-venv" && return
    done
    # no lists yet, or a Python too old or too new
    [ -n "$version" ] || echo python3 python3-venv
}

# Docker's own packages, Ubuntu's, Debian 13's; Debian 12's docker-compose is still version 1.
compose_packages() {
    local name
    for name in docker-compose-plugin docker-compose-v2 docker-compose; do
        at_least "$(candidate "$name" | sed 's/^[0-9]*://')" 2 && echo "$name" && return
    done
    return 0
}

# Tests skip without it, so nobody is asked for root because of it.
wants_browser() {
    [ -n "${FOR_TESTS:-}" ] && [ "$have_root" = yes ] && ! have chromium && ! have google-chrome &&
        [ -n "$(candidate chromium)" ]
}

# As above; for the tests of volumes that btrfs stripes.
wants_btrfs() {
    [ -n "${FOR_TESTS:-}" ] && [ "$have_root" = yes ] && ! have mkfs.btrfs
}

# Where the kernel has AppArmor switched on, as Debian's has, the engine starts no container without its parser.
wants_apparmor() { [ -d /sys/kernel/security/apparmor ] && ! root_has apparmor_parser; }

missing_packages() {
    local names=()
    root_has fio || names+=(fio)
    root_has mkfs.xfs || names+=(xfsprogs)
    root_has losetup || names+=(mount)
    root_has setsid || names+=(util-linux)
    root_has sysctl || names+=(procps)
    [ -d /etc/ssl/certs ] || names+=(ca-certificates)
    python_that_fits >/dev/null || read -ra names <<<"${names[*]} $(python_packages)"
    root_has docker || { [ -z "$(candidate docker-cli)" ] || names+=(docker-cli); }
    root_has docker || root_has dockerd || names+=(docker.io)
    root_has dockerd || engine_answers || [[ " ${names[*]} " == *" docker.io "* ]] || names+=(docker.io)
    if wants_apparmor; then names+=(apparmor); fi
    have_compose || read -ra names <<<"${names[*]} $(compose_packages)"
    if wants_browser; then names+=(chromium); fi
    if wants_btrfs; then names+=(btrfs-progs); fi
    echo "${names[*]}"
}

missing_image_packages() {
    local names=()
    have debootstrap || names+=(debootstrap)
    have mvn || names+=(maven)
    have unzip || names+=(unzip)
    echo "${names[*]}"
}

# --- the steps -------------------------------------------------------------------------------------------

install_packages() {
    local names
    # one broken repository among many need not matter: what is asked for may be in the others
    as_root "${APT[@]}" update || echo "not all package lists could be read; going on with those that are here"
    read -ra names <<<"$($1)" # asked again: only now the lists are there
    if [ "${#names[@]}" -gt 0 ]; then
        as_root "${APT[@]}" install --no-install-recommends "${names[@]}"
        echo "installed ${names[*]}"
    fi
}

have_image() { docker_client image inspect "$1" >/dev/null 2>&1; }

# The official image may refuse to start below this. Lasts until the next boot.
raise_memory_maps() {
    enough_memory_maps || as_root sysctl -w "vm.max_map_count=$MEMORY_MAPS" ||
        echo "vm.max_map_count stays below $MEMORY_MAPS, with which Elasticsearch may refuse to start"
}
enough_memory_maps() { [ "$(cat /proc/sys/vm/max_map_count)" -ge "$MEMORY_MAPS" ]; }

# Unless it was asked for by name, a registry is asked for the manifest first, which is quick; only then is the long
# download worth starting. The engine may know registries that the client does not (insecure ones, a proxy).
pull() {
    [ -n "${ES_IMAGE:-}" ] || timeout "$PULL_WAIT_S" docker manifest inspect "$1" >/dev/null || return
    docker_client pull --quiet "$1"
}

install_image() {
    local name=${ES_IMAGE:-$OFFICIAL_IMAGE}
    if [ "$name" != "$LOCAL_IMAGE" ] && have_image "$name"; then
        raise_memory_maps
        echo "$name is there"
        return
    fi
    if [ "$name" != "$LOCAL_IMAGE" ] && { [ -n "${ES_IMAGE:-}" ] || ! have_image "$LOCAL_IMAGE"; }; then
        if pull "$name"; then
            raise_memory_maps
            echo "$name pulled"
            return
        fi
        if [ -n "${ES_IMAGE:-}" ]; then
            echo "ES_IMAGE=$ES_IMAGE cannot be pulled; name an image that can, or unset ES_IMAGE to build one here"
            return "$EXIT_SETUP"
        fi
    fi
    if [ -n "$(missing_image_packages)" ]; then install_packages missing_image_packages; fi
    as_root compose/image/build.sh # does nothing when the image was built from these very files
}

# --- without root ----------------------------------------------------------------------------------------

# What only root can do and is not done yet, as commands to copy, in their order.
root_commands() {
    local names image=there place; place=$(quoted "$ROOT")
    have_any_image || image=missing
    read -ra names <<<"$(missing_packages) $([ "$image" = there ] || missing_image_packages)"
    if [ "${#names[@]}" -gt 0 ]; then
        echo "apt-get update && apt-get install -y --no-install-recommends ${names[*]}"
    fi
    if ! engine_answers; then
        pgrep -x dockerd >/dev/null 2>&1 || echo "cd $place && scripts/engine.sh start"
        echo "usermod -aG docker $(id -un)   # then log in again: this user may not talk to the engine yet"
    fi
    have_compose || [ -n "$(compose_packages)" ] || echo "cd $place && scripts/compose.sh   # apt has no Compose v2"
    if [ "$image" = missing ]; then
        echo "cd $place && compose/image/build.sh   # no registry answers here"
    elif ! enough_memory_maps && ! have_image "$LOCAL_IMAGE"; then
        echo "sysctl -w vm.max_map_count=$MEMORY_MAPS"
    fi
}

have_any_image() {
    local name
    for name in ${ES_IMAGE:-$OFFICIAL_IMAGE $LOCAL_IMAGE}; do
        if have_image "$name"; then return 0; fi
    done
    timeout "$PULL_WAIT_S" docker manifest inspect "${ES_IMAGE:-$OFFICIAL_IMAGE}" >/dev/null 2>&1
}

# Podman answers to the name docker, and has neither its engine nor its cgroups.
refuse_podman() {
    if have docker && docker --version 2>/dev/null | grep -qi podman; then
        complain "docker is Podman's here, and the nodes need Docker's own engine; someone with root must run:"
        complain "    apt-get remove -y podman-docker   # Podman itself may stay; then run this again"
        exit "$EXIT_SETUP"
    fi
}

# What 'sudo make' has left belongs to root, and could be neither changed nor logged to.
refuse_others_files() {
    local other
    other=$(find "$ROOT" "$ROOT/esrally_ebs.egg-info" -maxdepth 0 ! -writable -print -quit 2>/dev/null || true)
    [ -n "$other" ] || other=$(find "$ROOT/.cache" "$STATE" "$VENV" -maxdepth 1 ! -writable -print -quit 2>/dev/null || true)
    [ -n "$other" ] || return 0
    complain "$other belongs to $(stat -c %U "$other"), as after 'sudo make'; someone with root must run:"
    complain "    cd $(quoted "$ROOT") && chown -R $(id -un) ."
    exit "$EXIT_SETUP"
}

refuse_without_root() {
    local commands
    commands=$(root_commands)
    [ -n "$commands" ] || return 0
    complain "set-up needs root and there is neither root nor sudo here; someone with root must run:"
    printf '%s\n' "$commands" | sed 's/^/    /' >&2
    exit "$EXIT_SETUP"
}

# --- the flow --------------------------------------------------------------------------------------------

began=$SECONDS
refuse_podman
if [ "$have_root" = no ]; then refuse_without_root; fi
refuse_others_files
make_state
: >"$STATE/times"
say "set-up of $ROOT; logs are in $STATE"
if [ -n "$(missing_packages)" ]; then
    say "packages: $(missing_packages)"
    step packages install_packages missing_packages
fi
step engine scripts/engine.sh start

# These three do not need one another, and each waits for something else: the network, a core, a disk.
pids=()
step compose scripts/compose.sh & pids+=($!)
step venv scripts/venv.sh & pids+=($!)
step image install_image & pids+=($!)
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$EXIT_SETUP; done
echo "$((SECONDS - began)) total" >>"$STATE/times"
if [ "$code" -ne 0 ]; then exit "$code"; fi
say "set-up is complete after $((SECONDS - began)) s"
