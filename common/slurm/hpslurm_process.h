// SPDX-License-Identifier: Apache-2.0
// One life of the hpslurm program: a socket that is its stdin, and a memory file that is its
// stderr.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

class HpslurmProcess {
 public:
  static Result<std::unique_ptr<HpslurmProcess>> start(const std::string& program);
  ~HpslurmProcess();  // kills and reaps it
  HpslurmProcess(const HpslurmProcess&) = delete;
  HpslurmProcess& operator=(const HpslurmProcess&) = delete;

  // One request, one answer; after an error this life is over and is to be destroyed. The error is
  // always kUnavailable and says how it ended.
  Result<std::string> exchange(const std::string& request, int64_t deadline_ms);

  // Its stderr since the last request, as one line, shortened at the front.
  std::string last_words() const;

 private:
  HpslurmProcess(pid_t pid, UniqueFd socket, UniqueFd errors);
  // Waits for its end after the stream has ended: "exited with code 1", "was killed by SIGKILL".
  std::string how_it_ended();

  pid_t pid_;
  UniqueFd socket_;
  UniqueFd errors_;
};

}  // namespace hpctl
