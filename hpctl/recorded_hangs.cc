// SPDX-License-Identifier: Apache-2.0
#include "hpctl/recorded_hangs.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "common/base/file.h"
#include "common/job/stack_files.h"

namespace hpctl {
namespace {

constexpr size_t kMostDumpBytes = 32U << 20;

std::optional<int32_t> rank_of(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  int32_t rank = -1;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + prefix.size(), end, rank);
  return parsed.ec == std::errc() && parsed.ptr == end && rank >= 0 ? std::optional(rank)
                                                                    : std::nullopt;
}

}  // namespace

std::vector<RecordedHang> recorded_hangs(const std::string& stacks_directory,
                                         const std::set<uint64_t>& generations) {
  std::vector<RecordedHang> hangs;
  const auto names = list_directory(stacks_directory);
  if (!names.ok()) return hangs;  // as a rule there was none
  for (const uint64_t generation : generations) {
    const std::string pattern = recorder_file(generation, "*");
    const std::string prefix = pattern.substr(0, pattern.size() - 1);
    RecordedHang hang{generation, stacks_directory + "/" + pattern, {}, {}, {}};
    std::map<int32_t, recorder::RankDump> dumps;
    for (const std::string& name : *names) {
      const auto rank = rank_of(name, prefix);
      if (!rank) continue;
      const std::string path = stacks_directory + "/" + name;
      const auto text = read_file(path, kMostDumpBytes);
      auto dump = text.ok() ? recorder::read_dump(*text) : Result<recorder::RankDump>(text.error());
      if (dump.ok()) {
        hang.ranks.push_back(*rank);
        dumps[*rank] = std::move(*dump);
      } else {
        hang.unreadable.push_back(path + ": " + dump.error().message);
      }
    }
    if (dumps.empty() && hang.unreadable.empty()) continue;
    std::sort(hang.ranks.begin(), hang.ranks.end());
    hang.verdict = recorder::judge(dumps);
    hangs.push_back(std::move(hang));
  }
  return hangs;
}

}  // namespace hpctl
