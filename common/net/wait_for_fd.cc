// SPDX-License-Identifier: Apache-2.0
#include "common/net/wait_for_fd.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include "common/base/clock.h"

namespace hpctl {

int64_t deadline_in(int64_t patience_ms) { return SystemClock().monotonic_ms() + patience_ms; }

Result<int> wait_for_fds(std::span<pollfd> entries, int64_t deadline_ms) {
  const SystemClock clock;
  for (;;) {
    int timeout = -1;
    if (deadline_ms != kNoDeadline) {
      const int64_t left = deadline_ms - clock.monotonic_ms();
      timeout = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
    }
    const int ready = ::poll(entries.data(), entries.size(), timeout);
    if (ready >= 0) return ready;
    if (errno != EINTR) return errno_error("cannot wait for an answer");
  }
}

Result<short> wait_for_fd(int fd, short events, int64_t deadline_ms) {
  pollfd entry{fd, events, 0};
  HP_TRY_ASSIGN(const int ready, wait_for_fds({&entry, 1}, deadline_ms));
  if (ready == 0) return Error{ErrorCode::kUnavailable, "no answer in time"};
  return entry.revents;
}

}  // namespace hpctl
