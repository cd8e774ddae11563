// SPDX-License-Identifier: Apache-2.0
// The stacks of a task's program, written by hpstacks (agent/stacks) before the program is ended
// because its step hangs. hpstacks runs beside the shim's loop and has kStacksLimitMs, and
// kRecordersLimitMs more if it reports that it triggers the program's flight recorder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "agent/holder/spawn.h"
#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl::shim {

class TaskStacks {
 public:
  // `program` is hpstacks; the file goes into `directory`, which it makes.
  static Result<TaskStacks> start(const std::string& program, const std::string& directory,
                                  uint64_t generation, int32_t rank, pid_t pid,
                                  int64_t deadline_ms);

  // Readable when it has ended.
  int fd() const { return process_.pidfd.get(); }
  int64_t deadline_ms() const { return deadline_ms_; }
  // Its time is over. It may have said meanwhile that it needs more.
  bool is_over(int64_t now_ms);
  // Ends a process that has not ended by itself. Returns one line to report; "" = nothing was
  // written.
  std::string finish();

 private:
  TaskStacks(SpawnedProcess process, UniqueFd output, std::string path, int64_t deadline_ms);

  void read_output();

  SpawnedProcess process_;
  UniqueFd output_;
  std::string said_;  // what was read of its output
  bool asks_recorder_ = false;
  std::string path_;  // of the file
  int64_t deadline_ms_;
};

}  // namespace hpctl::shim
