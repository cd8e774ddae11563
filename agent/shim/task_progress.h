// SPDX-License-Identifier: Apache-2.0
// The progress file (agent/holder/progress_file.h) of one run of a task's program, and its content.
//
// It lies in a separate directory, /tmp/hpctl-UID/step-XXXXXX, which is locked as long as it is in
// use. A killed shim leaves its directory, so the next shim on that node removes directories
// without a lock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "agent/holder/progress_file.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/worker/step_protocol.h"

namespace hpctl::shim {

class TaskProgress {
 public:
  // Makes directory and file.
  static Result<TaskProgress> begin(uint64_t generation, int32_t rank);
  TaskProgress(TaskProgress&& other) noexcept = default;
  TaskProgress& operator=(TaskProgress&& other) = delete;
  // Removes both.
  ~TaskProgress();

  // For the program: $HPCTL_PROGRESS_FILE.
  const std::string& path() const { return path_; }
  // nullopt before the program, `pid`, has told a step.
  std::optional<step::Progress> look(pid_t pid);
  // Once: the file's last line is none that counts.
  bool take_damage();

 private:
  TaskProgress(std::string directory, UniqueFd lock, uint64_t generation, int32_t rank);

  std::string directory_;
  UniqueFd lock_;  // invalid where this was moved from
  uint64_t generation_;
  int32_t rank_;
  std::string path_;
  agent::ProgressFile file_;
  bool damaged_ = false;
  bool damage_told_ = false;
};

}  // namespace hpctl::shim
