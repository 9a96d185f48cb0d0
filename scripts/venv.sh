#!/usr/bin/env bash
# Makes .venv with the pack in it, of a Python between 3.11 and 3.13: PYTHON, or the first that fits. Does nothing when
# it is up to date.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

# What shapes the environment: the place (scripts in it hold absolute paths), Python, requirements.
stamp_of() { { echo "$VENV" && "$1" -VV && cat requirements.txt setup.cfg setup.py pyproject.toml esrally_ebs.pth; } | sha256sum | cut -d' ' -f1; }

# Of the same Python, and made here: the scripts in a copy of another checkout's .venv start that checkout.
works() {
    [ "$("$VENV/bin/python" -VV 2>/dev/null)" = "$("$1" -VV)" ] &&
        head -n 2 "$VENV/bin/pip" 2>/dev/null | grep -qF "$VENV/bin/"
}

if ! python=$(python_that_fits); then
    echo "${PYTHON:-python3} is no Python 3.11 to 3.13 with the module venv; install one (apt, or 'uv python install 3.12')" \
        "and name it: make race PYTHON=/path/to/python3.12"
    exit "$EXIT_SETUP"
fi
stamp=$(stamp_of "$python")
if [ "$(cat "$VENV/stamp" 2>/dev/null)" = "$stamp" ] && works "$python" && [ -x "$VENV/bin/esrally-ebs" ]; then
    echo "up to date"
    exit 0
fi
if [ -L "$VENV" ]; then # what it leads to is another's, and would be emptied
    echo "$VENV is a link to $(readlink "$VENV"); remove the link, and an environment is made in its place"
    exit "$EXIT_SETUP"
fi
rm -f "$VENV/stamp" # what fails half-way is done again
works "$python" || "$python" -m venv --clear "$VENV"
pip=("$VENV/bin/python" -m pip install --quiet --disable-pip-version-check)
# The file names all that is needed. Resolving would take the newest of what a package asks for with an extra
# (coverage[toml]), and refuse that as it has no hash, from the day on which there is one newer than the file's.
"${pip[@]}" --no-deps --require-hashes -r requirements.txt
"${pip[@]}" --no-deps --no-build-isolation -e .
"$VENV/bin/python" -m compileall -q esrally_ebs # else root does by sudo, in folders that only root can remove
echo "$stamp" >"$VENV/stamp"
echo "$("$VENV/bin/python" -V) with $("$VENV/bin/python" -m pip list --format=freeze 2>/dev/null | wc -l) packages in .venv"
