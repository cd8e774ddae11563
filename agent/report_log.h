// SPDX-License-Identifier: Apache-2.0
// Durable reports about the node: numbered, kept by the holder before the controller gets them, and
// sent again on every new stream until the controller confirms the commit.
//
// In a recovery every rank of a job exits, and nearly all of these exits are expected: the ranks
// had an order to end, or lost a peer as others of the node did. Such exits wait for the next
// report, which is the answer to the order, or for the next heartbeat, and leave in one message.
// Each stays a separate report, with its number.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "agent/core/progress.h"
#include "agent/core/supervisor.h"
#include "agent/holder/holder_protocol.h"
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
  // Returns whether this exit has more information for the controller than that the worker ended as
  // expected.
  bool is_news(const v1::WorkerExited& exited) const;
  // Each action is answered once; a repeated answer is dropped while the first one waits.
  void answer(const Done& done);
  void answer(const Failed& failed);
  // Dropped while many reports wait: the next commit says as much.
  void committed(Commit commit);
  void bad_step(const std::vector<BadStepNews>& steps);
  // Once.
  void goodbye();

  // The controller, which is there, has none of what waits. `together`: it takes exits together.
  void send_all(bool together);
  // Sends the reports that wait for others of their kind.
  void send_held();
  void acknowledged(const v1::ReportAck& ack);
  const std::map<uint64_t, v1::AgentMessage>& waiting() const { return waiting_; }
  // Reports that can wait should not be made now. The next bad step contains the number of bad
  // steps.
  bool many_wait() const { return waiting_.size() >= kManyReports; }

 private:
  static constexpr size_t kManyReports = 1'000;
  static constexpr size_t kMostTogether = 256;

  using Waiting = std::map<uint64_t, v1::AgentMessage>;

  void keep(v1::AgentMessage message, uint64_t covers_exit = 0, bool is_held = false);
  void drop(uint64_t seq);
  // The end of the run of exits from `first` on that one message takes.
  Waiting::const_iterator end_of_run(Waiting::const_iterator first) const;
  // Returns whether the answer to this action waits.
  bool has_answer(ActionKey key) const;

  const v1::AgentMessage envelope_;
  uint64_t last_seq_;
  Reported reported_;
  ToHolder to_holder_;
  ToController to_controller_;
  Waiting waiting_;
  uint64_t held_from_ = 0;  // number of the first that was not sent yet; 0 = all were
  bool together_ = false;
  uint64_t lost_peer_in_ = 0;  // the newest generation of which that was told
};

}  // namespace hpctl::agent
