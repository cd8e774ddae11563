// SPDX-License-Identifier: Apache-2.0
// Messages on a stream socket: four bytes of length, least significant first, then that many bytes.
// Both functions wait no longer than their deadline and are bounded by kMaxFrameBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/net/wait_for_fd.h"  // kNoDeadline

namespace hpctl {

inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

// Deadlines as in common/net/wait_for_fd.h. kUnavailable when one passes, kNotFound when the
// peer has closed the stream between two frames, kDataLoss when within one or when the length is
// out of bounds. After any error the stream is of no use.
Outcome write_frame(int socket, std::string_view payload, int64_t deadline_ms);
Result<std::string> read_frame(int socket, int64_t deadline_ms);

}  // namespace hpctl
