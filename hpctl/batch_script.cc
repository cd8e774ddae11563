// SPDX-License-Identifier: Apache-2.0
#include "hpctl/batch_script.h"

#include <csignal>

#include "common/base/quantity.h"
#include "common/job/container_options.h"
#include "common/job/limits.h"
#include "common/job/srun_environment.h"

namespace hpctl {
namespace {

constexpr const char* kScriptBody = R"sh(
say() { echo "$(date -u +%H:%M:%SZ) hpctl: $*"; }
# Slurm puts a job with --requeue=expedite back into the queue, held, when its script fails. What
# ends here has failed for good.
leave() {
  local tries=10
  if [ -n "$expedite" ] && [ "$1" -ne 0 ]; then
    until scontrol update JobId="$job" Requeue=0; do
      tries=$((tries - 1))
      [ "$tries" -gt 0 ] || break
      sleep 1
    done
  fi
  exit "$1"
}
# refuse STATUS WORDS: 2 = the job cannot run as it was described, 93 = do not requeue. hpctl tells
# the words as the reason (hpctl/submit_directory.h).
refuse() {
  local status=$1
  shift
  say "$*"
  echo "$status $*" >"$job_dir/refusal"
  leave "$status"
}

controller=
agents=
status=
told=
# The time limit is near, or a signal was sent to the job: the controller ends it in order. If none
# can take the signal yet, the next controller does.
trap 'told=--told-to-end; [ -z "$controller" ] || kill -TERM "$controller"' TERM
trap '[ -z "$controller" ] || kill -USR1 "$controller"' USR1

# await_storage WORDS: a pause before the next attempt. Fails after storage_limit seconds of pauses,
# and where the job was told to end.
pause=1
waited=0
await_storage() {
  [ "$waited" -lt "$storage_limit" ] && [ -z "$told" ] || return 1
  say "waiting for storage: $*; trying again in $pause s"
  sleep "$pause" &
  wait $!  # a signal ends it
  waited=$((waited + pause))
  pause=$((pause < 15 ? 2 * pause : 30))
}

# Whether the directory that the job's lies in lists it no more. One that cannot be listed proves
# nothing.
is_deleted() {
  local names
  names=$(ls -A "${job_dir%/*}" 2>/dev/null) && ! grep -qxF "${job_dir##*/}" <<<"$names"
}
# What is missing is not made again: job.json and the token were in it. A mount may come late, or be
# away for a while. It is not waited for where the controller's exit status is the verdict.
is_gone() {
  local tries=10
  until [ -d "$job_dir" ]; do
    tries=$((tries - 1))
    if [ "$tries" -gt 0 ]; then
      sleep 1
      continue
    fi
    is_deleted && return 0
    case $status in 0 | 1 | 93) return 0 ;; esac
    await_storage "$job_dir cannot be seen" || return 0
  done
  return 1
}
if is_gone; then
  say "the job's directory $job_dir is gone: it was deleted, or its file system is away;" \
    "submit the job again"
  leave 93
fi

# `hpctl submit` makes the same link; whoever comes first. An earlier job of this cluster with this
# id is one that Slurm has forgotten (hpctl/submit_directory.h).
link=$HPCTL_HOME/jobs/$job
make_link() {
  ln -sT "$key" "$link" 2>/dev/null
  if [ "$(readlink "$link")" != "$key" ] && cmp -s "$link/cluster" "$job_dir/cluster"; then
    ln -sfT "$key" "$job_dir/link" && mv -T "$job_dir/link" "$link"
  fi
  readlink "$link" >/dev/null || [ -e "$link" ]
}
until make_link; do
  await_storage "$link cannot be made" || refuse 93 "$link cannot be made; see that node" \
    "${SLURMD_NODENAME:-$(hostname)} can write $HPCTL_HOME, and submit again"
done
[ "$(readlink "$link")" = "$key" ] ||
  refuse 93 "$HPCTL_HOME/jobs/$job belongs to another job; submit again with another HPCTL_HOME"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)
[ -n "$nodes" ] || refuse 93 "scontrol cannot expand the node list $SLURM_JOB_NODELIST"
say "job $job, start $((${SLURM_RESTART_COUNT:-0} + 1)), on $nodes"
if [ -d "${HPCTL_SYSROOT:-}/opt/sagemaker_cluster" ]; then
  say "HyperPod cluster detected: auto-resume is on, failed nodes are replaced"
