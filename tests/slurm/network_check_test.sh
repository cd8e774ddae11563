#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# srun hpagent check network on a real Slurm of six nodes, each with a network of its own: all is
# well; one node's cable is slow, one lets no connection in but Slurm's; exactly those are named.
# Then Slurm drains these two, and the check of the others passes.
#
#   network_check_test.sh BUILD_DIRECTORY
set -euo pipefail
cluster=$(dirname "$(realpath "$0")")/cluster
hpagent=$1/bin/hpagent
nodes=6

die() { echo "FAILED: $*" >&2; exit 1; }
exports=$("$cluster" up --nodes "$nodes" --netns --owner $$) || exit $?
eval "$exports"
trap '"$cluster" down' EXIT
[ "$HPCTL_TEST_NETNS" = true ] || { echo "skipped: no network namespaces here" >&2; exit 77; }
for program in tc nft; do
  command -v "$program" >/dev/null || { echo "skipped: there is no $program" >&2; exit 77; }
done
slot=$(sed -n 's/^slot=//p' "$HPCTL_TEST_CLUSTER/settings")
export HPCTL_HOME=$HPCTL_TEST_CLUSTER/home

set_rate() {  # set_rate NODE RATE: of its cable, both ways
  nsenter "--net=/run/netns/hps$slot-$1" tc qdisc replace dev eth0 root tbf rate "$2" burst 32kb \
    latency 100ms
  tc qdisc replace dev "hps$slot-$1" root tbf rate "$2" burst 32kb latency 100ms
}
# It still comes to rank 0 by itself, as a node behind a wrong firewall does.
let_slurm_in_alone() {
  nsenter "--net=/run/netns/hps$slot-$1" nft -f - <<RULES
table ip check {
  chain input {
    type filter hook input priority 0; policy accept;
    ip saddr { 10.213.$slot.254, 10.213.$slot.${1#n} } accept
    tcp dport 21000-31000 accept
    ct state new drop
  }
}
RULES
}

check_network() { # check_network COUNT [SRUN'S ARGUMENT...]
  timeout 120 srun -Q --ntasks-per-node=1 -N "$@" "$hpagent" check network --over tcp
}
named() { sed -n -E 's/^fail  (the )?(.*) is (dead|slow): .*/\2 \3/p'; }
expect() { # expect WHAT STATUS NAMED COUNT [ARGUMENT...]
  local status=0 out found
  out=$(check_network "${@:4}") || status=$?
  echo "--- $1"
  echo "$out"
  [ "$status" -eq "$2" ] || die "$1: exit code $status, not $2"
  found=$(named <<<"$out")
  [ "$found" = "$3" ] || die "$1: named '$found', not '$3'"
}

for i in $(seq "$nodes"); do
  set_rate "n$i" 80mbit || { echo "skipped: no token bucket filter here" >&2; exit 77; }
done
expect "all is well" 0 "" "$nodes"
[ -z "$(ls -A "$HPCTL_HOME/network-checks")" ] || die "the meeting's file was left"

set_rate n5 8mbit
expect "a slow cable" 1 "node n5 slow" "$nodes"

let_slurm_in_alone n4
expect "and a node that others do not reach" 1 "node n4 dead
node n5 slow" "$nodes"

# As docs/runbook.md says.
scontrol update nodename=n4,n5 state=drain reason="hpagent check network"
expect "the others" 0 "" 4
sinfo -hN -n n5 -o "%t %E" | grep -q '^drain.* hpagent check network$' ||
  die "n5 is not drained: $(sinfo -hN -n n5 -o "%t %E")"
echo "ok"
