// SPDX-License-Identifier: Apache-2.0
#include "common/base/wait_for_fd.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "common/base/clock.h"

namespace hpctl {

int64_t deadline_in(int64_t patience_ms) { return SystemClock().monotonic_ms() + patience_ms; }

Result<short> wait_for_fd(int fd, short events, int64_t deadline_ms) {
  const SystemClock clock;
  for (;;) {
    int timeout = -1;
    if (deadline_ms != kNoDeadline) {
      const int64_t left = deadline_ms - clock.monotonic_ms();
      timeout = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
    }
    pollfd entry{fd, events, 0};
    const int n = ::poll(&entry, 1, timeout);
    if (n > 0) return entry.revents;
    if (n == 0) return Error{ErrorCode::kUnavailable, "no answer in time"};
    if (errno != EINTR) return errno_error("cannot wait for an answer");
  }
}

}  // namespace hpctl
