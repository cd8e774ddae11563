// SPDX-License-Identifier: Apache-2.0
// Who is named as slow, from what ranks say of their steps: rounds are made here by hand.
#include "controller/core/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/base/rng.h"

namespace hpctl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kUsualNs = 100'000'000;
constexpr int kEver = kSlowRounds;  // rounds after which who is slow is named

// A job whose ranks are spread evenly over nodes n0, n1, ...
class SlowJob {
 public:
  // What rank `rank` took for step `step`.
  using Taken = std::function<uint64_t(int rank, uint64_t step)>;

  SlowJob(int nodes, int ranks_per_node, const std::vector<Straggler>& known = {})
      : ranks_(nodes * ranks_per_node),
        per_node_(ranks_per_node),
        watch_({4}, kStart, ranks_, known) {
    for (uint64_t i = 0; i < kWarmUpSteps; ++i) tell([](int, uint64_t) { return kUsualNs; });
  }

  void tell(const Taken& taken, int but = -1) {
    ++step_;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == but) continue;
      watch_.add({Rank{rank}, step_, taken(rank, step_), 2 * kUsualNs}, node_of(rank));
    }
  }
  std::string node_of(int rank) const { return "n" + std::to_string(rank / per_node_); }

  StragglerNews round(const Taken& taken, int but = -1) {
    for (size_t i = 0; i < kRoundSteps; ++i) tell(taken, but);
    return watch_.is_round_over() ? watch_.judge() : StragglerNews{};
  }
  // All that became known in so many rounds.
  StragglerNews rounds(int count, const Taken& taken) {
    StragglerNews all;
    for (int i = 0; i < count; ++i) {
      const StragglerNews news = round(taken);
      all.found.insert(all.found.end(), news.found.begin(), news.found.end());
      all.over.insert(all.over.end(), news.over.begin(), news.over.end());
    }
    return all;
  }
  StragglerWatch& watch() { return watch_; }

 private:
  static constexpr uint64_t kStart = 40;

  int ranks_;
  int per_node_;
  StragglerWatch watch_;
  uint64_t step_ = kStart;
};

SlowJob::Taken slow(std::vector<int> who, double times) {
  return [who = std::move(who), times](int rank, uint64_t) {
    const bool is_slow = std::find(who.begin(), who.end(), rank) != who.end();
    return static_cast<uint64_t>(kUsualNs * (is_slow ? times : 1.0));
  };
}

uint64_t even(int, uint64_t) { return kUsualNs; }

TEST(Straggler, ARankThatIsSlowForLongIsNamedOnceWithItsNode) {
  SlowJob job(2, 2);
  EXPECT_THAT(job.rounds(kEver - 1, slow({3}, 3)).found, IsEmpty());
  const StragglerNews news = job.round(slow({3}, 3));
  ASSERT_EQ(news.found.size(), 1U);
  EXPECT_EQ(news.found[0].node, "n1");
  EXPECT_EQ(news.found[0].rank, 3);
  EXPECT_NEAR(news.found[0].slowdown, 3, 1e-6);
  EXPECT_EQ(news.found[0].generation, Generation{4});
  EXPECT_EQ(news.found[0].evidence,
            "rank 3 takes 3.0 times as long as the others for the passes of a step: 300.0 ms, "
            "usual are 100.0 ms; so in 3 rounds of 5 steps up to step 60");
  EXPECT_THAT(job.rounds(9, slow({3}, 3)).found, IsEmpty()) << "it is no news any more";
}

TEST(Straggler, ANodeOfTwoWhoseRanksAreAllSlowIsNamedAsANode) {
  SlowJob job(2, 2);
  const StragglerNews news = job.rounds(kEver, slow({2, 3}, 2));
  ASSERT_EQ(news.found.size(), 1U);
  EXPECT_EQ(news.found[0].node, "n1");
  EXPECT_EQ(news.found[0].rank, -1);
  EXPECT_THAT(news.found[0].evidence, HasSubstr("all its ranks (ranks 2, 3) take 2.0 times"));
}

TEST(Straggler, SomeRanksOfANodeAreNamedAsSome) {
  SlowJob job(2, 8);
  const StragglerNews news = job.rounds(kEver, slow({9, 12}, 2));
  ASSERT_EQ(news.found.size(), 1U);
  EXPECT_EQ(news.found[0].rank, -1);
  EXPECT_THAT(news.found[0].evidence, HasSubstr("ranks 9, 12 take 2.0 times"));
}

struct Innocent {
  const char* why;
  int nodes;
  int per_node;
  SlowJob::Taken taken;
};

TEST(Straggler, NobodyIsNamed) {
  const std::vector<Innocent> cases = {
      {"all are even", 2, 2, even},
      {"below the ratio", 4, 2, slow({3}, kSlowRatio - 0.02)},
      {"two ranks", 2, 1, slow({1}, 3)},
      {"half of the nodes", 4, 1, slow({0, 2}, 2)},
      {"most ranks, so that one is fast", 2, 2, slow({0, 1, 2}, 2)},
      {"one slow step in five, whoever's", 2, 2,
       [](int rank, uint64_t step) {
         return step % 5 == static_cast<uint64_t>(rank) ? 9 * kUsualNs : kUsualNs;
       }},
      {"one rank has two slow steps in five", 2, 2,
       [](int rank, uint64_t step) { return rank == 1 && step % 5 < 2 ? 9 * kUsualNs : kUsualNs; }},
      {"another rank each round", 2, 2,
       [](int rank, uint64_t step) {
         return (step - 46) / kRoundSteps % 4 == static_cast<uint64_t>(rank) ? 3 * kUsualNs
                                                                             : kUsualNs;
       }},
      {"it is worth nothing: the passes are a small part of the step", 2, 2,
       [](int rank, uint64_t) { return (rank == 1 ? 3 : 1) * kUsualNs / 100; }},
      {"all differ: the slowest of them is not far away", 16, 1,
       [](int rank, uint64_t) { return kUsualNs * static_cast<uint64_t>(10 + rank) / 10; }},
      {"nothing is known of it", 2, 2, [](int rank, uint64_t) { return rank == 1 ? 0 : kUsualNs; }},
  };
  for (const Innocent& innocent : cases) {
    SlowJob job(innocent.nodes, innocent.per_node);
    EXPECT_THAT(job.rounds(20, innocent.taken).found, IsEmpty()) << innocent.why;
  }
}

