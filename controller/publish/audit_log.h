// SPDX-License-Identifier: Apache-2.0
// The audit log of a controller: a JSON object a line (docs/security.md) in a file of mode 0600
// that is only appended to, with kOlderFiles older ones, PATH.1 the newest of them, each of
// `max_file_bytes` and a line at most. In a cluster each line also goes to the machine's log: a
// datagram to /dev/log (under $HPCTL_SYSROOT), where journald or syslogd listens, facility
// authpriv.
//
// The file may be on a shared file system that hangs, so a separate thread writes it; the datagram
// leaves at once, without waiting. The log itself counts lines that could not be written.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "controller/access/audit_entry.h"
#include "controller/engine/task_lanes.h"
#include "controller/publish/refusal_limit.h"

namespace hpctl {

class AuditLog {
 public:
  static constexpr size_t kMaxFileBytes = 4U << 20;
  static constexpr int kOlderFiles = 4;
  static constexpr size_t kMaxWaiting = 1'024;  // lines that the file has not taken
  static constexpr size_t kMaxTextBytes = 300;  // of arguments, reason and origin each

  // What is missing of the directory of `path` is made below `home`, which must be there: it may be
  // the directory of a job. `clock` outlives the log.
  AuditLog(std::string home, std::string path, bool to_machine_log, const Clock& clock,
           size_t max_file_bytes = kMaxFileBytes);
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Any thread; does not block.
  void record(AuditEntry entry);
  // Any thread, now and then: tells the counts of refusals that are due.
  void tick();
  // Writes what waits, then ends. The paths that hang (TaskLanes::stop).
  std::vector<std::string> stop();

 private:
  struct Line {
    int64_t wall_ms = 0;
    AuditEntry entry;
    uint64_t count = 1;  // of such calls
  };

  void put(Line line);  // under mutex_
  void put_counts(bool all);
  void write();
  Outcome append(const std::string& text) const;
  Outcome rotate() const;
  void tell_machine(const Line& line) const;

  const std::string home_;
  const std::string path_;
  const Clock& clock_;
  const size_t max_file_bytes_;
  const UniqueFd machine_log_;  // a socket; invalid = lines do not go there
  std::mutex mutex_;
  RefusalLimit limit_;
  std::deque<Line> waiting_;  // where there are some, the lane has a task that takes them
  uint64_t lost_ = 0;
  bool has_complained_ = false;
  TaskLanes lanes_{1, 4};  // last: its thread uses all the above
};

}  // namespace hpctl
