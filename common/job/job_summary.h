// SPDX-License-Identifier: Apache-2.0
// A job in one row of a list, for `hpctl ps`, `hpctl top` and the cluster controller, which handle
// very many jobs. It has the names of the nodes and the number of ranks. Made of a JobView
// (controller/publish/status_files.h) by the job's controller or of its record, and sent as
// JobSummary of the wire contract (common/rpc/job_summary_wire.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/wall_time.h"
#include "common/job/ids.h"
#include "common/job/job_margins.h"
#include "common/job/node_record.h"
#include "common/job/time_account.h"

namespace hpctl {

inline constexpr size_t kMostBlamed = 16;

struct JobSummary {
  JobId job;
  std::string name;
  std::string state;  // PENDING ...; "" = not known
  // The time of the rest, by the clock of its source. Unknown: so is the rest, since the
  // controller is of an older release, or has not answered yet.
  WallTime taken_at;
  std::string owner;  // uid as text
  uint64_t generation = 0;
  uint64_t step = 0;
  uint64_t total_steps = 0;      // 0 = unknown
  double tokens_per_second = 0;  // 0 = unknown
  double step_ms = 0;            // median of the newest steps; 0 = unknown
  int64_t restarts = 0;
  int32_t faults = 0;
  std::vector<std::string> nodes;  // those that the job has, or had when it ended
  uint32_t ranks = 0;
  WallTime submitted_at;
  WallTime ended_at;  // unknown = not ended, or nobody recorded when
  TimeSpent spent;
  std::string reason;      // of the present state
  std::string last_fault;  // cause of the newest recovery; "" = none
  // While it is PENDING: what a person must do before Slurm starts it; "" = it only has to wait.
  // Not on the wire: a job in the queue has no controller.
  std::string queue_remedy;
  std::optional<JobMargins> margins;  // absent: its controller is of a release that tells none
  // The machines that it blames: of each the gravest, without a time; at most kMostBlamed.
  std::vector<NodeRecord> blamed;

  bool is_told() const { return taken_at.is_known(); }
  // The built-in trainer does, and a command that has told one.
  bool tells_steps() const { return total_steps > 0 || step > 0; }
};

inline TimeAccount account_of(const JobSummary& summary) {
  const WallTime end = summary.ended_at.is_known() ? summary.ended_at : summary.taken_at;
  return account_of(summary.spent, elapsed_ms(summary.submitted_at, end).value_or(0),
                    summary.tells_steps());
}

// As `hpctl goodput` has it; nullopt before the first step, and without reported steps.
inline std::optional<double> goodput_of(const JobSummary& summary) {
  return summary.is_told() ? goodput_of(account_of(summary)) : std::nullopt;
}

// Until the last step, at the pace of the newest ones; nullopt while the job does not train.
inline std::optional<int64_t> eta_ms(const JobSummary& summary) {
  if (summary.state != "RUNNING" || summary.step_ms <= 0) return std::nullopt;
  if (summary.total_steps <= summary.step) return std::nullopt;
  const double left = static_cast<double>(summary.total_steps - summary.step) * summary.step_ms;
  constexpr double kMostMs = 1e15;  // 31,000 years
  return static_cast<int64_t>(std::min(left, kMostMs));
}

}  // namespace hpctl
