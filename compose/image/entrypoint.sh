#!/bin/bash
# Starts Elasticsearch in the local image the way the official image does: a lower-case dotted environment variable
# (discovery.type=single-node) is a setting, and so is ES_SETTING_DISCOVERY_TYPE; ES_JAVA_OPTS goes to the JVM.
# Settings of modules that this distribution does not have are left out, so that one compose file serves both images.
set -euo pipefail

home=/usr/share/elasticsearch
settings=()

# "_" is "." and "__" is "_" in the upper-case form, as in the official image
dotted() {
    local name=${1#ES_SETTING_}
    name=${name//__/$'\x01'}
    name=${name//_/.}
    name=${name//$'\x01'/_}
    echo "${name,,}"
}

# xpack.security.* needs modules/x-pack-security, ingest.geoip.* needs modules/ingest-geoip
has_no_module() {
    local module
    case $1 in
        xpack.*) module=${1#xpack.} module=x-pack-${module%%.*} ;;
        ingest.geoip.*) module=ingest-geoip ;;
        *) return 1 ;;
    esac
    [[ ! -d $home/modules/${module//_/-} ]]
}

while IFS='=' read -r -d '' name value; do
    [[ $name =~ ^ES_SETTING(_{1,2}[A-Z0-9]+)+$ ]] && name=$(dotted "$name")
    [[ $name =~ ^[a-z0-9_]+\.[a-z0-9_]+ || $name == processors ]] || continue
    [[ -n $value ]] || continue
    if has_no_module "$name"; then
        echo "$name: left out, this distribution does not have it" >&2
        continue
    fi
    settings+=("-E$name=$value")
done < <(env -0)

# anything but an option is a command of its own, e.g. "bash" or "bin/elasticsearch-shard"
if [[ $# -gt 0 && $1 != -* && $1 != eswrapper ]]; then
    exec "$@"
fi
[[ ${1:-} == eswrapper ]] && shift
exec "$home/bin/elasticsearch" "${settings[@]}" "$@"
