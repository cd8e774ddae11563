// SPDX-License-Identifier: Apache-2.0
#include "agent/report_log.h"

#include "common/base/check.h"

namespace hpctl::agent {

void ReportLog::restore(const holder::StoredReport& report) {
  HP_CHECK(waiting_[report.seq].ParseFromString(report.bytes));
}

const v1::AgentMessage& ReportLog::keep(v1::AgentMessage message, uint64_t covers_exit) {
  message.set_report_seq(++last_seq_);
  to_holder_(holder::KeepReport{last_seq_, covers_exit, reported_.commit.generation,
                                reported_.commit.step, reported_.unfit.generation,
                                reported_.unfit.number, message.SerializeAsString()});
  return waiting_[last_seq_] = std::move(message);
}

const v1::AgentMessage& ReportLog::keep_commit(v1::AgentMessage message, Commit commit) {
  reported_.commit = commit;
  return keep(std::move(message));
}

const v1::AgentMessage& ReportLog::keep_unfit(v1::AgentMessage message, UnfitMark unfit) {
  reported_.unfit = unfit;
  return keep(std::move(message));
}

void ReportLog::acknowledged(uint64_t seq) {
  if (waiting_.erase(seq) > 0) to_holder_(holder::DropReport{seq});
}

bool ReportLog::has_goodbye() const {
  return !waiting_.empty() && waiting_.rbegin()->second.has_goodbye();
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
