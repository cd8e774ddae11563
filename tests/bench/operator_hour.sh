#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An hour of an administrator's and a user's orders at random, on a real Slurm of four nodes while
# two jobs of hpctl train: suspend, requeue, hold, drain with a reason, DOWN, preemption, slurmctld
# stopped or started again, SIGTERM to a node, kill -9 of a worker, agent or controller, cancel, a
# program that fails. None of it is the fault of a machine.
#
#   operator_hour.sh BUILD_DIRECTORY [MINUTES [SEED]]      60 minutes, seed 1
#
# After each order: no node has a point (`hpctl nodes lemons`), each verb answers within 15 s and
# with an exit status that it documents, a drain keeps its reason, and both jobs train again. SEED
# gives the orders; how far a job has come by then is the machine's affair. Prints a line for each
# order, then a table and one line of JSON. Exit status 1: something was not so. With OPERATOR_KEEP
# the home of a red run is kept there.
set -euo pipefail
build=$(realpath "$1") minutes=${2:-60} seed=${3:-1}
here=$(dirname "$(realpath "$0")")
cluster=$here/../slurm/cluster text=/usr/share/common-licenses/GPL-3
export HPCTL_BIN=${HPCTL_BIN:-$build/bin}
RANDOM=$seed

exports=$("$cluster" up --nodes 4 --netns --slurmd-timeout 30 --preemption --owner $$) || exit $?
eval "$exports"
work=$HPCTL_TEST_CLUSTER/work
mkdir -p "$work"
export HPCTL_HOME=$work/home
red=()
declare -A done_of

