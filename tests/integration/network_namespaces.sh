# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A virtual cluster of `nodes` network namespaces on a bridge, each with a link of its own of 40
# Mbit/s; sourced by tests of `hpagent check network`, which set `hpagent` and `nodes`. As root with
# ip, tc and nft; exits with 77 where it cannot make such a cluster.
# shellcheck disable=SC2154 # hpagent and nodes
id=hpn$$
dir=$(mktemp -d /tmp/hpctl-test-XXXXXX)

clean_up() {
  local i
  # Whoever is left of a run that failed.
  [ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  for ((i = 0; i < nodes; i++)); do ip netns del "$id-$i" 2>/dev/null || true; done
  ip netns del "$id-sw" 2>/dev/null || true
  rm -rf "$dir"
}
pids=()
trap clean_up EXIT

cannot() {
  echo "skipped: $1"
  exit 77
}
[ "$(id -u)" -eq 0 ] || cannot "needs root for network namespaces"
for program in ip tc nft; do command -v "$program" >/dev/null || cannot "there is no $program"; done

# The switch is a namespace of its own, so that the machine's network stays as it is.
ip netns add "$id-sw" 2>"$dir/error" || cannot "$(cat "$dir/error")"
ip -n "$id-sw" link add br0 type bridge
ip -n "$id-sw" link set br0 up

address_of() { echo "10.77.0.$((1 + $1))"; }

set_rate() {  # of a node's link, both ways
  ip netns exec "$id-$1" tc qdisc replace dev eth0 root tbf rate "$2" burst 32kb latency 100ms
  ip netns exec "$id-sw" tc qdisc replace dev "port$1" root tbf rate "$2" burst 32kb latency 100ms
}

for ((i = 0; i < nodes; i++)); do
  ip netns add "$id-$i"
  ip -n "$id-sw" link add "port$i" type veth peer name eth0 netns "$id-$i"
  ip -n "$id-sw" link set "port$i" master br0 up
  ip -n "$id-$i" link set lo up
  ip -n "$id-$i" addr add "$(address_of "$i")/24" dev eth0
  ip -n "$id-$i" link set eth0 up
  set_rate "$i" 40mbit || cannot "this kernel has no token bucket filter"
done

# What node $1 receives from $2 is handled by the rule $3.
filter() {
  ip netns exec "$id-$1" nft -f - <<RULES
table ip check {
  chain input {
    type filter hook input priority 0; policy accept;
    ip saddr $(address_of "$2") $3
  }
}
RULES
}

# What runs in node $1's namespace before its program: a test's own.
before_node() { :; }

# run [ARGUMENT...]: of all nodes; what rank 0 says, and its exit code as the function's.
run() {
  local i status=0 before
  pids=()
  for ((i = 1; i < nodes; i++)); do
    read -ra before <<<"$(before_node "$i")"
    ip netns exec "$id-$i" "${before[@]}" "$hpagent" check network --rank "$i" --ranks "$nodes" \
      --name "n$i" --meeting "$dir/meeting" "$@" &
    pids+=($!)
  done
  read -ra before <<<"$(before_node 0)"
  ip netns exec "$id-0" "${before[@]}" "$hpagent" check network --rank 0 --ranks "$nodes" \
    --name n0 --meeting "$dir/meeting" "$@" >"$dir/out" || status=$?
  for i in "${pids[@]}"; do wait "$i"; done
  pids=()
  cat "$dir/out"
  return "$status"
}
