#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `srun --auto-resume=1` adds: restarts of the whole step, and all that must not go wrong with
# them. Usage: … BUILD_DIRECTORY
# shellcheck disable=SC2016,SC2154  # the quoted programs are for the shell of a task
set -euo pipefail
# shellcheck source=tests/slurm/auto_resume_setup.sh
. "$(dirname "$(realpath "$0")")/auto_resume_setup.sh" "$1" 2
stand_ins=$build/tests/plugins

# A task that writes down each of its lives; `FAILING TIMES HOW` ends rank FAILING so in its first
# TIMES lives, while the others wait to be ended.
cat >"$work/task" <<'SCRIPT'
#!/bin/bash
echo "$RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE $WORLD_SIZE $SLURMD_NODENAME $MASTER_ADDR:$MASTER_PORT" \
  >"$LIVES/.g$HPCTL_GENERATION.$RANK"
mv "$LIVES/.g$HPCTL_GENERATION.$RANK" "$LIVES/g$HPCTL_GENERATION.$RANK" # who sees it may end us
[ "$TORCHELASTIC_RESTART_COUNT" -lt "$2" ] || exit 0
[ "$RANK" = "$1" ] || exec sleep 60
until [ "$(ls "$LIVES" | grep -c "^g$HPCTL_GENERATION\.")" -eq "$WORLD_SIZE" ]; do sleep 0.02; done
eval "$3"
SCRIPT
chmod +x "$work/task"
lives() { # lives SRUN-OPTIONS... -- FAILING TIMES HOW
  export LIVES=$work/lives
  rm -rf "$LIVES"
  mkdir "$LIVES"
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  outcome step "${options[@]}" "$work/task" "$@"
}
count() { find "$work/lives" -name "$1" | wc -l; }

# --- restarts ---------------------------------------------------------------------------------
check_has "a script" "exited with code 3; it starts again" "$(lives -n1 -- 0 1 'exit 3')"
check "it was started again" 1 "$(count g2.0)"

told=$(echo some input | lives -N2 -n4 --ntasks-per-node=2 -- 3 2 'kill -KILL $$')
check_has "2 nodes x 2 tasks" "task 3 on n2 died of SIGKILL; all 4 tasks start again" "$told"
check_has "it finished" "exit 0" "$told"
check "every task, each generation" "4 4 4 0" \
  "$(count 'g1.*') $(count 'g2.*') $(count 'g3.*') $(count 'g4.*')"
check "ranks and nodes stay" "$(cut -d: -f1 "$work"/lives/g1.* | sort)" \
  "$(cut -d: -f1 "$work"/lives/g3.* | sort)"
check "one master in a generation" 1 "$(cut -d' ' -f5 "$work"/lives/g2.* | sort -u | wc -l)"
check "another port in each" 3 "$(cat "$work"/lives/* | cut -d' ' -f5 | sort -u | wc -l)"
check "said once" 1 "$(grep -c 'standard input that was read' <<<"$told")"
if [ "$HPCTL_TEST_NETNS" = true ]; then
  check_lacks "the master's address is one for other nodes" 127.0.0.1 "$(cat "$work"/lives/g2.*)"
fi
lives -N2 -n3 -m plane=2 -- 2 1 'exit 1' >/dev/null
check "uneven tasks per node" "0 0/2 3 n1,1 1/2 3 n1,2 0/1 3 n2" \
  "$(cat "$work"/lives/g2.* | cut -d' ' -f1-4 | sort | paste -sd,)"

# --- hangs ------------------------------------------------------------------------------------
# Every task tells three steps; in its first life rank 3 then does HOW, and the others wait.
cat >"$work/teller" <<'SCRIPT'
#!/bin/bash
echo "$HPCTL_PROGRESS_FILE" >>"$LIVES/files"
for step in 1 2 3; do echo "$step 512" >>"$HPCTL_PROGRESS_FILE"; sleep 0.2; done
[ "$TORCHELASTIC_RESTART_COUNT" -lt 1 ] || exit 0
[ "$RANK" = 3 ] && eval "$1"
exec sleep 60
SCRIPT
chmod +x "$work/teller"
tellers() { # tellers HOW
  export LIVES=$work/lives
  rm -rf "$LIVES"
  mkdir "$LIVES"
  outcome step -N2 -n4 --ntasks-per-node=2 --chdir "$LIVES" "$work/teller" "$1"
}
told=$(tellers 'kill -STOP $$')
check_has "a task that is stopped" "task 3 on n2 hangs: no step completed for" "$told"
check_has "why" "is stopped (state T) and completed step 3; all 4 tasks start again" "$told"
check_has "goes on" "exit 0" "$told"
if [ -e "$build/bin/hpstacks" ]; then
  check_has "and says where it stood" "where they stood: $work/lives/hpctl-stacks-" "$told"
  check "so of each task" 4 "$(find "$work/lives" -name 'g1-rank000?.txt' | wc -l)"
  check_has "whose program it was" "bash" "$(cat "$work"/lives/hpctl-stacks-*/g1-rank0003.txt)"
