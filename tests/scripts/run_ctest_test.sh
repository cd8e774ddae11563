#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/run_ctest.sh on small ctest projects that need no compiler. Each planted test counts its
# runs. A race excuses a test of real processes, and nothing excuses a broken promise.
set -euo pipefail
repo=$(realpath "$(dirname "$0")/../..")
# shellcheck source=tests/support/checks.sh
. "$repo/tests/support/checks.sh"
cd "$repo"
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-run-ctest.XXXXXX")
trap 'rm -rf "$work"' EXIT
export HPCTL_TEST_DIR=$work/build
unset HPCTL_MAX_RERUNS

# plant NAME LABELS BODY: a test that runs BODY in bash. $run is 1 in its first run, 2 in the next.
plant() {
  local number
  number=$(find "$HPCTL_TEST_DIR" -name '*.body' | wc -l)
  # shellcheck disable=SC2016  # the test's words
  printf 'echo >>"$0.runs"\nrun=$(wc -l <"$0.runs")\n%s\n' "$3" >"$HPCTL_TEST_DIR/$number.body"
  {
    printf 'add_test([=[%s]=] "/bin/bash" "%s")\n' "$1" "$HPCTL_TEST_DIR/$number.body"
    printf 'set_tests_properties([=[%s]=] PROPERTIES LABELS "%s")\n' "$1" "$2"
  } >>"$HPCTL_TEST_DIR/CTestTestfile.cmake"
  body[$1]=$HPCTL_TEST_DIR/$number.body
}
declare -A body
fresh() { # fresh: an empty project
  rm -rf "$HPCTL_TEST_DIR"
  mkdir "$HPCTL_TEST_DIR"
  body=()
}
runs() { if [ -e "${body[$1]}.runs" ]; then wc -l <"${body[$1]}.runs"; else echo 0; fi; }
script() { "$repo/scripts/run_ctest.sh" "$@"; }
flaky() { cat "$HPCTL_TEST_DIR/flaky" 2>/dev/null || true; }
check_red() { # check_red WHAT NAME RUNS REASON: runs the project; the test NAME keeps it red
  local found
  found=$(outcome script release 2)
  check_has "$1: it fails" "exit 8" "$found"
  check_has "$1: why" "$2: red, $4" "$found"
  check "$1: its runs" "$3" "$(runs "$2")"
  check "$1: it is not flaky" "" "$(flaky)"
  check "$1: no summary" "" "$(script --summary release)"
  check_has "$1: its end" "=== end of $2" "$(script --ends release)"
}
# shellcheck disable=SC2016  # the test's words
race='echo "run $run"; [ "$run" -gt 1 ]'

fresh
plant sound unit true
plant race "integration;processes" "$race"
# As a regular expression a.B/0 also matches aXB/0.
plant a.B/0 processes "$race"
plant aXB/0 processes true
# shellcheck disable=SC2016  # a name
plant 'x+(y)|[z]$^*?' processes "$race"
found=$(outcome script release 2)
check_has "races are excused" "exit 0" "$found"
check_has "it says so" "race: flaky, it failed and then passed alone" "$found"
check "those are flaky" "$(printf '%s\n' a.B/0 race 'x+(y)|[z]$^*?')" "$(flaky | sort)"
check "they ran twice" "2 2 2" "$(runs race) $(runs a.B/0) $(runs 'x+(y)|[z]$^*?')"
check "the others ran once" "1 1" "$(runs sound) $(runs aXB/0)"
summary=$(script --summary release)
check "the summary names them" "3" "$(grep -c '^FLAKY ' <<<"$summary")"
check "the summary has both logs" "FLAKY race run 1 run 2" \
  "$(sed -n '/^FLAKY race$/,/^FLAKY [^r]/p' <<<"$summary" | grep -E '^(FLAKY race|run)' | xargs)"
check "both logs are kept" "run 1 run 2" \
  "$(cd "$HPCTL_TEST_DIR/rerun" && grep -h '^run ' race.first.log race.second.log | xargs)"
check "no end of a flaky test" "" "$(script --ends release)"
check_has "ctest.log ends with ctest's own summary" "3 - a.B/0 (Failed)" \
  "$(sed -n '/% tests passed/,$p' "$HPCTL_TEST_DIR/ctest.log")"
