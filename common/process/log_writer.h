// SPDX-License-Identifier: Apache-2.0
// LogWriter: two processes that write log files, so that their parent never waits for a file
// server. A holder that wrote to a shared directory itself was taken for hung when the file server
// paused, and was killed with all that its node had in memory.
//
//   parent ── pieces of rank logs: socket ──► writer ──► RotatingLog of each path
//      └───── its own log: stderr, a pipe ──►    │  └──► what stderr was before
//                                             keeper: starts another writer when one dies
//
// Neither end of the parent blocks. The writer keeps up to kLogQueueBytes while the file server
// does not answer. Beyond that, the parent's own log drops lines and counts them (log.h). For
// pieces the parent waits for 100 ms in each second at most, which slows down a program that prints
// faster than the disk writes. Then it drops pieces and counts them. When a log goes on, it records
// how much is missing.
//
// Lines that the parent wrote before an abort are in the pipe, and the writer writes them.
//
// Both processes are forked without exec: a writer can be started while the program's own file is
// on the file server that does not answer. The keeper has one thread and does nothing but wait, so
// it can fork whatever threads the parent has by then. They keep none of the parent's other
// descriptors. They end when the parent, and every process that has its stderr, has ended and all
// is written. A writer that is stuck in the kernel is abandoned.
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
#include "common/base/result.h"
#include "common/net/packet_socket.h"

namespace hpctl {

inline constexpr size_t kLogQueueBytes = size_t{32} << 20;

struct LogPiece {
  std::string_view path;
  uint64_t max_bytes = 0;   // of one file (common/base/rotating_log.h)
  uint64_t lost_bytes = 0;  // of this log, dropped before this piece
  std::string_view bytes;   // at most 64 KiB
};

// Where the parent's own stderr goes from start() on.
enum class OwnLog { kAsBefore, kThroughWriter };

class LogWriter {
 public:
  LogWriter() = default;
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;
  ~LogWriter() { finish(0); }

  // Starts the processes. With kThroughWriter, stdout follows stderr if both are the same file.
  Outcome start(OwnLog own = OwnLog::kAsBefore);
  pid_t keeper() const { return keeper_; }  // a child of this process; -1 = none runs

  // False: it was dropped, and the caller counts it in lost_bytes of its next piece.
  bool append(const LogPiece& piece);

  // No piece follows, and where stderr went through the writer, nothing that is written to it
  // counts any more. Waits until all is written, for at most `limit_ms`.
  void finish(int64_t limit_ms);

 private:
  bool is_sent(const std::string& packet);

  const SystemClock clock_{};
  std::optional<PacketSocket> socket_;
  bool has_own_log_ = false;
  pid_t keeper_ = -1;
  UniqueFd process_;
  uint64_t dropped_bytes_ = 0;  // since it was last able to take a piece
  int64_t second_began_ms_ = 0;
  int64_t may_wait_ms_ = 0;  // within that second
};

}  // namespace hpctl
