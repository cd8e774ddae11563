// SPDX-License-Identifier: Apache-2.0
// Who gets notifications about a job (notify of job.yaml; docs/notifications.md describes them).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/word_enum.h"

namespace hpctl {

// The events that a notification may be about.
enum class NoticeKind { kRecovery, kFailure, kQuarantine, kFinished, kCritical };
constexpr auto words_of(NoticeKind) {
  return std::to_array<const char*>({"recovery", "failure", "quarantine", "finished", "critical"});
}

struct NotifySpec {
  std::string webhook;               // URL; "" = none
  std::string webhook_file;          // absolute; a file that has the URL; "" = none
  std::vector<std::string> command;  // absolute program, and arguments; empty = none
  std::vector<NoticeKind> on = {NoticeKind::kRecovery, NoticeKind::kFailure,
                                NoticeKind::kQuarantine, NoticeKind::kFinished,
                                NoticeKind::kCritical};

  bool has_webhook() const { return !webhook.empty() || !webhook_file.empty(); }
  bool wants(NoticeKind kind) const;
};

// http or https with a host, at most 2,048 characters; kInvalidArgument says what is wrong, without
// the URL, which may be a secret.
Outcome check_webhook_url(const std::string& url);

}  // namespace hpctl
