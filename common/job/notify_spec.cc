// SPDX-License-Identifier: Apache-2.0
#include "common/job/notify_spec.h"

#include <algorithm>
#include <set>

#include "common/job/spec_checks.h"

namespace hpctl {
namespace {

constexpr size_t kMostUrl = 2048;
constexpr size_t kMostArguments = 64;

Error mistake(const std::string& what) { return Error{ErrorCode::kInvalidArgument, what}; }

}  // namespace

bool NotifySpec::wants(NoticeKind kind) const {
  return std::find(on.begin(), on.end(), kind) != on.end();
}

Outcome check_webhook_url(const std::string& url) {
  if (url.size() > kMostUrl) return mistake("expected a URL of at most 2048 characters");
  std::string_view rest = url;
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (rest.starts_with(scheme)) rest.remove_prefix(scheme.size());
  }
  if (rest.size() == url.size())
    return mistake("expected a URL that begins with https:// or http://");
  const bool is_plain =
      std::all_of(rest.begin(), rest.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!is_plain) return mistake("expected a URL without blanks and other than ASCII characters");
  const std::string_view host = rest.substr(0, rest.find_first_of("/?#"));
  if (host.empty() || host.front() == ':') return mistake("expected a URL with a host");
  return Ok{};
}

void check_notify(const NotifySpec& notify, SpecChecks& checks) {
  if (!notify.webhook.empty()) {
    const auto checked = check_webhook_url(notify.webhook);
    if (!checked.ok()) checks.fail("notify.webhook", checked.error().message);
    if (!notify.webhook_file.empty()) {
      checks.fail("notify.webhook_file", "expected one of webhook and webhook_file, found both");
    }
  }
  if (!notify.webhook_file.empty() && notify.webhook_file[0] != '/') {
    checks.fail("notify.webhook_file", "expected an absolute path, found " + notify.webhook_file);
  }
  if (!notify.command.empty() && !notify.command[0].starts_with('/')) {
    checks.fail("notify.command", "expected a program with its path, such as ./tell.sh, found \"" +
                                      notify.command[0] + "\"");
  } else if (notify.command.size() > kMostArguments) {
    checks.fail("notify.command", "expected at most 64 words");
  }
  const std::set<NoticeKind> named(notify.on.begin(), notify.on.end());
  if (named.size() != notify.on.size()) checks.fail("notify.on", "expected each word once");
}

}  // namespace hpctl
