// SPDX-License-Identifier: Apache-2.0
// Waiting for descriptors, with a deadline: a time of Clock::monotonic_ms.
#pragma once

#include <poll.h>

#include <cstdint>
#include <span>

#include "common/base/result.h"

namespace hpctl {

inline constexpr int64_t kNoDeadline = INT64_MAX;

// `patience_ms` from now.
int64_t deadline_in(int64_t patience_ms);

// Until poll(2) has something to say of `entries`, also over signals. Of how many, with their
// revents; 0 = the deadline passed first. One that is ready already is so after the deadline as
// well: we may be the one who was late.
Result<int> wait_for_fds(std::span<pollfd> entries, int64_t deadline_ms);

// The same for `fd` alone: that one of `events` is possible, its end, its error. What poll(2) says;
// kUnavailable when the deadline passes first.
Result<short> wait_for_fd(int fd, short events, int64_t deadline_ms);

}  // namespace hpctl
