#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, then configures and builds a preset.
#   scripts/build.sh [release|fast|dev|asan|tsan] [ninja arguments, e.g. targets]
# fast is release compiled in batches and with -Og but for the trainer's own loops: quicker from
# nothing, slower after a change to one file.
# Programs land in build/PRESET/bin.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
[ $# -eq 0 ] || shift
scripts/install_packages.sh
if [ ! -f "build/$preset/build.ninja" ]; then
  mkdir -p "build/$preset"
  cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 || {
    cat "build/$preset/configure.log" >&2
    exit 1
  }
fi
cmake --build "build/$preset" -- "$@"
