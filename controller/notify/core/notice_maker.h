// SPDX-License-Identifier: Apache-2.0
// Makes the notifications of one job: from the entries of its history as they are committed, and
// from the findings in snapshots of it (common/watch). A notification is made once for an event, if
// job.yaml asks for its kind, and passes the gate (notice_gate.h). Nothing is stored: events
// without a running controller, or unsent when one died, give no notification; the next controller
// sends critical ones again, if they last. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/watch/finding.h"
#include "controller/core/types.h"
#include "controller/notify/core/notice_gate.h"

namespace hpctl {

class NoticeMaker {
 public:
  // For a job that recovers as the controller starts.
  void recall(const core::Job& job, int64_t wall_ms);
  std::vector<Notice> take(const core::LogEntry& entry, const core::Job& job, int64_t wall_ms);
  // `findings`: all of one look. Also lets through what was held back.
  std::vector<Notice> take(const std::vector<Finding>& findings, const core::Job& job,
                           uint64_t step, int64_t wall_ms);

 private:
  Notice make(NoticeKind kind, const core::Job& job, std::string what, int64_t wall_ms) const;
  std::vector<Notice> pass(Notice notice, const core::Job& job);

  NoticeGate gate_;
  std::map<std::pair<FindingKind, std::string>, Finding> critical_;  // that last
  int64_t recovering_since_ms_ = 0;                                  // 0 = it does not recover
  uint64_t step_ = 0;                                                // furthest that was told
};

}  // namespace hpctl