fi
check_has "and says what that cost" "step 3; 1 restart cost " "$told"
told=$(HPCTL_MAX_RESTARTS=0 tellers 'kill -STOP $$')
check_has "a step that may not start again" "giving up: all 0 restarts" "$told"
check_has "and its code" "exit 1" "$told"
if [ -e "$build/bin/hpstacks" ]; then
  check_has "says where it stood, too" "where they stood: $work/lives/hpctl-stacks-" "$told"
  check "also of each task" 4 "$(find "$work/lives" -name 'g1-rank000?.txt' | wc -l)"
fi
told=$(HPCTL_HANG_TIMEOUT=2s tellers 'echo 4 >>$HPCTL_PROGRESS_FILE')
check_has "a step that hangs" "the step hangs: no step completed for 2 s after step 4" \
  "$told"
check_has "goes on, too" "exit 0" "$told"
check "a file for each life of each task" 8 "$(sort -u "$work/lives/files" | wc -l)"
check "and none stays" "" "$(xargs ls -d 2>/dev/null <"$work/lives/files")"
told=$(HPCTL_HANG_TIMEOUT=soon outcome step -n1 true)
check_has "a limit that is none" "HPCTL_HANG_TIMEOUT=soon is neither auto, off nor a" "$told"

# --- when it gives up -------------------------------------------------------------------------
told=$(HPCTL_MAX_RESTARTS=1 lives -n2 -- 1 9 'exit 7')
check_has "budget spent" "giving up: all 1 restarts within an hour are spent" "$told"
check_has "and with its code" "exit 7" "$told"
check "lives" "2 2 0" "$(count 'g1.*') $(count 'g2.*') $(count 'g3.*')"
told=$(lives -n2 -- 0 9 'exit 93')
check_has "93 is not restarted" "a restart cannot help" "$told"
check_has "93 stays 93" "exit 93" "$told"
check "one life" "2 0" "$(count 'g1.*') $(count 'g2.*')"

# --- requests ---------------------------------------------------------------------------------
told=$(outcome srun -Q --auto-resume=x -n1 true)
check_has "a wrong value" "--auto-resume=x is neither 0 nor 1" "$told"
check_lacks "is refused" "exit 0" "$told"
supervised='[ -n "$HPCTL_GENERATION" ] && echo yes || echo no'
check "default" no "$(srun -Q -n1 sh -c "$supervised")"
check "without value" yes "$(srun -Q --auto-resume -n1 sh -c "$supervised")"
check "HPCTL_AUTO_RESUME=1" yes "$(HPCTL_AUTO_RESUME=1 srun -Q -n1 sh -c "$supervised")"
check "the command line wins" no "$(HPCTL_AUTO_RESUME=1 plain -n1 sh -c "$supervised")"
check "--hpctl-resume" yes "$(srun -Q --hpctl-resume=1 -n1 sh -c "$supervised")"
check "salloc's default" yes "$(salloc -Q --auto-resume=1 -n1 srun -Q sh -c "$supervised")"
cat >"$work/batch" <<SCRIPT
#!/bin/bash
cat /proc/\$PPID/comm; $supervised
srun -Q sh -c '$supervised'
SCRIPT
sbatch -Q --wait --auto-resume=1 -n1 -o "$work/batch.out" "$work/batch" >/dev/null
check "sbatch's default, but not the batch script" "slurmstepd no yes" \
  "$(xargs <"$work/batch.out")"
printf '0-1 /usr/bin/env\n' >"$work/multi"
told=$(outcome step -n1 --pty /bin/sh -c 'exit 3')
check_has "--pty is not restarted" "--pty steps are not restarted" "$told"
told=$(outcome step -n2 --multi-prog "$work/multi")
check_has "--multi-prog is refused aloud" "--multi-prog steps cannot be restarted" "$told"
check_has "and runs" "exit 0" "$told"
check_lacks "without our variables" "HPCTL_STEP" "$told"
told=$(outcome step -n1 sh -c "$supervised" : -n1 sh -c "$supervised")
check "components are refused aloud, once" 1 "$(grep -c 'a heterogeneous step' <<<"$told")"
check "and run, all of them" 2 "$(grep -cx no <<<"$told")"
told=$(PMIX_RANK=0 outcome step -w n1 -n2 sh -c "$supervised")
check "PMI is refused aloud, once for the node" 1 "$(grep -c 'uses PMI' <<<"$told")"
check "and runs" 2 "$(grep -cx no <<<"$told")"

