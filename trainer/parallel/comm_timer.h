// SPDX-License-Identifier: Apache-2.0
// The time with at least one collective in flight: begun, and its result not yet awaited. Compared
// with the time spent waiting, it shows how much of the communication computation has hidden. A
// transfer that ends before the wait counts until then: the step thread cannot know earlier, and it
// costs the step nothing either way. One thread.
#pragma once

#include <chrono>

namespace hpctl {

class CommTimer {
 public:
  void reset() { seconds_ = 0; }
  void begun() {
    if (count_++ == 0) since_ = Clock::now();
  }
  void waited_for() {
    if (--count_ == 0) seconds_ += std::chrono::duration<double>(Clock::now() - since_).count();
  }
  double seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  int count_ = 0;
  double seconds_ = 0;
  Clock::time_point since_;
};

}  // namespace hpctl
