// SPDX-License-Identifier: Apache-2.0
// Durable reports: numbered, kept by the holder before the controller hears of them, and sent again
// on every new stream until the controller says that they are committed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "agent/core/progress.h"
#include "agent/core/supervisor.h"
#include "agent/holder_protocol.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

class ReportLog {
 public:
  // Commits are not reported while so many reports wait: the next one says as much. Nor are unfit
  // steps: of those, the next says how many there were.
  static constexpr size_t kManyReports = 1'000;

  using ToHolder = std::function<void(const holder::ToHolder&)>;
  // `last_report` and `reported`: what the holder remembers.
  ReportLog(uint64_t last_report, const Reported& reported, ToHolder to_holder)
      : last_seq_(last_report), reported_(reported), to_holder_(std::move(to_holder)) {}

  // A report of an earlier life. Damaged ones cannot be: the holder keeps what we gave it.
  void restore(const holder::StoredReport& report);

  // Numbers and keeps `message`; the result is what to send.
  const v1::AgentMessage& keep(v1::AgentMessage message, uint64_t covers_exit = 0);
  const v1::AgentMessage& keep_commit(v1::AgentMessage message, Commit commit);
  const v1::AgentMessage& keep_unfit(v1::AgentMessage message, UnfitMark unfit);
  void acknowledged(uint64_t seq);

  const std::map<uint64_t, v1::AgentMessage>& waiting() const { return waiting_; }
  // The waiting answer to this action, if there is one.
  bool has_answer(ActionKey key) const;
  bool has_goodbye() const;

 private:
  uint64_t last_seq_;
  Reported reported_;
  ToHolder to_holder_;
  std::map<uint64_t, v1::AgentMessage> waiting_;
};

}  // namespace hpctl::agent
