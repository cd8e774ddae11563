#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs that are told to end at random moments, many times: stop_chaos_test, one process a seed. A
# red seed does not end it.
#
#   stops.sh BUILD_DIRECTORY [FIRST [LAST]]      seeds 1 to 100
#
# Prints a table with a row for each seed, the line that replays each red one, and one line of JSON.
# The output of a red seed is kept in STOP_KEEP (/tmp). STOP_UNTIL (seconds since 1970) ends it
# earlier. Exit status 1: a seed is red, or none ran.
set -euo pipefail
build=$(realpath "$1") first=${2:-1} last=${3:-100}
keep=${STOP_KEEP:-/tmp}
output=$(mktemp)
trap 'rm -f "$output"' EXIT
export HPCTL_BIN=${HPCTL_BIN:-$build/bin}

jobs=0 told=0
red=() times=()
echo "| seed | stop | phase | last step | saved | result | ended in ms |"
echo "|---|---|---|---|---|---|---|"
for ((seed = first; seed <= last; seed++)); do
  [ "$EPOCHSECONDS" -lt "${STOP_UNTIL:-9999999999}" ] || break
  result=green
  HPCTL_STOP_SEED=$seed timeout --kill-after=30 600 "$build/tests/stop_chaos_test" \
    >"$output" 2>&1 || result=red
  # "seed 7: cancel, training: step 12 of 12 saved, nothing lost, ended in 812 ms"; a test that ends
  # before it has none.
  line=$(grep -m1 "^seed $seed: " "$output" || true)
  pattern='^seed [0-9]+: (.*), ([a-z]+): step ([0-9]+) of ([0-9]+) saved, (.*), '
  pattern+='ended in ([0-9]+) ms$'
  stop=- phase=- saved=- newest=- ms=-
  if [[ $line =~ $pattern ]]; then
    stop=${BASH_REMATCH[1]} phase=${BASH_REMATCH[2]} saved=${BASH_REMATCH[3]}
    newest=${BASH_REMATCH[4]} ms=${BASH_REMATCH[6]}
    times+=("$ms")
    [ "${BASH_REMATCH[5]}" = "nothing lost" ] || told=$((told + 1))
  else
    result=red
  fi
  echo "| $seed | $stop | $phase | $newest | $saved | $result | $ms |"
  jobs=$((jobs + 1))
  if [ "$result" = red ]; then
    red+=("$seed")
    cp "$output" "$keep/stop-seed-$seed.log"
  fi
done
middle=$(((${#times[@]} + 1) / 2))
median=$(printf '%s\n' "${times[@]:-0}" | sort -n | sed -n "$((middle > 0 ? middle : 1))p")
echo "total: $jobs jobs, ${#red[@]} red, losses that the job tells: $told, median $median ms"
for seed in "${red[@]}"; do
  echo "red: HPCTL_BIN=$HPCTL_BIN HPCTL_STOP_SEED=$seed" \
    "$build/tests/stop_chaos_test # $keep/stop-seed-$seed.log"
done
printf '{"benchmark":"stops","jobs":%d,"red":%d,"told_losses":%d,"median_ms":%d}\n' \
  "$jobs" "${#red[@]}" "$told" "${median:-0}"
[ "$jobs" -gt 0 ] && [ ${#red[@]} -eq 0 ]
