#!/bin/bash
# Builds the local image esrally-ebs/elasticsearch:<version> for machines where no image registry answers:
# Debian's or Ubuntu's base system (debootstrap), Java 17 and Elasticsearch's Maven distribution.
#
#   compose/image/build.sh [--force]        ES_VERSION=8.8.2 is the newest that needs no further modules
#
# Needs root, debootstrap, maven, unzip and a running Docker engine; says so in one line when one is missing.
# Downloads are kept under ${XDG_CACHE_HOME:-~/.cache}/esrally_ebs/image. Run again, it does nothing when the image is there.
set -euo pipefail

version=${ES_VERSION:-8.8.2}
image=esrally-ebs/elasticsearch:$version
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/esrally_ebs/image
zip=$cache/elasticsearch-$version.zip
started=$SECONDS

say() { printf '[%3d s] %s\n' $((SECONDS - started)) "$*"; }
die() { printf 'image: %s\n' "$*" >&2; exit 3; }

need() {
    command -v "$1" > /dev/null || die "$1 is missing; run: sudo apt-get install -y $2"
}

# a tool's output is noise until it fails; then its first complaint, else its last line, is the reason
quietly() {
    local log=$1 reason
    shift
    "$@" > "$log" 2>&1 && return
    reason=$(grep -m 1 -E '^(\[ERROR\]|E:|W:)' "$log" || tail -n 1 "$log")
    die "$1 failed: ${reason:0:300} (whole log: $log)"
}

check_machine() {
    need docker docker.io
    need debootstrap debootstrap
    need mvn maven
    need unzip unzip
    docker version > /dev/null 2>&1 || die "the Docker engine does not answer; start it with: sudo systemctl start docker (or: sudo dockerd &)"
    [[ $EUID -eq 0 ]] || die "a base system can only be made by root; run: sudo ${BASH_SOURCE[0]}"
}

# what is in the image is decided by the files of this folder and the version
recipe() { cat "$here"/{build.sh,entrypoint.sh,elasticsearch.yml,log4j2.properties} <(echo "$version") | sha256sum | cut -c1-16; }

built_recipe() { docker image inspect --format '{{index .Config.Labels "esrally-ebs.recipe"}}' "$image" 2> /dev/null || true; }

# "suite components": Java 17 is in Debian 12 and in every Ubuntu since 20.04
base_system() {
    local ID='' ID_LIKE='' UBUNTU_CODENAME='' VERSION_CODENAME=''
    # shellcheck source=/dev/null
    . /etc/os-release
    case " $ID $ID_LIKE " in
        *" ubuntu "*) echo "${UBUNTU_CODENAME:-$VERSION_CODENAME} main,universe" ;;
        *" debian "*) echo "bookworm main" ;;
        *) die "debootstrap needs a Debian or Ubuntu host, this is $ID; use the official image instead: ES_IMAGE=<image>" ;;
    esac
}

# this machine's own mirror, so that whatever works for apt works here; none = debootstrap's default
mirror_for() {
    # shellcheck disable=SC2016 # apt-get's own variables
    apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 2> /dev/null \
        | awk -v suite="$1" '$1 == suite && $2 ~ /^https?:/ { print $2; exit }'
}

make_rootfs() {
    local root=$1 suite components mirror
    read -r suite components <<< "$(base_system)"
    [[ -n $suite ]] || exit 3
    mirror=$(mirror_for "$suite")
    say "base system: $suite with Java 17 (about 90 MB to fetch the first time)"
    mkdir -p "$cache/debs"
    quietly "$cache/debootstrap.log" debootstrap --variant=minbase --components="$components" --cache-dir="$cache/debs" \
        --include=openjdk-17-jre-headless "$suite" "$root" ${mirror:+"$mirror"}
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb \
        "$root"/usr/share/{doc,man,locale,info} "$root"/var/log/*
}

# Maven alone does not read the variable by which the other tools find a proxy
maven_proxy() {
    local url=${https_proxy:-${HTTPS_PROXY:-${http_proxy:-${HTTP_PROXY:-}}}}
    [[ $url =~ ^(https?://)?([^@/]*@)?([^:/]+)(:([0-9]+))? ]] || return 0
    echo "-Dhttps.proxyHost=${BASH_REMATCH[3]} -Dhttps.proxyPort=${BASH_REMATCH[5]:-3128}"
}

fetch_distribution() {
    if ! unzip -qt "$zip" > /dev/null 2>&1; then
        say "Elasticsearch $version from Maven (79 MB)"
        local proxy
        read -ra proxy <<< "$(maven_proxy)"
        quietly "$cache/maven.log" mvn -B "${proxy[@]}" "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy" \
            -DoutputDirectory="$cache" -Dmdep.overWriteReleases=true \
            -Dartifact="org.elasticsearch.distribution.integ-test-zip:elasticsearch:$version:zip"
    else
        say "Elasticsearch $version is in the cache"
    fi
}

# what a registry of packages gives may be another file one day; a version that is not listed is as good as its registry
check_distribution() {
    local sum
    sum=$(sed -n "s/  ${zip##*/}\$//p" "$here/checksums")
    if [[ -z $sum ]]; then
        say "no checksum of ${zip##*/} in $here/checksums: taken as it came"
    elif [[ $(sha512sum "$zip" | cut -d' ' -f1) != "$sum" ]]; then
        die "$zip is not the file whose SHA-512 is in $here/checksums; remove it, and see where Maven took it from"
    fi
}

