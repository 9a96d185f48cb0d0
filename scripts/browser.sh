#!/usr/bin/env bash
# Chromium for the tests that open a report in a browser: Debian's package, where there is no browser yet.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for name in chromium google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        echo "$name is there"
        exit 0
    fi
done
# Ubuntu's package only fetches a snap, which does not run as root without systemd
if ! grep -qx 'ID=debian' /etc/os-release; then
    echo "no browser: install Chromium or Google Chrome to run the tests of the HTML report"
    exit 0
fi
if [ "$have_root" = no ]; then
    echo "no browser, and neither root nor sudo here; run: apt-get install chromium"
    exit 0
fi
as_root apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends chromium
echo "chromium installed"
