#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every check that needs no GPU, complete on a fresh Debian machine.
#   scripts/test.sh         what each landing must pass: 32 minutes on two cores, from nothing
#   scripts/test.sh --all   everything
# Each test runs once, in the preset where it finds most (docs/contributing.md): optimised, as users
# have it, or under a sanitizer. --all adds the tests with the label `extended`, runs more tests
# under the sanitizers, and compiles every source alone where the short form compiles those that
# changed. Both forms run clang-tidy over what changed, because every landing did so before.
#
# A test of real processes that fails runs once more, alone; if it passes then, the end names it as
# FLAKY with both logs (scripts/run_ctest.sh). Prints the time of each part, the ten slowest tests
# and how each failed test ended, and ends with ctest's summaries.
set -euo pipefail
cd "$(dirname "$0")/.."

all=false
case "${1:-}" in
  "") ;;
  --all) all=true ;;
  *) echo "usage: scripts/test.sh [--all]" >&2; exit 2 ;;
esac
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

slowest() {  # the ten tests that took longest
  sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec.*/\2 s  \1/p' \
    build/*/ctest.log | sort -rn | sed 10q
}

# behind COMMAND...: runs them one after the other, with the processor time that the tests leave.
# Each writes to build/behind.N.log.
behind() {
  # shellcheck disable=SC2016
  exec {behind_status}< <(exec setsid bash -c '
    echo 19 >/proc/$$/autogroup
    chrt --idle --pid 0 $$
    number=0
    for command; do
      status=0
      number=$((number + 1))
      $command >build/behind.$number.log 2>&1 || status=$?
      echo $status
    done' behind "$@")
  # When all has ended well there is nothing to kill, and that is no failure of this script.
  trap 'kill -- -'$!' 2>/dev/null || true' EXIT
}

# Waits for the next of them, and prints the end of its log.
await_next() {
  local status=1
  read -r status <&"$behind_status" || true
  awaited=$((${awaited:-0} + 1))
  tail -n "$([ "$status" = 0 ] && echo 3 || echo 60)" "build/behind.$awaited.log"
  [ "$status" = 0 ]
}

result=0 sources=0
# Tests on Slurm wait most of their time (hp_slurm_lanes).
jobs=$((2 * $(nproc) + 1))
rm -f build/*/ctest.log build/*/flaky build/behind.*.log
part "packages" scripts/install_packages.sh
if $all; then
  targets=tests alone="scripts/check_alone.sh --all"
  optimised='^(asan|tsan|bench)$' with_asan='^asan(_too)?$' with_tsan='^tsan(_too)?$'
  part "format" scripts/check_format.sh || sources=1
else
  targets=landing_tests alone="scripts/check_alone.sh --rest"
  optimised='^(asan|tsan|bench|extended)$' with_asan='^asan$' with_tsan='^tsan$'
  part "format" scripts/check_format.sh --changed || sources=1
fi
part "build release" scripts/build.sh release "$targets"
behind "scripts/build.sh asan $targets" "scripts/build.sh tsan $targets" "$alone" \
  "scripts/tidy.sh --changed"
part "test release" scripts/run_ctest.sh release "$jobs" -LE "$optimised" -E _NOT_BUILT || result=1
part "build asan" await_next || result=1
part "test asan+ubsan" scripts/run_ctest.sh asan "$jobs" -L "$with_asan" || result=1
part "build tsan" await_next || result=1
part "sources alone" await_next || sources=1
part "tidy" await_next || sources=1
# The next run on this machine checks the sources that changed since this commit. A test that fails
# says nothing about them.
if [ "$sources" -eq 0 ] && [ -z "$(git status --porcelain)" ]; then
  mkdir -p "${XDG_CACHE_HOME:-$HOME/.cache}/hpctl"
  git rev-parse HEAD >"${XDG_CACHE_HOME:-$HOME/.cache}/hpctl/passed"
fi
[ "$sources" -eq 0 ] || result=1
# Last, when nothing else runs: threads that starve under this sanitizer take minutes.
part "test tsan" scripts/run_ctest.sh tsan "$jobs" -L "$with_tsan" || result=1
printf '=== time of each part\n%s%-20s %5d s\n' "$report" "all" "$SECONDS"
printf '=== slowest tests\n%s\n' "$(slowest)"
scripts/run_ctest.sh --ends release asan tsan
scripts/run_ctest.sh --summary release asan tsan
for log in build/*/ctest.log; do
  printf '=== summary %s\n' "$(basename "$(dirname "$log")")"
  sed -n '/% tests passed/,$p' "$log"
done
exit "$result"
