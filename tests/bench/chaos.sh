#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults on purpose, many of them: small jobs of each strategy, one after another, each attacked by
# a plan of its own seed (a mixture of all faults that the strategy can have) until it ends. Every
# job must end with the digest of an undisturbed one, and its ledger must have every sample exactly
# once.
#
#   chaos.sh BIN_DIRECTORY [FAULTS [SEED]]      1000 faults, seed 1
#
# Prints a line for each job, at the end a table of what was found, blamed and how long it took, and
# one line of JSON. CHAOS_UNTIL (seconds since 1970) ends it earlier. Exit status 1: a bit, a sample
# or a process was wrong, or a fault was not found or not survived.
set -euo pipefail
bin=$(realpath "$1") wanted=${2:-1000} seed=${3:-1}
work=$(mktemp -d) steps=${CHAOS_STEPS:-300} in_a_job=10
home=$work/home
strategies=(full shard_grad_op no_shard hybrid)
declare -A digest_of
bad=0

hpctl() { HPCTL_HOME=$home "$bin/hpctl" "$@"; }
controller() { hpctl version --json | jq -r '.controller.pid // empty'; }
# What carries our home in its environment.
ours() {
  local environment
  for environment in /proc/[0-9]*/environ; do
    if grep -qsz "^HPCTL_HOME=$home\$" "$environment"; then
      environment=${environment#/proc/}
      echo "${environment%/environ}"
    fi
  done
}
# Also one that an agent has just started again.
stop_controller() {
  local pid
  for _ in $(seq 60); do
    [ -n "$(ours)" ] || break
    pid=$(controller || true)
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    sleep 0.5
  done
}
clean_up() {
  stop_controller
  while [ -n "$(ours)" ]; do
    # shellcheck disable=SC2046  # one word a process
    kill -9 $(ours) 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'echo "line $LINENO: $BASH_COMMAND" >&2' ERR

job_file() { # NAME STRATEGY
  cat <<EOF
name: $1
nodes: 2
workers_per_node: 2
workload:
  train:
    model: {preset: tiny}
    data: {path: /usr/share/common-licenses/GPL-3, tokenizer: byte, seq_len: 32}
    batch: {micro: 1, global: 8}
    steps: $steps
    seed: 7
    optimizer: {lr: 1e-3}
    schedule: {warmup_steps: 10}
    parallelism: {strategy: $2}
checkpoint: {every_steps: 7, keep: 3}
recovery:
  max_restarts: 1000
  heartbeat_timeout: 2s
  snapshot: {replicas: $([ "$2" = shard_grad_op ] && echo 0 || echo 1)}
debug: {ledger: true, chaos: true}
EOF
}
plan_file() { # SEED STRATEGY
  cat <<EOF
seed: $1
recover_within: 2m
trace:
  period: 12s
  count: $in_a_job
  causes:
    - cause: a worker
      count: 6
      faults: [kill-worker, stop-worker, crash-worker, hang-worker, exit-worker, oom-worker]
    - {cause: a node, count: 2, faults: [kill-holder, stop-holder]}
    - cause: a supervisor
      count: 4
      faults: [kill-agent, stop-agent, cut-agent, lose-messages, kill-controller]
    - {cause: a disk, count: 2, faults: [full-disk, slow-disk]}
    - {cause: a gradient, count: 1, faults: [nan-gradient]}
    - {cause: the network between ranks, count: 1, faults: [cut-peers]}
EOF
  case $2 in
    shard_grad_op) # without copies at peers: a checkpoint is read
      echo "    - {cause: a checkpoint, count: 1, faults: [corrupt-checkpoint]}"
      ;;
  esac
}
# The digest of job NAME, whose ledger is in order; else "".
digest() {
  local directory=$home/jobs/$1/checkpoints
  hpctl checkpoint ledger "$directory" >>"$work/ledger.log" 2>&1 || return 0
  hpctl checkpoint digest "$directory"
}

for strategy in "${strategies[@]}"; do
  job_file "calm-$strategy" "$strategy" >"$work/job.yaml"
  id=$(hpctl submit "$work/job.yaml" --local --json | jq .job)
  hpctl wait "$id" --json >/dev/null
  digest_of[$strategy]=$(digest "$id")
  [ -n "${digest_of[$strategy]}" ] || {
    echo "$strategy: no digest of the undisturbed job" >&2
    exit 1
  }
done

injected=0 jobs=0
while [ "$injected" -lt "$wanted" ] && [ "$EPOCHSECONDS" -lt "${CHAOS_UNTIL:-9999999999}" ]; do
  strategy=${strategies[(seed + 3) % ${#strategies[@]}]}
  job_file "job-$seed" "$strategy" >"$work/job.yaml"
  plan_file "$seed" "$strategy" >"$work/plan.yaml"
  hpctl submit "$work/job.yaml" --local --chaos "$work/plan.yaml" --json \
    >"$work/report.json" 2>"$work/error" || true
  id=$(jq .job "$work/report.json") || { cat "$work/error" >&2; exit 1; }
  state=$({ hpctl wait "$id" --json || true; } | jq -r .state)
  verdict=same
  [ "$(digest "$id")" = "${digest_of[$strategy]}" ] || verdict=DIFFERENT
  [ "$state" = FINISHED ] || verdict=$state
  # What a job's last steps were attacked with, nobody had the time to find.
  jq -c '.faults[] | select(.injected and .problem != "the job finished before")' \
    "$work/report.json" >"$work/here"
  cat "$work/here" >>"$work/faults"
  here=$(wc -l <"$work/here")
  unfound=$(jq -rs '[.[] | select(.found | not) | .fault] | join(" ")' "$work/here")
  echo "seed $seed $strategy: $here faults, $verdict${unfound:+, not found: $unfound}"
  if [ "$verdict" != same ]; then
    bad=$((bad + 1))
    cp -r "$home/jobs/$id" "${CHAOS_KEEP:-/tmp}/chaos-seed-$seed"
    cp "$work/report.json" "${CHAOS_KEEP:-/tmp}/chaos-seed-$seed"
  fi
  rm -rf "$home/jobs/$id/checkpoints"
  injected=$((injected + here)) jobs=$((jobs + 1)) seed=$((seed + 1))
done

jq -rs '
  def at(p): map(select(. != null)) | sort
    | if length == 0 then "-" else .[((length - 1) * p) | ceil] / 1000 end;
  def count(f): map(select(f)) | length;
  def row: [.[0].fault, length, count(.found), count(.blame == "right"), count(.blame == "wrong"),
    count(.found and .blame == "nobody"), (map(.noticed_ms) | at(0.5), at(0.99)),
    (map(.back_ms) | at(0.5), at(0.99)), (map(.lost_steps // 0) | add)];
  "| fault | injected | found | blamed rightly | wrongly | nobody | noticed s, median | p99 "
    + "| back s, median | p99 | steps lost |",
  "|---|---|---|---|---|---|---|---|---|---|---|",
  ((group_by(.fault)[] | row), (map(.fault = "all") | row)
    | "| " + (map(tostring) | join(" | ")) + " |")' "$work/faults"
stop_controller
left=$(ours | wc -l)
unfound=$(jq -s 'map(select(.found | not)) | length' "$work/faults")
jq -nc --argjson faults "$injected" --argjson jobs "$jobs" --argjson bad "$bad" \
  --argjson unfound "$unfound" --argjson left "$left" '{benchmark: "chaos", $faults, $jobs,
    wrong_jobs: $bad, not_found: $unfound, processes_left: $left}'
[ "$bad" -eq 0 ] && [ "$unfound" -eq 0 ] && [ "$left" -eq 0 ]
