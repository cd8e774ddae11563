// SPDX-License-Identifier: Apache-2.0
#include "controller/notify/notice_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>

#include "common/base/fd.h"
#include "common/process/memory_file.h"
#include "common/process/pidfd.h"
#include "common/process/spawn.h"

namespace hpctl {
namespace {

Sent not_sent(const std::string& trouble) { return {false, false, trouble}; }

}  // namespace

Sent run_notice_command(const std::vector<std::string>& argv, const std::string& json,
                        const std::string& log_path, std::chrono::milliseconds patience) {
  // A file and not a pipe: a program that does not read it blocks nothing.
  const auto input = make_memory_file("notice", json);
  if (!input.ok()) return not_sent(input.error().message);
  const UniqueFd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return not_sent(errno_error("cannot open " + log_path).message);
  const auto pid = spawn_with_stdio(argv, {input->get(), log.get(), log.get()});
  if (!pid.ok()) return not_sent(pid.error().message);
  const UniqueFd process = open_pidfd(*pid);
  pollfd ended{process.get(), POLLIN, 0};
  const bool in_time = ::poll(&ended, 1, static_cast<int>(patience.count())) == 1;
  // It leads its session and its group; what it has left running in it ends with it.
  ::kill(-*pid, SIGKILL);
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    return not_sent(argv[0] + " was ended after " + std::to_string(patience.count()) + " ms");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {true, false, ""};
  const std::string how = WIFEXITED(status)
                              ? "exited with code " + std::to_string(WEXITSTATUS(status))
                              : "died of signal " + std::to_string(WTERMSIG(status));
  return not_sent(argv[0] + " " + how + "; see " + log_path);
}

}  // namespace hpctl
