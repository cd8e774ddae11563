// SPDX-License-Identifier: Apache-2.0
#include "common/job/start_failure.h"

#include <unistd.h>

#include <cerrno>

#include "common/base/clock.h"
#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr size_t kMostFailureBytes = 64U << 10;

std::string path_in(const std::string& job_dir) { return job_dir + "/start-failure"; }

}  // namespace

Outcome note_start_failure(const std::string& job_dir, const std::string& node,
                           const std::string& reason) {
  return write_file_atomic(path_in(job_dir), "the controller did not start on " + node + " (" +
                                                 format_wall_ms(SystemClock().wall_ms()) +
                                                 "): " + reason + "\n");
}

Outcome forget_start_failure(const std::string& job_dir) {
  const std::string path = path_in(job_dir);
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return Ok{};
  return errno_error("cannot remove " + path);
}

std::string read_start_failure(const std::string& job_dir) {
  auto text = read_file(path_in(job_dir), kMostFailureBytes);
  if (!text.ok()) return "";
  while (text->ends_with("\n")) text->pop_back();
  return *text;
}

}  // namespace hpctl
