#!/usr/bin/env bash
# What stands over every change: style, types, layers, security and requirements that agree. Ends at the first failure.
# The tools are those of setup.cfg's extra "lint", from the PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ruff check esrally_ebs tests benchmarks scripts
ruff format --check esrally_ebs tests benchmarks scripts
mypy
lint-imports
bandit --quiet --ini setup.cfg --recursive esrally_ebs benchmarks scripts tracks
python -m pip check
