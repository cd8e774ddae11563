#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A node of a running job loses its power, on a real Slurm of three nodes with namespaces; measured
# is power loss -> next completed step, detection included.
#
#   slurm.sh BUILD_DIRECTORY [LOSSES]
#
# In turn, LOSSES times each: an hpctl job with a spare and the built-in trainer; the same with a
# DDP script as its command; the same DDP script as a plain batch job, which Slurm requeues on the
# loss (SlurmdTimeout 30 s and credentials that expire after 10 s here; Slurm's defaults are 300 s
# and 120 s). Prints a table, then one line of JSON.
# shellcheck disable=SC2016  # a quoted program is for the shell of a task
set -euo pipefail
here=$(dirname "$(realpath "$0")")
bin=$1/bin losses=${2:-3}
cluster=$here/../slurm/cluster python=/usr/bin/python3 text=/usr/share/common-licenses/GPL-3

exports=$("$cluster" up --nodes 3 --netns --slurmd-timeout 30 --owner $$) || exit $?
eval "$exports"
[ "$HPCTL_TEST_NETNS" = true ] || {
  echo "skipped: no network namespaces here, so that no node can fall silent" >&2
  exit 77
}
work=$HPCTL_TEST_CLUSTER/work
mkdir -p "$work"
trap '"$cluster" down' EXIT
export HPCTL_HOME=$work/home GLOO_SOCKET_IFNAME=eth0

median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
now_ms() { local now=${EPOCHREALTIME/[.,]/}; echo $((now / 1000)); }
await() {
  local until=$((SECONDS + 300))
  until "$@"; do
    [ $SECONDS -lt $until ] || { echo "not in 300 s: $*" >&2; exit 1; }
    read -rt 0.005 <> <(:) || true # a pause without a process
  done
}
steps() { wc -l 2>/dev/null <"$1" || echo 0; }
has_steps() { [ "$(steps "$1")" -ge "$2" ]; }
# Which life of the job wrote the last step: a generation, or a process.
life() { sed -nE '$s/.*"(generation|pid)": ?([0-9]+).*/\2/p' "$1" 2>/dev/null || true; }
is_another_life() { local now; now=$(life "$1"); [ -n "$now" ] && [ "$now" != "$2" ]; }
all_idle() { [ "$(sinfo -hN -p main -o %T | sort -u)" = idle ]; }

job_file() { # job_file NAME WORKLOAD
  printf '%s\n' "name: $1" "nodes: {count: 2, spares: 1}" "workers_per_node: 1" \
    "slurm: {exclusive: true}" "workload: $2" >"$work/$1.yaml"
  echo "$work/$1.yaml"
}
submit() { "$bin/hpctl" submit "$1" --json | sed 's/.*"job":\([0-9]*\).*/\1/'; }
begin() { # begin KIND OUT: submits, prints the file that gets a line for each step
  local train model='{preset: tiny}' data="{path: $text, seq_len: 32}"
  case $1 in
    hptrain)
      train="{model: $model, data: $data, batch: {global: 4}, steps: 1000000}"
      train=$(submit "$(job_file "$(basename "$2")" "{train: $train}")")
      echo "$HPCTL_HOME/jobs/$train/metrics.jsonl"
      ;;
    command)
      submit "$(job_file "$(basename "$2")" \
        "{command: [$python, $here/peers/ddp_llama.py, $text, $2, '1000000']}")" >/dev/null
      echo "$2/metrics.jsonl" ;;
    requeue)
      # shellcheck disable=SC2086
      sbatch -Q --requeue -N2 --ntasks-per-node=1 --exclusive --open-mode=append -o "$2/out" \
        <<SCRIPT
#!/bin/bash
export MASTER_ADDR=\$(scontrol show hostnames "\$SLURM_JOB_NODELIST" | head -1)
export MASTER_PORT=$((30000 + RANDOM % 2000)) WORLD_SIZE=\$SLURM_NTASKS
srun sh -c 'RANK=\$SLURM_PROCID exec $python $here/peers/ddp_llama.py $text $2 1000000'
SCRIPT
      echo "$2/metrics.jsonl" ;;
  esac
}
lose_a_node() { # lose_a_node KIND RUN
  local out=$work/$1-$2 file before from
  mkdir "$out"
  file=$(begin "$1" "$out")
  await has_steps "$file" 15
  before=$(life "$file")
  from=$(now_ms)
  "$cluster" kill n2
  await is_another_life "$file" "$before"
  echo $(($(now_ms) - from)) >>"$work/loss.$1"
  scancel --full -u "$(id -un)" --quiet
  "$cluster" heal n2
  await all_idle
}
kinds=(hptrain)
if $python -c 'import torch.distributed' 2>/dev/null; then
  kinds+=(command requeue)
else
  echo "requeue: skipped, $python has no torch (Debian: python3-torch)" >&2
fi
for run in $(seq "$losses"); do
  for kind in "${kinds[@]}"; do lose_a_node "$kind" "$run"; done
done

declare -A label=(
  [hptrain]="hpctl, built-in trainer, spare" [command]="hpctl, DDP script, spare"
  [requeue]="Slurm's requeue, DDP script")
json="{\"benchmark\": \"slurm\", \"losses\": $losses"
for kind in "${kinds[@]}"; do
  value=$(median <"$work/loss.$kind")
  printf 'node lost -> next step, %-31s %7s ms (median of %s: %s)\n' "${label[$kind]}" "$value" \
    "$losses" "$(sort -n "$work/loss.$kind" | xargs)"
  json+=", \"${kind}_ms\": $value"
done
echo "$json}"
