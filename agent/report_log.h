// SPDX-License-Identifier: Apache-2.0
// Durable reports of what happened on the node: numbered, kept by the holder before the controller
// hears of them, and sent again on every new stream until the controller says that they are
// committed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "agent/core/progress.h"
#include "agent/core/supervisor.h"
#include "agent/holder_protocol.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

class ReportLog {
 public:
  using ToHolder = std::function<void(const holder::ToHolder&)>;
  using ToController = std::function<void(const v1::AgentMessage&)>;
  // `envelope`: see messages.h. `last_report` and `reported`: what the holder remembers.
  // `to_controller` may drop a report: it stays in waiting().
  ReportLog(v1::AgentMessage envelope, uint64_t last_report, const Reported& reported,
            ToHolder to_holder, ToController to_controller)
      : envelope_(std::move(envelope)),
        last_seq_(last_report),
        reported_(reported),
        to_holder_(std::move(to_holder)),
        to_controller_(std::move(to_controller)) {}

  // A report of an earlier life. Damaged ones cannot be: the holder keeps what we gave it.
  void restore(const holder::StoredReport& report);

  // `exit_id`: of the exit record, which the holder then need not keep.
  void exited(v1::WorkerExited exited, uint64_t exit_id);
  // Each action is answered once; what is said again while the answer waits is dropped.
  void answer(const Done& done);
  void answer(const Failed& failed);
  // Dropped while many reports wait: the next commit says as much.
  void committed(Commit commit);
  void bad_step(const std::vector<BadStepNews>& steps);
  // Once.
  void goodbye();

  void acknowledged(uint64_t seq);
  const std::map<uint64_t, v1::AgentMessage>& waiting() const { return waiting_; }
  // More should not be made of what can be told later. Of bad steps, the next one tells how many
  // there were.
  bool many_wait() const { return waiting_.size() >= kManyReports; }

 private:
  static constexpr size_t kManyReports = 1'000;

  void keep(v1::AgentMessage message, uint64_t covers_exit = 0);
  // Whether the answer to this action waits.
  bool has_answer(ActionKey key) const;

  const v1::AgentMessage envelope_;
  uint64_t last_seq_;
  Reported reported_;
  ToHolder to_holder_;
  ToController to_controller_;
  std::map<uint64_t, v1::AgentMessage> waiting_;
};

}  // namespace hpctl::agent
