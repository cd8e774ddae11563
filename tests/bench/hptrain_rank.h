// SPDX-License-Identifier: Apache-2.0
// One rank of hptrain without controller and agent, for benchmarks.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "common/base/check.h"
#include "common/worker/workload.h"

namespace hpctl {

// Its log is DIR/rank-R.log. The caller waits for it.
inline pid_t start_rank(const std::string& program, const std::string& dir,
                        const Workload& workload) {
  const std::string base = dir + "/rank-" + std::to_string(workload.rank);
  const std::string document = base + ".json";
  const std::string log = base + ".log";
  std::ofstream(document) << to_json_text(workload);
  const pid_t pid = fork();
  HP_CHECK(pid >= 0);
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  dup2(fd, STDERR_FILENO);
  execl(program.c_str(), "hptrain", "--workload", document.c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

}  // namespace hpctl
