// SPDX-License-Identifier: Apache-2.0
#include "common/slurm/hpslurm_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "common/base/clock.h"
#include "common/net/frame.h"
#include "common/process/pidfd.h"
#include "common/process/spawn.h"

namespace hpctl {
namespace {

constexpr size_t kLastWords = 600;
constexpr int kEndMs = 1'000;

}  // namespace

Result<std::unique_ptr<HpslurmProcess>> HpslurmProcess::start(const std::string& program) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return errno_error("cannot start " + program);
  }
  UniqueFd ours(pair[0]);
  const UniqueFd theirs(pair[1]);
  UniqueFd errors(::memfd_create("hpslurm-stderr", MFD_CLOEXEC));
  // Appending, so that it goes on at the front after we have emptied the file.
  if (!errors.valid() || ::fcntl(errors.get(), F_SETFL, O_APPEND) != 0) {
    return errno_error("cannot start " + program);
  }
  HP_TRY_ASSIGN(const pid_t pid,
                spawn_with_stdio({program}, {theirs.get(), errors.get(), errors.get()}));
  return std::unique_ptr<HpslurmProcess>(
      new HpslurmProcess(pid, std::move(ours), std::move(errors)));
}

HpslurmProcess::HpslurmProcess(pid_t pid, UniqueFd socket, UniqueFd errors)
    : pid_(pid), socket_(std::move(socket)), errors_(std::move(errors)) {}

HpslurmProcess::~HpslurmProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string HpslurmProcess::how_it_ended() {
  // It has closed the stream; how it ended is known a moment later. Killed where it lives on.
  const UniqueFd ended = open_pidfd(pid_);
  pollfd wait{ended.get(), POLLIN, 0};
  ::poll(&wait, 1, kEndMs);
  ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  if (WIFEXITED(status)) return "exited with code " + std::to_string(WEXITSTATUS(status));
  return "was killed by signal " + std::to_string(WTERMSIG(status));
}

Result<std::string> HpslurmProcess::exchange(const std::string& request, int64_t deadline_ms) {
  const auto sent = write_frame(socket_.get(), request, deadline_ms);
  auto answer =
      sent.ok() ? read_frame(socket_.get(), deadline_ms) : Result<std::string>(sent.error());
  if (answer.ok()) {
    // Its output so far does not belong to the next call. It is not emptied before a call: the
    // first one may find it dead already, and then these words are the reason.
    if (::ftruncate(errors_.get(), 0) != 0) return errno_error("cannot empty hpslurm's stderr");
    return answer;
  }
  if (answer.error().code == ErrorCode::kNotFound) {
    return Error{ErrorCode::kUnavailable, "hpslurm " + how_it_ended()};
  }
  return Error{ErrorCode::kUnavailable, "hpslurm: " + answer.error().message};
}

std::string HpslurmProcess::last_words() const {
  const off_t size = ::lseek(errors_.get(), 0, SEEK_END);
  if (size <= 0) return "";
  const auto want = std::min<size_t>(static_cast<size_t>(size), kLastWords);
  std::string words(want, '\0');
  const ssize_t got = ::pread(errors_.get(), words.data(), want, size - static_cast<off_t>(want));
  words.resize(got > 0 ? static_cast<size_t>(got) : 0);
  while (!words.empty() && std::strchr("\n\r ", words.back()) != nullptr) words.pop_back();
  for (size_t at = 0; (at = words.find('\n', at)) != std::string::npos;) words.replace(at, 1, "; ");
  return words;
}

}  // namespace hpctl
