#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every check that needs no GPU, complete on a fresh Debian machine.
#   scripts/test.sh            everything: format, all tests, clang-tidy, the sanitizers' tests
#   scripts/test.sh --quick    all tests but the long simulation, no sanitizers
# Tests of whole jobs and those of --quick run as users' programs do: optimised (preset fast, as
# scripts/quickstart.sh has it). Without --quick the tests of parts and of faults (label asan) run
# under the sanitizers only. Prints the time of each part, the ten slowest tests and how each failed
# one ended, and ends with ctest's summaries.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=false
[ "${1:-}" = --quick ] && quick=true
report=""

part() {  # part NAME COMMAND...: runs it and remembers how long it took
  local name=$1 from=$SECONDS
  shift
  echo "=== $name"
  local status=0 word=""
  "$@" || status=$?
  [ "$status" -eq 0 ] || word=" FAILED"
  report+=$(printf '%-20s %5d s%s' "$name" $((SECONDS - from)) "$word")$'\n'
  [ "$status" -eq 0 ] || echo "=== $name$word"
  return "$status"
}

check_format() { git ls-files '*.cc' '*.h' '*.c' | xargs clang-format --dry-run --Werror; }

# run_ctest PRESET JOBS ARGUMENTS...: what it prints is also in build/PRESET/ctest.log
run_ctest() {
  local preset=$1 jobs=$2
  shift 2
  ctest --test-dir "build/$preset" --output-on-failure -j "$jobs" "$@" |
    tee "build/$preset/ctest.log"
}

slowest() {  # the ten tests that took longest
  sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec.*/\2 s  \1/p' \
    build/*/ctest.log | sort -rn | sed 10q
}

# What each failed test did not find as it should be, and how it ended: in a long log both are far
# up.
ends_of_failed() {
  awk '
    function show(  i, until) {
      if (failed) print "=== end of " failed
      for (i = 1; failed && i <= n; ++i) {
        if (lines[i] ~ /: Failure$/) until = i + 6
        if (i <= until || i > n - 30) print lines[i]
      }
      failed = ""
      n = 0
    }
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / { show(); if (/\*\*\*/) failed = $4 }
    /^ +Start +[0-9]+: / || /% tests passed/ { show() }
    { lines[++n] = $0 }
    END { show() }' build/*/ctest.log
}

# behind COMMAND...: runs them one after the other with what processor time the tests leave; what
# they print is in build/behind.log.
behind() {
  # shellcheck disable=SC2016
  exec {behind_status}< <(exec setsid bash -c '
    echo 19 >/proc/$$/autogroup
    chrt --idle --pid 0 $$
    for command; do
      status=0
      $command >>build/behind.log 2>&1 || status=$?
      echo $status
    done' behind "$@")
  # When all has ended well there is nothing to kill, and that is no failure of this script.
  trap 'kill -- -'$!' 2>/dev/null || true' EXIT
}

# Waits for the next of them.
await_next() {
  local status=1
  read -r status <&"$behind_status" || true
  [ "$status" = 0 ] || { tail -n 60 build/behind.log; return 1; }
}

result=0
# Some tests wait for Slurm.
jobs=$(($(nproc) + 1))
rm -f build/*/ctest.log build/behind.log
# A browser only tests need.
part "packages" scripts/install_packages.sh chromium chromium-driver
$quick || part "format" check_format
if $quick; then
  part "build fast" scripts/build.sh fast
  part "test" run_ctest fast "$jobs" -LE 'sim|bench' || result=$?
else
  part "build fast" scripts/build.sh fast all_but_asan
  behind "scripts/build.sh asan" "scripts/build.sh tsan" scripts/tidy.sh
  part "test" run_ctest fast "$jobs" -LE 'asan|bench' || result=$?
  part "build asan" await_next || result=1
  # None of these waits for Slurm.
  jobs=$((2 * $(nproc)))
  part "test asan+ubsan" run_ctest asan "$jobs" -LE 'heavy|sim|bench|slurm' || result=$?
  part "build tsan" await_next || result=1
  part "test tsan" run_ctest tsan "$jobs" -L tsan || result=$?
  part "tidy" await_next || result=1
fi
printf '=== time of each part\n%s=== slowest tests\n%s\n' "$report" "$(slowest)"
ends_of_failed
for log in build/*/ctest.log; do
  printf '=== summary %s\n' "$(basename "$(dirname "$log")")"
  sed -n '/% tests passed/,$p' "$log"
done
exit "$result"
