// SPDX-License-Identifier: Apache-2.0
// FrameStream: packets over a byte stream (TCP), each preceded by its length as u32.
//
// For event loops; common/base/frame.h waits instead. The descriptor must be non-blocking. Neither
// end ever waits here: send() keeps what the kernel does not take for flush(), and receive() gives
// what has arrived. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// Larger frames are kInvalidArgument: what arrives is untrusted.
inline constexpr size_t kMaxStreamFrameBytes = 64U << 10;
// A peer that reads nothing while this much is waiting for it is given up.
inline constexpr size_t kMaxUnsentBytes = 1U << 20;

class FrameStream {
 public:
  explicit FrameStream(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  // kUnavailable when the peer is gone, kResourceExhausted when it does not read.
  Outcome send(std::string_view packet);
  Outcome flush();
  bool has_unsent() const { return !unsent_.empty(); }
  // The next packet; nullopt when none is complete. kUnavailable when the peer is gone.
  Result<std::optional<std::string>> receive();

 private:
  std::optional<std::string> take_frame();

  UniqueFd fd_;
  std::string unsent_;
  std::string received_;
};

}  // namespace hpctl
