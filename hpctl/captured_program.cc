// SPDX-License-Identifier: Apache-2.0
#include "hpctl/captured_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/base/fd.h"
#include "common/process/spawn.h"
#include "hpctl/interrupt_flag.h"

namespace hpctl {
namespace {

// Everything that comes through the pipe until its end.
Result<std::string> read_all(int fd, pid_t pid, const std::string& program) {
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) {
      if (InterruptFlag::raised()) ::kill(pid, SIGTERM);
      continue;
    }
    if (n < 0) return errno_error("cannot read what " + program + " says");
    if (n == 0) return text;
    text.append(piece.data(), static_cast<size_t>(n));
  }
}

}  // namespace

Result<Captured> run_captured(const std::vector<std::string>& argv) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  HP_TRY_ASSIGN(const pid_t pid, spawn_with_stdio(argv, {STDIN_FILENO, to.get(), STDERR_FILENO}));
  to.reset();
  auto text = read_all(from.get(), pid, argv[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text.ok()) return text.error();
  return Captured{std::move(*text),
                  WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
}

}  // namespace hpctl