fi
rm -f "$job_dir/refusal" "$job_dir/start-failure"  # of an earlier start

on_all_nodes() {
  HPCTL_AUTO_RESUME=0 srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \
    --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 --input=none --mpi=none \
    --cpu-bind=none "$@"
}

# Before anything is trained: what this node writes must be seen by all others. The name is new each
# time, so that no node remembers that it was not there. Fails with `problem`. If the job has begun,
# its directory is not made: the file system may be away. `blind`: what is so on single nodes.
begun=
[ ! -d "$job_dir/controllers" ] || begun=1
blind=
nodes_see_storage() {
  local node=${SLURMD_NODENAME:-$(hostname)}
  local nonce=$RANDOM$RANDOM$RANDOM$RANDOM
  local nonce_file=$checkpoint_dir/.hpctl-shared-$job-$nonce
  blind=
  problem="node $node has no $programs/hpcontroller"
  problem="$problem; install hpctl on a file system that all nodes see"
  [ -x "$programs/hpcontroller" ] || return 1
  problem="node $node cannot write the checkpoint directory $checkpoint_dir"
  [ -n "$begun" ] || mkdir -p "$checkpoint_dir" || return 1
  if ! echo "$nonce" >"$nonce_file"; then
    rm -f "$nonce_file"
    return 1
  fi
  blind=$(on_all_nodes /bin/sh -c 'cannot() { echo "node $SLURMD_NODENAME cannot $*"; exit 0; }
  [ -x "$0" ] || cannot "run $0 (hpctl must be on a file system that all nodes see)"
  [ -r "$1/token" ] || cannot "read $1 (HPCTL_HOME must be on a file system that all nodes see)"
  tries=25
  until [ "$(cat "$2" 2>/dev/null)" = "$3" ]; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || cannot "see in the checkpoint directory $4 what another node wrote" \
      "(checkpoint.dir must be on a file system that all nodes share)"
    sleep 0.2
  done' "$programs/hpagent" "$job_dir" "$nonce_file" "$nonce" "$checkpoint_dir")
  rm -f "$nonce_file"
  problem=$(echo "$blind" | sort | paste -sd';' | sed 's/;/; /g')
  [ -z "$blind" ]
}
until nodes_see_storage; do
  [ -n "$begun" ] || refuse 2 "$problem"
  [ -z "$told" ] || break  # the controller ends the job in order
  # The controller may do without a node that stays so. Here is the job's own directory.
  if [ -n "$blind" ] && [ "$waited" -ge 300 ] && [ -e "$checkpoint_dir/owner.json" ]; then
    say "$problem; starting nevertheless"
    break
  fi
  echo "the batch script waits for storage: $problem" >"$job_dir/start-failure"
  await_storage "$problem" || [ -n "$told" ] || refuse 2 "$problem"
done
rm -f "$job_dir/start-failure"
pause=1
waited=0

# One srun for the agents of all nodes; the controller brings single ones back later.
start_agents() {
  on_all_nodes ${container[@]+"${container[@]}"} /bin/sh -c \
    'exec "$0" --holder --job-dir "$1" --job "$2" --node "$SLURMD_NODENAME"' \
    "$programs/hpagent" "$job_dir" "$job" &
  agents=$!
}

# `wait` returns early when a trap has run.
wait_for() {
  local ended
  while :; do
    wait "$1"
    ended=$?
    kill -0 "$1" 2>/dev/null || break
  done
  wait "$1" 2>/dev/null
  local again=$?
  [ "$again" -eq 127 ] || ended=$again
  return "$ended"
}

# The controller writes it before it tells any node to end: exit status and restart count. A failure
# before a requeue counts no more.
verdict_of_job() {
  local verdict start
  [ -e "$job_dir/verdict" ] && read -r verdict start <"$job_dir/verdict" || return
  if [ "$start" = "${SLURM_RESTART_COUNT:-0}" ] || [ "$verdict" != 1 ]; then echo "$verdict"; fi
}

life=1
while [ "$life" -le 10 ]; do
  passed=$told
  "$programs/hpcontroller" --job-dir "$job_dir" --job "$job" --nodes "$nodes" \
    ${HPCTL_CLUSTER:+--at "$HPCTL_CLUSTER"} $passed &
  controller=$!
  [ "$told" = "$passed" ] || kill -TERM "$controller"
  [ -n "$agents" ] || start_agents
  wait_for "$controller"
  status=$?
  controller=
  if is_gone; then break; fi  # without it none can start
  [ -z "$(verdict_of_job)" ] || break
  # 96: it could not start, for storage.
  if [ "$status" -eq 96 ]; then
    await_storage "$(cat "$job_dir/start-failure" 2>/dev/null)" && continue
    [ -n "$told" ] || break
  fi
  pause=1
  waited=0
  say "the controller ended with $status (life $life)"
  life=$((life + 1))
  # 3: a successor on another node has taken over, the agents live as long as the job does.
  # 5: Slurm requeues the job and ends everything here, see below.
  if [ "$status" -eq 3 ] || [ "$status" -eq 5 ]; then break; fi
done

# The agents end by themselves once the job has ended.
if [ -n "$(verdict_of_job)" ]; then
  (sleep 30 && kill -TERM "$agents") 2>/dev/null &
  watchdog=$!
  wait_for "$agents"
  kill "$watchdog" 2>/dev/null
elif [ "$status" -eq 3 ]; then
  say "the job goes on under a controller on another node"
  wait_for "$agents"
elif [ "$status" -eq 5 ] || { [ "$status" -eq 96 ] && [ -n "$told" ]; }; then
  # 96: no controller could be told, so whether Slurm requeues the job is not known here.
  # Were this script to end first, Slurm might take its exit status for the end of the job.
  trap '' TERM
  until=$((SECONDS + 120))
  while [ $SECONDS -lt $until ]; do sleep 0.2; done
fi
# Slurm preempts the job (controller/leadership/termination_cause.h). It requeues or cancels the
# job when its grace time is over, and ends this script. Were the script to end first, nothing would
# be requeued.
if [ "$(cat "$job_dir/preempted" 2>/dev/null)" = "${SLURM_RESTART_COUNT:-0}" ]; then
  say "Slurm preempts job $job; what it had is saved"
  trap '' TERM
  until=$((SECONDS + 3600))
  while [ $SECONDS -lt $until ]; do sleep 0.2; done
fi
verdict=$(verdict_of_job)
# The directory was deleted while the job ran, so the verdict is the controller's exit status alone.
if [ ! -d "$job_dir" ]; then
  case $status in 0 | 1 | 93) verdict=$status ;; esac
