// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/home_lock.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "common/base/file.h"
#include "common/process/process_stat.h"
#include "controller/schedulers/process_watch.h"

namespace hpctl {
namespace {

constexpr int64_t kDeadOwnerMs = 2'000;
constexpr int kRetryMs = 5;

}  // namespace

Result<UniqueFd> take_home_lock(const HomePaths& paths, const Clock& clock) {
  const std::string file = paths.controller_lock();
  const int64_t deadline_ms = clock.monotonic_ms() + kDeadOwnerMs;
  for (;;) {
    auto lock = lock_file(file);
    if (lock.ok()) {
      if (::ftruncate(lock->get(), 0) != 0) return errno_error("cannot write the lock file");
      HP_TRY(write_all(lock->get(), std::to_string(::getpid()) + "\n", file));
      return lock;
    }
    if (lock.error().code != ErrorCode::kAlreadyExists) return lock.error();
    const auto text = read_file(file, 64);
    const long pid = text.ok() ? std::strtol(text->c_str(), nullptr, 10) : 0;
    // A controller that was killed while it started an agent leaves the lock to that child until
    // its exec, a few milliseconds later; one that is ending has it until it is gone.
    const bool stays =
        process_lives(static_cast<pid_t>(pid)) && !is_exiting(static_cast<pid_t>(pid));
    if (stays || clock.monotonic_ms() >= deadline_ms) {
      return Error{ErrorCode::kAlreadyExists, "another controller (pid " + std::to_string(pid) +
                                                  ") runs on " + paths.home() +
                                                  "; use it, or end it first"};
    }
    ::poll(nullptr, 0, kRetryMs);
  }
}

}  // namespace hpctl
