#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hpagent check network on a virtual cluster: 16 network namespaces on a bridge, each with a link of
# 40 Mbit/s. Exactly what is slow or dead is named.
#
#   network_check_test.sh HPAGENT SHIFTED_CLOCK
#
# As root with ip, tc and nft; exits with 77 where it cannot make such a cluster.
set -euo pipefail
hpagent=$1
shifted_clock=$2
nodes=16
# shellcheck source=tests/integration/network_namespaces.sh
source "$(dirname "$0")/network_namespaces.sh"

expect() {  # STATUS, then the lines that name something
  local status=0 named
  local wanted=$1
  shift
  # shellcheck disable=SC2119 # without further arguments
  run || status=$?
  [ "$status" -eq "$wanted" ] || { echo "exit code $status, not $wanted"; exit 1; }
  named=$(sed -n -E 's/^fail  (the )?(.*) is (dead|slow): .*/\2 \3/p' "$dir/out")
  [ "$named" = "$(printf '%s\n' "$@" | sed '/^$/d')" ] || { echo "named: $named"; exit 1; }
}

echo "--- all is well"
expect 0 ""
grep -q '^pass: 16 nodes, 32 pairs in 4 rounds' "$dir/out"
if grep -q '^warn' "$dir/out"; then exit 1; fi

echo "--- a node's clock is behind"
before_node() {
  [ "$1" -ne 3 ] || echo "env LD_PRELOAD=$shifted_clock SHIFTED_CLOCK_S=-40" \
    "ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0"
}
expect 0 ""
before_node() { :; }
behind='s/^warn  the clock of node (n[0-9]+) is (39|40)\.[0-9] s behind .*/\1/p'
warned=$(sed -n -E "$behind" "$dir/out")
[ "$warned" = n3 ] || exit 1

echo "--- a slow link of a node, and a dead link between two"
set_rate 5 4mbit
filter 14 6 drop
filter 6 14 drop
expect 1 "node n5 slow" "link n6 - n14 dead"

echo "--- a node that reaches the coordinator and nobody else"
ip netns exec "$id-11" nft -f - <<RULES
table ip check {
  chain input {
    type filter hook input priority 0; policy accept;
    ip saddr != $(address_of 0) drop
  }
}
RULES
expect 1 "node n5 slow" "node n11 dead" "link n6 - n14 dead"

echo "--- as tasks of srun, which says who they are"
task() {
  ip netns exec "$id-$1" env HPCTL_HOME="$dir/home" SLURM_JOB_ID=7 SLURM_STEP_ID=3 \
    SLURM_PROCID="$1" SLURM_STEP_NUM_TASKS=3 SLURMD_NODENAME="p5-$1" \
    "$hpagent" check network "${@:2}"
}
for ((i = 1; i < 3; i++)); do
  task "$i" &
  pids+=($!)
done
task 0 --json >"$dir/out"
for i in "${pids[@]}"; do wait "$i"; done
pids=()
grep -q '"verdict":"pass","rounds":2,"pairs":2,' "$dir/out" || { cat "$dir/out"; exit 1; }
[ -z "$(ls -A "$dir/home/network-checks")" ] || { echo "the meeting's file was left"; exit 1; }

echo "--- a node that does not come"
status=0
ip netns exec "$id-0" "$hpagent" check network --rank 0 --ranks 2 --name n0 --patience 1 \
  --meeting "$dir/meeting" >"$dir/out" || status=$?
[ "$status" -eq 1 ] || { echo "exit code $status, not 1"; exit 1; }
grep -q '^fail  rank 1 did not come' "$dir/out" || { cat "$dir/out"; exit 1; }
echo "passed"
