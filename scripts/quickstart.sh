#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job of hpctl on one machine, complete from a bare Debian system: builds, trains a small
# Llama on two virtual nodes with two workers each, kills a worker half-way, shows the recovery.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh release hpctl hpcontroller hpagent hptrain
bin=$PWD/build/release/bin
export HPCTL_HOME=${HPCTL_HOME:-$PWD/build/quickstart}
export HPCTL_METRICS=${HPCTL_METRICS:-127.0.0.1:0}
mkdir -p "$HPCTL_HOME"

job=$("$bin/hpctl" submit --local --json examples/quickstart.yaml | jq -r .job)
steps=$(jq -r .train.steps "$HPCTL_HOME/jobs/$job/job.json")
echo "job $job submitted: examples/quickstart.yaml, $steps steps on 2 virtual nodes x 2 workers"

# In the background: once half of the steps are done, kill worker 2 as a hardware fault would.
(
  while true; do
    status=$("$bin/hpctl" status "$job" --json 2>/dev/null || echo '{}')
    [ "$(jq -r '.state // ""' <<<"$status")" = FINISHED ] && exit 0
    if [ "$(jq -r '.step // 0' <<<"$status")" -ge $((steps / 2)) ]; then
      pid=$(jq -r '.workers[] | select(.rank == 2) | .pid' <<<"$status")
      printf '\n>>> kill -9 %s (worker 2)\n' "$pid"
      kill -9 "$pid"
      exit 0
    fi
    sleep 0.2
  done
) &
killer=$!
trap 'kill $killer 2>/dev/null || true' EXIT

"$bin/hpctl" wait "$job"
wait $killer || true
trap - EXIT

metrics="http://$(jq -r .metrics "$HPCTL_HOME/controller.json")/metrics"
cat <<EOF

checkpoints  $HPCTL_HOME/jobs/$job/checkpoints
logs         $HPCTL_HOME/jobs/$job/logs
metrics      $metrics

Try next:
  export HPCTL_HOME=$HPCTL_HOME PATH=$bin:\$PATH
  hpctl why $job                 # the chain of events behind its state
  hpctl events $job              # its whole history
  hpctl logs $job --rank 0       # what worker 0 printed
  hpctl checkpoint ls $HPCTL_HOME/jobs/$job/checkpoints
  hpctl submit --local --wait examples/quickstart.yaml   # again; kill what you like
  scripts/build.sh               # the other programs: preparation of data, Slurm's
EOF
