#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The built-in trainer by hand under `srun --auto-resume=1`, 2 nodes x 2 tasks: a rank is killed,
# and the weights at the end are those of an undisturbed step. Usage: … BUILD_DIRECTORY
# shellcheck disable=SC2154  # the set-up assigns build and work
set -euo pipefail
# shellcheck source=tests/slurm/auto_resume_setup.sh
. "$(dirname "$(realpath "$0")")/auto_resume_setup.sh" "$1" 2
if [ ! -x "$build/bin/hptrain" ]; then
  echo "skipped: $build/bin/hptrain is not built (LibTorch is absent)" >&2
  exit 77
fi

cat >"$work/job.yaml" <<'YAML'
name: hand
nodes: 2
workers_per_node: 2
workload:
  train:
    model: {preset: tiny}
    data: {path: /usr/share/common-licenses/GPL-3, tokenizer: byte, seq_len: 32}
    batch: {micro: 1, global: 8}
    steps: 100
    seed: 7
    precision: fp32
checkpoint: {every_steps: 10, keep: 3}
YAML
HPCTL_HOME=$work/home "$build/bin/hpctl" submit --local --dry-run --json "$work/job.yaml" \
  >"$work/spec"

# One rank: the newest complete checkpoint is the same for all, since nobody else runs by then.
cat >"$work/rank" <<SCRIPT
#!/bin/bash
dir=\$1 generation=\${HPCTL_GENERATION:-1}
mkdir -p "\$dir/checkpoints"
newest=\$(dirname "\$(ls "\$dir"/checkpoints/step-*/manifest.json 2>/dev/null | sort -V | tail -1)")
[ "\$newest" != . ] || newest=
step=\${newest##*/step-}
jq --arg newest "\$newest" --argjson step "0\${step%%.*}" --argjson parent "0\${newest##*.g}" \\
  --argjson rank "\$SLURM_PROCID" --argjson local "\$SLURM_LOCALID" \\
  --argjson world "\$SLURM_NTASKS" --argjson generation "\$generation" --arg dir "\$dir" \\
  --arg address "\$(getent hosts "\$SLURMD_NODENAME" | cut -d' ' -f1)" '{
    job: 1, name, generation: \$generation, parent_generation: \$parent, rank: \$rank,
    local_rank: \$local, world_size: \$world, node: \$address, bind_address: \$address,
    rendezvous_dir: "\(\$dir)/rdzv/\(\$generation)", resume_checkpoint: \$newest,
    start_step: \$step,
    checkpoint_dir: "\(\$dir)/checkpoints", ledger_dir: "",
    metrics_path: "\(\$dir)/metrics.jsonl", checkpoint, train}' "$work/spec" \\
  >"\$dir/rank-\$SLURM_PROCID.json"
echo \$\$ >"\$dir/pid-\$SLURM_PROCID"
exec env LD_PRELOAD="$build/tests/libslow_reads.so" SLOW_READS_WHILE="\$dir/slow" \
  "$build/bin/hptrain" --workload "\$dir/rank-\$SLURM_PROCID.json"
SCRIPT
chmod +x "$work/rank"
mkdir "$work/plain" "$work/killed"

digest() { "$build/bin/hpctl" checkpoint digest "$work/$1/checkpoints"; }
# Durable later than its step, by as much as the disk is slow.
last_checkpoint() {
  find "$work/$1/checkpoints" -path '*/step-*/manifest.json' 2>/dev/null |
    sed -nE 's|.*/step-0*([0-9]+).*|\1|p' | sort -n | tail -1
}

check_has "undisturbed" "exit 0" \
  "$(outcome plain -N2 -n4 --ntasks-per-node=2 "$work/rank" "$work/plain")"
# Its data comes slowly until then: on a busy machine, or by a slow disk, it would be through before
# its first checkpoint is seen.
touch "$work/killed/slow"
outcome step -N2 -n4 --ntasks-per-node=2 "$work/rank" "$work/killed" >"$work/told" &
until_=$((SECONDS + 60))
until now=$(last_checkpoint killed) && [ "${now:-0}" -ge 10 ]; do
  [ $SECONDS -lt $until_ ] || { check "checkpoint 10" "there in time" "${now:-none}"; break; }
  sleep 0.02
done
kill -KILL "$(cat "$work/killed/pid-3")"
rm "$work/killed/slow"
wait $!
told=$(cat "$work/told")
check_has "killed: the cause" "task 3 on n2 died of SIGKILL; all 4 tasks start again" "$told"
check_has "killed: it finished" "exit 0" "$told"
check "killed: all went on from a checkpoint" 4 \
  "$(jq -s '[.[] | select(.start_step >= 10)] | length' "$work"/killed/rank-*.json)"
[[ $told != *"exit 0"* ]] || # a step that has not finished breaks no promise
  check_promise digest "the same weights" "$(digest plain)" "$(digest killed)"
finish
