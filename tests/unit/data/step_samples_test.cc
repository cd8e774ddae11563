// SPDX-License-Identifier: Apache-2.0
// Which samples a step and a rank take: independent of the world size, skips left out.
#include "trainer/data/step_samples.h"

#include <gtest/gtest.h>

#include <vector>

namespace hpctl {
namespace {

using Ranges = std::vector<SampleRange>;

TEST(StepSamples, WithoutSkipsStepsAreConsecutive) {
  uint64_t cursor = 0;
  for (uint64_t step = 1; step <= 5; ++step) {
    const StepSamples taken = take_samples(cursor, 8, {});
    EXPECT_EQ(taken.ranges, (Ranges{{(step - 1) * 8, step * 8}}));
    cursor = taken.next_cursor;
  }
  EXPECT_EQ(cursor, 40U);
}

TEST(StepSamples, SkippedNumbersAreLeftOut) {
  const Ranges skipped = {{3, 5}, {8, 9}, {12, 20}};
  const StepSamples taken = take_samples(0, 9, skipped);
  EXPECT_EQ(taken.ranges, (Ranges{{0, 3}, {5, 8}, {9, 12}}));
  EXPECT_EQ(taken.next_cursor, 20U) << "skipped numbers behind the last one are passed at once";
  EXPECT_EQ(take_samples(4, 2, skipped).ranges, (Ranges{{5, 7}}));
}

TEST(StepSamples, EveryNumberIsTakenOrSkippedOnce) {
  const Ranges skipped = {{0, 2}, {7, 8}, {10, 31}, {40, 41}};
  std::vector<int> count(300, 0);
  for (const SampleRange& r : skipped) {
    for (uint64_t i = r.begin; i < r.end; ++i) ++count[i];
  }
  uint64_t cursor = 0;
  while (cursor < 260) {
    const StepSamples taken = take_samples(cursor, 6, skipped);
    EXPECT_EQ(sample_count(taken.ranges), 6U);
    for (const uint64_t n : sample_numbers(taken.ranges)) ++count[n];
    cursor = taken.next_cursor;
  }
  EXPECT_EQ(std::vector<int>(count.begin(), count.begin() + static_cast<int64_t>(cursor)),
            std::vector<int>(cursor, 1));
}

TEST(StepSamples, AnyWorldSizeCoversTheSameSetInOrder) {
  const StepSamples taken = take_samples(100, 24, {{105, 107}, {120, 121}});
  const auto all = sample_numbers(taken.ranges);
  for (const int32_t world : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 23, 24, 30}) {
    std::vector<uint64_t> joined;
    for (int32_t rank = 0; rank < world; ++rank) {
      const auto part = sample_numbers(data_part(taken.ranges, rank, world));
      EXPECT_GE(part.size(), 24U / static_cast<size_t>(world));
      EXPECT_LE(part.size(), (23U + static_cast<size_t>(world)) / static_cast<size_t>(world));
      for (const uint64_t micro : {1, 3}) {
        EXPECT_LE(part.size(), micro_batches(24, world, micro) * micro);
      }
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, all) << world;
  }
}

TEST(StepSamples, EveryRankRunsAsManyMicroBatchesAsTheLargestShareNeeds) {
  EXPECT_EQ(micro_batches(24, 4, 2), 3U);
  EXPECT_EQ(micro_batches(24, 5, 2), 3U) << "shares of 5 and 4";
  EXPECT_EQ(micro_batches(4, 3, 1), 2U) << "shares of 1, 1 and 2";
  EXPECT_EQ(micro_batches(4, 8, 1), 1U);
}

TEST(StepSamples, SkipListsAreBroughtIntoOneForm) {
  EXPECT_EQ(normalized({{9, 12}, {1, 3}, {3, 4}, {5, 5}, {10, 11}}), (Ranges{{1, 4}, {9, 12}}));
  EXPECT_TRUE(is_normalized(normalized({{9, 12}, {1, 3}, {3, 4}})));
  EXPECT_FALSE(is_normalized({{1, 3}, {3, 4}}));
  EXPECT_FALSE(is_normalized({{4, 4}}));
  EXPECT_FALSE(is_normalized({{5, 6}, {1, 2}}));
}

}  // namespace
}  // namespace hpctl