fi
# Where the controllers that ended left no word themselves.
if [ -z "$verdict" ] && [ "$status" -ne 3 ] && [ "$status" -ne 5 ]; then
  [ -e "$job_dir/start-failure" ] || echo "1 every controller ended without a verdict, the last" \
    "with status $status; see $job_dir/slurm-$job.out" >"$job_dir/refusal"
fi
say "job $job ends with ${verdict:=1}"
# A person cancelled the job (JobMode::job_ended), so Slurm's accounting is to say so. Slurm ends
# this script then. Where Slurm refuses, the exit status has to do.
if [ "$(cat "$job_dir/cancelled" 2>/dev/null)" = "${SLURM_RESTART_COUNT:-0}" ]; then
  trap - TERM
  scancel "$job" && sleep 10
fi
leave "$verdict"
)sh";

uint32_t as_count(int64_t n) { return static_cast<uint32_t>(n); }

// `text` as one word of a shell command.
std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

// sbatch reads quotes as the shell does; without them a # would begin a comment.
std::string directive(const std::string& option) {
  const bool plain = option.find_first_of(" '\"\\#") == std::string::npos;
  return "#SBATCH " + (plain ? option : shell_quoted(option)) + "\n";
}

// The options of sbatch that ask for the same; the script can be submitted by hand with them.
std::string directives(const SlurmSubmission& s) {
  std::string text;
  const auto add = [&](const std::string& option, const std::string& value) {
    text += directive("--" + option + (value.empty() ? "" : "=" + value));
  };
  const auto add_if = [&](const char* option, const std::string& value) {
    if (!value.empty()) add(option, value);
  };
  add("job-name", s.name);
  add("comment", s.comment);
  add("chdir", s.work_dir);
  add("output", s.output);
  add("open-mode", "append");
  add("nodes", std::to_string(s.nodes_min));
  add("ntasks-per-node", "1");
  if (s.cpus_per_task > 0) add("cpus-per-task", std::to_string(s.cpus_per_task));
  add_if("partition", s.partition);
  add_if("account", s.account);
  add_if("qos", s.qos);
  if (s.time_minutes > 0) add("time", format_time_limit(s.time_minutes));
  if (s.exclusive) add("exclusive", "");
  if (s.all_memory) add("mem", "0");
  if (s.memory_mb > 0) add("mem", std::to_string(s.memory_mb) + "M");
  add_if("gres", s.tres_per_node);
  add_if("constraint", s.constraint);
  add_if("reservation", s.reservation);
  add_if("nodelist", s.nodelist);
  add_if("exclude", s.exclude);
  add("signal", "B:TERM@" + std::to_string(s.warning_seconds));
  if (s.requeue) add("requeue", s.expedite ? "expedite" : "");
  if (s.no_kill) add("no-kill", "");
  for (const std::string& option : s.options) text += directive(option);
  return text;
}

