// SPDX-License-Identifier: Apache-2.0
// The ranges written here are for people; find_problems() in common/job/job_spec.cc enforces them.
#include "common/jobfile/job_yaml_keys.h"

#include <charconv>

#include "common/base/join.h"
#include "common/jobfile/hang_rules_yaml.h"

namespace hpctl {
namespace {

using enum KeyKind;

void read_resume(YamlValue& value, JobSpec& spec) {
  if (value.is_word("latest") || value.is_word("none")) {
    value.read(spec.checkpoint.resume);
  } else {
    value.read_path(spec.checkpoint.resume);
  }
}

void read_duration_or_auto(YamlValue& value, int64_t& ms) {
  if (value.is_word("auto")) {
    ms = 0;
  } else {
    value.read_duration(ms);
  }
}

void read_min_nodes(YamlValue& value, JobSpec& spec) {
  if (value.is_word("0")) return value.fail_expected("1 to count");
  value.read(spec.min_nodes);
}

void read_workers(YamlValue& value, JobSpec& spec) {
  spec.auto_workers = value.is_word("auto");
  if (!spec.auto_workers) value.read(spec.workers_per_node);
}

void read_snapshot_interval(YamlValue& value, JobSpec& spec) {
  if (value.is_word("0")) return value.fail_expected("auto or 1 to 1000000; replicas: 0 is none");
  if (!value.is_word("auto")) value.read(spec.recovery.snapshot.every_steps);
}

void read_verify_depth(YamlValue& value, JobSpec& spec) {
  value.read_word(all_words<VerifyDepth>(), [&](std::string_view word) {
    const auto depth = from_word<VerifyDepth>(word);
    if (depth) spec.checkpoint.verify_before_delete = *depth;
    return depth.has_value();
  });
}
void read_straggler(YamlValue& value, JobSpec& spec) {
  value.read_word(all_words<StragglerPolicy>(), [&](std::string_view word) {
    const auto policy = from_word<StragglerPolicy>(word);
    if (policy) spec.recovery.straggler = *policy;
    return policy.has_value();
  });
}

void read_notify_command(YamlValue& value, JobSpec& spec) {
  const bool is_none = value.node().IsSequence() && value.node().size() == 0;
  if (!is_none) value.read_command(spec.notify.command);
}

void read_notices(YamlValue& value, JobSpec& spec) {
  std::vector<NoticeKind> kinds;
  value.read_word_list(all_words<NoticeKind>(), [&](std::string_view word) {
    const auto kind = from_word<NoticeKind>(word);
    if (kind) kinds.push_back(*kind);
    return kind.has_value();
  });
  spec.notify.on = std::move(kinds);
}

void read_joined(YamlValue& value, std::string& out) {
  std::vector<std::string> parts;
  value.read_texts(parts);
  out = join(parts, ",");
}

void read_memory_or_auto(YamlValue& value, JobSpec& spec) {
  if (value.is_word("auto")) {
    spec.slurm.mem_mb = -1;
  } else {
    value.read_memory(spec.slurm.mem_mb);
  }
}

// "[B:]TERM@SECONDS": what hpctl does at the limit begins with SIGTERM to the batch script.
void read_signal(YamlValue& value, JobSpec& spec) {
  std::string text;
  value.read(text);
  std::string_view rest = text;
  if (rest.starts_with("B:")) rest.remove_prefix(2);
  const bool known = rest.starts_with("TERM@") || rest.starts_with("15@");
  rest.remove_prefix(known ? rest.find('@') + 1 : 0);
  const char* end = rest.data() + rest.size();
  const auto parsed = std::from_chars(rest.data(), end, spec.slurm.warning_seconds);
  if (known && parsed.ec == std::errc() && parsed.ptr == end) return;
  value.fail_expected(
      "B:TERM@SECONDS (hpctl ends a job in order on SIGTERM to its batch script; "
      "no other signal is possible)");
}

void read_image(YamlValue& value, JobSpec& spec) {
  std::string image;
  value.read(image);
  if (image.starts_with(".")) {
    value.read_path(spec.slurm.container.image);
  } else {
    spec.slurm.container.image = image;
  }
}

#define HP_READ(member) [](YamlValue& v, JobSpec& s) { v.read(s.member); }
#define HP_LIMIT(name, meaning)                                                        \
  {                                                                                    \
    "limits." #name, kValue, "duration or auto", "auto", "100ms to 30d", meaning,      \
        [](YamlValue& v, JobSpec& s) { read_duration_or_auto(v, s.limits.name##_ms); } \
  }

// clang-format off
constexpr JobYamlKey kKeysBeforeTrain[] = {
    {"name", kValue, "text", "required", "1 to 64 of A-Z a-z 0-9 - _ . and not digits only",
     "Name of the job; verbs accept it in place of the job id.", HP_READ(name)},
    {"nodes", kSection, "integer or section", "1", "",
     "How many nodes: `nodes: 2` is short for `nodes: {count: 2}`. With `--local` each is a "
     "virtual node on this machine.", HP_READ(nodes)},
    {"nodes.count", kValue, "integer", "1", "1 to 100000", "Nodes that train.", HP_READ(nodes)},
    {"nodes.min", kValue, "integer", "count", "1 to count",
     "Fewest nodes to go on with when lost ones do not come back and no spare is left (see "
     "recovery.on_node_loss).", read_min_nodes},
    {"nodes.spares", kValue, "integer", "0", "0 to 100000",
     "Idle nodes kept ready in addition to count: one that is up takes over the ranks of a lost "
     "node at once. While the job trains it is prepared (health.preflight, hooks.pre), and has a "
     "standby for each rank that it may get.", HP_READ(spares)},
    {"workers_per_node", kValue, "integer or auto", "1", "1 to 1024",
     "Worker processes (ranks) on each node. `auto` is one per GPU, chosen at submit: the GPUs of "
     "slurm.gres, or with --local those here; 1 without a GPU.",
     read_workers},

    {"env", kSection, "kind or section", "", "",
     "Environment of the workers: `env: venv` is short for `env: {kind: venv}`.",
     HP_READ(environment.kind)},
    {"env.kind", kValue, "text", "", "auto, venv, uv, container, none",
     "Environment of the program of workload.command. venv: activates the virtual environment "
     "`path`. uv: runs `uv run --project PATH --`. container: runs in slurm.container.image, by "
     "Pyxis. auto, the default: takes the first of slurm.container.image, .venv and "
     "pyproject.toml beside the job file when the job is submitted. `--dry-run` shows the choice.",
     HP_READ(environment.kind)},
    {"env.path", kValue, "path", "", "",
     "Directory of the virtual environment or of the uv project. Default: .venv beside the job "
     "file, or its directory.", [](YamlValue& v, JobSpec& s) { v.read_path(s.environment.path); }},
    {"env.files", kValue, "list of paths", "[]", "at most 16 files of 64 KiB",
     "Files with lines NAME=VALUE, such as keys of a service; env.set overrides them. The node "
     "reads them at every start of the workers. hpctl never copies, shows or logs them. A file "
     "that is missing, or a wrong line, fails the start (docs/commands.md).",
     [](YamlValue& v, JobSpec& s) { v.read_paths(s.env_files); }},
    {"env.set", kValue, "mapping", "{}", "names as in C; values are text",
     "Environment variables for every worker, on top of the agent's. hpctl sets RANK, WORLD_SIZE, "
     "MASTER_ADDR and the like, HPCTL_* and TORCHELASTIC_*, and refuses them here.",
     [](YamlValue& v, JobSpec& s) { v.read_environment(s.env); }},

    {"slurm", kSection, "section", "", "",
     "The request to Slurm; without effect with `--local`.", nullptr},
    {"slurm.partition", kValue, "text", "", "",
     "Partition. Default: the cluster's default partition.", HP_READ(slurm.partition)},
    {"slurm.account", kValue, "text", "", "", "Account to charge.", HP_READ(slurm.account)},
    {"slurm.qos", kValue, "text", "", "", "Quality of service.", HP_READ(slurm.qos)},
    {"slurm.time", kValue, "time limit", "0", "0 to 365d",
     "Time limit as sbatch takes it, minutes or D-HH:MM:SS, or a duration such as 7d. 0: the "
     "partition's default. A minute before the limit (see signal) the job is ended in order "
     "(SIGTERM first).",
     [](YamlValue& v, JobSpec& s) { v.read_time_limit(s.slurm.time_minutes); }},
    {"slurm.requeue_at_limit", kValue, "true or false", "false", "",
     "At the time limit the job saves the step under way and goes back to the queue, to go on "
     "under the same id, as often as it takes. Otherwise it ends there, as TIMEOUT.",
     HP_READ(slurm.requeue_at_limit)},
    {"slurm.exclusive", kValue, "true or false", "true", "",
     "Whole nodes, shared with no other job.", HP_READ(slurm.exclusive)},
    {"slurm.gres", kValue, "text", "", "", "Generic resources of each node, such as gpu:8.",
     HP_READ(slurm.gres)},
    {"slurm.cpus_per_task", kValue, "integer", "0", "0 to 65535",
     "CPUs of each worker; hpctl requests this times workers_per_node on each node. 0: one for "
     "each worker if exclusive is false, else all CPUs of the nodes.",
     HP_READ(slurm.cpus_per_task)},
    {"slurm.constraint", kValue, "text", "", "", "Required node features.",
     HP_READ(slurm.constraint)},
    {"slurm.reservation", kValue, "text", "", "", "Reservation to run in.",
     HP_READ(slurm.reservation)},
    {"slurm.nodelist", kValue, "text or list", "", "",
     "Nodes that the job must include.",
     [](YamlValue& v, JobSpec& s) { read_joined(v, s.slurm.nodelist); }},
    {"slurm.exclude", kValue, "text or list", "", "", "Nodes that the job must not include.",
     [](YamlValue& v, JobSpec& s) { read_joined(v, s.slurm.exclude); }},
    {"slurm.mem", kValue, "memory or auto", "auto", "",
     "Memory of each node, in MiB or with K, M, G or T; 0 = all of it. `auto`: all with exclusive, "
     "else the cluster's default.", read_memory_or_auto},
    {"slurm.dependency", kValue, "text", "", "",
     "As sbatch --dependency takes it, such as afterok:123.", HP_READ(slurm.dependency)},
    {"slurm.begin", kValue, "text", "", "",
     "Earliest start, as sbatch --begin takes it: 2026-01-20T12:34:00, 16:00, now+1hour.",
     HP_READ(slurm.begin)},
    {"slurm.mail_user", kValue, "text", "", "", "Recipient of Slurm's mails. Default: the user.",
     HP_READ(slurm.mail_user)},
    {"slurm.mail_type", kValue, "text or list", "", "",
     "When Slurm sends a mail, as sbatch --mail-type takes it: BEGIN, END, FAIL, REQUEUE, ALL.",
     [](YamlValue& v, JobSpec& s) { read_joined(v, s.slurm.mail_type); }},
    {"slurm.nice", kValue, "integer", "0", "+-2147483645",
     "Lowers the job's priority; below 0, for operators only, raises it.", HP_READ(slurm.nice)},
    {"slurm.licenses", kValue, "text or list", "", "", "Licenses, as sbatch --licenses takes them.",
     [](YamlValue& v, JobSpec& s) { read_joined(v, s.slurm.licenses); }},
    {"slurm.comment", kValue, "text", "", "",
     "Added to hpctl's own words in Slurm's comment of the job.",
     HP_READ(slurm.comment)},
    {"slurm.signal", kValue, "text", "B:TERM@60", "[B:]TERM@30 to [B:]TERM@65535",
     "Seconds before the time limit at which Slurm tells the job to end. It then ends in order. "
     "hpctl supports no other signal.", read_signal},
    {"slurm.extra", kValue, "text or list", "", "--NAME[=VALUE], at most 64",
     "Further options of sbatch, such as --wckey=x. An option that hpctl sets itself, or that has "
     "a key here, is an error.",
     [](YamlValue& v, JobSpec& s) { v.read_texts(s.slurm.extra); }},
    {"slurm.container", kSection, "section with image", "", "",
     "Run in a container, by the Pyxis plugin of the cluster.", nullptr},
    {"slurm.container.image", kValue, "text", "", "",
     "Image as Pyxis takes it: a squashfs file or a registry name. A path that begins with . "
     "counts from the job file.", read_image},
    {"slurm.container.mounts", kValue, "text or list", "", "/SOURCE[:/TARGET[:FLAGS]]",
     "Directories that the container sees, besides the programs of hpctl, HPCTL_HOME, the "
     "checkpoint directory and the training data.",
     [](YamlValue& v, JobSpec& s) { v.read_texts(s.slurm.container.mounts); }},

    {"workload", kSection, "section", "required", "exactly one of train and command",
     "What the workers run.", nullptr},
    {"workload.command", kValue, "list of texts", "", "",
     "A program and its arguments, started once per rank with all that torchrun sets in its "
     "environment: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, TORCHELASTIC_RESTART_COUNT and the "
     "like. Exit code 93 fails the job without a restart. A line STEP [TOKENS] in the file "
     "$HPCTL_PROGRESS_FILE after each step shows its progress (docs/commands.md). A program "
     "without a slash is found by PATH, a relative one counts from the job file, as does the "
     "script of a Python: [python3, train.py]. It starts in the "
     "job's directory, $HPCTL_HOME/jobs/JOB: write other paths in full.",
     [](YamlValue& v, JobSpec& s) { v.read_workload_command(s.command); }},
    {"workload.train", kSection, "section", "", "", "The built-in trainer, hptrain.", nullptr,
     [](JobSpec& s) { s.train.emplace().automatic = AutoKeys::all(); }},
};

// The keys after workload.train.
constexpr JobYamlKey kKeysAfterTrain[] = {
    {"checkpoint", kSection, "section", "", "", "State that survives every node.", nullptr},
    {"checkpoint.dir", kValue, "path", "", "",
     "Directory for checkpoints and the lineage; on a cluster a shared directory. Default: "
     "$HPCTL_HOME/jobs/JOB/checkpoints.",
     [](YamlValue& v, JobSpec& s) { v.read_path(s.checkpoint.dir); }},
    {"checkpoint.every_steps", kValue, "integer", "500", "0 to 2^40",
     "Save after this many steps; 0 = off. A final checkpoint is always written.",
     HP_READ(checkpoint.every_steps)},
    {"checkpoint.every_minutes", kValue, "number", "30", "0 to 1e6",
     "Save when this many minutes have passed since the last one; 0 = off.",
     HP_READ(checkpoint.every_minutes)},
    {"checkpoint.keep", kValue, "integer", "5", "1 to 1000000",
     "Newest checkpoints kept; older ones are deleted.", HP_READ(checkpoint.keep)},
    {"checkpoint.keep_every", kValue, "integer", "0", "0 or a multiple of every_steps",
     "Checkpoints whose step is a multiple of this are kept for good, besides the newest; 0: none. "
     "If a fault costs one of them, the next one takes its place.",
     HP_READ(checkpoint.keep_every)},
    {"checkpoint.verify_before_delete", kValue, "text", "sample", "sizes, sample, full",
     "The check of the newest checkpoint, past the page cache, before the controller deletes an "
     "older one. Another node than the controller's reads, if there is one. sizes: the manifest "
     "and the size of every file. sample: also some ranges of every file. full: every byte. If "
     "the checkpoint is damaged, nothing is deleted.",
     read_verify_depth},
    {"checkpoint.resume", kValue, "latest, none or path", "latest", "",
     "Start of the first generation. latest: the latest valid checkpoint in dir, or the seed "
     "without one. none: the seed. A path: that step-N.gG directory, for example the step-0.g0 of "
     "`hpctl checkpoint import`. If dir has checkpoints, none and a path need `hpctl submit "
     "--fresh`.", read_resume},
    {"checkpoint.mirror", kSection, "section", "", "",
     "A second place for the checkpoints of the built-in trainer. The controller copies the newest "
     "valid one there while the job trains, and reads the copy again.",
     nullptr},
    {"checkpoint.mirror.dir", kValue, "path", "", "",
     "Directory of the copies, best on another file system; on a cluster a shared one. Empty: no "
     "mirror. It keeps as many checkpoints as dir.",
     [](YamlValue& v, JobSpec& s) { v.read_path(s.checkpoint.mirror.dir); }},
    {"checkpoint.mirror.every", kValue, "integer", "0", "0 to 2^40",
     "Copy when the newest checkpoint is at least this many steps ahead of the mirror; 0: every "
     "checkpoint.",
     HP_READ(checkpoint.mirror.every)},
    {"checkpoint.mirror.after", kValue, "duration", "5m", "1ms to 365d",
     "A recovery waits this long for a dir that cannot be read. Then it starts from the mirror, if "
     "that has the newest checkpoint that was committed.",
     [](YamlValue& v, JobSpec& s) { v.read_duration(s.checkpoint.mirror.after_ms); }},

    {"recovery", kSection, "section", "", "", "Reactions to faults.", nullptr},
    {"recovery.max_restarts", kValue, "integer", "20", "0 to 1000000",
     "Restarts allowed within window; one more fails the job with a diagnosis.",
     HP_READ(recovery.max_restarts)},
    {"recovery.window", kValue, "duration", "1h", "1ms to 365d",
     "Time over which restarts are counted.",
     [](YamlValue& v, JobSpec& s) { v.read_duration(s.recovery.window_ms); }},
    {"recovery.heartbeat_timeout", kValue, "duration", "10s", "100ms to 365d",
     "A node that is silent for this long is lost, unless it has ranks and the job has completed "
     "a step within this time: a step takes every rank. A node whose machine answers a probe has "
     "three times as long. If training makes no progress, a node is lost sooner: after 0.6s if "
     "the other ranks wait for it and its holder does not answer, and at once if its holder is "
     "gone. For a command that reports its steps (HPCTL_PROGRESS_FILE), other ranks count as "
     "waiting after three times the longest recent pause, at least 2s.",
     [](YamlValue& v, JobSpec& s) { v.read_duration(s.recovery.heartbeat_timeout_ms); }},
    {"recovery.hang_timeout", kValue, "duration or auto", "auto", "0s to 365d",
     "Ranks that complete no step for this long hang, unless all of them go on to other "
     "collectives (evaluations, skipped steps). auto (or 0s): three times the median step, at "
     "least 60s. It is three times the slowest recent step, at least 5s, if one node's ranks "
     "compute and all others wait for them in a collective. It is 1s if some processes are "
     "stopped (state T) and others are not. A command that reports its steps "
     "(HPCTL_PROGRESS_FILE) can hang, too; auto is then at least 10m, because hpctl does not see "
     "its saves and evaluations. For any command, the last ranks may also run this long after "
     "another rank exited with code 0; auto: 30m.",
     [](YamlValue& v, JobSpec& s) { read_duration_or_auto(v, s.recovery.hang_timeout_ms); }},
    {"recovery.grace", kValue, "duration", "1s", "0s to 5m",
     "After a fault, the other ranks of a command get SIGTERM, and SIGKILL this much later. Ranks "
     "of the built-in trainer stay for the next generation (limits.abort).",
     [](YamlValue& v, JobSpec& s) { v.read_duration(s.recovery.grace_ms); }},
    {"recovery.standbys", kValue, "integer", "1", "0 to 64",
     "Standby processes of the built-in trainer on each node: they have loaded the engine, and "
     "take the rank of a process that dies. A spare has one for each rank that it may get. 0: "
     "none, also on spares. For a command, see standby_imports.",
     HP_READ(recovery.standbys)},
    {"recovery.standby_imports", kValue, "list", "[]", "names of modules, at most 32",
     "Modules such as [torch], for a workload.command that is Python or a script with Python in "
     "its first line. A standby Python for each rank imports them, and runs the script when the "
     "ranks restart. Name modules that take long and are the same for every rank; do not name "
     "modules that you are changing.",
     [](YamlValue& v, JobSpec& s) { v.read_words(s.recovery.standby_imports); }},
    {"recovery.snapshot", kSection, "section", "", "",
     "Copies of each worker's state in memory. On GPUs: in the memory of its own host, where the "
     "state outlives the process, so that a fault of a process costs few steps or none. On GPUs "
     "and CPUs: in another node's memory. If a node is lost, the job goes on from the newest "
     "complete copy instead of a checkpoint. For the built-in trainer on several nodes, with "
     "strategies that shard over all ranks; with no_shard and hybrid the replicas serve. On "
     "GPUs not with memory.offload of optimizer or parameters.", nullptr},
    {"recovery.snapshot.every_steps", kValue, "integer or auto", "auto", "1 to 1000000",
     "Steps between two copies; a step waits if the previous copy is not complete. auto: so often "
     "that sending takes a twentieth of the time at most, beside the steps; it slows them by one "
     "percent or less. From a GPU to its host, auto: after every step if a step beside a copy is "
     "less than one percent longer, otherwise after every k-th, so that copies cost less than one "
     "percent.",
     read_snapshot_interval},
    {"recovery.snapshot.replicas", kValue, "integer", "1", "0 or 1",
     "Copies of each part; 0: none, which saves half of the host memory that the state takes.",
     HP_READ(recovery.snapshot.replicas)},
    {"recovery.straggler", kValue, "text", "warn", "off, warn, evict",
     "Reaction to a slow node: one with a rank that computes at least 1.3 times as long as the "
     "others over fifteen steps, so all ranks wait for it. warn: `hpctl status`, the history and "
     "the metrics name it. evict: also, a spare takes its ranks from the current step. That is a "
     "restart; hpctl makes it if max_restarts allows another, and for three nodes a day at most. "
     "Fewer than three ranks are not compared. For the built-in trainer.",
     read_straggler},
    {"recovery.on_node_loss", kValue, "list", "[spare, shrink, requeue]",
     "spare, shrink, requeue, wait; each once, wait last",
     "Reactions to a lost node; hpctl takes the first possible one. spare: an idle node takes its "
     "ranks at once. Otherwise hpctl launches the node again. If that fails, shrink: the job goes "
     "on with fewer nodes (not below nodes.min, with the same global batch) and takes nodes back "
     "at a step boundary, without a restart. requeue: Slurm requeues the job without the node. "
     "wait: the job waits for the node, in the queue if Slurm took the node or it is to be "
     "replaced. If none is possible, the attempt counts as a restart.",
     [](YamlValue& v, JobSpec& s) { v.read_words(s.recovery.on_node_loss); }},
    {"recovery.observe", kValue, "true or false", "false", "",
     "For a workload.command: hpctl says in the history what it would do about each fault "
     "(WouldRecover), and restarts nothing. A hang is left alone; a rank or a node that is lost "
     "ends the job as FAILED.",
     HP_READ(recovery.observe)},
    {"recovery.hang_rules", kValue, "list of rules", "[]", "at most 8",
     "For a workload.command: lines that its ranks must keep printing, such as "
     "`[{pattern: 'loss=', within: 10m, action: restart}]`. `pattern` is a regular expression "
     "(RE2) for one line of any rank. It must match again `within` that time (1s to 30d), and "
     "once within `first` after all ranks run (auto: 10m, and at least `within`). `action: warn`, "
     "the default, makes a finding of `hpctl watch`; `restart` treats it as a hang: stacks, then "
     "a restart of all ranks. The rule blames no rank.",
     [](YamlValue& v, JobSpec& s) { read_hang_rules(v, s.recovery.hang_rules); }},

    {"limits", kSection, "section", "", "",
     "Time limits for processes that still answer. Silent ones are found sooner, by "
     "recovery.heartbeat_timeout. A node that is as slow as the others is not excluded from a "
     "requeue.", nullptr},
    HP_LIMIT(launch, "From the request for a node until its agent registers. auto: 20s; under "
             "Slurm 1m, and 15m with slurm.container.image, which may have to be imported."),
    HP_LIMIT(register, "From the start of a new controller until the agents register with it. "
             "auto: 15s."),
    HP_LIMIT(start, "From the order to start a node's workers until they run. hooks.pre and "
             "health.preflight have their own time. auto: 30s; under Slurm 1m."),
    HP_LIMIT(abort, "From a fault elsewhere until a worker of the built-in trainer has left the "
             "generation; then SIGKILL, and a new process. After a hang a third of it. auto: 3s."),
    HP_LIMIT(stop, "From SIGKILL until the last worker of a node is gone; much pinned memory "
             "takes long to free. A spare does not wait for it. auto: 1m; under Slurm 5m."),
    HP_LIMIT(first_step, "From the start of the workers until their first step completes. auto: "
     "10m."),
    HP_LIMIT(last_checkpoint, "From SIGTERM to SIGKILL at a cancellation or the time limit, for a "
             "last checkpoint; also for the last generation of a job that fails. auto: 25s; at the "
             "time limit what slurm.signal leaves, less 35s."),
    HP_LIMIT(end, "From the end of the job until a node counts as ended. hooks.post have their "
             "own time. auto: 30s."),
    HP_LIMIT(directory, "For an answer of the checkpoint directory while a restart is prepared. "
             "auto: 1m."),
    HP_LIMIT(orphan, "From when an agent finds no controller and cannot start one, until it ends "
             "its workers and node. It does not end them while they complete steps. auto: 1m; "
             "under Slurm 10m."),
    HP_LIMIT(storage, "For storage that cannot be read or written: its server is away, its mount "
             "is stale, or it is full. Training goes on, and saves are repeated every 2 s to 5 "
             "min; a recovery that must read waits. On a full disk, older checkpoints are deleted "
             "one by one, never the newest. Then the job fails. auto: 1d."),

    {"hooks", kSection, "section", "", "",
     "Command lines for /bin/sh on every node, such as `dcgmi profile --pause`. They run in the "
     "job's directory, with HPCTL_JOB_ID and HPCTL_NODE set; their output is in "
     "nodes/NODE/hooks.log there. One may run twice when hpagent is restarted meanwhile.", nullptr},
    {"hooks.pre", kValue, "text or list", "", "at most 16",
     "Run before the first workers of the node; on a spare when the job trains. A hook that fails "
     "makes the node unfit for the job; its last line of output is the reason.",
     [](YamlValue& v, JobSpec& s) { v.read_texts(s.hooks.pre); }},
    {"hooks.post", kValue, "text or list", "", "at most 16",
     "Run after the last workers, however the job ended. A hook that fails is a warning in the "
     "node's log.", [](YamlValue& v, JobSpec& s) { v.read_texts(s.hooks.post); }},
    {"hooks.timeout", kValue, "duration", "1m", "1s to 1h",
     "A hook that takes longer is ended and has failed.",
     [](YamlValue& v, JobSpec& s) { v.read_duration(s.hooks.timeout_ms); }},

    {"health", kSection, "section", "", "", "Checks of the nodes.", nullptr},
    {"health.preflight", kValue, "text or list", "", "gpu, efa, net, host, fs",
     "Checks of `hpagent check` on every node before its first workers, on a spare when the job "
     "trains, and again where a worker failed, at most 60s each. A verdict of fail makes the node "
     "unfit for the job, with the evidence as the reason; of gpu, efa and host it is a hardware "
     "fault: on HyperPod the node is rebooted or replaced.",
     [](YamlValue& v, JobSpec& s) { v.read_texts(s.health.preflight); }},
    {"health.during", kUnavailable, "", "", "", "Checks while the job runs.", nullptr},
    {"notify", kSection, "section", "", "",
     "Notifications about the job, by its controller (docs/notifications.md).", nullptr},
    {"notify.webhook", kValue, "text", "", "https://... or http://...",
     "URL that gets a POST with JSON, such as an incoming webhook of Slack. The URL is a secret: "
     "prefer webhook_file.", HP_READ(notify.webhook)},
    {"notify.webhook_file", kValue, "path", "", "",
     "A file with the URL only. The controller must be able to read it, and reads it each time.",
     [](YamlValue& v, JobSpec& s) { v.read_path(s.notify.webhook_file); }},
    {"notify.command", kValue, "list of texts", "", "at most 64",
     "A program with its path, and arguments. It gets the same JSON on its standard input, has "
     "10s, and writes to notify.log in the job's directory. Not supported under a cluster "
     "controller.", read_notify_command},
    {"notify.on", kValue, "list", "[recovery, failure, quarantine, finished, critical]",
     "recovery, failure, quarantine, finished, critical; each once",
     "Occasions: the job trains again after a fault; it failed, or its time limit ended it; hpctl "
     "stopped using a node; the job finished; a critical finding of `hpctl watch` begins or ends.",
     read_notices},
    {"debug", kSection, "section", "", "", "For tests and investigations.", nullptr},
    {"debug.ledger", kValue, "true or false", "false", "",
     "Write which samples each rank trained on, JSON lines in the job's directory.",
     HP_READ(ledger)},
    {"debug.chaos", kValue, "true or false", "false", "",
     "Allows `hpctl chaos` to break parts of the job on purpose.", HP_READ(chaos)},
};
// clang-format on

#undef HP_LIMIT
#undef HP_READ

}  // namespace

std::span<const JobYamlKey> job_yaml_keys() {
  static const std::vector<JobYamlKey> keys = [] {
    std::vector<JobYamlKey> all(std::begin(kKeysBeforeTrain), std::end(kKeysBeforeTrain));
    const std::span<const JobYamlKey> train = train_yaml_keys();
    all.insert(all.end(), train.begin(), train.end());
    all.insert(all.end(), std::begin(kKeysAfterTrain), std::end(kKeysAfterTrain));
    return all;
  }();
  return keys;
}

}  // namespace hpctl
