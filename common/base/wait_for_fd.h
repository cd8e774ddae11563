// SPDX-License-Identifier: Apache-2.0
// Waiting for one descriptor, with a deadline: a time of Clock::monotonic_ms.
#pragma once

#include <cstdint>

#include "common/base/result.h"

namespace hpctl {

inline constexpr int64_t kNoDeadline = INT64_MAX;

// `patience_ms` from now.
int64_t deadline_in(int64_t patience_ms);

// Until poll(2) has something to say of `fd`: that one of `events` is possible, its end, its error.
// What it says; kUnavailable when the deadline passes first. One that is ready already is so
// after its deadline as well.
Result<short> wait_for_fd(int fd, short events, int64_t deadline_ms);

}  // namespace hpctl
