// SPDX-License-Identifier: Apache-2.0
// DirectoryWatch: repeated looks into a job's directory, for a thread that must not wait for a file
// server. A look runs in a lane (controller/engine/task_lanes.h), one at a time, so a directory
// that does not answer holds up the looks and nothing else. The log says so once, and says when the
// directory answers again.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/engine/task_lanes.h"

namespace hpctl {

// Own thread only, except the look itself.
class DirectoryWatch {
 public:
  // `look` may block. `cost` says for the log what is not known or done meanwhile.
  DirectoryWatch(std::string directory, std::string cost, std::function<void()> look,
                 const Clock& clock);

  // Begins a look, unless the one before has not ended.
  void tick();
  // How long the look that has not ended has lasted; 0 = none is under way.
  int64_t waits_ms() const;
  // Begins no more looks. The directory, if a look still waits for it; the process is then to be
  // left by leave_with_hung_lanes(), because the destructor waits as well.
  std::vector<std::string> stop();

 private:
  static constexpr int64_t kSilentMs = 10'000;  // worth a line in the log

  void report(int64_t waits_ms);

  const std::string directory_;
  const std::string cost_;
  const std::function<void()> look_;
  const Clock& clock_;
  std::atomic<bool> is_looking_{false};
  int64_t began_ms_ = 0;   // of the newest look
  int64_t silent_ms_ = 0;  // as far as it was reported; 0 = it answers
  TaskLanes lanes_{1, 1};  // last: its thread uses what is above
};

}  // namespace hpctl