// As where all wait for a checkpoint, and just then the round is over.
TEST(Straggler, AStepThatIsLongForAllHidesNobody) {
  StragglerWatch watch({1}, 0, 4, {});
  StragglerNews news;
  for (uint64_t step = 1; step <= kWarmUpSteps + kEver * kRoundSteps; ++step) {
    const uint64_t step_ns = step % kRoundSteps == 0 ? 100 * kUsualNs : 2 * kUsualNs;
    for (int rank = 0; rank < 4; ++rank) {
      watch.add({Rank{rank}, step, (rank == 1 ? 2 : 1) * kUsualNs, step_ns},
                "n" + to_string(Rank{rank}));
    }
    if (watch.is_round_over()) news = watch.judge();
  }
  ASSERT_EQ(news.found.size(), 1U);
  EXPECT_EQ(news.found[0].rank, 1);
}

TEST(Straggler, TheFirstStepsOfAGenerationDoNotCount) {
  StragglerWatch watch({1}, 0, 4, {});
  for (uint64_t step = 1; step <= kWarmUpSteps; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      watch.add({Rank{rank}, step, rank == 0 ? 9 * kUsualNs : kUsualNs, kUsualNs}, "n0");
    }
  }
  EXPECT_FALSE(watch.is_round_over());
}

TEST(Straggler, ItIsOverOnceTheRanksAreNearTheOthersForAsLong) {
  SlowJob job(2, 2);
  job.rounds(kEver, slow({3}, 3));
  EXPECT_THAT(job.rounds(9, slow({3}, kOverRatio + 0.01)).over, IsEmpty()) << "neither";
  EXPECT_THAT(job.rounds(kSlowRounds - 1, even).over, IsEmpty());
  EXPECT_THAT(job.round(slow({3}, 1.2)).over, IsEmpty()) << "the count begins anew";
  EXPECT_THAT(job.rounds(kSlowRounds, even).over, ElementsAre("n1"));
  EXPECT_EQ(job.rounds(kEver, slow({3}, 3)).found.size(), 1U) << "and again it is news";
}

TEST(Straggler, ARoundEndsWithoutARankThatIsNotHeardOf) {
  SlowJob job(2, 2);
  std::vector<Straggler> found;
  for (int i = 0; i < 2 * kEver; ++i) {
    for (Straggler& one : job.round(slow({3}, 3), 0).found) found.push_back(std::move(one));
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 3);
}

TEST(Straggler, WhatAControllerBeforeFoundIsNoNewsAndCanEnd) {
  const Straggler before{"n1", 3, 3.0, "", Generation{4}};
  SlowJob job(2, 2, {before});
  EXPECT_THAT(job.rounds(kEver, slow({3}, 3)).found, IsEmpty());
  EXPECT_THAT(job.rounds(kEver, even).over, ElementsAre("n1"));
}

// A step's time varies by so much (twice the standard deviation is near it), as on a machine with
// more processes than processors.
SlowJob::Taken noisy(Rng& rng, double by, SlowJob::Taken taken) {
  return [&rng, by, taken = std::move(taken)](int rank, uint64_t step) {
    double sum = 0;
    for (int i = 0; i < 3; ++i) sum += 2 * rng.uniform() - 1;
    return static_cast<uint64_t>(static_cast<double>(taken(rank, step)) * (1 + by * sum / 1.5));
  };
}

TEST(Straggler, NoiseNamesNobodyAndHidesNobodyWhoIsTwiceAsSlow) {
  for (const double by : {0.02, 0.1, 0.2, 0.3}) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      Rng rng(seed);
      SlowJob fine(8, 2);
      EXPECT_THAT(fine.rounds(100, noisy(rng, by, even)).found, IsEmpty()) << by << " " << seed;
      SlowJob job(8, 2);
      const auto found = job.rounds(30, noisy(rng, by, slow({5}, 2))).found;
      ASSERT_EQ(found.size(), 1U) << by << " " << seed;
      EXPECT_EQ(found[0].rank, 5) << by << " " << seed;
    }
  }
}

// The slowest of those that are not slow is typical then, and half of all are far from it.
TEST(Straggler, ANodeOfTwoIsNamedThoughAllItsRanksVary) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    SlowJob job(2, 8);
    const auto found =
        job.rounds(30, noisy(rng, 0.1, slow({8, 9, 10, 11, 12, 13, 14, 15}, 2))).found;
    ASSERT_EQ(found.size(), 1U) << seed;
    EXPECT_EQ(found[0].node, "n1") << seed;
  }
}

}  // namespace
}  // namespace hpctl::core