install_elasticsearch() {
    local root=$1 home=$1/usr/share/elasticsearch
    say "Elasticsearch into the base system"
    unzip -q "$zip" -d "$root/usr/share" -x '*.bat' '*.exe'
    mv "$root/usr/share/elasticsearch-$version" "$home"
    # the Maven zip lost the run bits
    chmod 755 "$home"/bin/*
    mkdir -p "$home"/{config/jvm.options.d,data,logs,plugins}
    cp "$here"/{elasticsearch.yml,log4j2.properties} "$home/config/"
    install -m 755 "$here/entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
    # the garbage collector's log is 2 GB of files in the container by default; nothing here reads it
    sed -i '/^-Xlog:gc/d; /:file=logs\/gc.log/d' "$home/config/jvm.options"
    echo 'elasticsearch:x:1000:0:elasticsearch:/usr/share/elasticsearch:/bin/bash' >> "$root/etc/passwd"
    chown -R 1000:0 "$home"/{config,data,logs,plugins}
    ln -sfn "$(cd "$root/usr/lib/jvm" && ls -d java-17-openjdk-*)" "$root/usr/lib/jvm/java-17"
}

import_image() {
    say "import as $image"
    tar -C "$1" --numeric-owner --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' -c . | docker import \
        --change 'USER 1000:0' \
        --change 'WORKDIR /usr/share/elasticsearch' \
        --change 'ENV PATH=/usr/share/elasticsearch/bin:/usr/local/bin:/usr/bin:/bin ES_JAVA_HOME=/usr/lib/jvm/java-17 LANG=C.UTF-8' \
        --change 'EXPOSE 9200 9300' \
        --change 'ENTRYPOINT ["/usr/local/bin/docker-entrypoint.sh"]' \
        --change 'CMD ["eswrapper"]' \
        --change "LABEL esrally-ebs.recipe=$(recipe) org.opencontainers.image.version=$version" \
        - "$image" > /dev/null
}

# debootstrap may leave /proc mounted in there when it is interrupted
remove_work() {
    umount -q "$1"/root/proc "$1"/root/sys 2> /dev/null || true
    rm -rf --one-file-system "$1"
}

# Of builds that were killed. What cannot be removed is in nobody's way.
remove_old_work() {
    local old
    for old in "$cache"/build.*; do
        [[ -z $(find "$old" -maxdepth 0 -mmin +120 2> /dev/null) ]] || remove_work "$old" || true
    done
}

main() {
    check_machine
    if [[ ${1:-} != --force && $(built_recipe) == "$(recipe)" ]]; then
        say "$image is already built (rebuild with: ${BASH_SOURCE[0]} --force)"
        return
    fi
    mkdir -p "$cache"
    remove_old_work
    # here and not in /tmp, which lets nothing be started on some machines, holds no devices on others (Debian 13) or is small
    work=$(mktemp -d "$cache/build.XXXXXX")
    trap 'remove_work "$work"' EXIT
    fetch_distribution
    make_rootfs "$work/root"
    check_distribution
    install_elasticsearch "$work/root"
    import_image "$work/root"
    say "done: $image, $(docker image inspect --format '{{.Size}}' "$image" | awk '{ printf "%.0f MB", $1 / 1e6 }')"
}

main "$@"
