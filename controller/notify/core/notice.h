// SPDX-License-Identifier: Apache-2.0
// The content of a notification (docs/notifications.md), and its JSON for webhooks and commands.
#pragma once

#include <cstdint>
#include <string>

#include "common/job/ids.h"
#include "common/job/notify_spec.h"

namespace hpctl {

struct Notice {
  NoticeKind kind = NoticeKind::kRecovery;
  std::string finding;   // of kCritical: the word of its kind; else ""
  bool is_over = false;  // of kCritical: it was so, and is no more
  JobId job;
  std::string name;   // of the job
  std::string owner;  // uid as text
  std::string state;  // of the job
  uint64_t generation = 0;
  uint64_t step = 0;
  std::string node;     // that it is about; "" = the job
  std::string what;     // one line
  std::string action;   // what to do; "" = nothing
  std::string runbook;  // the section about it; ""
  int64_t wall_ms = 0;
  int repeats = 0;  // so many like it came before it and were not sent (NoticeGate)
};

// "info", "warn" or "critical".
const char* severity_of(const Notice& notice);
// One document on one line: "text" for people, where what Slack would take for a link or a mention
// is escaped, and "hpctl" for programs.
std::string notice_json(const Notice& notice);

}  // namespace hpctl
