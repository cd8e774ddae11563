// SPDX-License-Identifier: Apache-2.0
// The options of sbatch and srun, and those of torchrun.
#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

void set_value(const Given& given, Draft& draft, const std::string& key, const std::string& yaml) {
  draft.set(key, yaml, given);
  draft.report(kTaken, given, key + ": " + yaml);
}

// "2", or the fewest and the most: sbatch has "1-2", torchrun "1:2".
void take_nodes(const Given& given, const Document&, Draft& draft) {
  const size_t between = given.text.find_first_of("-:");
  const std::string most =
      between == std::string::npos ? given.text : given.text.substr(between + 1);
  const auto count = number_of(most);
  if (!count) {
    // $SLURM_JOB_NUM_NODES and its like, which the #SBATCH line has.
    return draft.report(kUnneeded, given, given.text + " is the number of nodes");
  }
  draft.set_number(Quantity::kNodes, *count, given);
  draft.set("nodes.count", most, given);
  if (between != std::string::npos) {
    draft.set("nodes.min", given.text.substr(0, between), given);
  }
  draft.report(kTaken, given, "nodes.count: " + most);
}

void take_workers(const Given& given, const Document&, Draft& draft) {
  const auto count = number_of(given.text);
  if (count) {
    draft.set_number(Quantity::kWorkersPerNode, *count, given);
    return set_value(given, draft, "workers_per_node", given.text);
  }
  if (is_one_of(given.text, "auto|gpu")) {
    return set_value(given, draft, "workers_per_node", "auto");
  }
  draft.report(kImpossible, given,
               given.text + " is known to the shell alone; give --set workers_per_node=N");
}

// torchrun starts the workers where there is one; then the tasks are launchers.
void take_task_count(const Given& given, const Document& document, Draft& draft) {
  if (document.text_of("(launcher)") == "true" || given.text == "1") {
    return draft.report(kUnneeded, given, "torchrun's --nproc-per-node is workers_per_node");
  }
  take_workers(given, document, draft);
}

void take_tasks(const Given& given, const Document& document, Draft& draft) {
  if (document.text_of("(launcher)") == "true") {
    return draft.report(kUnneeded, given, "nodes x workers_per_node");
  }
  const auto tasks = number_of(given.text);
  if (tasks) draft.set_number(Quantity::kTasks, *tasks, given);
  draft.report(kChanged, given, "nodes.count x workers_per_node: " + given.text);
}

void take_processes(const Given& given, const Document&, Draft& draft) {
  const auto tasks = number_of(given.text);
  if (tasks) draft.set_number(Quantity::kTasks, *tasks, given);
  draft.report(kChanged, given, "nodes.count x workers_per_node: " + given.text);
}

void take_gpus(const Given& given, const Document& document, Draft& draft) {
  if (!document.text_of("--gres").empty()) {
    return draft.report(kUnneeded, given, "--gres says it");
  }
  set_value(given, draft, "slurm.gres", yaml_text("gpu:" + given.text));
}

void take_exclusive(const Given& given, const Document&, Draft& draft) {
  if (is_one_of(given.text, "true|exclusive")) {
    return draft.report(kUnneeded, given, "whole nodes are the default");
  }
  draft.report(kImpossible, given, "slurm.exclusive is true or false");
}

void take_list(const Given& given, Draft& draft, const std::string& key) {
  std::string list;
  for (const std::string& item : given.items) {
    list += (list.empty() ? "" : ", ") + yaml_text(item);
  }
  set_value(given, draft, key, "[" + list + "]");
}
void take_mounts(const Given& given, const Document&, Draft& draft) {
  Given parts = given;
  parts.items.clear();
  std::string rest = given.text;
  for (size_t comma = rest.find(','); comma != std::string::npos; comma = rest.find(',')) {
    parts.items.push_back(rest.substr(0, comma));
    rest.erase(0, comma + 1);
  }
  parts.items.push_back(rest);
  take_list(parts, draft, "slurm.container.mounts");
}

