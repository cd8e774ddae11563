// SPDX-License-Identifier: Apache-2.0
#include "controller/notify/core/notice.h"

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/json_text.h"

namespace hpctl {
namespace {

constexpr size_t kMostWhat = 2'000;

// The three characters that mean something in a message of Slack: "<!channel>" in an error of a
// program must not wake everybody.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string text_of(const Notice& notice, const std::string& what) {
  std::string text = notice.name + " (job " + to_string(notice.job) + "): " + what;
  if (notice.repeats > 0) {
    text += " (and " + std::to_string(notice.repeats) + " like it just before)";
  }
  if (!notice.action.empty()) text += "; " + notice.action;
  if (!notice.runbook.empty()) text += " (" + notice.runbook + ")";
  return escaped(text);
}

}  // namespace

const char* severity_of(const Notice& notice) {
  switch (notice.kind) {
    case NoticeKind::kFailure:
      return "critical";
    case NoticeKind::kQuarantine:
      return "warn";
    case NoticeKind::kCritical:
      return notice.is_over ? "info" : "critical";
    case NoticeKind::kRecovery:
    case NoticeKind::kFinished:
      break;
  }
  return "info";
}

std::string notice_json(const Notice& notice) {
  using nlohmann::ordered_json;
  const std::string what = notice.what.substr(0, kMostWhat);
  const ordered_json document = {{"text", text_of(notice, what)},
                                 {"hpctl",
                                  {{"version", 1},
                                   {"kind", to_word(notice.kind)},
                                   {"severity", severity_of(notice)},
                                   {"finding", notice.finding},
                                   {"over", notice.is_over},
                                   {"job", notice.job.value},
                                   {"name", notice.name},
                                   {"uid", notice.owner},
                                   {"state", notice.state},
                                   {"generation", notice.generation},
                                   {"step", notice.step},
                                   {"node", notice.node},
                                   {"what", what},
                                   {"do", notice.action},
                                   {"runbook", notice.runbook},
                                   {"time", format_wall_ms(notice.wall_ms)},
                                   {"repeats", notice.repeats}}}};
  return json_text(document) + "\n";
}

}  // namespace hpctl