std::string checkpoint_directory(const JobSpec& spec, const BatchSettings& settings) {
  const std::string& given = spec.checkpoint.dir;
  return given.empty() ? settings.directory.path + "/checkpoints" : given;
}

std::string batch_script(const SlurmSubmission& submission, const JobSpec& spec,
                         const BatchSettings& settings) {
  std::string text = "#!/bin/bash\n" + directives(submission);
  text += "# Written by `hpctl submit`. Exit status: the job's verdict, 0 finished, 1 failed,\n";
  text += "# 93 failed and not to be requeued.\nset -u\n";
  text += "export HPCTL_HOME=" + shell_quoted(settings.home) + "\n";
  text += "# The cluster controllers of which one runs the job's; empty: it runs here.\n";
  text += "export HPCTL_CLUSTER=" + shell_quoted(settings.cluster) + "\n";
  text += "# By which certificates they are known; empty: what /etc/hpctl/cluster.conf says.\n";
  text += "export HPCTL_CLUSTER_CA=" + shell_quoted(settings.cluster_ca) + "\n";
  text += "# srun would take them for its options.\n" + unset_srun_options();
  text += "# Whether it was submitted with --requeue=expedite; empty: it was not.\n";
  text += std::string("expedite=") + (submission.expedite ? "1" : "") + "\n";
  text += "job=$SLURM_JOB_ID\n";
  text += "key=" + shell_quoted(settings.directory.name()) + "\n";
  text += "job_dir=" + shell_quoted(settings.directory.path) + "\n";
  text += "programs=" + shell_quoted(settings.programs) + "\n";
  text += "checkpoint_dir=" + shell_quoted(checkpoint_directory(spec, settings)) + "\n";
  const bool imports = !spec.slurm.container.image.empty();
  text += "# Seconds; limits.storage.\nstorage_limit=" +
          std::to_string(resolve(spec.limits, cluster_limits(imports)).storage_ms / 1000) + "\n";
  text += "container=(";
  const char* separator = "";
  for (const std::string& option : container_options(spec, settings.programs, settings.home)) {
    text += separator + shell_quoted(option);
    separator = " ";
  }
  return text + ")\n" + kScriptBody;
}

}  // namespace

SlurmSubmission slurm_submission(const JobSpec& spec, const BatchSettings& settings) {
  const SlurmSpec& slurm = spec.slurm;
  SlurmSubmission s;
  s.name = spec.name;
  s.comment = settings.directory.name() + (slurm.comment.empty() ? "" : " " + slurm.comment);
  s.work_dir = settings.directory.path;
  s.output = settings.directory.path + "/slurm-%j.out";
  s.partition = slurm.partition;
  s.account = slurm.account;
  s.qos = slurm.qos;
  s.reservation = slurm.reservation;
  s.constraint = slurm.constraint;
  s.tres_per_node = slurm.gres;
  s.nodelist = slurm.nodelist;
  s.exclude = slurm.exclude;
  s.nodes_min = as_count(spec.all_nodes());
  const int64_t cpus = slurm.cpus_per_task == 0 && !slurm.exclusive ? 1 : slurm.cpus_per_task;
  s.cpus_per_task = as_count(cpus * spec.workers_per_node);
  s.time_minutes = as_count(slurm.time_minutes);
  s.exclusive = slurm.exclusive;
  s.all_memory = slurm.mem_mb == 0 || (slurm.mem_mb < 0 && slurm.exclusive);
  s.memory_mb = slurm.mem_mb > 0 ? static_cast<uint64_t>(slurm.mem_mb) : 0;
  s.warning_signal = SIGTERM;
  s.warning_seconds = as_count(slurm.warning_seconds);
  s.expedite = settings.expedite;
  s.options = sbatch_options(slurm);
  s.script = batch_script(s, spec, settings);
  return s;
}

}  // namespace hpctl
