#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run ctest, and run a failed test of real processes once more, alone.
#   scripts/run_ctest.sh PRESET JOBS CTEST-ARGUMENTS...   fails unless every test passed
#   scripts/run_ctest.sh --ends PRESET...                 how each red test ended
#   scripts/run_ctest.sh --summary PRESET...              the flaky tests, with both their logs
# A test is flaky if it failed and then passed alone. Only tests with the label `processes` run
# again, and none whose output has a sanitizer report or the marker of tests/support/promise.h.
# HPCTL_TEST_DIR replaces build/PRESET. HPCTL_MAX_RERUNS replaces the limit of 8.
set -euo pipefail
cd "$(dirname "$0")/.."

max_reruns=${HPCTL_MAX_RERUNS:-8}

use() { # use PRESET: the paths of its build directory
  directory=${HPCTL_TEST_DIR:-build/$1}
  log=$directory/ctest.log
  flaky=$directory/flaky
  rerun=$directory/rerun
  temporary=$directory/Testing/Temporary
}

log_of() { # log_of NAME WHICH: a name may have a slash
  local name=${1//%/%25}
  echo "$rerun/${name//\//%2F}.$2.log"
}

# keep_output NAME WHICH: copies all that LastTest.log has of a test to its own log. ctest.log has
# no output of tests that passed.
keep_output() {
  NAME=$1 awk '
    BEGIN { name = ENVIRON["NAME"] }
    !inside && /^[0-9]+\/[0-9]+ Testing: / { inside = substr($0, index($0, ": ") + 2) == name }
    inside { print }
    inside && index($0, "\"" name "\" end time: ") == 1 { inside = 0; ended = 1 }
    END { exit !ended }' "$temporary/LastTest.log" >"$(log_of "$1" "$2")"
}

never_excused() { # never_excused LOG: prints what in it is red whatever the next run does
  if grep -aq 'BROKEN PROMISE' "$1"; then
    echo "its output reports a broken promise"
  elif grep -aqE '(ERROR|WARNING): [A-Za-z]+Sanitizer|runtime error:' "$1"; then
    echo "its output has a sanitizer report"
  fi
}

# run_again NUMBER NAME: prints "passed" if the test passed alone. Else it prints why it stays red.
run_again() {
  local first second why pattern
  first=$(log_of "$2" first)
  second=$(log_of "$2" second)
  if ! grep -Fxq -- "$2" <<<"$with_processes"; then
    echo "it lacks the label processes; not run again"
  elif grep -aqE "Test +#$1: .*\*\*\*Not Run" "$log"; then
    echo "ctest could not start it; not run again"
  elif [ ! -s "$first" ]; then
    echo "its output is incomplete; not run again"
  elif why=$(never_excused "$first") && [ -n "$why" ]; then
    echo "$why; not run again"
  elif [ "$failures" -gt "$max_reruns" ]; then
    echo "$failures tests failed and at most $max_reruns are run again; not run again"
  else
    pattern=^$(printf %s "$2" | sed 's/[][\.^$*+?()|]/\\&/g')\$
    if ! ctest --test-dir "$directory" --output-on-failure --no-tests=error -j 1 -R "$pattern" \
      >"$rerun/ctest.log" 2>&1; then
      keep_output "$2" second || cp "$rerun/ctest.log" "$second"
      echo "it failed again, alone: $second"
    elif ! keep_output "$2" second ||
      ! grep -aqE "Test +#$1: .* Passed +[0-9.]+ sec" "$rerun/ctest.log"; then
      echo "it was not run when it was to run again"
    elif why=$(never_excused "$second") && [ -n "$why" ]; then
      echo "it passed the second time, but $why"
    else
      echo passed
    fi
  fi
}

run() { # run JOBS ARGUMENTS...
  local jobs=$1 status=0 red=false failed number name why
  shift
  rm -rf "$flaky" "$rerun" "$temporary"/LastTest{,sFailed}.log
  ctest --test-dir "$directory" --output-on-failure -j "$jobs" "$@" | tee "$log" || status=$?
  [ "$status" -ne 0 ] || return 0
  # 8 = tests failed, and nothing else went wrong.
  { [ "$status" -eq 8 ] && [ -s "$temporary/LastTestsFailed.log" ]; } || return "$status"
  failed=$(cat "$temporary/LastTestsFailed.log")
  failures=$(wc -l <<<"$failed")
  if ! grep -aq "% tests passed, $failures tests failed out of" "$log"; then
    echo "$log and $temporary/LastTestsFailed.log disagree; no test is run again"
    return "$status"
  fi
  mkdir "$rerun"
  while IFS=: read -r number name; do
    keep_output "$name" first || rm -f "$(log_of "$name" first)"
  done <<<"$failed"
  # Each further call of ctest replaces these logs.
  cp "$temporary"/LastTest{,sFailed}.log "$rerun"
  with_processes=$(ctest --test-dir "$directory" --show-only=json-v1 | jq -r '.tests[] |
    select(any(.properties[]?; .name == "LABELS" and (.value | index("processes")))) | .name')
  while IFS=: read -r number name <&3; do
    why=$(run_again "$number" "$name")
    if [ "$why" = passed ]; then
      echo "$name" >>"$flaky"
      echo "$name: flaky, it failed and then passed alone; its logs are in $rerun"
    else
      red=true
      echo "$name: red, $why"
    fi
  done 3<<<"$failed"
  mv "$rerun"/LastTest{,sFailed}.log "$temporary"
  ! $red || return "$status"
}

# What each red test did not find as it should be, and how it ended: in a long log both are far up.
show_ends() {
  [ -e "$log" ] || return 0
  FLAKY=$flaky awk '
    BEGIN { while ((getline name <ENVIRON["FLAKY"]) > 0) flaky[name] }
    function show(  i, until) {
      if (failed) print "=== end of " failed
      for (i = 1; failed && i <= n; ++i) {
        if (lines[i] ~ /: Failure$|BROKEN PROMISE/) until = i + 6
        if (i <= until || i > n - 30) print lines[i]
      }
      failed = ""
      n = 0
    }
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / { show(); if (/\*\*\*/ && !($4 in flaky)) failed = $4 }
    /^ +Start +[0-9]+: / || /% tests passed/ { show() }
    { lines[++n] = $0 }
    END { show() }' "$log"
}

show_flaky() {
  [ -e "$flaky" ] || return 0
  local name which
  while read -r name; do
    echo "FLAKY $name"
    for which in first second; do
      echo "=== end of its $which run"
      tail -n 60 "$(log_of "$name" "$which")"
    done
  done <"$flaky"
}

case ${1:-} in
  --ends | --summary)
    show=show_ends
    [ "$1" = --ends ] || show=show_flaky
    for preset in "${@:2}"; do
      use "$preset"
      $show
    done
    ;;
  *)
    [ $# -ge 2 ] || { echo "usage: $0 PRESET JOBS CTEST-ARGUMENTS..." >&2; exit 2; }
    use "$1"
    run "${@:2}"
    ;;
esac
