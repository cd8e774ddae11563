// SPDX-License-Identifier: Apache-2.0
// LogWriter: a process of its own that writes log files, so that its parent never waits for a file
// server. A holder that wrote to a shared directory itself was taken for hung when the file server
// paused, and was killed with all that its node had in memory.
//
// The parent sends pieces over a socket that does not block. The writer keeps up to kLogQueueBytes
// of them while the file server does not answer. Behind that, the parent waits for 100 ms in each
// second at most, which slows down a program that prints faster than the disk writes; then it drops
// pieces and counts them. The log says how much is missing when it goes on.
//
// The writer is forked without exec: a new one can be started while the program's own file is on
// the file server that does not answer. It keeps none of its parent's descriptors. It ends when
// its parent has ended and all is written. One that is stuck in the kernel is left behind.
//
// One thread, and start() only while the process has no other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/packet_socket.h"
#include "common/base/result.h"

namespace hpctl {

inline constexpr size_t kLogQueueBytes = size_t{32} << 20;

struct LogPiece {
  std::string_view path;
  uint64_t max_bytes = 0;   // of one file (common/base/rotating_log.h)
  uint64_t lost_bytes = 0;  // of this log, dropped before this piece
  std::string_view bytes;   // at most 64 KiB
};

class LogWriter {
 public:
  LogWriter() = default;
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;
  ~LogWriter() { finish(0); }

  // Starts the process, or another one in place of one that has ended: that one gets what is still
  // in the socket.
  Outcome start();
  // True when `pid`, which the caller has reaped, was the process.
  bool has_ended(pid_t pid);
  pid_t pid() const { return pid_; }  // -1 = none runs

  // False: it was dropped, and the caller counts it in lost_bytes of its next piece.
  bool append(const LogPiece& piece);

  // No piece follows. Waits until all is written, for at most `limit_ms`.
  void finish(int64_t limit_ms);

 private:
  bool is_sent(const std::string& packet);

  const SystemClock clock_{};
  std::optional<PacketSocket> socket_;
  UniqueFd far_end_;  // for the next process
  pid_t pid_ = -1;
  UniqueFd process_;
  uint64_t dropped_bytes_ = 0;  // since it was last able to take a piece
  int64_t second_began_ms_ = 0;
  int64_t may_wait_ms_ = 0;  // within that second
};

}  // namespace hpctl
