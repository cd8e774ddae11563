// SPDX-License-Identifier: Apache-2.0
// A node's steps around a job: preflight checks and `hooks: pre` before its first workers, `hooks:
// post` after its last.
//
// A session of the node is prepared once; a file with the boot id on a local disk records it for a
// restarted agent. If a worker has failed (`suspect`), the checks run again before the next
// generation: a program does not say whether it or the machine is to blame. StartWorkers waits
// until the preparation is complete: the newest one is kept, and is carried out, or answered with
// the error, when the steps are through.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "agent/node_place.h"
#include "agent/step_runner.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

// Why the node is unfit.
struct Unfitness {
  std::string reason;     // one line with the evidence; "" = it is fit
  bool hardware = false;  // a check of its own devices failed; false: a hook, or the check itself
  bool reboot = false;    // which may mend them
};

class NodePreparation {
 public:
  using Ready = std::function<void(const v1::StartWorkers& start, const Unfitness& unfit)>;

  NodePreparation(EventLoop& loop, LogWriter& logs, const NodePlace& place, std::string boot_id);

  // True when there is nothing to prepare any more. Otherwise keeps `start`, begins the steps
  // unless they run already, and calls `ready` later.
  bool is_ready(const v1::StartWorkers& start, Ready ready);
  // StopWorkers: the start that waits, if it is of a generation <= `through`, is given back for an
  // answer. The steps go on; the next start finds them done.
  std::optional<v1::StartWorkers> withdraw(uint64_t through);

  // EndNode: `done` is called when the hooks have ended, in whatever way; at once without any, or
  // where the node was not prepared and never `had_workers`.
  void finish(const v1::EndNode& end, bool had_workers, const std::function<void()>& done);

  int64_t deadline_ms() const { return runner_.deadline_ms(); }
  void on_time(int64_t now_ms) { runner_.on_time(now_ms); }

 private:
  enum class Ending { kNot, kRuns, kDone };

  std::string mark_path() const;
  Outcome mark() const;
  bool is_marked() const;
  StepPlace step_place(const std::map<std::string, std::string>& env) const;
  Unfitness judge(const std::vector<StepFailure>& failures) const;
  void prepared(const std::vector<StepFailure>& failures);

  const NodePlace place_;
  const std::string boot_id_;
  StepRunner runner_;
  std::optional<v1::StartWorkers> waiting_;
  std::vector<std::string> checks_;  // of the steps that run
  uint64_t checked_for_ = 0;         // newest generation that the checks were made for
  Ready ready_;
  Ending ending_ = Ending::kNot;
};

}  // namespace hpctl::agent
