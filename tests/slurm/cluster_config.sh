# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# What tests/slurm/cluster writes before it starts anything: the configuration of Slurm, and what
# makes a node a machine of its own. Sourced; $dir, $slot, $nodes, $netns, $preemption and
# $slurmd_timeout are set.

new_boot() {
  cat /proc/sys/kernel/random/uuid >"$dir/nodes/$1/root/proc/sys/kernel/random/boot_id"
}
new_instance() {
  printf 'i-%s\n' "$(tr -d - </proc/sys/kernel/random/uuid | cut -c1-17)" \
    >"$dir/nodes/$1/root/sys/devices/virtual/dmi/id/board_asset_tag"
}

new_root() {  # what HPCTL_SYSROOT names on the node: that of a healthy machine
  local root=$dir/nodes/$1/root
  rm -rf "$root"
  mkdir -p "$root"/{proc/sys/kernel/random,sys/devices/virtual/dmi/id}
  ! $hyperpod || mkdir -p "$root/opt/sagemaker_cluster"
  new_boot "$1"
  new_instance "$1"
}

make_node() {
  local node=$1 home=$dir/nodes/$1 i=${1#n} address
  mkdir -p "$home"/{spool,tmp}
  chmod 700 "$home/tmp"
  new_root "$node"
  $netns || return 0
  address=$(address_of "$node")
  ip netns add "$(link_of "$node")"
  ip link add "$(link_of "$node")" type veth peer name eth0 netns "$(link_of "$node")"
  ip link set "$(link_of "$node")" master "hps$slot" up
  ip -n "$(link_of "$node")" link set lo up
  ip -n "$(link_of "$node")" addr add "$address/24" dev eth0
  ip -n "$(link_of "$node")" link set eth0 up
}

write_conf() {
  local port=$((21000 + slot * 100)) i names tier='' cgroup=linuxproc task=none
  names="n[1-$nodes]"
  # Slurm 22.05 needs systemd for cgroup v2, so the second choice is plain process tracking.
  if [ -w /sys/fs/cgroup/freezer ] && [ -w /sys/fs/cgroup/memory ]; then
    cgroup=cgroup task=cgroup
  else
    say "no cgroup v1: proctrack/linuxproc instead of proctrack/cgroup"
  fi
  [ -z "${HPCTL_TEST_PROCTRACK:-}" ] || cgroup=$HPCTL_TEST_PROCTRACK task=none
  cat >"$dir/slurm.conf" <<CONF
ClusterName=hpctl$slot
SlurmctldHost=$(hostname -s)($(head_address))
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
# A requeued job waits as long as a credential lives, 120 s by default, 5 s at least.
AuthInfo=socket=$dir/munge.socket,cred_expire=6
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdSpoolDir=$dir/nodes/%n/spool
SlurmdPidFile=$dir/nodes/%n/slurmd.pid
SlurmdLogFile=$dir/nodes/%n/slurmd.log
SlurmdParameters=config_overrides
SlurmdTimeout=$slurmd_timeout
SlurmctldTimeout=30
KillWait=5
ReturnToService=2
JobRequeue=1
FirstJobId=$((slot * 1000 + 1))
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=2,sched_interval=2
PriorityType=priority/basic
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MpiDefault=none
ProctrackType=proctrack/$cgroup
TaskPlugin=task/$task
TaskProlog=$dir/task_prolog
DebugFlags=NO_CONF_HASH
CONF
  # Beside slurm.conf, which is where a node without files of its own looks.
  if $configless; then echo "SlurmctldParameters=enable_configless" >>"$dir/slurm.conf"
  else echo "PlugStackConfig=$dir/plugstack.conf" >>"$dir/slurm.conf"; fi
  for i in $(seq "$nodes"); do
    echo "NodeName=n$i NodeAddr=$(address_of "n$i") Port=$((port + i)) CPUs=8 RealMemory=4000"
  done >>"$dir/slurm.conf"
  # Jobs of urgent take the nodes of others, which are signalled, and requeued 10 s later.
  ! $preemption || tier=' PriorityTier=1 GraceTime=10'
  echo "PartitionName=main Nodes=$names Default=YES MaxTime=INFINITE State=UP$tier
PartitionName=other Nodes=$names MaxTime=INFINITE State=UP$tier" >>"$dir/slurm.conf"
  ! $preemption || echo "PartitionName=urgent Nodes=$names MaxTime=INFINITE State=UP PriorityTier=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE" >>"$dir/slurm.conf"
  echo "ConstrainRAMSpace=yes" >"$dir/cgroup.conf"
  echo "include $dir/plugstack.d/*.conf" >"$dir/plugstack.conf"
  cat >"$dir/task_prolog" <<PROLOG
#!/bin/sh
echo "export HPCTL_SYSROOT=$dir/nodes/\$SLURMD_NODENAME/root"
echo "export HPCTL_TEST_NODE=$dir/\$SLURMD_NODENAME"
PROLOG
  chmod 755 "$dir/task_prolog"
  cat /etc/hosts >"$dir/hosts"
  for i in $(seq "$nodes"); do echo "$(address_of "n$i") n$i"; done >>"$dir/hosts"
}
