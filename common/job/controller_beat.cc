// SPDX-License-Identifier: Apache-2.0
#include "common/job/controller_beat.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr size_t kBeatBytes = 42;
constexpr int kLookMs = 100;

}  // namespace

std::string beat_path(const std::string& job_dir) { return job_dir + "/controllers/beat"; }

Outcome write_beat(const std::string& job_dir, uint64_t epoch, uint64_t count) {
  std::array<char, kBeatBytes + 1> text{};
  std::snprintf(text.data(), text.size(), "%020llu %020llu\n",
                static_cast<unsigned long long>(epoch), static_cast<unsigned long long>(count));
  const std::string path = beat_path(job_dir);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return errno_error("cannot open " + path);
  if (::pwrite(file.get(), text.data(), kBeatBytes, 0) != static_cast<ssize_t>(kBeatBytes)) {
    return errno_error("cannot write " + path);
  }
  return Ok{};
}

Result<std::string> read_beat(const std::string& job_dir) {
  auto text = read_file(beat_path(job_dir), kBeatBytes);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return std::string();
  return text;
}

Result<bool> beat_moves(const std::string& job_dir, const std::function<bool()>& enough) {
  HP_TRY_ASSIGN(const std::string before, read_beat(job_dir));
  // Looks are counted, not time: who is stopped in between has not watched.
  for (int watched_ms = 0; watched_ms < kBeatWatchMs && !enough(); watched_ms += kLookMs) {
    ::poll(nullptr, 0, kLookMs);  // a change on a shared file system tells nobody
    HP_TRY_ASSIGN(const std::string now, read_beat(job_dir));
    if (now != before) return true;
  }
  return false;
}

bool is_majority(const std::set<std::string>& heard, const std::vector<std::string>& nodes) {
  const auto known = static_cast<size_t>(std::count_if(
      nodes.begin(), nodes.end(), [&](const std::string& name) { return heard.contains(name); }));
  if (2 * known != nodes.size()) return 2 * known > nodes.size();
  return !nodes.empty() && heard.contains(nodes.front());
}

}  // namespace hpctl
