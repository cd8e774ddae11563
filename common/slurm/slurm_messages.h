// SPDX-License-Identifier: Apache-2.0
// The messages between hpctl and hpslurm (slurm-plugins/hpslurm) about Slurm, without a line of
// Slurm's own headers: hpslurm is compiled on each cluster, everything else once. Empty strings and
// numbers that are 0 mean "not given" in requests and "unknown" in answers. Host lists
// ("n[0-3],n7") travel as Slurm writes them if Slurm gets them back, expanded if we read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/ids.h"

namespace hpctl {

// One batch job, as sbatch would submit it.
struct SlurmSubmission {
  std::string script;  // text of the batch script, "#!" line included
  std::string name;
  std::string comment;   // the submit key: unique, it is how a lost reply finds its job
  std::string work_dir;  // absolute
  std::string output;    // stdout and stderr, appended; may hold %j
  std::vector<std::string> environment;  // NAME=value, all that the job sees
  std::string partition;
  std::string account;
  std::string qos;
  std::string reservation;
  std::string constraint;     // --constraint
  std::string tres_per_node;  // "gres:gpu:8"; "gpu:8" (as --gres takes it) is completed
  std::string nodelist;       // host list
  std::string exclude;        // host list
  uint32_t nodes_min = 1;
  uint32_t nodes_max = 0;      // 0 = nodes_min
  uint32_t cpus_per_task = 0;  // one task per node
  uint32_t time_minutes = 0;   // 0 = the partition's default
  bool exclusive = false;
  bool all_memory = false;  // --mem=0
  uint64_t memory_mb = 0;   // per node; 0 = the cluster's default
  // --signal=B:SIGNAL@SECONDS: to the batch shell, so long before the time limit; 0 = none.
  uint32_t warning_signal = 0;
  uint32_t warning_seconds = 0;
  bool requeue = true;
  bool expedite = false;  // --requeue=expedite; where SlurmVersion::expedites
  bool no_kill = true;    // the allocation survives the loss of a node
  // Further options, as sbatch takes them. With any, the script goes to sbatch, which reads the
  // options from the #SBATCH lines of the script.
  std::vector<std::string> options;
};

struct SlurmJob {
  JobId id;
  std::string name;
  uint32_t uid = 0;
  std::string state;               // Slurm's base state: "PENDING", "RUNNING", "NODE_FAIL", ...
  std::vector<std::string> flags;  // "COMPLETING", "CONFIGURING", "REQUEUED", ...
  std::string reason;              // why it waits or has ended: "Resources", "NodeDown"; "None"
  std::string reason_detail;       // Slurm's own sentence
  std::string comment;
  std::string partition;
  std::vector<std::string> nodes;  // allocated now
  std::vector<std::string> excluded_nodes;
  std::string batch_host;
  std::string work_dir;
  uint32_t restart_count = 0;
  int32_t exit_code = 0;
  int32_t exit_signal = 0;
  int64_t start_time_s = 0;  // Unix time; an estimate while pending
  int64_t end_time_s = 0;
  int64_t preempt_time_s = 0;  // when Slurm signalled that it preempts the job; 0 = it does not

  bool has_flag(const std::string& flag) const;
  bool has_node(const std::string& node) const;
  bool is_requeued() const;  // back in the queue; what runs of it is being ended
  bool has_ended() const;    // neither pending, running, suspended nor completing
};

struct SlurmNode {
  std::string name;
  std::string address;
  std::string state;  // base state: "IDLE", "ALLOCATED", "MIXED", "DOWN", "FUTURE", ...
  std::vector<std::string> flags;  // "DRAIN", "FAIL", "NOT_RESPONDING", "CLOUD", "MAINTENANCE", ...
  std::string reason;
  std::string features;
  std::string gres;
  std::string instance_id;  // Slurm >= 23.11, where the cluster sets it
  std::string instance_type;
  int64_t boot_time_s = 0;          // Unix time
  int64_t slurmd_start_time_s = 0;  // Unix time

  bool has_flag(const std::string& flag) const;
  // Slurm will not give it work, or has lost it: DOWN, DRAIN, FAIL or NOT_RESPONDING.
  bool is_unusable() const;
  std::string state_text() const;  // "DOWN+DRAIN"
};

struct SlurmReservation {
  std::string name;
  std::string nodes;               // host list
  std::vector<std::string> flags;  // "MAINT", ...
  std::string users;
  int64_t start_time_s = 0;
  int64_t end_time_s = 0;
};

enum class SlurmNodeState { kDown, kDrain, kFail, kResume };

struct SlurmVersion {
  std::string built_for;                 // release of libslurm's headers, "22.05.8"
  std::string running;                   // of the library that is loaded
  std::vector<std::string> controllers;  // hosts of slurmctld
  std::string cluster;                   // ClusterName
  bool expedites = false;                // slurmctld allows --requeue=expedite (since 25.11)
};

}  // namespace hpctl
