#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Storage that fails, many times: storage_outage_test's AtAnyMomentLosesNothing, 8 faults a job, one
# process a seed. A red seed does not end it.
#
#   outages.sh BUILD_DIRECTORY [FIRST [LAST]]      seeds 1 to 25: 200 faults
#
# Prints a table with a row for each seed, the line that replays each red one, and one line of JSON.
# The output of a red seed is kept in OUTAGE_KEEP (/tmp). HPCTL_OUTAGE_PATHS=random reaches the
# test.
# OUTAGE_UNTIL (seconds since 1970) ends it earlier. Exit status 1: a seed is red, or none ran.
set -euo pipefail
build=$(realpath "$1") first=${2:-1} last=${3:-25}
keep=${OUTAGE_KEEP:-/tmp}
output=$(mktemp)
trap 'rm -f "$output"' EXIT
export HPCTL_BIN=${HPCTL_BIN:-$build/bin}

jobs=0 faults=0 equal=0 began=$EPOCHSECONDS
red=()
echo "| seed | faults | result | digest equal | seconds |"
echo "|---|---|---|---|---|"
for ((seed = first; seed <= last; seed++)); do
  [ "$EPOCHSECONDS" -lt "${OUTAGE_UNTIL:-9999999999}" ] || break
  start=$EPOCHSECONDS result=green
  HPCTL_OUTAGE_SEED=$seed HPCTL_OUTAGE_JOBS=1 timeout --kill-after=30 600 \
    "$build/tests/storage_outage_test" --gtest_filter=StorageOutage.AtAnyMomentLosesNothing \
    >"$output" 2>&1 || result=red
  # "seed 7: 8 faults, digest equal"; a test that ends before it has none.
  line=$(grep -m1 "^seed $seed: " "$output" || true)
  here=$(sed -n 's/^seed [0-9]*: \([0-9]*\) faults, .*/\1/p' <<<"$line")
  is_equal=no
  [[ $line != *", digest equal" ]] || is_equal=yes
  [ "$is_equal" = yes ] || result=red
  echo "| $seed | ${here:--} | $result | $is_equal | $((EPOCHSECONDS - start)) |"
  jobs=$((jobs + 1)) faults=$((faults + ${here:-0}))
  [ "$is_equal" = no ] || equal=$((equal + 1))
  if [ "$result" = red ]; then
    red+=("$seed")
    cp "$output" "$keep/outage-seed-$seed.log"
  fi
done
echo "| total: $jobs | $faults | ${#red[@]} red | $equal | $((EPOCHSECONDS - began)) |"
for seed in "${red[@]}"; do
  echo "red: HPCTL_BIN=$HPCTL_BIN${HPCTL_OUTAGE_PATHS:+ HPCTL_OUTAGE_PATHS=$HPCTL_OUTAGE_PATHS}" \
    "HPCTL_OUTAGE_SEED=$seed $build/tests/storage_outage_test" \
    "--gtest_filter=StorageOutage.AtAnyMomentLosesNothing # $keep/outage-seed-$seed.log"
done
printf '{"benchmark":"outages","jobs":%d,"faults":%d,"red":%d,"digests_equal":%d}\n' \
  "$jobs" "$faults" "${#red[@]}" "$equal"
[ "$jobs" -gt 0 ] && [ ${#red[@]} -eq 0 ]
