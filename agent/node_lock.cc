// SPDX-License-Identifier: Apache-2.0
#include "agent/node_lock.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/process_stat.h"

namespace hpctl::holder {
namespace {

// Longer than a guardian needs, and than the moment between taking the lock and writing the id.
constexpr int64_t kPatienceMs = 12'000;

bool owner_lives(const std::string& path) {
  const auto text = read_file(path, 64);
  const long pid = text.ok() ? std::strtol(text->c_str(), nullptr, 10) : 0;
  if (pid <= 0) return false;
  const std::string state = process_stat(static_cast<pid_t>(pid), kStateField);
  return !state.empty() && state != "Z";  // a zombie is dead, only not reaped by who started it
}

}  // namespace

Result<std::optional<UniqueFd>> take_node_lock(const std::string& path) {
  HP_TRY(make_directories(std::filesystem::path(path).parent_path().string()));
  const SystemClock clock;
  const int64_t deadline = clock.monotonic_ms() + kPatienceMs;
  for (;;) {
    auto lock = lock_file(path);
    if (lock.ok()) {
      const std::string content = std::to_string(::getpid()) + "\n";
      if (::ftruncate(lock->get(), 0) != 0) return errno_error("cannot write " + path);
      HP_TRY(write_all(lock->get(), content, path));
      return std::optional<UniqueFd>(std::move(lock).value());
    }
    if (lock.error().code != ErrorCode::kAlreadyExists) return lock.error();
    if (owner_lives(path) || clock.monotonic_ms() >= deadline) return std::optional<UniqueFd>();
    ::poll(nullptr, 0, 10);
  }
}

}  // namespace hpctl::holder
