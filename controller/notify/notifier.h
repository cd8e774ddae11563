// SPDX-License-Identifier: Apache-2.0
// Sends notifications, on separate threads: posting one never waits. Each webhook and each command
// of a job has a lane (engine/task_lanes.h), so a hung one does not block the others while there
// are threads. Bounded: a lane has a limit, and drops the oldest for another. An attempt has a
// deadline, and a few follow it, with pauses, if a later one may succeed. An unsent notification is
// reported once in the log and to `complain`, until one is sent again. At the end, waiting
// notifications are sent as far as there is time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/engine/task_lanes.h"
#include "controller/notify/core/notice.h"
#include "controller/notify/webhook.h"

namespace hpctl {

struct NotifierLimits {
  std::chrono::milliseconds webhook{4'000};   // an attempt
  std::chrono::milliseconds command{10'000};  // SIGKILL to its session then
  // Before each further attempt.
  std::vector<std::chrono::milliseconds> pauses = {std::chrono::seconds(1), std::chrono::seconds(4),
                                                   std::chrono::seconds(16)};
  // At the end of the controller, of its patience: what runs then has so long to come back before
  // it counts as hung.
  std::chrono::milliseconds moment{500};
};

class Notifier {
 public:
  using MaySend = std::function<bool()>;  // false: another controller has the job
  using Complain = std::function<void(JobId, const std::string&)>;
  static constexpr size_t kWaiting = 64;  // in a lane

  // `is_guest`: the program of another, on a machine that it is not to reach with more than https.
  // The functions are called on threads of the notifier.
  Notifier(NotifierLimits limits, bool is_guest, MaySend may_send, Complain complain);

  // Any thread. `log_path`: what a command writes is appended there.
  void post(const NotifySpec& to, const Notice& notice, const std::string& log_path);
  // At most `patience`; the lanes that hang (TaskLanes::stop).
  std::vector<std::string> stop(std::chrono::milliseconds patience);

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Attempt = std::function<Sent(std::chrono::milliseconds patience)>;

  void enqueue(JobId job, const std::string& channel, std::chrono::milliseconds patience,
               Attempt attempt);
  void deliver(JobId job, const std::string& channel, std::chrono::milliseconds patience,
               const Attempt& attempt);
  std::optional<std::chrono::milliseconds> time_for(std::chrono::milliseconds patience);
  void pause(std::chrono::milliseconds time);
  void conclude(JobId job, const std::string& channel, const Sent& sent, size_t attempts);

  const NotifierLimits limits_;
  const bool is_guest_;
  const MaySend may_send_;
  const Complain complain_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  std::optional<Time> ends_at_;                         // stop() was called
  std::set<std::pair<JobId, std::string>> complained_;  // job and channel
  TaskLanes lanes_;                                     // last: its threads use all the above
};

}  // namespace hpctl
