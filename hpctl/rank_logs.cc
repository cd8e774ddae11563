// SPDX-License-Identifier: Apache-2.0
#include "hpctl/rank_logs.h"

#include <algorithm>

#include "common/base/file.h"
#include "hpctl/log_file.h"

namespace hpctl {
namespace {

constexpr size_t kMostRanksRead = 64;  // each is a file to open
constexpr size_t kFewestLines = 5;

// "rank-12.log" -> 12; -1 for any other name.
int64_t rank_of_log(const std::string& name) {
  if (!name.starts_with("rank-") || !name.ends_with(".log")) return -1;
  const std::string digits = name.substr(5, name.size() - 9);
  if (digits.empty() || digits.size() > 9) return -1;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

}  // namespace

std::vector<int64_t> ranks_with_logs(const HomePaths& paths, JobId job) {
  std::vector<int64_t> ranks;
  const auto names = list_directory(paths.job_logs(job));
  if (!names.ok()) return ranks;
  for (const std::string& name : *names) {
    if (const int64_t rank = rank_of_log(name); rank >= 0) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<std::string> last_log_lines(const HomePaths& paths, JobId job, size_t most) {
  std::vector<int64_t> ranks = ranks_with_logs(paths, job);
  if (ranks.size() > kMostRanksRead) ranks.resize(kMostRanksRead);
  std::vector<std::string> lines;
  for (const int64_t rank : ranks) {
    LogFile log(paths.rank_log(job, Rank{static_cast<int32_t>(rank)}));
    for (const std::string& line : log.read_last(std::max(kFewestLines, most / ranks.size()))) {
      lines.push_back("rank " + std::to_string(rank) + " | " + line);
    }
  }
  return lines;
}

}  // namespace hpctl
