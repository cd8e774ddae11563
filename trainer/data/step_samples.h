// SPDX-License-Identifier: Apache-2.0
// The samples of a step, and the part of each rank.
//
// A job consumes sample numbers in ascending order from a durable cursor, leaving out a durable
// skip list. Without skips step s (the first is 1) takes [(s-1)*global, s*global). The step's
// samples, in that order, are positions 0 .. global-1. Reader r of R takes the positions
// [r*global/R, (r+1)*global/R), rounded down, and its micro-batch m is the m-th group of `micro` of
// those. So the set of a step never depends on the number of readers, and any number will do:
// shares differ by one sample at most. A reader is a data-parallel coordinate (parallel/mesh.h),
// which is a rank with data parallelism alone; the ranks of one reader read the same samples.
#pragma once

#include <cstdint>
#include <vector>

namespace hpctl {

// Sample numbers [begin, end).
struct SampleRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const SampleRange&) const = default;
};

// A skip list in the only form that is stored and hashed: ascending, not empty, neither
// overlapping nor touching.
bool is_normalized(const std::vector<SampleRange>& ranges);
// Sorts, drops empty ranges and joins what overlaps or touches.
std::vector<SampleRange> normalized(std::vector<SampleRange> ranges);

struct StepSamples {
  std::vector<SampleRange> ranges;  // ascending; sizes sum to the count asked for
  uint64_t next_cursor = 0;         // cursor after the step
};

// The next `count` sample numbers from `cursor` on that are not in `skipped` (normalized). After
// the last one, the cursor also passes over skipped numbers that follow directly.
StepSamples take_samples(uint64_t cursor, uint64_t count, const std::vector<SampleRange>& skipped);

// The part of reader `index` of `count`.
std::vector<SampleRange> data_part(const std::vector<SampleRange>& step_ranges, int32_t index,
                                   int32_t count);

// How many micro-batches every rank runs for a step of `samples` samples, so that all take part in
// the same collectives: as many as the largest share needs. A reader may have fewer samples for its
// last.
uint64_t micro_batches(uint64_t samples, int32_t readers, uint64_t micro);

// The single numbers, in order; micro-batch m is [m*micro, (m+1)*micro) of the result.
std::vector<uint64_t> sample_numbers(const std::vector<SampleRange>& ranges);

uint64_t sample_count(const std::vector<SampleRange>& ranges);

}  // namespace hpctl
