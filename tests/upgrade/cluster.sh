# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Part of run.sh: a cluster controller of one release, a job whose batch script and nodes are of the
# other, and the service upgraded while it runs. `job` is submitted by the older release.

export HPCTL_MUNGE_SOCKET=$work/munge/socket
mkdir -m 0711 "$work/munge"
(umask 077 && head -c 128 /dev/urandom >"$work/munge/key")
start "$work/munge.log" /usr/sbin/munged --foreground --force --socket="$work/munge/socket" \
  --key-file="$work/munge/key" --pid-file="$work/munge/pid" --log-file="$work/munge/log" \
  --seed-file="$work/munge/seed" --num-threads=2
munged=$!
end_munged() { kill -KILL "$munged" 2>/dev/null || true; }
trap 'end_munged; leave' EXIT
await "munged serves" munge -n --socket="$work/munge/socket"
at=127.0.0.1:$((20000 + $$ % 10000))

start_service() { # start_service RELEASE
  start "$work/service.log" "$work/$1/hpcontroller" --cluster --listen "$at" \
    --state-dir "$work/state" --node head
  service=$!
  await "the $1 cluster controller serves" listens
}
listens() { (exec 3<>"/dev/tcp/${at%:*}/${at#*:}") 2>/dev/null; }
upgrade_service() { # upgrade_service RELEASE: as systemd does
  local controller
  controller=$(controller_pid)
  kill -TERM "$service"
  tail --pid="$service" -s 0.1 -f /dev/null
  start_service "$1"
  check "the job's controller has gone on" "$controller" "$(controller_pid)"
  trains_on
}
controller_pid() { jq -r .pid "$(newest_record)"; }
# start_batch_script RELEASE: the part of it that asks the cluster controller
start_batch_script() { start_controller "$1" n0 --at "$at"; }
is_at_head() { [ "$(jq -r .node "$(newest_record)")" = head ] && is_running; }
fleet() { HPCTL_CLUSTER=$at HPCTL_HOME=/none hpctl "$1" ps -A --json; }
fleet_has_it() { fleet new | jq -e ".jobs[] | select(.job == $job and .state == \"RUNNING\")"; }
fleet_has_step() { [ "$(fleet new | jq -r ".jobs[] | select(.job == $job) | .step // 0")" -gt 0 ]; }

cluster_job() { # cluster_job NAME SERVICE BATCH AGENT0 AGENT1
  new_job "$1" "$3"
  start_service "$2"
  start_batch_script "$3"
  start_agent "$4" n0
  start_agent "$5" n1
  await "the $2 cluster controller has the job of the $3 batch script" is_at_head
  trains_on
  check "its controller is of" "$2" "$(release_of "$(controller_pid)")"
}

cluster_job old-service old new old new
ask old
ask new
kill_worker 0
upgrade_service new
await "hpctl ps -A has the job, of which its older controller says no more" fleet_has_it
kill_worker 3
faults=$(status .faults)
kill_controller
check "the new service starts one of" new "$(release_of "$(controller_pid)")"
check "which has the rows" "$faults" "$(status .faults)"
await "hpctl ps -A has its step, too" fleet_has_step
kill_worker 1
kill_agent n0
kill_agent n1
finish
end_processes

cluster_job new-service new old old new
ask old
ask new
kill_worker 0
kill_worker 3
kill_agent n0
kill_agent n1
kill_controller
check "the next is of" new "$(release_of "$(controller_pid)")"
# Back to the older one: it finds the controllers that run, and cannot take over their rows.
upgrade_service old
check_has "the older hpctl ps" "$job" "$(outcome hpctl old ps)"
kill_controller
kill_worker 2
finish
end_processes