check "ctest.log has one run" "1" "$(grep -c '% tests passed' "$HPCTL_TEST_DIR/ctest.log")"
check_has "LastTest.log is of the whole run" " Testing: sound" \
  "$(cat "$HPCTL_TEST_DIR/Testing/Temporary/LastTest.log")"
found=$(outcome script release 2)
check_has "all pass" "exit 0" "$found"
check "no test is flaky any more" "" "$(flaky)$(script --summary release)"
check_has "arguments go to ctest" "No tests were found" "$(outcome script release 2 -L none)"

fresh
plant a_race_with_it processes true
plant race "unit;processes_not" "$race"
echo 'set_tests_properties(race PROPERTIES ENVIRONMENT processes)' \
  >>"$HPCTL_TEST_DIR/CTestTestfile.cmake"
check_red "a race without the label" race 1 "it lacks the label processes"

fresh
plant digest processes "echo 'a_test.cc:1: Failure BROKEN PROMISE: digest'; $race"
check_red "a broken promise" digest 1 "its output reports a broken promise"
fresh
plant bash processes ". '$repo/tests/support/checks.sh'; check_promise ledger 'all' 1 2; $race"
check_red "check_promise" bash 1 "its output reports a broken promise"
check "promise.h has the marker" 1 "$(grep -c '"\\nBROKEN PROMISE: "' tests/support/promise.h)"
fresh
plant long processes "seq 90000; echo BROKEN PROMISE: digest; seq 90000; printf '\\0\\377'; $race"
check_red "in the middle of 1 MB" long 1 "its output reports a broken promise"
fresh
plant late processes "[ \$run = 1 ] || echo BROKEN PROMISE: ledger; $race"
check_red "in the second run" late 2 "it passed the second time, but its output reports a broken"

for report in "==7==ERROR: AddressSanitizer: heap-use-after-free" \
  "WARNING: ThreadSanitizer: data race (pid=7)" "==7==ERROR: LeakSanitizer: detected memory leaks" \
  "a.cc:1:2: runtime error: signed integer overflow"; do
  fresh
  plant bytes processes "echo '$report'; $race"
  check_red "$report" bytes 1 "its output has a sanitizer report"
done

fresh
plant twice processes 'echo no; false'
check_red "it fails twice" twice 2 "it failed again, alone"
check_has "its second log" no "$(cat "$HPCTL_TEST_DIR/rerun/twice.second.log")"

fresh
# shellcheck disable=SC2016  # the test's words
plant hangs processes '[ "$run" -gt 1 ] || sleep 60'
echo 'set_tests_properties(hangs PROPERTIES TIMEOUT 1)' >>"$HPCTL_TEST_DIR/CTestTestfile.cmake"
check_has "a test that hung once is excused" "exit 0" "$(outcome script release 2)"

fresh
plant race processes "$race"
plant digest processes "echo BROKEN PROMISE: digest; false"
found=$(outcome script release 2)
check_has "beside a broken promise it stays red" "exit 8" "$found"
check "the race is flaky" race "$(flaky)"
check "only the broken promise has an end" "=== end of digest" \
  "$(script --ends release | grep '===')"

fresh
echo 'add_test(nowhere "/no/such/program")
set_tests_properties(nowhere PROPERTIES LABELS processes)' >"$HPCTL_TEST_DIR/CTestTestfile.cmake"
found=$(outcome script release 2)
check_has "no program" "exit 8" "$found"
check_has "why" "nowhere: red, ctest could not start it" "$found"

export HPCTL_MAX_RERUNS=2
fresh
for name in a b; do plant "$name" processes "$race"; done
check_has "as many as the limit" "exit 0" "$(outcome script release 2)"
fresh
for name in a b c; do plant "$name" processes "$race"; done
check_red "more than the limit" a 1 "3 tests failed and at most 2 are run again"
check "none ran again" "1 1 1" "$(runs a) $(runs b) $(runs c)"
unset HPCTL_MAX_RERUNS
fresh
for name in {a..i}; do plant "$name" processes "$race"; done
check_red "more than eight" i 1 "9 tests failed and at most 8 are run again"

check_has "wrong usage" "exit 2" "$(outcome script release)"
finish_checks
