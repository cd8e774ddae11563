#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A node of a running job is lost, on a real Slurm of three nodes with namespaces; measured is
# loss -> next completed step, detection included, and how many completed steps that cost.
#
#   slurm.sh BUILD_DIRECTORY [LOSSES [KIND...]]
#
# In turn, LOSSES times each KIND (all of them where none is named):
#   power     an hpctl job with a spare trains the quickstart's model with four ranks; one of its
#             two nodes loses its power
#   cut       the same; the node is cut off the network, and its processes go on
#   batch     the same, but the node of the batch script, with the job's controller, loses its power
#   command   a DDP script as the hpctl job's command, a rank on each node; power
#   requeue   the same DDP script as a plain batch job, which Slurm requeues on the loss
#             (SlurmdTimeout 30 s and credentials that expire after 10 s here; Slurm's defaults are
#             300 s and 120 s)
# Prints a table, then one line of JSON.
# shellcheck disable=SC2016  # a quoted program is for the shell of a task
set -euo pipefail
here=$(dirname "$(realpath "$0")")
bin=$1/bin losses=${2:-3}
kinds=("${@:3}")
[ ${#kinds[@]} -gt 0 ] || kinds=(power cut batch command requeue)
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
# What is asked again and again takes no process: it would be one more load of the machine.
has_steps() { # has_steps FILE NUMBER
  local lines=()
  [ -f "$1" ] && mapfile -t lines <"$1"
  [ ${#lines[@]} -ge "$2" ]
}
# Which life of the job wrote FILE's last whole line: a generation, or a process. Sets now.
life() { # life FILE
  local lines=() line=""
  now=""
  [ -f "$1" ] && mapfile -t lines <"$1"
  for line in "${lines[@]: -2}"; do
    [[ ! $line =~ \"(generation|pid)\":\ ?([0-9]+).*\}$ ]] || now=${BASH_REMATCH[2]}
  done
}
is_another_life() { life "$1" && [ -n "$now" ] && [ "$now" != "$2" ]; }
all_idle() { [ "$(sinfo -hN -p main -o %T | sort -u)" = idle ]; }

job_file() { # job_file NAME WORKERS WORKLOAD
  printf '%s\n' "name: $1" "nodes: {count: 2, spares: 1}" "workers_per_node: $2" \
    "slurm: {exclusive: true}" "workload: $3" >"$work/$1.yaml"
  echo "$work/$1.yaml"
}
submit() { "$bin/hpctl" submit "$1" --json | sed 's/.*"job":\([0-9]*\).*/\1/'; }
begin() { # begin KIND OUT: submits, prints the file that gets a line for each step
  local train model='{preset: debugmodel}' data="{path: $text, seq_len: 128}"
  case $1 in
    power | cut | batch)
      train="{model: $model, data: $data, batch: {micro: 1, global: 4}, steps: 1000000}"
      train=$(submit "$(job_file "$(basename "$2")" 2 "{train: $train}")")
      echo "$HPCTL_HOME/jobs/$train/metrics.jsonl"
      ;;
    command)
      submit "$(job_file "$(basename "$2")" 1 \
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
# How many steps that LIFE had completed were done again after it.
done_again() { # done_again FILE LIFE
  sed -nE 's/.*"(generation|pid)": ?([0-9]+).*\}$/\2 &/p' "$1" |
    sed -E 's/ .*"step": ?([0-9]+).*/ \1/' |
    awk -v life="$2" '$1 == life {was = $2} $1 != life && was && !next_ {next_ = $2}
                      END {print was - next_ + 1}'
}
timeline() { # timeline FROM: what the newest job's history has since then, in ms after it
  local time type node ms
  "$bin/hpctl" events "$(ls "$HPCTL_HOME/jobs" | grep -xE '[0-9]+' | sort -n | tail -n1)" --json |
    sed -nE 's/.*"node":"([^"]*)".*"time":"([^"]*)","type":"([^"]*)".*/\2 \3 \1/p' |
    while read -r time type node; do
      ms=$(($(date -d "$time" +%s%3N) - $1))
      [ $ms -lt 0 ] || printf '%8s  %s %s\n' $ms "$type" "$node"
    done
}
lose_a_node() { # lose_a_node KIND RUN
  local out=$work/$1-$2 node=n2 how=kill file before from now
  mkdir "$out"
  [ "$1" != batch ] || node=n1
  [ "$1" != cut ] || how=cut
  file=$(begin "$1" "$out")
  # By then each part of the state has had a copy on the other node, and the spare has standbys.
  await has_steps "$file" 60
  life "$file"
  before=$now
  from=$(now_ms)
  "$cluster" $how $node
  await is_another_life "$file" "$before"
  echo $(($(now_ms) - from)) >>"$work/loss.$1"
  done_again "$file" "$before" >>"$work/again.$1"
  [ "$1" = requeue ] || timeline "$from" >"$work/timeline.$1"
  "$cluster" heal $node
  scancel --full -u "$(id -un)" --quiet
  await all_idle
}
if ! $python -c 'import torch.distributed' 2>/dev/null; then
  echo "command, requeue: skipped, $python has no torch (Debian: python3-torch)" >&2
  kinds=(power cut batch)
fi
for run in $(seq "$losses"); do
  for kind in "${kinds[@]}"; do lose_a_node "$kind" "$run"; done
done

declare -A label=(
  [power]="hpctl's trainer, power lost" [cut]="hpctl's trainer, network cut"
  [batch]="hpctl's trainer, batch node's power" [command]="hpctl, DDP script, power"
  [requeue]="Slurm's requeue, DDP script")
json="{\"benchmark\": \"slurm\", \"losses\": $losses"
for kind in "${kinds[@]}"; do
  value=$(median <"$work/loss.$kind")
  printf '%-36s %6s ms to the next step (median of %s: %s); steps done again: %s\n' \
    "${label[$kind]}" "$value" "$losses" "$(sort -n "$work/loss.$kind" | xargs)" \
    "$(sort -n "$work/again.$kind" | xargs)"
  json+=", \"${kind}_ms\": $value, \"${kind}_steps_again\": $(median <"$work/again.$kind")"
done
for file in "$work"/timeline.*; do
  printf 'the last run of %s, ms after the loss:\n%s\n' "${file##*.}" "$(cat "$file")"
done
echo "$json}"
