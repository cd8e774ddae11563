// SPDX-License-Identifier: Apache-2.0
#include "agent/report_log.h"

#include <string>

#include "agent/messages.h"
#include "common/base/log.h"

namespace hpctl::agent {

void ReportLog::restore(const holder::StoredReport& report) {
  if (waiting_[report.seq].ParseFromString(report.bytes)) return;
  log_error("the holder kept a report that cannot be read; it is dropped");
  acknowledged(report.seq);
}

void ReportLog::keep(v1::AgentMessage message, uint64_t covers_exit) {
  message.set_report_seq(++last_seq_);
  to_holder_(holder::KeepReport{last_seq_, covers_exit, reported_.commit.generation,
                                reported_.commit.step, reported_.bad_step.generation,
                                reported_.bad_step.number, message.SerializeAsString()});
  to_controller_(waiting_[last_seq_] = std::move(message));
}

void ReportLog::exited(v1::WorkerExited exited, uint64_t exit_id) {
  v1::AgentMessage message = envelope_;
  *message.mutable_worker_exited() = std::move(exited);
  keep(std::move(message), exit_id);
}

void ReportLog::answer(const Done& done) {
  if (has_answer(done.key)) return;
  v1::AgentMessage message = envelope_;
  *message.mutable_action_done() = to_message(done);
  keep(std::move(message));
}

void ReportLog::answer(const Failed& failed) {
  if (has_answer(failed.key)) return;
  log_error("generation " + std::to_string(failed.generation) + ": " + failed.reason);
  v1::AgentMessage message = envelope_;
  *message.mutable_action_failed() = to_message(failed);
  keep(std::move(message));
}

void ReportLog::committed(Commit commit) {
  if (many_wait()) return;
  reported_.commit = commit;
  v1::AgentMessage message = envelope_;
  *message.mutable_checkpoint_committed() = to_message(commit);
  keep(std::move(message));
}

void ReportLog::bad_step(const std::vector<BadStepNews>& steps) {
  for (const BadStepNews& news : steps) {
    reported_.bad_step = news.mark;
    v1::AgentMessage message = envelope_;
    *message.mutable_bad_step() = to_message(news);
    keep(std::move(message));
  }
}

void ReportLog::goodbye() {
  if (!waiting_.empty() && waiting_.rbegin()->second.has_goodbye()) return;
  v1::AgentMessage message = envelope_;
  message.mutable_goodbye()->set_reason("the job has ended");
  keep(std::move(message));
}

void ReportLog::acknowledged(uint64_t seq) {
  if (waiting_.erase(seq) > 0) to_holder_(holder::DropReport{seq});
}

bool ReportLog::has_answer(ActionKey key) const {
  for (const auto& [seq, message] : waiting_) {
    if (message.has_action_done() && ActionKey{message.action_done().action_seq(),
                                               message.action_done().action_index()} == key) {
      return true;
    }
    if (message.has_action_failed() && ActionKey{message.action_failed().action_seq(),
                                                 message.action_failed().action_index()} == key) {
      return true;
    }
  }
  return false;
}

}  // namespace hpctl::agent