void take_exports(const Given& given, const Document&, Draft& draft) {
  if (is_one_of(given.text, "ALL|NONE")) {
    return draft.report(kUnneeded, given,
                        "a command gets the environment of the shell that submits it");
  }
  for (std::string rest = given.text; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string part = rest.substr(0, comma);
    const size_t equals = part.find('=');
    if (equals != std::string::npos) {
      draft.set_variable(part.substr(0, equals), part.substr(equals + 1), given.source);
    }
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  draft.report(kTaken, given, "env.set");
}

void take_extra(const Given& given, const Document&, Draft& draft) {
  const std::string option = given.text == "true" ? given.key : given.key + "=" + given.text;
  const Value* known = draft.find("slurm.extra");
  const std::string yaml = yaml_text(option);
  draft.compute("slurm.extra",
                known == nullptr
                    ? "[" + yaml + "]"
                    : known->yaml.substr(0, known->yaml.size() - 1) + ", " + yaml + "]",
                given.source);
  draft.report(kTaken, given, "slurm.extra: " + option);
}

void take_signal(const Given& given, const Document&, Draft& draft) {
  const size_t at = given.text.find('@');
  const std::string name = given.text.substr(0, at);
  if (at == std::string::npos || !is_one_of(name, "B:TERM|TERM|B:SIGTERM|SIGTERM")) {
    return draft.report(kChanged, given,
                        "left out: the job ends in order a minute before the limit, by SIGTERM");
  }
  set_value(given, draft, "slurm.signal", yaml_text("B:TERM" + given.text.substr(at)));
}

constexpr std::string_view kSlurmLogs = "`hpctl logs JOB`, and logs/ of the job's directory";
constexpr std::string_view kRestarts = "hpctl finds faults and restarts by itself";
constexpr std::string_view kPort = "a port that is free on rank 0's node, another for each start";
constexpr std::string_view kTaskLayout = "hpctl places the workers";

// clang-format off
constexpr Row kSlurmRows[] = {
    {.key = "--job-name", .ours = "name"},
    {.key = "--nodes", .ours = "nodes.count", .note = "MIN-MAX: nodes.min too", .take = take_nodes},
    {.key = "--ntasks", .fate = kChanged, .ours = "workers_per_node",
     .note = "divided by the nodes", .take = take_tasks},
    {.key = "--ntasks-per-node", .ours = "workers_per_node", .note = "without torchrun",
     .take = take_task_count},
    {.key = "--gpus-per-node", .fate = kChanged, .ours = "slurm.gres", .note = "gpu: before it",
     .take = take_gpus},
    impossible("--gpus", "slurm.gres is of each node: write --gres or --gpus-per-node"),
    unneeded("--gpus-per-task", "a worker takes the GPU of its number"),
    {.key = "--gres", .ours = "slurm.gres"},
    {.key = "--cpus-per-task", .ours = "slurm.cpus_per_task"},
    {.key = "--cpus-per-gpu", .ours = "slurm.extra", .take = take_extra},
    {.key = "--partition", .ours = "slurm.partition"},
    {.key = "--account", .ours = "slurm.account"},
    {.key = "--qos", .ours = "slurm.qos"},
    {.key = "--time", .ours = "slurm.time"},
    {.key = "--exclusive", .ours = "slurm.exclusive", .take = take_exclusive},
    {.key = "--oversubscribe", .ours = "slurm.exclusive", .note = "false", .words = "true=false"},
    {.key = "--mem", .ours = "slurm.mem"},
    impossible("--mem-per-cpu", "slurm.mem is of a node"),
    impossible("--mem-per-gpu", "slurm.mem is of a node"),
    {.key = "--constraint", .ours = "slurm.constraint"},
    {.key = "--reservation", .ours = "slurm.reservation"},
    {.key = "--nodelist", .ours = "slurm.nodelist"},
    {.key = "--exclude", .ours = "slurm.exclude"},
    {.key = "--dependency", .ours = "slurm.dependency"},
    {.key = "--begin", .ours = "slurm.begin"},
    {.key = "--nice", .ours = "slurm.nice"},
    {.key = "--licenses", .ours = "slurm.licenses"},
    {.key = "--comment", .ours = "slurm.comment"},
    {.key = "--mail-user", .ours = "slurm.mail_user"},
    {.key = "--mail-type", .ours = "slurm.mail_type"},
    {.key = "--signal", .ours = "slurm.signal",
     .note = "SIGTERM to the batch script; another is left out", .take = take_signal},
    {.key = "--container-image", .ours = "slurm.container.image"},
    {.key = "--container-mounts", .ours = "slurm.container.mounts", .take = take_mounts},
    unneeded("--container-name", "slurm.container.image is enough"),
    unneeded("--container-workdir", "a command starts in the job's directory"),
    unneeded("--container-mount-home", "slurm.container.mounts names what the container sees"),
    unneeded("--no-container-mount-home", "slurm.container.mounts names what the container sees"),
    {.key = "--export", .ours = "env.set", .note = "ALL and NONE need no key",
     .take = take_exports},
    unneeded("--output", kSlurmLogs),
    unneeded("--error", kSlurmLogs),
    unneeded("--open-mode", "logs append"),
    unneeded("--label", kSlurmLogs),
    unneeded("--unbuffered", kSlurmLogs),
    unneeded("--requeue", kRestarts),
    unneeded("--no-requeue", "recovery.on_node_loss decides"),
    unneeded("--no-kill", kRestarts),
    unneeded("--kill-on-bad-exit", kRestarts),
    unneeded("--wait", kRestarts),
    unneeded("--wait-all-nodes", "the job starts when its nodes are up"),
    unneeded("--auto-resume", kRestarts),
    unneeded("--hpctl-resume", kRestarts),
    impossible("--array", "one `hpctl submit` for each"),
    {.key = "--chdir", .fate = kChanged,
     .note = "left out: a command starts in the job's directory, so write paths in full"},
    unneeded("--distribution", kTaskLayout),
    unneeded("--cpu-bind", kTaskLayout),
    unneeded("--gpu-bind", kTaskLayout),
    unneeded("--mpi", kTaskLayout),
    {.key = "--hint", .ours = "slurm.extra", .take = take_extra},
    {.key = "--threads-per-core", .ours = "slurm.extra", .take = take_extra},
    {.key = "--switches", .ours = "slurm.extra", .take = take_extra},
    {.key = "--wckey", .ours = "slurm.extra", .take = take_extra},
    {.key = "--contiguous", .ours = "slurm.extra", .take = take_extra},
    {.key = "--overcommit", .ours = "slurm.extra", .take = take_extra},
    {.key = "--network", .ours = "slurm.extra", .take = take_extra},
};

constexpr Row kLauncherRows[] = {
    {.key = "--nnodes", .ours = "nodes.count", .note = "MIN:MAX: nodes.min too",
     .take = take_nodes},
    {.key = "--nproc-per-node", .ours = "workers_per_node", .note = "auto, gpu: auto",
     .take = take_workers},
    {.key = "--max-restarts", .fate = kChanged, .ours = "recovery.max_restarts",
     .note = "within recovery.window instead of for ever", .off = "0"},
    unneeded("--rdzv-id", kPort),
    unneeded("--rdzv-backend", kPort),
    unneeded("--rdzv-endpoint", kPort),
    unneeded("--rdzv-conf", "limits.launch and limits.start"),
    unneeded("--master-addr", kPort),
    unneeded("--master-port", kPort),
    unneeded("--node-rank", "hpctl numbers the nodes"),
    unneeded("--local-addr", kPort),
    {.key = "--num-gpus", .ours = "workers_per_node", .note = "of deepspeed", .take = take_workers},
    {.key = "--num-nodes", .ours = "nodes.count", .note = "of deepspeed", .take = take_nodes},
    {.key = "--num-machines", .ours = "nodes.count", .note = "of accelerate", .take = take_nodes},
    {.key = "--num-processes", .fate = kChanged, .ours = "workers_per_node",
     .note = "of accelerate: divided by the nodes", .take = take_processes},
    unneeded("--machine-rank", "hpctl numbers the nodes"),
    unneeded("--main-process-ip", kPort),
    unneeded("--main-process-port", kPort),
    unneeded("--multi-gpu", "hpctl starts the workers"),
    unneeded("--hostfile", "Slurm has the nodes"),
    impossible("--include", "slurm.nodelist names nodes"),
    impossible("--config-file", "keys of accelerate; write them as options"),
    impossible("--mixed-precision",
               "write it for the program; precision is of the built-in trainer"),
    unneeded("--standalone", "`hpctl submit --local`"),
    unneeded("--monitor-interval", "the end of a process is an event"),
    unneeded("--start-method", "hpctl starts the workers"),
    unneeded("--role", "all workers are alike"),
    unneeded("--module", "workload.command is the whole command line"),
    unneeded("--no-python", "workload.command is the whole command line"),
    unneeded("--tee", "`hpctl logs JOB --rank R`"),
    unneeded("--redirects", "`hpctl logs JOB --rank R`"),
    unneeded("--log-dir", "`hpctl logs JOB --rank R`"),
    unneeded("--local-ranks-filter", "`hpctl logs JOB --rank R`"),
    {.key = "--numa-binding", .fate = kChanged,
     .note = "left out: put numactl before the program in workload.command"},
};
// clang-format on

}  // namespace

const Tool& slurm_tool() {
  static const Tool tool = {
      "sbatch and srun", "#SBATCH lines and options of srun", kSlurmRows, {}, nullptr};
  return tool;
}

const Tool& launcher_tool() {
  static const Tool tool = {"torchrun", "its options in a script", kLauncherRows, {}, nullptr};
  return tool;
}

}  // namespace hpctl::migrate
