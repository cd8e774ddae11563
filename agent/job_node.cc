// SPDX-License-Identifier: Apache-2.0
#include "agent/job_node.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace hpctl::holder {

Outcome prepare_job_node(const HomePaths& paths, JobId job, const std::string& node) {
  HP_TRY(prepare_socket_directory(paths));
  HP_TRY(make_directories(paths.node(job, node)));
  HP_TRY(make_directories(paths.job_logs(job)));
  const std::string path = paths.node_log(job, node);
  const UniqueFd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!log.valid()) return errno_error("cannot write " + path);
  if (::dup2(log.get(), STDOUT_FILENO) < 0 || ::dup2(log.get(), STDERR_FILENO) < 0) {
    return errno_error("cannot redirect the output to " + path);
  }
  return Ok{};
}

}  // namespace hpctl::holder
