#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hpagent check network --over fabric on a virtual cluster of 8 nodes, with Debian's libfabric and
# its tcp provider: a slow link, a pair whose endpoints do not reach each other although their
# addresses do, bytes that change on the way, nodes whose libfabric fell back. Exactly these are
# named.
#
#   network_fabric_test.sh HPAGENT CORRUPTING_READS
#
# As root with ip, tc and nft; exits with 77 where it cannot make such a cluster.
set -euo pipefail
hpagent=$1
corrupting=$2
nodes=8
# shellcheck source=tests/integration/network_namespaces.sh
source "$(dirname "$0")/network_namespaces.sh"
# shellcheck source=tests/support/checks.sh
source "$(dirname "$0")/../support/checks.sh"

declare -A machine=()  # of a node: its environment beside that of all
# The ports of endpoints, and of nothing else.
ports=43100-43199
before_node() {
  echo "env FI_TCP_PORT_LOW_RANGE=${ports%-*} FI_TCP_PORT_HIGH_RANGE=${ports#*-} ${machine[$1]:-}"
}
named() { sed -n -E 's/^fail  (the )?(.*) is (dead|slow|wrong): .*/\2 \3/p' "$dir/out"; }

echo "--- all is well"
outcome run --over fabric >"$dir/said"
check "it passes" "exit 0" "$(tail -1 "$dir/said")"
check_has "all take part" "pass: 8 nodes, " "$(cat "$dir/out")"
check_has "the provider" " over libfabric " "$(cat "$dir/out")"
check_has "which is tcp" "(tcp" "$(cat "$dir/out")"

echo "--- a slow link of a node, and endpoints of two that do not reach each other"
set_rate 3 4mbit
for way in "6 4" "4 6"; do
  filter "${way% *}" "${way#* }" "tcp dport $ports drop"
  filter "${way% *}" "${way#* }" "tcp sport $ports drop"
done
outcome run --over fabric >"$dir/said"
check "exactly these" "node n3 slow
link n4 - n6 dead" "$(named)"
check_has "what happened" "nothing came" "$(cat "$dir/out")"

echo "--- bytes that change on the way to a node"
set_rate 3 40mbit
for node in 4 6; do ip netns exec "$id-$node" nft flush ruleset; done
machine[5]=LD_PRELOAD=$corrupting
outcome run --over fabric >"$dir/said"
check "it is named" "node n5 wrong" "$(named)"
check_has "with what is wrong" "messages differ from what was sent, the first is number" \
  "$(cat "$dir/out")"
unset "machine[5]"

echo "--- a node with EFA devices whose libfabric chooses tcp, one with another provider"
efa=$dir/machine/sys/class/infiniband/rdmap0s0
mkdir -p "$efa/device" "$dir/machine/opt/amazon/efa/lib"
echo 0x1d0f >"$efa/device/vendor"
library=$(ldconfig -p | sed -n 's/.*libfabric\.so\.1 .* => //p' | head -1)
ln -s "$library" "$dir/machine/opt/amazon/efa/lib/libfabric.so.1"
machine[2]=HPCTL_SYSROOT=$dir/machine
machine[6]=FI_PROVIDER=sockets
outcome run --over fabric --json >"$dir/said"
json() { # json EXPRESSION: of the verdict `d`
  python3 -c "import json, sys; d = json.load(open(sys.argv[1])); print($1)" "$dir/out"
}
check "who fell back" "n2" "$(json '" ".join(d["fallbacks"])')"
why=$(json 'd["fallbacks"]["n2"]')
check_has "and why" "although the node has 1 EFA devices, slow and without an error: " "$why"
check_has "as libfabric says" '"fi_getinfo for provider efa: ' "$why"
check "who cannot take part" "n6" "$(json '" ".join(d["unable"])')"
check_has "and why" "its libfabric chooses sockets, and most nodes' libfabric chooses tcp" \
  "$(json 'd["unable"]["n6"]')"
check "the others are well" "[] []" "$(json 'd["nodes"], d["links"]' | tr -d '(),')"
check "the way" "fabric" "$(json 'd["way"]')"
echo "--- and where it is not asked for, EFA devices are what is looked at"
outcome run --json >"$dir/said"
check "the way" "fabric" "$(json 'd["way"]')"
check "the only one that has them" "n2" "$(json '" ".join(d["fallbacks"])')"
check "the others" "n0 n1 n3 n4 n5 n6 n7" "$(json '" ".join(d["unable"])')"
finish_checks
echo "passed"
echo "--- a library's trace of a process that ended by a signal is nowhere"
check "none" "" "$(find . -maxdepth 1 -name 'hpagent*.btr')"
