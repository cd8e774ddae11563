#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The test cluster itself: it comes up, its nodes are separate machines as far as they can be, each
# fault does what it says, and nothing of it is left at the end, also when `up` is interrupted.
# shellcheck disable=SC2016  # some quoted programs are for the shell of a node
set -euo pipefail
cluster=$(dirname "$(realpath "$0")")/cluster

die() { echo "FAILED: $*" >&2; exit 1; }
equal() { [ "$2" = "$3" ] || die "$1: expected '$2', got '$3'"; }
no_residue() { # no_residue WHEN FOUND: see tests/support/promise.h
  [ -z "$2" ] || die "residue after $1: BROKEN PROMISE: leftover"$'\n'"$2"
}
fact() { cat "$HPCTL_TEST_CLUSTER/nodes/$1/root/$2"; }
boot_id() { fact "$1" proc/sys/kernel/random/boot_id; }
instance() { fact "$1" sys/devices/virtual/dmi/id/board_asset_tag; }
run_on() { timeout 100 srun -Q --immediate=90 -N1 -n1 -w "$1" "${@:2}"; }
await() {
  local until=$((SECONDS + 60))
  until "$@"; do [ $SECONDS -lt $until ] || die "in 60 s not: $*"; sleep 0.05; done
}
state_is() { [ "$(sinfo -hN -p main -n "$1" -o %t)" = "$2" ]; }
registered() { [ "$(sinfo -hN -p main -n "$1" -o %t)" != unk ]; }

residue() {  # residue DIRECTORY SLOT: prints what of this cluster is still there
  local slot=$2
  ls -d "$1" 2>/dev/null || true
  ip -o link 2>/dev/null | grep -E "hps${slot}[-:@]" || true
  ip netns list 2>/dev/null | grep -E "^hps$slot-" || true
  grep -F "$1" /proc/self/mounts || true
  pgrep -af -- "$1" || true
  find /sys/fs/cgroup -path "*/slurm_n*/job_${slot}[0-9][0-9][0-9]" 2>/dev/null || true
}

exports=$("$cluster" up --nodes 4 --netns --slurmd-timeout 12 --owner $$) || exit $?
eval "$exports"
directory=$HPCTL_TEST_CLUSTER
slot=$(sed -n 's/^slot=//p' "$directory/settings")
trap '"$cluster" down' EXIT

names=$(srun -N4 printenv SLURMD_NODENAME | sort | xargs)
equal "one task on each node" "n1 n2 n3 n4" "$names"
equal "a node sees its own instance id" "$(instance n3)" \
  "$(run_on n3 sh -c 'cat $HPCTL_SYSROOT/sys/devices/virtual/dmi/id/board_asset_tag')"
[ -S "$HPCTL_MUNGE_SOCKET" ] || die "up does not export where munged listens"
[ "$(instance n1)" != "$(instance n2)" ] || die "two nodes have one instance id"

if [ "$HPCTL_TEST_NETNS" = true ]; then
  equal "host names" "n1 n2 n3 n4" "$(srun -N4 hostname | sort | xargs)"
  reach='timeout $LIMIT bash -c "</dev/tcp/$(getent ahostsv4 n2 | head -1 | cut -d" " -f1)/$PORT"'
  PORT=$(sed -n 's/^NodeName=n2 .*Port=\([0-9]*\).*/\1/p' "$SLURM_CONF")
  export PORT LIMIT=60
  run_on n1 sh -c "$reach" || die "n1 does not reach n2"
  "$cluster" cut n2
  ! LIMIT=2 run_on n1 sh -c "$reach" 2>/dev/null || die "n1 reaches n2 although it is cut"
  [ -n "$("$cluster" pids n2)" ] || die "cut killed the processes of n2"
  await state_is n2 'down*'
  "$cluster" heal n2
  await state_is n2 idle
  equal "after heal" n2 "$(run_on n2 hostname)"
else
  echo "not tested: cut and heal (no network namespaces here)"
fi

# A killed node runs nothing; healed it has rebooted, replaced it is another machine.
run_on n4 sleep 1000 2>/dev/null &
step=$!
await sh -c "[ \$('$cluster' pids n4 | wc -l) -ge 3 ]"
"$cluster" kill n4
equal "processes of a killed node" "" "$("$cluster" pids n4)"
scancel -u "$(id -un)"
kill -KILL "$step" 2>/dev/null || true
wait "$step" 2>/dev/null || true
was_boot=$(boot_id n4) was_instance=$(instance n4)
"$cluster" heal n4
await state_is n4 idle
[ "$(boot_id n4)" != "$was_boot" ] || die "heal of a killed node kept its boot id"
equal "instance after a reboot" "$was_instance" "$(instance n4)"
was_boot=$(boot_id n4)
"$cluster" replace n4
await state_is n4 idle
[ "$(boot_id n4)" != "$was_boot" ] || die "replace kept the boot id"
[ "$(instance n4)" != "$was_instance" ] || die "replace kept the instance id"
equal "after replace" n4 "$(run_on n4 printenv SLURMD_NODENAME)"

# slurmctld saves every 5 s, and one that is killed before would give the ids of the last jobs to
# others, which late news of the former then end.
sbatch -Q --hold -J last-of-all -o /dev/null --wrap true
await grep -q last-of-all "$directory/state/job_state"
"$cluster" stop slurmctld
! timeout 5 scontrol ping 2>/dev/null | grep -q ' UP' || die "slurmctld answers after stop"
"$cluster" start slurmctld
await registered n1
"$cluster" stop munged
! timeout 5 squeue >/dev/null 2>&1 || die "squeue works without munged"
"$cluster" start munged
equal "after the restart of both daemons" n1 "$(run_on n1 printenv SLURMD_NODENAME)"

"$cluster" down
trap - EXIT
no_residue "down" "$(residue "$directory" "$slot")"

# Interrupted while it starts: the directory's name is ours, so that we know where to look.
directory=$(mktemp -d)/cluster
HPCTL_TEST_CLUSTER=$directory "$cluster" up --nodes 2 --netns >/dev/null 2>&1 &
starting=$!
await test -s "$directory/settings"
slot=$(sed -n 's/^slot=//p' "$directory/settings")
kill -TERM "$starting"
! wait "$starting" || die "an interrupted 'up' reports success"
no_residue "an interrupted start" "$(residue "$directory" "$slot")"
rmdir "$(dirname "$directory")"
echo "ok"
