// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/node_lock.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/process/process_stat.h"

namespace hpctl::holder {
namespace {

constexpr int kLookAgainMs = 10;
// The time that an agent needs to learn that its session was given up, and to notify its holder.
constexpr int64_t kNewsMs = 5'000;
constexpr char kEnding[] = " ending";

enum class Owner { kDead, kLives, kEnds };

// As its words in the file say, and the process table.
Owner owner_of(const std::string& path) {
  const auto text = read_file(path, 64);
  const long pid = text.ok() ? std::strtol(text->c_str(), nullptr, 10) : 0;
  if (pid <= 0) return Owner::kDead;
  const std::string state = process_stat(static_cast<pid_t>(pid), kStateField);
  // A zombie is dead, only not reaped by who started it.
  if (state.empty() || state == "Z") return Owner::kDead;
  return text->find(kEnding) == std::string::npos ? Owner::kLives : Owner::kEnds;
}

Outcome write_words(const UniqueFd& lock, const std::string& words, const std::string& path) {
  if (::ftruncate(lock.get(), 0) != 0 || ::lseek(lock.get(), 0, SEEK_SET) != 0) {
    return errno_error("cannot write " + path);
  }
  return write_all(lock.get(), std::to_string(::getpid()) + words + "\n", path);
}

}  // namespace

Result<std::optional<UniqueFd>> take_node_lock(const std::string& path, const UniqueFd& stop) {
  // For a local job it is the directory of the sockets, which must be private.
  HP_TRY(make_directories(std::filesystem::path(path).parent_path().string(), 0700));
  const SystemClock clock;
  int64_t lives_until_ms = clock.monotonic_ms() + kNewsMs;
  for (;;) {
    auto lock = lock_file(path);
    if (lock.ok()) {
      HP_TRY(write_words(*lock, "", path));
      return std::optional<UniqueFd>(std::move(lock).value());
    }
    if (lock.error().code != ErrorCode::kAlreadyExists) return lock.error();
    const int64_t now = clock.monotonic_ms();
    if (owner_of(path) != Owner::kLives) lives_until_ms = now + kNewsMs;
    if (now >= lives_until_ms) return std::optional<UniqueFd>();
    pollfd asked{stop.get(), POLLIN, 0};
    if (::poll(&asked, 1, kLookAgainMs) > 0) return std::optional<UniqueFd>();
  }
}

Outcome say_that_we_end(const UniqueFd& lock, const std::string& path) {
  return write_words(lock, kEnding, path);
}

}  // namespace hpctl::holder
