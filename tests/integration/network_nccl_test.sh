#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hpagent check network --over nccl beside stand-ins for NCCL and the CUDA runtime, which carry real
# bytes between the processes of this machine and fail as they are told. Exactly what is wrong is
# named.
#
#   network_nccl_test.sh HPAGENT DIRECTORY-OF-STUBS
set -euo pipefail
hpagent=$1
stubs=$2
dir=$(mktemp -d /tmp/hpctl-test-XXXXXX)
pids=()
clean_up() {
  [ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  rm -rf "$dir"
}
trap clean_up EXIT
# shellcheck source=tests/support/checks.sh
source "$(dirname "$0")/../support/checks.sh"

# The stand-ins are loaded before what else the machine has, also before the sanitizer's library.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0"
declare -A machine=()  # of a node: its environment beside that of all

# Every collective takes a tenth of a second, beside which a busy machine's own time is little.
start_node() { # start_node RANK RANKS [ARGUMENT...]
  # shellcheck disable=SC2086  # several variables
  env LD_PRELOAD="$stubs/libcudart.so.12:$stubs/libnccl.so.2" STUB_NCCL_DELAY_MS=100 \
    STUB_NCCL_NETWORK="AWS Libfabric" STUB_NCCL_PROVIDER=efa ${machine[$1]:-} \
    "$hpagent" check network --rank "$1" --ranks "$2" --name "n$1" --meeting "$dir/meeting" "${@:3}"
}

# run RANKS [ARGUMENT...]: the verdict, and the exit code of rank 0 as its last line.
run() {
  local rank ranks=$1
  shift
  pids=()
  for ((rank = 1; rank < ranks; rank++)); do
    start_node "$rank" "$ranks" "$@" &
    pids+=($!)
  done
  outcome start_node 0 "$ranks" "$@" >"$dir/out"
  for pid in "${pids[@]}"; do wait "$pid"; done
  pids=()
  cat "$dir/out"
}
named() { sed -n -E 's/^fail  (.*)/\1/p' "$dir/out"; }

echo "--- all is well, two GPUs a node"
for rank in 0 1 2 3; do machine[$rank]="STUB_CUDA_DEVICES=2"; done
run 4
check "nobody is named" "" "$(named)"
check_has "what carried it" " over NCCL 2.21.5 over AWS Libfabric (efa)" "$(cat "$dir/out")"
# How many pairs is not compared: one that is slow under load is measured again.
check_has "how it was done" "pass: 4 nodes, " "$(cat "$dir/out")"

echo "--- a node is slow"
machine=([3]="STUB_NCCL_DELAY_MS=1500")
run 4
check "it is named" "node n3 is slow" "$(named | cut -d: -f1)"

echo "--- one hangs, one crashes, one adds wrongly, one falls back to TCP, one has no GPU"
efa=$dir/machine/sys/class/infiniband/rdmap0s0
mkdir -p "$efa/device"
echo 0x1d0f >"$efa/device/vendor"
machine=([1]="STUB_NCCL_WRONG=1" [2]="STUB_NCCL_HANG_AT=1" [4]="STUB_NCCL_CRASH_AT=1"
  [7]="STUB_CUDA_DEVICES=0"
  [5]="STUB_NCCL_NETWORK=Socket STUB_NCCL_PROVIDER=tcp HPCTL_SYSROOT=$dir/machine")
run 8 --json
json() { # json EXPRESSION: of the verdict `d`
  head -1 "$dir/out" | python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"
}
check "the nodes" "n1 wrong, n2 dead, n4 dead" \
  "$(json '", ".join(sorted(n["name"] + " " + n["state"] for n in d["nodes"]))')"
check "no link" "[]" "$(json 'd["links"]')"
check "who cannot take part" "n7" "$(json '" ".join(d["unable"])')"
check_has "and why" "cannot count the GPUs" "$(json 'd["unable"]["n7"]')"
check "who fell back" "n5" "$(json '" ".join(d["fallbacks"])')"
check_has "and what it has" "Socket (tcp) although the node has 1 EFA devices" \
  "$(json 'd["fallbacks"]["n5"]')"
check "it failed" "exit 1" "$(tail -1 "$dir/out")"

echo "--- NCCL that is asked for and is not there"
machine=([0]="LD_PRELOAD= HPCTL_SYSROOT=$dir" [1]="LD_PRELOAD= HPCTL_SYSROOT=$dir")
run 2 --over nccl
check "both are named" "node n0 cannot take part
node n1 cannot take part" "$(named | cut -d: -f1)"
echo "--- and where it is not asked for"
run 2
check_has "it is TCP" "pass: 2 nodes, 1 pairs in 1 rounds" "$(cat "$dir/out")"
check_has "and that is said" " over TCP" "$(cat "$dir/out")"
finish_checks
echo "passed"
