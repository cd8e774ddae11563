// SPDX-License-Identifier: Apache-2.0
// One life of a job's controller under the cluster controller: started here, or found alive after
// the service itself was started again.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/base/fd.h"
#include "common/job/node_record.h"
#include "controller/cluster/job_row.h"
#include "controller/leadership/child_protocol.h"

namespace hpctl::cluster {

struct JobProcessSettings {
  std::string program;  // hpcontroller, absolute
  std::string node;     // this machine
  std::string listen;   // "IP:0" for the child; "" = its own choice
  std::string metrics;  // "HOST:0" for the child's metrics; "" = none
  std::function<std::vector<LemonScore>()> lemons =
      nullptr;  // for the order (ChildOrder); any thread
};

class JobProcess {
 public:
  // The process exists and waits for its order. Sets what `row` knows of it.
  static Result<JobProcess> start(const JobProcessSettings& settings, JobRow& row);
  // The process of the row, if it is alive and the same.
  static std::optional<JobProcess> find(const JobRow& row);

  JobProcess(JobProcess&&) = default;
  JobProcess& operator=(JobProcess&&) = default;
  ~JobProcess() = default;  // leaves the process alone

  // Tells it to begin. The row must be durable.
  Outcome order(const JobProcessSettings& settings, const JobRow& row);

  // Readable when the process has ended.
  int ended_fd() const { return pidfd_.get(); }
  // Readable when it has something to report; -1 = not any more.
  int report_fd() const { return channel_.get(); }
  // To be called when report_fd() is readable. Where it serves, or why it does not;
  // nullopt when it has ended without a word, or has more to say.
  std::optional<Result<ChildReport>> read_report();
  // To be called when ended_fd() is readable. The exit code, 128 + signal; nullopt when only its
  // parent, a service before us, could know.
  std::optional<int> reap();
  void kill() const;  // SIGKILL
  // At most so long; a process that the kernel cannot end yet is left behind.
  void await_end(int timeout_ms) const;

 private:
  JobProcess(pid_t pid, UniqueFd pidfd, UniqueFd channel)
      : pid_(pid), pidfd_(std::move(pidfd)), channel_(std::move(channel)) {}

  pid_t pid_;
  UniqueFd pidfd_;
  UniqueFd channel_;
  std::string said_;
};

// How long a started controller may take to serve.
inline constexpr int kServeTimeoutMs = 15'000;

}  // namespace hpctl::cluster
