// SPDX-License-Identifier: Apache-2.0
#include "common/jobfile/nearest_word.h"

#include <algorithm>

namespace hpctl {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substituted, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest_word(std::string_view word,
                                        const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 100;  // what nobody typed by hand is not worth the square of it
  if (word.size() > kLongestWord) return std::nullopt;
  std::optional<std::string> nearest;
  size_t limit = std::max<size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance > limit || (nearest && distance == limit)) continue;
    nearest = candidate;
    limit = distance;
  }
  return nearest;
}

}  // namespace hpctl
