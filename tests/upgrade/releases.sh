# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Two releases side by side, and one job of a cluster without Slurm whose processes are of either:
# sourced by run.sh, which sets `work` and has made $work/old and $work/new.
#
# A job's directory is as `hpctl submit` leaves it. Node names tell the nodes of one machine apart,
# and each of them has its own local state.

export HPCTL_HOME=$work/home HPCTL_METRICS=
unset SLURM_JOB_ID SLURM_RESTART_COUNT SLURMD_NODENAME HPCTL_CLUSTER
first_job=$((900001 + $$ % 90000))
next_job=$((first_job - 1))

processes() { # processes PROGRAM: of either release
  find /proc -mindepth 2 -maxdepth 2 -name exe -lname "$work/*/$1" 2>/dev/null |
    cut -d/ -f3 || true
}
end_processes() {
  local process
  while [ -n "$(processes '*')" ]; do
    for process in $(processes '*'); do kill -KILL "$process" 2>/dev/null || true; done
    sleep 0.1
  done
}
await() { # await WHAT COMMAND...: until it succeeds
  local until=$((SECONDS + 60)) what=$1
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || { check "$what" "within 60 s" "not yet"; give_up; }
    sleep 0.1
  done
  echo "ok: $what"
}
give_up() {
  tail -n 15 "$job_dir"/*.log "$job_dir"/nodes/*/*.log "$work"/*.log 2>/dev/null || true
  hpctl new events "$job" 2>/dev/null | tail -n 30 || true
  finish_checks
}

hpctl() { # hpctl RELEASE WORD...
  local release=$1
  shift
  timeout 30 "$work/$release/hpctl" "$@"
}
release_of() { # release_of PID
  readlink "/proc/$1/exe" | sed "s|^$work/||; s|/.*||"
}

# Any steps and any faults end in the same state, so that of an undisturbed run is what is compared.
checkpoint_more=
job_yaml() { # job_yaml NAME: with $checkpoint_more, further keys of `checkpoint`
  cat <<YAML
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
    precision: fp32
checkpoint: {every_steps: 50, keep: 2$checkpoint_more}
recovery: {max_restarts: 100, heartbeat_timeout: 5s}
YAML
}

new_job() { # new_job NAME RELEASE: its directory is written by that release's hpctl
  next_job=$((next_job + 1))
  job=$next_job
  job_dir=$HPCTL_HOME/jobs/submit-$job
  mkdir -p "$job_dir"
  ln -s "submit-$job" "$HPCTL_HOME/jobs/$job"
  job_yaml "$1" >"$work/$1.yaml"
  hpctl "$2" submit "$work/$1.yaml" --dry-run --json |
    jq --argjson uid "$(id -u)" '. + {uid: $uid, submit_key: "test"} | del(.batch_script)' \
      >"$job_dir/job.json"
  (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$job_dir/token")
  echo >>"$job_dir/token"
  echo "== job $job: $1"
}

# start LOG PROGRAM WORD...: in a session of its own
start() {
  local log=$1
  shift
  setsid "$@" >>"$log" 2>&1 </dev/null &
  disown
}
start_controller() { # start_controller RELEASE NODE [WORD...]
  local release=$1 node=$2
  shift 2
  start "$job_dir/controller-$node.log" "$work/$release/hpcontroller" --job-dir "$job_dir" \
    --job "$job" --node "$node" --scheduler none --nodes n0,n1 "$@"
}
start_agent() { # start_agent RELEASE NODE
  start "$job_dir/agent-$2.log" "$work/$1/hpagent" --holder --job-dir "$job_dir" --job "$job" \
    --node "$2"
}

status() { hpctl new status "$job" --json 2>/dev/null | jq -r "$1"; }
is_running() { [ "$(status .state)" = RUNNING ]; }
is_generation() { is_running && [ "$(status .generation)" -ge "$1" ]; }
has_step() { [ "$(status .step)" -ge "$1" ]; }
trains_on() { # it has made steps since now
  local step
  step=$(status .step)
  await "it trains on" has_step $((step + 3))
}
pid_of() { # pid_of rank|node NUMBER [holder_pid|agent_pid]
  case $1 in
    rank) status ".workers[] | select(.rank == $2 and .state == \"running\") | .pid" ;;
    node) status ".nodes[] | select(.name == \"$2\") | .$3" ;;
  esac
}
newest_record() { find "$job_dir/controllers" -name '[0-9]*.json' | sort -V | tail -n 1; }
controller_pid() { jq -r .pid "$(newest_record)"; }
kill_worker() { # kill_worker RANK
  local generation
  generation=$(status .generation)
  kill -KILL "$(pid_of rank "$1")"
  await "rank $1 was killed, and the job recovers" is_generation $((generation + 1))
  trains_on
}
agent_is_another() { # agent_is_another NODE PID
  local now
  now=$(pid_of node "$1" agent_pid)
  [ "$now" -gt 0 ] && [ "$now" != "$2" ]
}
kill_agent() { # kill_agent NODE
  local agent generation
  agent=$(pid_of node "$1" agent_pid)
  generation=$(status .generation)
  kill -KILL "$agent"
  await "the agent of $1 was killed, and replaced" agent_is_another "$1" "$agent"
  trains_on
  check "training did not notice" "$generation" "$(status .generation)"
}
controller_is_another() { [ "$(controller_pid)" != "$1" ] && is_running; }
kill_controller() { # kill_controller [RELEASE NODE]: of which the next is; "" = whoever takes over
  local controller
  controller=$(controller_pid)
  kill -KILL "$controller"
  [ $# -eq 0 ] || start_controller "$@"
  await "the controller was killed, and replaced" controller_is_another "$controller"
  echo "   now it is of: $(release_of "$(controller_pid)")"
  trains_on
}
# serve_home_by RELEASE: a controller of that release takes over the home. Its agents start one of
# their own release after 3 s, which on a busy machine may be the quicker one.
serve_home_by() {
  local controller tries=5
  while [ $tries -gt 0 ]; do
    tries=$((tries - 1))
    controller=$(controller_pid)
    kill -KILL "$controller"
    start "$work/controller.log" "$work/$1/hpcontroller"
    await "the controller of the home was killed, and replaced" controller_is_another "$controller"
    [ "$(release_of "$(controller_pid)")" != "$1" ] || break
  done
  check "it is of" "$1" "$(release_of "$(controller_pid)")"
}
# replace_node NODE RELEASE: its holder dies, and it comes back as one of that release
replace_node() {
  local generation
  generation=$(status .generation)
  kill -KILL "$(pid_of node "$1" holder_pid)"
  start_agent "$2" "$1"
  await "$1 is back, with a holder of: $2" is_generation $((generation + 1))
  trains_on
  check "its holder is of" "$2" "$(release_of "$(pid_of node "$1" holder_pid)")"
}
finish() { # the job finishes by itself, and with the state of one that nobody disturbed
  local until=$((SECONDS + 300))
  while [ ! -e "$job_dir/verdict" ] && [ $SECONDS -lt $until ]; do sleep 0.2; done
  check "the job finishes" "0 0" "$(cat "$job_dir/verdict" 2>/dev/null)"
  [ -e "$job_dir/verdict" ] || return 0 # an unfinished job breaks no promise
  check_promise digest "with the state of one that nobody disturbed" "$undisturbed" \
    "$(hpctl new checkpoint digest "$job_dir/checkpoints" | cut -d' ' -f1)"
}
