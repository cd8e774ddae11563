// SPDX-License-Identifier: Apache-2.0
// Labels of ranks become the labels of their job: which rank has what, in a short text, the same on
// all ranks.
#include "trainer/state/joined_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/unit/trainer/comm_world.h"

namespace hpctl {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Environment> with_kernels(const std::vector<std::string>& by_rank) {
  std::vector<Environment> ranks;
  for (const std::string& kernels : by_rank) {
    ranks.push_back({{"blas", "OpenBLAS"}, {"kernels", kernels}});
  }
  return ranks;
}

std::string kernels_of(const std::vector<std::string>& by_rank) {
  const Environment all = joined(with_kernels(by_rank));
  EXPECT_EQ(all.size(), 2U);
  EXPECT_EQ(all.at("blas"), "OpenBLAS") << "all have it alike";
  return all.at("kernels");
}

TEST(JoinedEnvironment, SaysWhichRanksHaveWhat) {
  EXPECT_EQ(kernels_of({"avx512"}), "avx512");
  EXPECT_EQ(kernels_of({"avx512", "avx512"}), "avx512");
  EXPECT_EQ(kernels_of({"avx512", "avx2"}), "avx512 on rank 0; avx2 on rank 1");
  EXPECT_EQ(kernels_of({"b", "b", "a", "a", "b", "a", "a"}),
            "b on ranks 0-1,4; a on ranks 2-3,5-6");
}

TEST(JoinedEnvironment, ARankThatLacksALabelIsUnlikeOneThatHasIt) {
  const Environment all = joined({{{"device", "cuda sm_90"}}, {}});
  EXPECT_EQ(all.at("device"), "cuda sm_90 on rank 0; (none) on rank 1");
}

// A slot's notes have 64 KiB, and every manifest has the labels.
TEST(JoinedEnvironment, IsShortForManyRanksAndStillTellsPlacementsApart) {
  std::vector<std::string> by_turns;
  for (int rank = 0; rank < 8'000; ++rank) by_turns.emplace_back(rank % 2 == 0 ? "avx512" : "avx2");
  const std::string text = kernels_of(by_turns);
  EXPECT_THAT(text, StartsWith("avx512 on 4000 ranks; avx2 on 4000 ranks; placed as "));
  EXPECT_LT(text.size(), 80U);
  EXPECT_EQ(kernels_of(by_turns), text);
  std::swap(by_turns[6], by_turns[7]);
  EXPECT_THAT(kernels_of(by_turns), StartsWith("avx512 on 4000 ranks; avx2 on 4000 ranks; "));
  EXPECT_NE(kernels_of(by_turns), text);

  std::vector<std::string> halves(4'000, "avx512");
  halves.resize(8'000, "avx2");
  EXPECT_EQ(kernels_of(halves), "avx512 on ranks 0-3999; avx2 on ranks 4000-7999");

  std::vector<std::string> unlike;
  for (int rank = 0; rank < 8'000; ++rank) unlike.push_back("core " + std::to_string(rank));
  const std::string many = kernels_of(unlike);
  EXPECT_THAT(many, HasSubstr("core 3 on 1 rank; 7996 more values; placed as "));
  EXPECT_LT(many.size(), 120U);
  unlike.back() = "another";
  EXPECT_NE(kernels_of(unlike), many);
}

// What every rank has of the labels that the ranks bring, and how many collectives it took.
struct Joined {
  std::vector<Environment> labels;
  std::vector<uint64_t> collectives;
};

Joined join_over_a_world(const std::vector<Environment>& by_rank) {
  Joined found{std::vector<Environment>(by_rank.size()), std::vector<uint64_t>(by_rank.size())};
  test::on_every_rank(static_cast<int>(by_rank.size()), [&](CommunicatorOptions options) {
    const auto rank = static_cast<size_t>(options.rank);
    std::atomic<uint64_t> collectives{0};
    options.sequence = &collectives;
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      const uint64_t before = collectives.load();
      auto all = join_environments(by_rank[rank], "node-" + std::to_string(rank), world);
      ASSERT_TRUE(all.ok()) << all.error().message;
      found.labels[rank] = *all;
      found.collectives[rank] = collectives.load() - before;
    });
  });
  return found;
}

TEST(JoinedEnvironment, IsTheSameOnEveryRank) {
  const std::vector<Environment> unlike = with_kernels({"avx512", "avx512", "avx2"});
  EXPECT_THAT(join_over_a_world(unlike).labels, ::testing::Each(joined(unlike)));
}

TEST(JoinedEnvironment, CostsOneCollectiveWhereRanksAreAlike) {
  const std::vector<Environment> alike = with_kernels({"avx2", "avx2", "avx2"});
  const Joined found = join_over_a_world(alike);
  EXPECT_THAT(found.labels, ::testing::Each(alike.front()));
  EXPECT_THAT(found.collectives, ::testing::Each(1U));
}

TEST(JoinedEnvironment, WhoseProcessorChangedIsInTheReason) {
  Manifest before;
  before.step = 7;
  before.world_size = 2;
  before.environment = joined(with_kernels({"avx512", "avx512"}));
  const auto reason = [&](const std::vector<std::string>& now) {
    return inexact_reason(before, 2, joined(with_kernels(now)));
  };
  EXPECT_EQ(reason({"avx512", "avx512"}), "");
  EXPECT_EQ(reason({"avx512", "avx2"}),
            "kernels changed from avx512 to avx512 on rank 0; avx2 on rank 1 after step 7");
  before.environment = joined(with_kernels({"avx512", "avx2"}));
  EXPECT_EQ(reason({"avx512", "avx2"}), "");
  EXPECT_THAT(reason({"avx2", "avx512"}),
              EndsWith("to avx2 on rank 0; avx512 on rank 1 after step 7"));
}

}  // namespace
}  // namespace hpctl
