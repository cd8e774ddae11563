#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzing by coverage, with libFuzzer (docs/fuzzing.md).
#   scripts/fuzz.sh [SECONDS_PER_HARNESS] [HARNESS...]    60 s of each of them
#   scripts/fuzz.sh --list                                their names
# Runs one harness per processor, with the lowest priority. What was found worth keeping stays in
# build/fuzz/corpus/HARNESS for the next run; an input that breaks something is in
# build/fuzz/findings. Prints a line per harness: executions, edges reached, inputs kept, findings.
# Ends with 1 where there is a finding.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=(fuzz_node fuzz_training fuzz_control)
if [ "${1:-}" = --one ]; then  # of ourselves: SECONDS PROGRAM HARNESS
  seconds=$2 program=$3 harness=$4
  corpus=build/fuzz/corpus/$harness log=build/fuzz/logs/$harness.log
  mkdir -p "$corpus" build/fuzz/findings build/fuzz/logs
  "build/fuzz/bin/$program" --seeds "$harness" "$corpus"
  status=0
  HPCTL_FUZZ_HARNESS=$harness ASAN_OPTIONS=handle_sigill=1:detect_leaks=1 \
    "build/fuzz/bin/$program" "$corpus" -max_total_time="$seconds" -max_len=65536 -timeout=25 \
    -rss_limit_mb=3000 -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$harness-" \
    >"$log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -oE ' cov: [0-9]+' "$log" | tail -n 1 | grep -oE '[0-9]+' || true)
  printf '%-20s %12s %7s %7s %s\n' "$harness" "${runs:-?}" "${edges:-?}" \
    "$(find "$corpus" -type f | wc -l)" "$([ "$status" -eq 0 ] && echo none || echo "see $log")"
  exit "$status"
fi

scripts/install_packages.sh clang libclang-rt-14-dev
nice -n 19 scripts/build.sh fuzz "${programs[@]}"
list=$(for program in "${programs[@]}"; do
  "build/fuzz/bin/$program" --list | sed "s/^/$program /"
done)
if [ "${1:-}" = --list ]; then
  sed 's/.* //' <<<"$list"
  exit
fi
seconds=60
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
fi
for harness; do
  grep -q " $harness\$" <<<"$list" || {
    echo "error: there is no harness $harness; scripts/fuzz.sh --list has their names" >&2
    exit 2
  }
done
[ $# -eq 0 ] || list=$(grep -E " ($(IFS='|'; echo "$*"))\$" <<<"$list")
printf '%-20s %12s %7s %7s %s\n' harness executions edges inputs findings
nice -n 19 xargs -P "$(nproc)" -L 1 scripts/fuzz.sh --one "$seconds" <<<"$list" || exit 1
