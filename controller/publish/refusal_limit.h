// SPDX-License-Identifier: Apache-2.0
// Limits the refusals that are recorded one by one: the first kAtOnce of each origin, then one each
// kEveryMs. The others are counted, and the counts recorded. So a caller that floods a controller
// with calls can neither fill its log nor push other users' records out of it. Pure; for one thread
// at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hpctl {

class RefusalLimit {
 public:
  static constexpr int64_t kAtOnce = 20;
  static constexpr int64_t kEveryMs = 1'000;
  static constexpr int64_t kTellMs = 10'000;  // between two counts of one origin
  // Any further ones count as one, named kOthers.
  static constexpr size_t kMostOrigins = 64;
  static constexpr char kOthers[] = "others";

  // False: it is counted instead.
  bool takes(const std::string& origin, int64_t now_ms) {
    const bool has_room = of_.contains(origin) || of_.size() < kMostOrigins;
    Bucket& bucket =
        of_.try_emplace(has_room ? origin : kOthers, Bucket{kAtOnce, now_ms, 0, 0}).first->second;
    const int64_t earned = (now_ms - bucket.filled_ms) / kEveryMs;
    bucket.left = std::min(kAtOnce, bucket.left + earned);
    bucket.filled_ms += earned * kEveryMs;
    if (bucket.left == 0) {
      if (bucket.counted++ == 0) bucket.counted_from_ms = now_ms;
      return false;
    }
    --bucket.left;
    return true;
  }

  struct Count {
    std::string origin;
    uint64_t refusals = 0;
  };
  // Those that are due, each once; `all` = whatever was counted.
  std::vector<Count> take_counts(int64_t now_ms, bool all = false) {
    std::vector<Count> counts;
    for (auto& [origin, bucket] : of_) {
      if (bucket.counted == 0 || (!all && now_ms - bucket.counted_from_ms < kTellMs)) continue;
      counts.push_back({origin, bucket.counted});
      bucket.counted = 0;
    }
    std::erase_if(of_, [now_ms](const auto& entry) {
      const Bucket& bucket = entry.second;
      return bucket.counted == 0 && now_ms - bucket.filled_ms >= kAtOnce * kEveryMs;
    });
    return counts;
  }

 private:
  struct Bucket {
    int64_t left;
    int64_t filled_ms;  // when a place was earned last
    uint64_t counted;
    int64_t counted_from_ms;
  };
  std::map<std::string, Bucket> of_;
};

}  // namespace hpctl
