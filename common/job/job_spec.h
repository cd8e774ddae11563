// SPDX-License-Identifier: Apache-2.0
// A job as the whole system sees it: job.yaml after defaults were filled in and every value was
// checked (common/jobfile/job_yaml.h reads the YAML). Travels as JSON, with the keys of job.yaml.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/word_enum.h"
#include "common/job/hang_rule.h"
#include "common/job/limits.h"
#include "common/job/notify_spec.h"
#include "common/job/train_spec.h"

namespace hpctl {

// How thoroughly the newest checkpoint is read again before an older one is deleted.
enum class VerifyDepth { kSizes, kSample, kFull };
constexpr auto words_of(VerifyDepth) {
  return std::to_array<const char*>({"sizes", "sample", "full"});
}

// A second place for checkpoints (docs/decisions/1312-a-mirror-holds-what-was-verified.md).
struct MirrorSpec {
  std::string dir;             // absolute; "" = no mirror
  int64_t every = 0;           // steps that the mirror may lag before a copy; 0 = each checkpoint
  int64_t after_ms = 300'000;  // checkpoint.dir away for so long -> a recovery may use the mirror
};

struct CheckpointSpec {
  std::string dir;            // absolute; "" = HomePaths::default_checkpoints, filled at submit
  int64_t every_steps = 500;  // 0 = off
  double every_minutes = 30;  // 0 = off
  int64_t keep = 5;
  int64_t keep_every = 0;  // steps whose multiples are never deleted; 0 = none
  VerifyDepth verify_before_delete = VerifyDepth::kSample;
  std::string resume = "latest";  // latest | none | absolute path of a step-N.gG directory
  MirrorSpec mirror;
};

// Reactions to a lost node that does not come back when it is launched again, in order of
// preference (recovery.on_node_loss).
inline constexpr const char* kOnNodeLossSpare = "spare";    // an idle node takes its ranks, at once
inline constexpr const char* kOnNodeLossShrink = "shrink";  // go on without it, down to nodes.min
inline constexpr const char* kOnNodeLossRequeue = "requeue";  // the Slurm job, excluding the node
inline constexpr const char* kOnNodeLossWait = "wait";        // until it, or a replacement, is back

// Copies of the state in the memory of other nodes (common/job/snapshot_peers.h).
struct SnapshotSpec {
  int64_t every_steps = 0;  // 0 = auto: as often as sending takes a twentieth of the time
  int64_t replicas = 1;     // 0 = none
};

// The reaction to ranks that compute slower than the others (controller/core/straggler.h).
enum class StragglerPolicy { kOff, kWarn, kEvict };
constexpr auto words_of(StragglerPolicy) {
  return std::to_array<const char*>({"off", "warn", "evict"});
}

struct RecoverySpec {
  int64_t max_restarts = 20;  // within window_ms; counted durably
  int64_t window_ms = 3'600'000;
  int64_t heartbeat_timeout_ms = 10'000;
  // 0 = auto: max(3 x median step, 60 s); of a command's last ranks, half an hour
  int64_t hang_timeout_ms = 0;
  int64_t grace_ms = 1000;  // between SIGTERM and SIGKILL to the survivors of a command
  int64_t standbys = 1;     // of the built-in trainer, on each node
  // For a Python command: modules that a standby for each rank has imported; none = no standbys.
  std::vector<std::string> standby_imports;
  SnapshotSpec snapshot;
  StragglerPolicy straggler = StragglerPolicy::kWarn;
  std::vector<std::string> on_node_loss = {kOnNodeLossSpare, kOnNodeLossShrink, kOnNodeLossRequeue};
  bool observe = false;                   // of a command: say what would be done, and do nothing
  std::vector<HangRule> hang_rules = {};  // of a command, at most kMostHangRules
};

// The image and mounts are Pyxis' (srun --container-image, --container-mounts).
struct ContainerSpec {
  std::string image;                // "" = no container
  std::vector<std::string> mounts;  // "SOURCE:TARGET[:FLAGS]"
};

// The options that the Slurm backend passes to Slurm. "" = not passed.
struct SlurmSpec {
  std::string partition;
  std::string account;
  std::string qos;
  int64_t time_minutes = 0;  // 0 = the partition's default
  bool exclusive = true;
  std::string gres;        // per node, as srun --gres takes it
  std::string constraint;  // node features
  std::string reservation;
  std::string nodelist;  // host list
  std::string exclude;   // host list
  // MiB per node; 0 = all; -1 = all with exclusive, else the cluster's default.
  int64_t mem_mb = -1;
  bool requeue_at_limit = false;  // saved first; else the time limit ends the job
  ContainerSpec container;
  int64_t cpus_per_task = 0;  // of each worker; 0 = one without exclusive, else not asked for
  // How long before the time limit the job gets the signal to end (slurm.signal: B:TERM@SECONDS).
  int64_t warning_seconds = 60;
  // As sbatch takes them, by the option of the same name.
  std::string dependency;
  std::string begin;
  std::string mail_user;
  std::string mail_type;
  std::string licenses;
  int64_t nice = 0;
  std::string comment;             // added to hpctl's own
  std::vector<std::string> extra;  // further options of sbatch, "--NAME[=VALUE]"
};

// Slurm's own options of a job, as sbatch takes them: dependency, begin, mail, nice, licenses, then
// extra.
std::vector<std::string> sbatch_options(const SlurmSpec& slurm);

// How the program of workload.command is run (env.kind and env.path). Submission replaces `auto`
// (common/jobfile/python_environment.h).
struct EnvironmentSpec {
  std::string kind = "auto";  // auto | venv | uv | container | none
  std::string path;           // of the virtual environment or the uv project
};

// Command lines for /bin/sh, on every node (hooks).
struct HooksSpec {
  std::vector<std::string> pre;   // before the node's first workers; a failure: unfit node
  std::vector<std::string> post;  // after its last; a failure: a warning
  int64_t timeout_ms = 60'000;    // of each
};

struct HealthSpec {
  std::vector<std::string> preflight;  // checks of `hpagent check` before the first workers
};
// Of one check; a little more than the time that Slurm gives a HealthCheckProgram.
inline constexpr int64_t kPreflightTimeoutMs = 60'000;

// A choice of the plan at submission, for a key that job.yaml leaves to `auto`. The value itself is
// in the spec, and does not change later.
struct ChosenValue {
  std::string key;  // dotted path in job.yaml
  std::string value;
  std::string reason;
};
struct ChosenValues {
  std::string basis;  // the memory that was counted on, or why none was known
  std::vector<ChosenValue> values;
};

struct JobSpec {
  std::string name;
  int32_t nodes = 1;      // that train
  int32_t min_nodes = 0;  // fewest to go on with after losses; 0 = nodes: never fewer
  int32_t spares = 0;     // idle ones kept ready, in addition to `nodes`
  int32_t workers_per_node = 1;
  bool auto_workers = false;  // workers_per_node is still to be chosen, before the job is submitted
  std::map<std::string, std::string> env;  // env.set
  std::vector<std::string> env_files;      // of NAME=VALUE, read on the node at every start
  std::optional<TrainSpec> train;          // exactly one of train and command
  std::vector<std::string> command;        // program and arguments
  CheckpointSpec checkpoint;
  RecoverySpec recovery;
  Limits limits;
  SlurmSpec slurm;
  EnvironmentSpec environment;
  HooksSpec hooks;
  HealthSpec health;
  NotifySpec notify;
  bool ledger = false;  // debug.ledger
  bool chaos = false;   // debug.chaos
  ChosenValues chosen;  // of workload.train

