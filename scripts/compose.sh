#!/usr/bin/env bash
# Makes `docker compose` (version 2) answer where no package has it: builds it with Go 1.21 or newer, which is taken
# from this machine or, on Debian 12, from its backports. Does nothing when Compose is there.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

VERSION=v2.29.7
BACKPORTED_GO=1.23

own_go() {
    local candidate
    for candidate in go /usr/local/go/bin/go; do
        if "$candidate" version 2>/dev/null | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# Unpacked aside and thrown away afterwards: neither the package nor its source becomes part of the system.
backported_go() {
    local mirror apt
    # shellcheck disable=SC2016 # apt-get's own variables
    mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "bookworm" { print $2; exit }')
    [ -n "$mirror" ] || return 1
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    echo "deb $mirror bookworm-backports main" >"$work/sources.list"
    apt=(apt-get -q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache")
    "${apt[@]}" update >&2
    (cd "$work" && "${apt[@]}" download "golang-$BACKPORTED_GO-go" "golang-$BACKPORTED_GO-src") >&2
    for package in "$work"/*.deb; do dpkg -x "$package" "$work"; done
    echo "$work/usr/lib/go-$BACKPORTED_GO/bin/go"
}

if have_compose; then
    echo "version $(as_root docker compose version --short) is there"
    exit 0
fi
if [ "$have_root" = no ]; then
    complain "no Compose v2 for root; someone with root must run: cd $(quoted "$ROOT") && scripts/compose.sh"
    exit "$EXIT_SETUP"
fi
make_state
work=$(mktemp -d "$STATE/compose.XXXXXX") # not in /tmp, from which nothing may be started on some machines
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
if ! go=$(own_go || backported_go); then
    complain "no Compose v2: install docker-compose-plugin (https://docs.docker.com/compose/install/linux/)," \
        "or Go 1.21 or newer, and run this again"
    exit "$EXIT_SETUP"
fi
folder=/usr/local/lib/docker/cli-plugins
case $go in
"$work"/*) export GOPATH=$work/path GOCACHE=$work/built ;; # thrown away with the Go that filled them
esac
GOBIN=$work CGO_ENABLED=0 "$go" install \
    -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$VERSION" \
    "github.com/docker/compose/v2/cmd@$VERSION"
as_root install -D -m 755 "$work/cmd" "$folder/docker-compose"
have_compose
echo "$VERSION built into $folder"
