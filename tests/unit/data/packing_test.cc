// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/base/rng.h"

namespace hpctl {
namespace {

using ::testing::ElementsAre;

std::vector<uint64_t> begins_of(const std::vector<uint64_t>& lengths) {
  std::vector<uint64_t> begins = {0};
  for (const uint64_t length : lengths) begins.push_back(begins.back() + length);
  return begins;
}

std::vector<std::vector<uint64_t>> packed(const PackedSequences& sequences) {
  std::vector<std::vector<uint64_t>> all;
  for (uint64_t s = 0; s < sequences.size(); ++s) {
    const auto documents = sequences.documents(s);
    all.emplace_back(documents.begin(), documents.end());
  }
  return all;
}

TEST(Packing, TheLongestFirstWhereLeastRoomIsLeft) {
  // By length: 1 (7), 0 (6), 4 (4), 2 (3), 6 (3), 5 (2). 4 fits behind 0 only, 2 fills up what 1
  // began, and 6 finds no room.
  const auto begins = begins_of({6, 7, 3, 11, 4, 2, 3, 0});
  const PackedSequences sequences(begins, 10);
  EXPECT_THAT(packed(sequences),
              ElementsAre(ElementsAre(1, 2), ElementsAre(0, 4), ElementsAre(6, 5)));
  EXPECT_EQ(sequences.too_long(), 1U) << "the one of 11";
  EXPECT_EQ(sequences.tokens(), 25U);
  EXPECT_EQ(sequences.documents(), 6U);
}

TEST(Packing, NothingFits) {
  const PackedSequences sequences(begins_of({11, 12}), 10);
  EXPECT_EQ(sequences.size(), 0U);
  EXPECT_EQ(sequences.too_long(), 2U);
}

TEST(Packing, EachDocumentOnceWithinTheCapacity) {
  Rng rng(7);
  for (int round = 0; round < 50; ++round) {
    const uint64_t capacity = 1 + rng.below(200);
    std::vector<uint64_t> lengths(rng.below(400));
    for (uint64_t& length : lengths) length = rng.below(capacity + capacity / 4 + 2);
    const PackedSequences sequences(begins_of(lengths), capacity);
    std::vector<uint64_t> seen;
    uint64_t at_most_half_full = 0;
    for (const auto& documents : packed(sequences)) {
      uint64_t sum = 0;
      for (const uint64_t k : documents) sum += lengths[k];
      EXPECT_LE(sum, capacity);
      at_most_half_full += 2 * sum <= capacity ? 1 : 0;
      seen.insert(seen.end(), documents.begin(), documents.end());
    }
    EXPECT_LE(at_most_half_full, 1U) << "two such would have been one";
    std::sort(seen.begin(), seen.end());
    std::vector<uint64_t> fitting;
    uint64_t too_long = 0;
    for (uint64_t k = 0; k < lengths.size(); ++k) {
      if (lengths[k] > 0 && lengths[k] <= capacity) fitting.push_back(k);
      too_long += lengths[k] > capacity ? 1 : 0;
    }
    EXPECT_EQ(seen, fitting);
    EXPECT_EQ(sequences.too_long(), too_long);
  }
}

}  // namespace
}  // namespace hpctl