hpctl() { "$HPCTL_BIN/hpctl" "$@"; }
say() { echo "$(date -u +%H:%M:%S) $*"; }
bad() {
  say "red: $*"
  red+=("$*")
}
clean_up() {
  scancel --full -u "$(id -un)" --quiet 2>/dev/null || true
  if [ ${#red[@]} -gt 0 ] && [ -n "${OPERATOR_KEEP:-}" ]; then
    cp -r "$HPCTL_HOME" "$OPERATOR_KEEP/operator-seed-$seed" || true
  fi
  "$cluster" down
}
trap clean_up EXIT

await() { # await SECONDS COMMAND...
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.2
  done
}
field() { hpctl status "$1" --json 2>/dev/null | jq -r "$2 // empty" 2>/dev/null || true; }
state_of() { field "$1" .state; }
trains() { [ "$(state_of "$1")" = RUNNING ]; }
# A job that Slurm preempts has ended for hpctl before Slurm requeues it.
has_ended() {
  [[ $(state_of "$1") =~ ^(FINISHED|FAILED|CANCELLED|TIMEOUT)$ ]] &&
    [ -z "$(squeue -h -j "$1" 2>/dev/null)" ]
}
trains_or_ended() { trains "$1" || has_ended "$1"; }
is_in() { [ "$(state_of "$1")" = "$2" ]; } # is_in JOB STATE
submit() { hpctl submit "$1" --json | jq -r .job; }

trainer_file() { # trainer_file NAME SPARES: of four nodes one is left for the program that fails
  cat >"$work/$1.yaml" <<EOF
name: $1
nodes: {count: 1, spares: $2}
workers_per_node: 2
slurm: {partition: main, exclusive: true}
recovery: {max_restarts: 1000000}
checkpoint: {every_steps: 50}
workload:
  train:
    model: {preset: debugmodel}
    data: {path: $text, seq_len: 128}
    batch: {micro: 1, global: 4}
    steps: 1000000
EOF
  echo "$work/$1.yaml"
}
start_job() { # start_job INDEX
  jobs[$1]=$(submit "$(trainer_file "endless-$1" "$1")")
  await 300 trains "${jobs[$1]}" || bad "job ${jobs[$1]} does not train"
}

# ---- orders ------------------------------------------------------------------------------------

# $id is one of the jobs, chosen for each order below: a subshell has a RANDOM of its own.

suspend() {
  scontrol suspend "$id" || return 0
  await 30 is_in "$id" SUSPENDED || bad "job $id is not SUSPENDED"
  sleep $((RANDOM % 8))
  scontrol resume "$id"
}
requeue() { scontrol requeue "$id" || true; }
hold() {
  scontrol requeuehold "$id" || return 0
  await 120 is_in "$id" PENDING || bad "job $id is not PENDING"
  hpctl status "$id" | grep -q "scontrol release $id" || bad "job $id does not name its release"
  scontrol release "$id"
}
drain() {
  local node reason="ticket $RANDOM"
  node=n$((RANDOM % 4 + 1))
  scontrol update "nodename=$node" state=drain "reason=$reason"
  sleep $((RANDOM % 20 + 5))
  scontrol show node "$node" | grep -q "Reason=$reason" || bad "the reason of $node is another"
  scontrol update "nodename=$node" state=resume
}
down_node() {
  local node=n$((RANDOM % 4 + 1))
  scontrol update "nodename=$node" state=down reason=test
  sleep 5
  scontrol update "nodename=$node" state=resume
}
preempt() {
  sbatch -Q --partition=urgent --nodes=4 --exclusive --output=/dev/null --wrap='sleep 5'
  sleep 15
}
stop_slurmctld() {
  local pid
  pid=$(cat "$HPCTL_TEST_CLUSTER/slurmctld.pid")
  kill -STOP "$pid"
  sleep $((RANDOM % 15 + 5))
  check_verbs
  kill -CONT "$pid"
}
restart_slurmctld() {
  sleep 6 # it saves its state each 5 s, and would not know a job that is newer
  "$cluster" stop slurmctld
  sleep $((RANDOM % 10))
  "$cluster" start slurmctld
}
leave_node() { kill -TERM "$(field "$id" '.nodes[0].holder_pid')" || true; }
kill_worker() { kill -KILL "$(field "$id" '.workers[0].pid')" || true; }
kill_agent() { kill -KILL "$(field "$id" '.nodes[0].agent_pid')" || true; }
kill_controller() { kill -KILL "$(field "$id" .controller.pid)" || true; }
cancel() { hpctl cancel "$id" >/dev/null || bad "a cancellation failed"; }
scancel_job() { scancel "$id"; }
failing_program() {
  local failing
  cat >"$work/fails.yaml" <<'EOF'
name: fails
slurm: {partition: main}
recovery: {max_restarts: 2}
workload: {command: [sh, -c, 'exit 3']}
EOF
  failing=$(submit "$work/fails.yaml")
  await 300 has_ended "$failing" || bad "job $failing, whose program fails, does not end"
  [ "$(state_of "$failing")" = FAILED ] || bad "job $failing is $(state_of "$failing")"
}

# ---- checks ------------------------------------------------------------------------------------

check_verbs() {
  local words one=${jobs[0]} began status
  for words in ps "status $one" "why $one" "nodes $one" "events $one" "goodput $one" \
    "watch --once"; do
    began=$SECONDS status=0
    # shellcheck disable=SC2086  # the words of a command
    timeout 60 "$HPCTL_BIN/hpctl" $words >/dev/null 2>&1 || status=$?
    [ $((SECONDS - began)) -le 15 ] || bad "hpctl $words took $((SECONDS - began)) s"
    [ "$status" -le 3 ] || bad "hpctl $words ended with $status"
  done
}
check_points() {
  local scored
  scored=$(hpctl nodes lemons --json | jq -c .nodes)
  [ "$scored" = "[]" ] || bad "nodes have points: $scored"
}
check_jobs() { # both train, or are begun again where the order ended them
  local index one
  for index in 0 1; do
    one=${jobs[index]}
    if ! await 300 trains_or_ended "$one"; then
      bad "job $one does not train 300 s later: $(state_of "$one")"
      scancel "$one"
      start_job "$index"
    elif has_ended "$one"; then
      [ "$(state_of "$one")" = CANCELLED ] || bad "job $one ended as $(state_of "$one")"
      start_job "$index"
    fi
  done
}

orders=(suspend requeue hold drain down_node preempt stop_slurmctld restart_slurmctld leave_node
  kill_worker kill_agent kill_controller cancel scancel_job failing_program)
jobs=()
for index in 0 1; do start_job $index; done
until=$((SECONDS + minutes * 60)) count=0
while [ $SECONDS -lt $until ]; do
  order=${orders[RANDOM % ${#orders[@]}]} id=${jobs[RANDOM % 2]}
  say "$order, job $id"
  $order || bad "$order could not be carried out"
  count=$((count + 1)) done_of[$order]=$((${done_of[$order]:-0} + 1))
  check_jobs
  check_points
  check_verbs
done

echo "| order | times |"
echo "|---|---|"
for order in "${orders[@]}"; do echo "| $order | ${done_of[$order]:-0} |"; done
printf '{"benchmark":"operator_hour","seed":%d,"minutes":%d,"orders":%d,"red":%d}\n' \
  "$seed" "$minutes" "$count" "${#red[@]}"
[ "$count" -gt 0 ] && [ ${#red[@]} -eq 0 ]
