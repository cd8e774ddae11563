// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/step_samples.h"

#include <algorithm>

#include "common/base/check.h"

namespace hpctl {
namespace {

// Positions [begin, end) of the concatenation of `ranges`.
std::vector<SampleRange> slice(const std::vector<SampleRange>& ranges, uint64_t begin,
                               uint64_t end) {
  std::vector<SampleRange> part;
  uint64_t position = 0;
  for (const SampleRange& range : ranges) {
    const uint64_t size = range.end - range.begin;
    const uint64_t from = std::max(begin, position);
    const uint64_t to = std::min(end, position + size);
    if (from < to) part.push_back({range.begin + (from - position), range.begin + (to - position)});
    position += size;
  }
  return part;
}

}  // namespace

bool is_normalized(const std::vector<SampleRange>& ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i].end) return false;
    if (i > 0 && ranges[i].begin <= ranges[i - 1].end) return false;
  }
  return true;
}

std::vector<SampleRange> normalized(std::vector<SampleRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const SampleRange& a, const SampleRange& b) { return a.begin < b.begin; });
  std::vector<SampleRange> joined;
  for (const SampleRange& range : ranges) {
    if (range.begin >= range.end) continue;
    if (!joined.empty() && range.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

StepSamples take_samples(uint64_t cursor, uint64_t count, const std::vector<SampleRange>& skipped) {
  HP_CHECK(is_normalized(skipped));
  StepSamples taken;
  uint64_t left = count;
  for (const SampleRange& skip : skipped) {
    if (skip.end <= cursor) continue;
    if (skip.begin > cursor) {
      const uint64_t size = std::min(left, skip.begin - cursor);
      if (size > 0) taken.ranges.push_back({cursor, cursor + size});
      cursor += size;
      left -= size;
    }
    if (cursor < skip.begin) break;
    cursor = skip.end;
  }
  if (left > 0) taken.ranges.push_back({cursor, cursor + left});
  taken.next_cursor = cursor + left;
  return taken;
}

std::vector<SampleRange> data_part(const std::vector<SampleRange>& step_ranges, int32_t index,
                                   int32_t count) {
  HP_CHECK(index >= 0 && index < count);
  const uint64_t total = sample_count(step_ranges);
  const auto parts = static_cast<uint64_t>(count);
  const auto begin = [&](int32_t r) { return static_cast<uint64_t>(r) * total / parts; };
  return slice(step_ranges, begin(index), begin(index + 1));
}

uint64_t micro_batches(uint64_t samples, int32_t readers, uint64_t micro) {
  HP_CHECK(readers > 0 && micro > 0);
  const auto parts = static_cast<uint64_t>(readers);
  const uint64_t share = (samples + parts - 1) / parts;
  return (share + micro - 1) / micro;
}

std::vector<uint64_t> sample_numbers(const std::vector<SampleRange>& ranges) {
  std::vector<uint64_t> numbers;
  numbers.reserve(sample_count(ranges));
  for (const SampleRange& range : ranges) {
    for (uint64_t i = range.begin; i < range.end; ++i) numbers.push_back(i);
  }
  return numbers;
}

uint64_t sample_count(const std::vector<SampleRange>& ranges) {
  uint64_t count = 0;
  for (const SampleRange& range : ranges) count += range.end - range.begin;
  return count;
}

}  // namespace hpctl
