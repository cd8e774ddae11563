// SPDX-License-Identifier: Apache-2.0
#include "controller/notify/notifier.h"

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "common/base/log.h"
#include "controller/notify/notice_command.h"

namespace hpctl {
namespace {

using std::chrono::milliseconds;

constexpr size_t kSendingThreads = 4;
constexpr size_t kMostUrlFile = 4'096;

// The URL now: its file may be another one since the last time.
Result<std::string> url_of(const NotifySpec& to) {
  if (to.webhook_file.empty()) return to.webhook;
  HP_TRY_ASSIGN(std::string url, read_file(to.webhook_file, kMostUrlFile));
  while (!url.empty() && (url.back() == '\n' || url.back() == '\r' || url.back() == ' ')) {
    url.pop_back();
  }
  if (const auto checked = check_webhook_url(url); !checked.ok()) {
    return Error{checked.error().code, to.webhook_file + ": " + checked.error().message};
  }
  return url;
}

Sent send_to_webhook(const NotifySpec& to, const std::string& body, bool is_guest,
                     milliseconds patience) {
  const auto url = url_of(to);
  if (!url.ok()) return {false, false, url.error().message};
  if (is_guest && !url->starts_with("https://")) {
    return {false, false, "only https:// is sent where a cluster controller has the job"};
  }
  return post_json(*url, body, patience);
}

}  // namespace

Notifier::Notifier(NotifierLimits limits, bool is_guest, MaySend may_send, Complain complain)
    : limits_(std::move(limits)),
      is_guest_(is_guest),
      may_send_(std::move(may_send)),
      complain_(std::move(complain)),
      lanes_(kSendingThreads, kWaiting) {}

void Notifier::post(const NotifySpec& to, const Notice& notice, const std::string& log_path) {
  if (to.has_webhook()) {
    enqueue(notice.job, to.webhook_file.empty() ? "notify.webhook" : "notify.webhook_file",
            limits_.webhook,
            [to, body = notice_json(notice), is_guest = is_guest_](milliseconds patience) {
              return send_to_webhook(to, body, is_guest, patience);
            });
  }
  if (to.command.empty()) return;
  enqueue(notice.job, "notify.command", limits_.command,
          [to, body = notice_json(notice), log_path, is_guest = is_guest_](milliseconds patience) {
            if (!is_guest) return run_notice_command(to.command, body, log_path, patience);
            return Sent{false, false, "not run where a cluster controller has the job"};
          });
}

void Notifier::enqueue(JobId job, const std::string& channel, milliseconds patience,
                       Attempt attempt) {
  lanes_.post(channel + " of job " + to_string(job),
              [this, job, channel, patience, attempt = std::move(attempt)] {
                deliver(job, channel, patience, attempt);
              });
}

void Notifier::deliver(JobId job, const std::string& channel, milliseconds patience,
                       const Attempt& attempt) {
  Sent sent{false, false, "there was no time left as the controller ended"};
  size_t attempts = 0;
  for (;; ++attempts) {
    const auto time = time_for(patience);
    if (!time || !may_send_()) break;
    sent = attempt(*time);
    if (sent.ok || !sent.worth_a_retry || attempts == limits_.pauses.size()) {
      ++attempts;
      break;
    }
    pause(limits_.pauses[attempts]);
  }
  if (may_send_()) conclude(job, channel, sent, attempts);
}

// Of this attempt; nullopt = there is none left.
std::optional<milliseconds> Notifier::time_for(milliseconds patience) {
  const std::lock_guard lock(mutex_);
  if (!ends_at_) return patience;
  const auto left =
      std::chrono::duration_cast<milliseconds>(*ends_at_ - std::chrono::steady_clock::now());
  if (left <= milliseconds::zero()) return std::nullopt;
  return std::min(left, patience);
}

// At the end of the controller the next attempt is made at once.
void Notifier::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  stopped_.wait_for(lock, time, [this] { return ends_at_.has_value(); });
}

void Notifier::conclude(JobId job, const std::string& channel, const Sent& sent, size_t attempts) {
  const std::pair key(job, channel);
  {
    const std::lock_guard lock(mutex_);
    if (sent.ok) {
      complained_.erase(key);
      return;
    }
    if (!complained_.insert(key).second) return;
  }
  const std::string what = "a notification was not sent (" + channel +
                           ", attempts: " + std::to_string(attempts) + "): " + sent.trouble;
  log_warning("job " + to_string(job) + ": " + what);
  complain_(job, what);
}

std::vector<std::string> Notifier::stop(milliseconds patience) {
  {
    const std::lock_guard lock(mutex_);
    ends_at_ = std::chrono::steady_clock::now() +
               std::max(patience - limits_.moment, milliseconds::zero());
  }
  stopped_.notify_all();
  return lanes_.stop(patience, TaskLanes::AtStop::kDone);
}

}  // namespace hpctl
