// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "common/base/check.h"

namespace hpctl {

PackedSequences::PackedSequences(std::span<const uint64_t> begins, uint64_t capacity) {
  HP_CHECK(!begins.empty());
  const auto length = [&](uint64_t k) { return begins[k + 1] - begins[k]; };
  std::vector<uint64_t> order;
  for (uint64_t k = 0; k + 1 < begins.size(); ++k) {
    if (length(k) > capacity) ++too_long_;
    if (length(k) > 0 && length(k) <= capacity) order.push_back(k);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint64_t a, uint64_t b) { return length(a) > length(b); });
  std::map<uint64_t, std::vector<uint64_t>> open;  // sequences by the room left, if there is some
  std::vector<uint64_t> place;                     // sequence of each document of `order`
  std::vector<uint64_t> counts;                    // documents of each sequence
  for (const uint64_t k : order) {
    uint64_t sequence = counts.size();
    uint64_t room = capacity;
    if (const auto found = open.lower_bound(length(k)); found != open.end()) {
      room = found->first;
      sequence = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) open.erase(found);
    } else {
      counts.push_back(0);
    }
    place.push_back(sequence);
    ++counts[sequence];
    tokens_ += length(k);
    if (room > length(k)) open[room - length(k)].push_back(sequence);
  }
  first_.assign(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), first_.begin() + 1);
  documents_.resize(order.size());
  std::vector<uint64_t> next(first_.begin(), first_.end() - 1);
  for (size_t i = 0; i < order.size(); ++i) documents_[next[place[i]]++] = order[i];
}

}  // namespace hpctl
