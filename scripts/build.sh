#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, then configures and builds.
#   scripts/build.sh                        the programs, optimised: what people run and CI tests
#   scripts/build.sh tests                  every test as well
#   scripts/build.sh [PRESET] [TARGET...]   other presets: dev, and asan and tsan, of which the
#                                           default target is tests
# Programs land in build/PRESET/bin. Sources are compiled in batches, but for the preset dev, which
# compiles each alone: slower from nothing, quicker after a change to one file.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
if [ $# -gt 0 ] && grep -q "^ *\"name\": \"$1\"" CMakePresets.json; then
  preset=$1
  shift
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  case $preset in
    release | dev) targets=(programs manual completion) ;;
    *) targets=(tests) ;;  # nothing of a sanitizer's preset is shipped
  esac
fi

scripts/install_packages.sh --for programs
case " ${targets[*]} " in
  *" tests "* | *" landing_tests "* | *" all "*) scripts/install_packages.sh --for tests ;;
esac
if [ ! -f "build/$preset/build.ninja" ]; then
  mkdir -p "build/$preset"
  cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 || {
    cat "build/$preset/configure.log" >&2
    exit 1
  }
fi
cmake --build "build/$preset" -- "${targets[@]}"
