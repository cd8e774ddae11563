// SPDX-License-Identifier: Apache-2.0
#include "agent/report_log.h"

#include <iterator>
#include <string>
#include <utility>

#include "agent/messages.h"
#include "common/base/log.h"
#include "common/worker/worker_abi.h"

namespace hpctl::agent {
namespace {

bool lost_a_peer(const v1::WorkerExited& exited) {
  return exited.signal() == 0 && (exited.exit_code() == kExitPeerLost || exited.peer_lost());
}

bool may_be_told_with_others(const v1::WorkerExited& exited) {
  return lost_a_peer(exited) || (exited.by_request() && exited.message().empty());
}

}  // namespace

void ReportLog::restore(const holder::StoredReport& report) {
  if (waiting_[report.seq].ParseFromString(report.bytes)) return;
  log_error("the holder kept a report that cannot be read; it is dropped");
  drop(report.seq);
}

void ReportLog::keep(v1::AgentMessage message, uint64_t covers_exit, bool is_held) {
  message.set_report_seq(++last_seq_);
  to_holder_(holder::KeepReport{last_seq_, covers_exit, reported_.commit.generation,
                                reported_.commit.step, reported_.bad_step.generation,
                                reported_.bad_step.number, message.SerializeAsString()});
  waiting_[last_seq_] = std::move(message);
  if (held_from_ == 0) held_from_ = last_seq_;
  if (!is_held) send_held();
}

void ReportLog::send_all(bool together) {
  together_ = together;
  held_from_ = waiting_.empty() ? 0 : waiting_.begin()->first;
  send_held();
}

void ReportLog::send_held() {
  const uint64_t from = std::exchange(held_from_, 0);
  if (from == 0) return;
  for (Waiting::const_iterator first = waiting_.lower_bound(from); first != waiting_.end();) {
    const auto end = end_of_run(first);
    if (std::next(first) == end) {
      to_controller_(first->second);
    } else {
      v1::AgentMessage message = envelope_;
      message.set_report_seq(std::prev(end)->first);
      v1::WorkersExited& exits = *message.mutable_workers_exited();
      exits.set_first_report_seq(first->first);
      for (auto it = first; it != end; ++it) *exits.add_exits() = it->second.worker_exited();
      to_controller_(message);
    }
    first = end;
  }
}

ReportLog::Waiting::const_iterator ReportLog::end_of_run(Waiting::const_iterator first) const {
  size_t length = 0;
  auto end = first;
  while (together_ && end != waiting_.end() && length < kMostTogether &&
         end->first == first->first + length && end->second.has_worker_exited() &&
         may_be_told_with_others(end->second.worker_exited())) {
    ++end;
    ++length;
  }
  return length == 0 ? std::next(first) : end;
}

bool ReportLog::is_news(const v1::WorkerExited& exited) const {
  if (!may_be_told_with_others(exited)) return true;
  return !exited.by_request() && lost_peer_in_ != exited.generation();
}

void ReportLog::exited(v1::WorkerExited exited, uint64_t exit_id) {
  const bool is_held = together_ && !is_news(exited);
  if (lost_a_peer(exited)) lost_peer_in_ = exited.generation();
  v1::AgentMessage message = envelope_;
  *message.mutable_worker_exited() = std::move(exited);
  keep(std::move(message), exit_id, is_held);
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

void ReportLog::acknowledged(const v1::ReportAck& ack) {
  const uint64_t last = ack.report_seq();
  const uint64_t first = ack.first_report_seq() == 0 ? last : ack.first_report_seq();
  for (auto it = waiting_.lower_bound(first); it != waiting_.end() && it->first <= last;) {
    drop((it++)->first);
  }
}

void ReportLog::drop(uint64_t seq) {
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
