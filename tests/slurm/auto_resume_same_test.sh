#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A task under `srun --auto-resume=1` is the task that it would be without: limits, environment,
# prologs, cgroup, descriptors, terminal, labels, exit codes, signals. Usage: … BUILD_DIRECTORY
# shellcheck disable=SC2016,SC2154  # the quoted programs are for the shell of a task
set -euo pipefail
# shellcheck source=tests/slurm/auto_resume_setup.sh
. "$(dirname "$(realpath "$0")")/auto_resume_setup.sh" "$1" 2
if [ -n "${HPCTL_TEST_PROCTRACK:-}" ]; then
  check_has "process tracking" "proctrack/$HPCTL_TEST_PROCTRACK" "$(scontrol show config)"
fi
export HPCTL_MAX_RESTARTS=0 # one life, so that what ends a program ends its task

# --- what a task finds ------------------------------------------------------------------------
# Numbers that differ between any two steps are taken out: pids, ports, the step's own.
cat >"$work/report" <<'SCRIPT'
#!/bin/bash
echo "== limits"; ulimit -a
echo "== place"; pwd; umask; taskset -cp $$ | cut -d: -f2; cat /proc/self/oom_score_adj; nice
echo "== cgroup"; sed -E 's/step_[0-9]+/step_N/' /proc/self/cgroup
echo "== descriptors"; for fd in /proc/self/fd/*; do
  readlink "$fd" | sed -E 's/[0-9]+/N/g'; done | grep -v '/proc/N/fd' | grep -v "$0" | sort
echo "== signals"; grep -E '^Sig(Blk|Ign)' /proc/self/status
echo "== environment"; env | sort | grep -vE '^SLURM_(STEP|STEPID|SRUN|TASK_PID|.*_PORT|LAUNCH)|^_='
SCRIPT
cat >"$work/prolog" <<'SCRIPT'
#!/bin/sh
echo "export FROM_PROLOG=yes"
echo "export TMPDIR=/tmp/hpctl-$(id -u)"
echo "unset FROM_USER"
SCRIPT
chmod +x "$work/report" "$work/prolog"

compare() { # compare NAME SRUN-OPTIONS...: in one allocation, so that only the step differs
  local name=$1
  shift
  FROM_USER=yes salloc -Q -N1 -n2 bash -c '
    out=$1; shift
    srun -Q --auto-resume=0 "$@" >"$out.plain" 2>&1 </dev/null
    srun -Q --auto-resume=1 "$@" >"$out.ours" 2>&1 </dev/null' salloc "$work/$name" "$@"
}
own='^(HPCTL_(GENERATION|WORKER|PROGRESS_FILE)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME'
own+='|MASTER_(ADDR|PORT)|TORCHELASTIC_(RESTART_COUNT|MAX_RESTARTS|RUN_ID))='
compare report -n1 --task-prolog="$work/prolog" "$work/report"
check_has "the report is one" "FROM_PROLOG=yes" "$(cat "$work/report.plain")"
check "limits, place, cgroup, descriptors, signals, environment" "$(cat "$work/report.plain")" \
  "$(grep -vE "$own" "$work/report.ours")"
check "what the program gets besides" 17 "$(grep -cE "$own" "$work/report.ours")"
check_lacks "nothing of the plugin's own" "HPCTL_STEP" "$(cat "$work/report.ours")"
compare labels -l -n2 sh -c 'echo out; echo err >&2'
check "labels" "$(sort "$work/labels.plain")" "$(sort "$work/labels.ours")"
compare none -n1 --export=NONE /usr/bin/env
check_has "--export=NONE is supervised too" "HPCTL_GENERATION=1" "$(cat "$work/none.ours")"
check "SLURM_TASK_PID is the program" same \
  "$(step -n1 sh -c '[ $SLURM_TASK_PID = $$ ] && echo same')"
check "what the user has set stays" "head:1" \
  "$(MASTER_ADDR=head MASTER_PORT=1 step -n1 sh -c 'echo $MASTER_ADDR:$MASTER_PORT')"
ln -s /usr/bin/env "$work/torchrun"
check "a launcher makes its own environment" "" \
  "$(step -n1 "$work/torchrun" | grep -E '^(RANK|MASTER)' || true)"

# --- input, output, terminal ------------------------------------------------------------------
check "standard input and output" "$(seq 20000 | md5sum)" "$(seq 20000 | step -n1 cat | md5sum)"
check "standard error apart" "err" "$(step -n1 sh -c 'echo out; echo err >&2' 2>&1 >/dev/null)"
tty_report='tty >/dev/null && echo tty; set -- $(ps -o pgid=,tpgid=,sid= -p $$)
  [ $1 = $2 ] && [ $2 = $3 ] && echo foreground'
on_tty() {
  local step="srun -Q --auto-resume=$1 -n1 --pty sh -c '$tty_report'"
  script -qec "timeout --foreground 60 $step" /dev/null \
    </dev/null | tr -d '\r\0\004^@D\b'
}
check "--pty: same session, foreground" "$(on_tty 0)" "$(on_tty 1 | grep -v ^hpctl:)"
check_has "--pty is one" "foreground" "$(on_tty 1)"
check_has "--pty is said to be without us" "--pty steps are not restarted" "$(on_tty 1)"

# --- how it ends ------------------------------------------------------------------------------
for ending in 'exit 0' 'exit 1' 'exit 93' 'exit 255' 'kill -KILL $$' 'kill -TERM $$' \
  'kill -SEGV $$'; do
  check "'$ending'" "$(outcome plain -w n1 -n1 sh -c "$ending" | grep -v ^hpctl:)" \
    "$(outcome step -w n1 -n1 sh -c "$ending" | grep -v ^hpctl:)"
done
check_has "a killed task is 'Killed' to Slurm" "task 0: Killed" \
  "$(outcome step -w n1 -n1 sh -c 'kill -KILL $$')"
check "no such program" "$(outcome plain -w n1 -n1 /nowhere | sed 's/.*error/error/' | sort)" \
  "$(outcome step -w n1 -n1 /nowhere | grep -v ^hpctl: | sed 's/.*error/error/' | sort)"

# --- signals ----------------------------------------------------------------------------------
signalled() { # signalled SUBJECT SIGNAL: the program counts what it gets
  rm -f "$work"/up.* "$work"/got.*
  (outcome "$1" -w n1 -n2 -J "signal-$1" bash -c '
    got=0; trap "got=\$((got+1)); touch '"$work"'/got.$SLURM_PROCID" USR1
    trap "echo term \$got; exit 5" TERM
    touch '"$work"'/up.$SLURM_PROCID; while :; do read -rt 0.05 <> <(:) || :; done' | sort) &
  local srun=$!
  await_file "$work/up.0"
  await_file "$work/up.1"
  scancel --signal=USR1 -n "signal-$1"
  await_file "$work/got.0"
  await_file "$work/got.1"
  scancel --signal="$2" -n "signal-$1"
  wait $srun
}
check "USR1, then TERM, once each" "$(signalled plain TERM | grep -v CANCELLED)" \
  "$(signalled step TERM | grep -v CANCELLED)"
check_has "both arrived" "term 1" "$(signalled step TERM)"
cancelled() {
  rm -f "$work/up"
  (outcome "$1" -w n1 -n1 -J "cancel-$1" sh -c "touch $work/up; exec sleep 60" |
    grep -E 'exit|task') &
  await_file "$work/up"
  scancel -n "cancel-$1"
  wait $!
}
check "scancel" "$(cancelled plain)" "$(cancelled step)"
finish
