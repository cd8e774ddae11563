#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `srun --auto-resume=1` costs, and how fast it brings a program back, on a real Slurm.
#
#   auto_resume.sh BUILD_DIRECTORY [STARTS] [KILLS]
#
# Overhead: `srun true` without the plugin, with it unused, and with it used, in turn (STARTS
# rounds, each in another order); the figure is the median of the differences within a round, with
# their quartiles. Begun only once the machine is quiet, else left out.
# Restart: the same DDP script on one node with 4 ranks loses a rank to SIGKILL; measured is kill ->
# next completed step, for --auto-resume=1, for the same with HPCTL_STANDBY_IMPORTS=torch once a
# Python stands by for each rank, for torchrun as it is (it looks every 5 s), and for torchrun that
# looks every 0.1 s, in turn (KILLS each). Prints a table, then one line of JSON.
# shellcheck disable=SC2154  # the set-up assigns the rest
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/slurm/auto_resume_setup.sh
. "$here/../slurm/auto_resume_setup.sh" "$1" 1
end() { # interrupted: an srun would wait for its step, which goes with the cluster
  local srun
  for srun in $(jobs -pr); do
    pkill -KILL -P "$srun" || true
    kill -KILL "$srun" 2>/dev/null || true
  done
  "$cluster" down
}
trap end EXIT
starts=${2:-30} kills=${3:-3} # 0 = overhead only
python=/usr/bin/python3 text=/usr/share/common-licenses/GPL-3
export GLOO_SOCKET_IFNAME=lo

quantile() { sort -n | awk -v q="$1" '{v[NR] = $1} END {print v[int((NR - 1) * q) + 1]}'; }
median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
now_us() { local now=${EPOCHREALTIME/[.,]/}; echo "$now"; }

begin() { # begin KIND: configures the plugin for it
  if [ "$1" = without ]; then
    : >"$HPCTL_TEST_CLUSTER/plugstack.d/hpctl.conf"
  else
    plugins "$plugin"
  fi
}
time_start() {
  local options=() from
  [ "$1" != used ] || options=(--auto-resume=1)
  begin "$1"
  from=$(now_us)
  srun -Q "${options[@]}" -n1 true
  took=$(($(now_us) - from))
}
is_quiet() { # nine tenths of the processors' time idle within a second
  local before after
  before=$(awk '/^cpu /{print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9}' /proc/stat)
  sleep 1
  after=$(awk '/^cpu /{print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9}' /proc/stat)
  awk -v b="$before" -v a="$after" \
    'BEGIN {split(b, x); split(a, y); exit !(y[1] - x[1] >= 0.9 * (y[2] - x[2]))}'
}
await_quiet() {
  local until=$((SECONDS + 120))
  until is_quiet; do [ $SECONDS -lt $until ] || return 1; done
}
orders=("without unused used" "used without unused" "unused used without")
if await_quiet; then
  for kind in without unused used; do time_start $kind; done # warm
  for round in $(seq "$starts"); do
    declare -A us=()
    for kind in ${orders[round % 3]}; do
      time_start "$kind"
      us[$kind]=$took
    done
    echo $((us[unused] - us[without])) >>"$work/start.unused"
    echo $((us[used] - us[without])) >>"$work/start.used"
    echo "${us[without]}" >>"$work/start.without"
  done
else
  echo "overhead: skipped, the machine was busy for 120 s ($(cut -d' ' -f1-3 /proc/loadavg))" >&2
fi
begin used

pid_of_last_step() { sed -nE '$s/.*"pid": ([0-9]+).*/\1/p' "$1/metrics.jsonl" 2>/dev/null || true; }
steps() { wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0; }
await() {
  local until=$((SECONDS + 120))
  until "$@"; do
    [ $SECONDS -lt $until ] || { echo "not in 120 s: $*" >&2; exit 1; }
    read -rt 0.005 <> <(:) || true # a pause without a process
  done
}
has_steps() { # nothing was counted where a signal ended wc
  local count
  count=$(steps "$1")
  [ "${count:-0}" -ge "$2" ]
}
stand_by() { [ "$(find "$1" -type f | wc -l)" -eq "$2" ]; }
is_another_life() { local pid; pid=$(pid_of_last_step "$1"); [ -n "$pid" ] && [ "$pid" != "$2" ]; }
time_restart() { # time_restart KIND RUN
  local out=$work/$1.$2 command=() variables=() life from
  mkdir "$out"
  case $1 in
    ours) command=(--auto-resume=1 -n4 "$python") ;;
    standby)
      mkdir "$out/waiting"
      variables=("HPCTL_STANDBY_IMPORTS=torch,stands_by" "STANDING_BY=$out/waiting")
      command=(--auto-resume=1 -n4 "$python") ;;
    torchrun)
      command=(-n1 -c4 "$python" "$here/peers/torchrun.py" --nproc_per_node=4 --max_restarts=3) ;;
    torchrun_fast)
      command=(-n1 -c4 "$python" "$here/peers/torchrun.py" --nproc_per_node=4 --max_restarts=3
        --monitor_interval=0.1) ;;
  esac
  env "${variables[@]}" srun -Q "${command[@]}" "$here/peers/ddp_llama.py" $text "$out" 100000 \
    >"$out/told" 2>&1 &
  await has_steps "$out" 15
  [ "$1" != standby ] || await stand_by "$out/waiting" 4
  life=$(pid_of_last_step "$out")
  from=$(now_us)
  kill -KILL "$(cat "$out/pid-3")"
  await is_another_life "$out" "$life"
  echo $((($(now_us) - from) / 1000)) >>"$work/restart.$1"
  scancel -u "$(id -un)" --quiet
  wait || true
}
if $python -c 'import torch.distributed' 2>/dev/null; then
  for run in $(seq "$kills"); do
    for kind in ours standby torchrun torchrun_fast; do time_restart $kind "$run"; done
  done
else
  echo "restart: skipped, $python has no torch (Debian: python3-torch)" >&2
fi

json="{\"benchmark\": \"auto_resume\", \"starts\": $starts, \"kills\": $kills"
for kind in without unused used; do
  [ -e "$work/start.$kind" ] || continue
  read -r value low high < <(for q in 0.5 0.25 0.75; do quantile $q <"$work/start.$kind"; done |
    awk '{printf "%.2f ", $1 / 1000} END {print ""}')
  what="more with the plugin $kind"
  [ $kind != without ] || what="without the plugin"
  printf 'srun true, %-28s %7s ms (%s rounds, quartiles %s to %s)\n' "$what" "$value" "$starts" \
    "$low" "$high"
  key=overhead_$kind
  [ $kind != without ] || key=start_without
  json+=", \"${key}_ms\": $value"
done
for kind in ours standby torchrun torchrun_fast; do
  [ -e "$work/restart.$kind" ] || continue
  value=$(median <"$work/restart.$kind")
  printf 'kill -> next step, %-13s %6s ms (median of %s)\n' "$kind" "$value" "$kills"
  json+=", \"restart_${kind}_ms\": $value"
done
echo "$json}"
