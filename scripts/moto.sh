#!/usr/bin/env bash
# Makes .cache/moto-venv with moto's server, the stand-in for AWS that the system tests speak to over HTTP. It has an
# environment of its own because Rally pins packages that moto needs newer. Does nothing when it is there.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

MOTO=5.2.5
BOTO=1.44.5 # moto's answers follow botocore's models: pinned, so that both change together
folder=$ROOT/.cache/moto-venv

if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$folder $MOTO $BOTO" ] && [ -x "$folder/bin/moto_server" ]; then
    echo "moto $MOTO is there"
    exit 0
fi
rm -rf "$folder"
"$VENV/bin/python" -m venv "$folder"
# moto[server] would bring every service's packages, 200 MB of them
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    "moto[ec2,efs]==$MOTO" "boto3==$BOTO" "flask>=3,<4" "flask-cors>=6,<7"
echo "$folder $MOTO $BOTO" >"$folder/stamp"
echo "moto $MOTO installed into .cache/moto-venv"
