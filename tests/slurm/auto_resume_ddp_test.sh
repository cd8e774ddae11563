#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real PyTorch programs under `srun --auto-resume=1`, one rank killed in mid-training: a DDP script
# started without a launcher on 2 nodes x 2 tasks, the same under torchrun, which brings one, and
# the first with Pythons that stand by.
# Usage: … BUILD_DIRECTORY
# shellcheck disable=SC2016,SC2154  # quoted programs are for tasks; the set-up assigns the rest
set -euo pipefail
python=/usr/bin/python3
if ! $python -c 'from importlib.util import find_spec; exit(not find_spec("torch"))'; then
  echo "skipped: $python has no torch (Debian: python3-torch)" >&2
  exit 77
fi
tests=$(realpath "$(dirname "$(realpath "$0")")/..")
peers=$tests/bench/peers
program=$tests/integration/ddp_train.py
# shellcheck source=tests/slurm/auto_resume_setup.sh
. "$(dirname "$(realpath "$0")")/auto_resume_setup.sh" "$1" 2
# An agent of torchrun whose workers have failed waits up to 300 s for the other agents to end.
step() { timeout 500 srun -Q --auto-resume=1 "$@"; }
# The interface by which the nodes reach each other; on one machine without namespaces, any.
head=localhost
if [ "$HPCTL_TEST_NETNS" = true ]; then
  export GLOO_SOCKET_IFNAME=eth0
  head=n1
fi

last_step() { sed -nE '$s/.*"step": ([0-9]+).*/\1/p' "$1/steps.jsonl" 2>/dev/null || true; }
await_step() { # await_step DIRECTORY N
  local until=$((SECONDS + 120)) now
  until now=$(last_step "$1") && [ "${now:-0}" -ge "$2" ]; do
    [ $SECONDS -lt $until ] || { check "step $2" "reached in time" "step ${now:-none}"; return 0; }
    sleep 0.05
  done
}
lives_in() { cut -d, -f2 "$1/steps.jsonl" | uniq | wc -l; }
pid_of() { # pid_of DIRECTORY LIFE RANK
  jq .pid "$1/env-g$2-r$3.json"
}

# What goes on for long after the kill is shown, with where it waits and for whom.
show_if_late() { # show_if_late PID
  timeout 100 tail --pid="$1" -f /dev/null && return
  local node pids
  for node in n1 n2; do
    echo "still there on $node:"
    pids=$("$cluster" pids $node | xargs)
    ps -o pid,ppid,stat,etimes,wchan:24,args -p "${pids// /,}" || true
    nsenter "--net=/proc/${pids%% *}/ns/net" ss -tnpo || true
  done
}

train() { # train NAME SRUN-AND-PROGRAM...: kills rank 3 after the second checkpoint
  local name=$1
  shift
  mkdir "$work/$name"
  touch "$work/$name/hold-13"
  outcome "$@" "$program" "$work/$name" 30 >"$work/$name/told" &
  await_step "$work/$name" 12
  kill -KILL "$(pid_of "$work/$name" 1 3)"
  rm "$work/$name/hold-13"
  show_if_late $!
  wait $!
  check_has "$name: it finished" "exit 0" "$(cat "$work/$name/told")"
  check "$name: the last step" 30 "$(last_step "$work/$name")"
  check "$name: two lives" 2 "$(lives_in "$work/$name")"
}
train ddp step -N2 -n4 --ntasks-per-node=2 $python
check_has "ddp: the cause" "task 3 on n2 died of SIGKILL; all 4 tasks start again" \
  "$(cat "$work/ddp/told")"
train torchrun step -N2 -n2 $python "$peers/torchrun.py" --nnodes=2 --nproc_per_node=2 \
  --max_restarts=0 --rdzv_backend=c10d --rdzv_id=1 --rdzv_endpoint=$head:29511
check_has "torchrun: its exit is the cause" "tasks start again" "$(cat "$work/torchrun/told")"

# Every task's next life is the Python that waited for it, with torch imported. Training stands
# still while they import, at the lowest priority.
out=$work/standby waiting=$work/standby/waiting
mkdir -p "$waiting"
touch "$out/hold-3"
export HPCTL_STANDBY_IMPORTS=torch,stands_by STANDING_BY=$waiting PYTHONPATH=$peers
outcome step -J standby -N2 -n4 --ntasks-per-node=2 $python "$program" "$out" 100000 \
  >"$out/told" &
those_who_wait() { find "$waiting" -type f | wc -l; }
await_count() { # await_count WHAT N COMMAND...
  local what=$1 expected=$2 until=$((SECONDS + 120))
  shift 2
  until [ "$("$@")" -eq "$expected" ]; do
    [ $SECONDS -lt $until ] || { check "$what" "$expected" "$("$@")"; return 0; }
    sleep 0.05
  done
}
await_step "$out" 2
await_count "standby: four wait" 4 those_who_wait
expected=$(find "$waiting" -type f -printf '%f\n' | sort)
kill -KILL "$(pid_of "$out" 1 3)"
rm "$out/hold-3"
await_count "standby: two lives" 2 lives_in "$out"
check "standby: who waited goes on" "$expected" \
  "$(for rank in 0 1 2 3; do pid_of "$out" 2 $rank; done | sort)"
await_step "$out" 3
scancel -n standby
wait $!
await_no_process 'hpctl standby'
finish