  int32_t world_size() const { return nodes * workers_per_node; }
  int32_t all_nodes() const { return nodes + spares; }
  int32_t fewest_nodes() const { return min_nodes == 0 ? nodes : min_nodes; }
  // The longest that a node may take before its first workers start, and after its last ended.
  int64_t preparation_ms() const {
    return static_cast<int64_t>(hooks.pre.size()) * hooks.timeout_ms +
           static_cast<int64_t>(health.preflight.size()) * kPreflightTimeoutMs;
  }
  // After a fault, between SIGTERM and SIGKILL to the workers that are left. The built-in trainer
  // saves nothing then, and its state lies in the agent's memory.
  int64_t stop_grace_ms() const { return train ? 0 : recovery.grace_ms; }
  int64_t clean_up_ms() const { return static_cast<int64_t>(hooks.post.size()) * hooks.timeout_ms; }
};

// One JSON object; the inverse reads what to_json_text wrote, and rejects what is not a job.
std::string to_json_text(const JobSpec& spec);
Result<JobSpec> job_spec_from_json(const std::string& text);

// Range and consistency checks that do not depend on the machine (positive sizes, heads divisible
// by kv_heads, a sequence for every worker, known enumerations, ...). The message names
// the key as written in job.yaml, e.g. "workload.train.batch.global".
struct SpecProblem {
  std::string key;      // dotted path in job.yaml
  std::string message;  // what was expected and what was found
};
// All of them, in the order of job.yaml; empty = the spec is good. At most one per key.
std::vector<SpecProblem> find_problems(const JobSpec& spec);

}  // namespace hpctl
