// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/directory_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"

namespace hpctl {
namespace {

constexpr auto kLastLookPatience = std::chrono::milliseconds(500);  // no look must be completed

}  // namespace

DirectoryWatch::DirectoryWatch(std::string directory, std::string cost, std::function<void()> look,
                               const Clock& clock)
    : directory_(std::move(directory)),
      cost_(std::move(cost)),
      look_(std::move(look)),
      clock_(clock) {}

void DirectoryWatch::tick() {
  report(waits_ms());
  if (is_looking_) return;
  is_looking_ = true;
  began_ms_ = clock_.monotonic_ms();
  lanes_.post(directory_, [this] {
    look_();
    is_looking_ = false;
  });
}

int64_t DirectoryWatch::waits_ms() const {
  return is_looking_ ? std::max<int64_t>(1, clock_.monotonic_ms() - began_ms_) : 0;
}

void DirectoryWatch::report(int64_t waits_ms) {
  const auto seconds = [](int64_t ms) { return std::to_string(ms / 1000) + " s"; };
  if (waits_ms >= kSilentMs) {
    if (silent_ms_ == 0) {
      log_warning(directory_ + " has not answered for " + seconds(waits_ms) + ": " + cost_ +
                  "; look at the file system's server, and at its mount on this machine");
    }
    silent_ms_ = waits_ms;
  } else if (const int64_t was_silent_ms = std::exchange(silent_ms_, 0); was_silent_ms != 0) {
    log_info(directory_ + " answers again, after " + seconds(was_silent_ms));
  }
}

std::vector<std::string> DirectoryWatch::stop() {
  return lanes_.stop(kLastLookPatience, TaskLanes::AtStop::kDropped);
}

}  // namespace hpctl
