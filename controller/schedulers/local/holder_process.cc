// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/local/holder_process.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/process/pidfd.h"

namespace hpctl {
namespace {

constexpr size_t kMaxCommandBytes = 64U << 10;
constexpr int kKillTimeoutMs = 5'000;  // SIGKILL waits only for the kernel, e.g. for a disk

std::vector<std::string> command_of(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/cmdline", kMaxCommandBytes);
  std::vector<std::string> words;
  if (!text.ok()) return words;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\0', begin), text->size());
    words.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// The word after `name`; "" when there is none.
std::string option(const std::vector<std::string>& words, const std::string& name) {
  const auto found = std::find(words.begin(), words.end(), name);
  return found == words.end() || found + 1 == words.end() ? "" : *(found + 1);
}

// "SEQ.INDEX", as to_string(ActionId) writes it.
ActionId parse_action(const std::string& text) {
  char* end = nullptr;
  ActionId id;
  id.seq.value = std::strtoull(text.c_str(), &end, 10);
  if (*end == '.') id.index = static_cast<uint32_t>(std::strtoul(end + 1, nullptr, 10));
  return id;
}

}  // namespace

std::optional<ActionId> launch_of_holder(pid_t pid, const core::NodeKey& node) {
  const std::vector<std::string> words = command_of(pid);
  if (std::find(words.begin(), words.end(), "--holder") == words.end() ||
      option(words, "--job") != to_string(node.job) || option(words, "--node") != node.name) {
    return std::nullopt;
  }
  return parse_action(option(words, "--launch"));
}

Outcome kill_holder(pid_t pid, const core::NodeKey& node) {
  // The descriptor first: from here on the pid cannot become another's unnoticed.
  const UniqueFd process = pid > 0 ? open_pidfd(pid) : UniqueFd();
  if (!process.valid() || !launch_of_holder(pid, node)) return Ok{};
  if (signal_pidfd(process, SIGKILL) != 0 && errno != ESRCH) {
    return errno_error("cannot end the former holder of node " + node.name + " (pid " +
                       std::to_string(pid) + ")");
  }
  pollfd ended{process.get(), POLLIN, 0};
  if (::poll(&ended, 1, kKillTimeoutMs) == 1) return Ok{};
  return Error{ErrorCode::kUnavailable, "the former holder of node " + node.name + " (pid " +
                                            std::to_string(pid) +
                                            ") does not end after SIGKILL; see what it waits for "
                                            "in /proc/" +
                                            std::to_string(pid) + "/stack"};
}

}  // namespace hpctl