# --- fail open --------------------------------------------------------------------------------
mkdir "$work/bin"
plugins "$plugin bindir=$work/bin"
told=$(outcome step -n2 sh -c 'exit 4')
check_has "no controller to start" "hpcontroller-step: No such file" "$told"
check_has "and no shim" "exit 4" "$told"
cp "$build/bin/hpagent-shim" "$work/bin"
printf '#!/bin/sh\nexec sleep 30\n' >"$work/bin/hpcontroller-step"
chmod +x "$work/bin/hpcontroller-step"
begin=$(date +%s%N)
outcome step -w n1 -n2 sh -c 'exit 4' >"$work/told" # it keeps its end of a pipe open
elapsed=$((($(date +%s%N) - begin) / 1000000)) told=$(cat "$work/told")
waited="$elapsed ms" # a slow machine adds some; the one that stands in for it would last 30 s
if [ "$elapsed" -ge 5000 ] && [ "$elapsed" -lt 29000 ]; then waited="5 s"; fi
check "a controller that does not answer is waited for 5 s" "5 s" "$waited"
check "said once for the node" 1 "$(grep -c 'does not answer' <<<"$told")"
check_has "the program ran" "exit 4" "$told"
plugins "$plugin"
outcome step -n2 sh -c 'touch '"$work"'/life.$SLURM_PROCID
  until [ -e '"$work"'/go ]; do sleep 0.02; done; exit 5' >"$work/told" &
await_file "$work/life.0"
await_file "$work/life.1"
pkill -KILL -f "$controllers"
touch "$work/go"
wait $!
check_has "a controller that dies" "the step's controller is gone" "$(cat "$work/told")"
check_has "its tasks end as they end" "exit 5" "$(cat "$work/told")"

# --- what dies with whom ----------------------------------------------------------------------
rm -f "$work"/life.*
ln -s "$(command -v sleep)" "$work/sleeper"
outcome step -N2 -n2 sh -c 'echo $PPID >'"$work"'/shim.$SLURM_PROCID
  mv '"$work"'/shim.$SLURM_PROCID '"$work"'/life.$SLURM_PROCID
  exec '"$work/sleeper"' 60' >"$work/told" &
await_file "$work/life.0"
await_file "$work/life.1"
kill -KILL "$(cat "$work/life.1")"
wait $!
check_has "a lost shim ends the step" "task 1 on n2 was lost" "$(cat "$work/told")"
check_lacks "and nothing else is promised" "start again" "$(cat "$work/told")"
await_no_process "$work/sleeper"

# --- another Slurm ------------------------------------------------------------------------------
# What the plugin says about the Slurm it was built for lies where its symbol is.
cp "$plugin" "$work/other.so"
offset=$((16#$(nm -D "$plugin" | sed -n 's/ . plugin_version$//p')))
printf '\0\0\x01\0' | dd of="$work/other.so" bs=1 seek=$offset conv=notrunc status=none
plugins "$work/other.so"
told=$(outcome srun -n1 true)
check_has "built for another Slurm: said" "Incompatible" "$told"
check_has "of which plugin" "$work/other.so" "$told"
check_has "and the program runs" "exit 0" "$told"
check_has "without our option" "unrecognized option '--auto-resume" \
  "$(outcome srun --auto-resume=1 -n1 true)"
plugins "$plugin"

# --- the plugins of others --------------------------------------------------------------------
comm='cat /proc/$PPID/comm'
plugins "$stand_ins/spank_other_auto_resume.so" "$plugin"
told=$(srun --auto-resume=1 -n1 sh -c "$comm" 2>&1)
check_has "another owner has the option" "other plugin: auto-resume=1" "$told"
check_has "explained" "--auto-resume belongs to $stand_ins/spank_other_auto_resume.so" "$told"
check_has "and left to it" "slurmstepd" "$told"
check "--hpctl-resume is ours" hpagent-shim "$(srun -Q --hpctl-resume=1 -n1 sh -c "$comm")"
plugins "$plugin" "$stand_ins/spank_other_auto_resume.so"
told=$(srun --auto-resume=1 -n1 sh -c "$comm" 2>&1)
check_has "we have the option" "--auto-resume is hpctl's here" "$told"
check_has "and use it" "hpagent-shim" "$told"

root=$HPCTL_TEST_CLUSTER/root # shows nothing of the build directory
mkdir -p "$root"/{bin,etc,usr,lib,lib64,proc,dev,tmp}
touch "$root/etc/in-the-container"
container="$stand_ins/spank_container.so $root"
# Rank 0 fails in its first life, when both have spoken.
inside='cat /proc/$PPID/comm; ls /etc; echo 1 >>$HPCTL_PROGRESS_FILE
  touch '"$work"'/in.$HPCTL_GENERATION.$RANK
  [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0; [ "$RANK" = 0 ] || exec sleep 60
  until [ -e '"$work"'/in.1.1 ]; do sleep 0.02; done; exit 1'
for order in "$plugin|$container" "$container|$plugin"; do
  plugins "${order%|*}" "${order#*|}"
  rm -f "$work"/in.*
  told=$(outcome step -w n1 -n2 sh -c "$inside")
  check_has "a container, restarted in it" "exit 0" "$told"
  check "in both lives, both tasks, under the shim" "4 4" \
    "$(grep -c in-the-container <<<"$told") $(grep -c hpagent-shim <<<"$told")"
done
finish
