#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test that needs no GPU, complete on a fresh Debian machine.
#   scripts/test.sh            everything: address+undefined, thread sanitizer, then release
#   scripts/test.sh --quick    the release preset only, without the long simulation
# Prints the time of each part and ends with ctest's summary of the release preset.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=false
[ "${1:-}" = --quick ] && quick=true
report=""

part() {  # part NAME COMMAND...: runs it and remembers how long it took
  local name=$1 from=$SECONDS
  shift
  echo "=== $name"
  "$@" || { echo "=== $name FAILED after $((SECONDS - from)) s"; exit 1; }
  report+=$(printf '%-20s %5d s' "$name" $((SECONDS - from)))$'\n'
}

run_ctest() {  # run_ctest PRESET ARGUMENTS...
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)" "$@"
}

part "packages" scripts/install_packages.sh
part "build release" scripts/build.sh release
if ! $quick; then
  # The suppressions name only process-wide singletons of third-party libraries.
  export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"
  part "build asan" scripts/build.sh asan
  part "test asan+ubsan" run_ctest asan -LE 'heavy|sim|bench|slurm'
  part "build tsan" scripts/build.sh tsan
  part "test tsan" run_ctest tsan -L tsan
fi
printf '=== time of each part\n%s=== test release\n' "$report"
if $quick; then
  run_ctest release -LE 'sim|bench'
else
  run_ctest release -LE bench
fi
