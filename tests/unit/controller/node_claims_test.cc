// SPDX-License-Identifier: Apache-2.0
// What the cluster controller believes of what users' jobs say against machines.
#include "controller/cluster/node_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "controller/cluster/fleet_lemons.h"
#include "tests/support/hand_clock.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::cluster {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNow = 1'790'000'000'000;
constexpr int64_t kDay = 24LL * 3'600 * 1'000;

NodeRecord blame(const std::string& node, NodeRecordKind kind, const std::string& key) {
  return {0, 0, node, "i-" + node, kind, key, "because of " + key};
}
NodeRecord checked(const std::string& node, bool passed, int64_t wall_ms) {
  return {wall_ms,
          0,
          node,
          "i-" + node,
          passed ? NodeRecordKind::kCheckPassed : NodeRecordKind::kCheckFailed,
          "",
          "a deep check"};
}
double score_of(const NodeClaims& claims, const std::string& node, int64_t now_ms = kNow) {
  for (const FleetLemon& lemon : claims.scores(now_ms)) {
    if (lemon.score.node == node) return lemon.score.score;
  }
  return 0;
}

TEST(NodeClaims, NobodyMakesALemonAlone) {
  NodeClaims claims;
  for (uint64_t job = 1; job <= 50; ++job) {
    claims.hear({1000, job}, {blame("p5-1", NodeRecordKind::kHardware, "k")}, kNow);
  }
  EXPECT_DOUBLE_EQ(score_of(claims, "p5-1"), kMostOfAUser);
  EXPECT_LT(kMostOfAUser, kLemonScore);
  claims.hear({1001, 7}, {blame("p5-1", NodeRecordKind::kSlow, "k")}, kNow);
  const auto scores = claims.scores(kNow);
  ASSERT_EQ(scores.size(), 1U);
  EXPECT_TRUE(scores[0].score.is_lemon()) << "two users: 2 and 1";
  EXPECT_EQ(scores[0].users, 2U);
  EXPECT_EQ(scores[0].score.records, 51U);
  EXPECT_EQ(scores[0].score.worst, "because of k");
}

TEST(NodeClaims, WhoSpeaksAgainstManySaysLittleOfEach) {
  NodeClaims claims;
  for (int i = 0; i < 160; ++i) {
    const std::string node = "p5-" + std::to_string(i);
    claims.hear({1000, 1 + static_cast<uint64_t>(i)}, {blame(node, NodeRecordKind::kLost, "k")},
                kNow);
  }
  EXPECT_DOUBLE_EQ(score_of(claims, "p5-9"), 2 * kBelievedMachines / 160);
  claims.hear({1001, 1}, {blame("p5-9", NodeRecordKind::kLost, "k")}, kNow);
  EXPECT_LT(score_of(claims, "p5-9"), kLemonScore);
}

TEST(NodeClaims, CountFromWhenTheyWereFirstHeardAndOnce) {
  NodeClaims claims;
  const auto said = blame("p5-1", NodeRecordKind::kLost, "fault 7");
  EXPECT_TRUE(claims.hear({1000, 1}, {said}, kNow));
  EXPECT_FALSE(claims.hear({1000, 1}, {said}, kNow + kDay));
  EXPECT_DOUBLE_EQ(score_of(claims, "p5-1", kNow + kLemonHalfLifeMs), 1);
  EXPECT_TRUE(claims.hear({1000, 1}, {blame("p5-1", NodeRecordKind::kLost, "fault 9")}, kNow));
}

TEST(NodeClaims, ACheckThatPassedTakesBackWhatWasSaidBefore) {
  NodeClaims claims;
  const auto said = blame("p5-1", NodeRecordKind::kLost, "k");
  for (const uid_t uid : {1000U, 1001U, 1002U}) claims.hear({uid, 1}, {said}, kNow);
  EXPECT_DOUBLE_EQ(score_of(claims, "p5-1"), 6);
  claims.check(checked("p5-1", true, kNow + 1'000));
  EXPECT_EQ(score_of(claims, "p5-1", kNow + 2'000), 0);
  claims.hear({1000, 1}, {said}, kNow + 3'000);
  EXPECT_EQ(score_of(claims, "p5-1", kNow + 4'000), 0) << "it is the same again";
  claims.hear({1000, 2}, {said}, kNow + 5'000);
  EXPECT_NEAR(score_of(claims, "p5-1", kNow + 6'000), 2, 0.01);
}

TEST(NodeClaims, AnOperatorsFailedCheckCountsByItselfAndAUsersPassedOneDoesNot) {
  NodeClaims claims;
  claims.check(checked("p5-1", false, kNow));
  ASSERT_EQ(claims.scores(kNow).size(), 1U);
  EXPECT_TRUE(claims.scores(kNow)[0].score.is_lemon());
  EXPECT_TRUE(claims.scores(kNow)[0].checked);
  EXPECT_FALSE(claims.hear({1000, 1}, {checked("p5-1", true, kNow)}, kNow));
  EXPECT_TRUE(claims.scores(kNow)[0].score.is_lemon());
}

TEST(NodeClaims, ACheckOfANameIsAboutTheMachineThatHadItLast) {
  NodeClaims claims;
  NodeRecord former = blame("p5-1", NodeRecordKind::kLost, "k");
  former.instance = "i-former";
  claims.hear({1000, 1}, {former}, kNow);
  claims.hear({1000, 2}, {blame("p5-1", NodeRecordKind::kLost, "k")}, kNow + 1'000);
  NodeRecord check = checked("p5-1", true, kNow + 2'000);
  check.instance.clear();
  claims.check(check);
  const auto left = claims.scores(kNow + 3'000);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].score.instance, "i-former");
}

TEST(NodeClaims, AreBounded) {
  NodeClaims claims;
  for (uint64_t job = 1; job <= kMostClaimsOfAUser + 100; ++job) {
    claims.hear({1000, job}, {blame("p5-1", NodeRecordKind::kSlow, "k")},
                kNow + static_cast<int64_t>(job));
  }
  ASSERT_EQ(claims.scores(kNow).size(), 1U);
  EXPECT_EQ(claims.scores(kNow)[0].score.records, kMostClaimsOfAUser);
  constexpr auto kOthers = static_cast<uid_t>(kMostClaims / kMostClaimsOfAUser);
  for (uid_t uid = 2'000; uid < 2'000 + kOthers; ++uid) {
    for (uint64_t job = 1; job <= kMostClaimsOfAUser; ++job) {
      claims.hear({uid, job}, {blame("p5-2", NodeRecordKind::kSlow, "k")}, kNow + kDay);
    }
  }
  size_t records = 0;
  for (const FleetLemon& lemon : claims.scores(kNow + kDay)) records += lemon.score.records;
  EXPECT_EQ(records, kMostClaims);
  EXPECT_EQ(score_of(claims, "p5-1", kNow + kDay), 0) << "the oldest went first";
  const auto read = NodeClaims::from_json(claims.to_json(), "file");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->to_json(), claims.to_json());
}

TEST(NodeClaims, AreForgottenWhenTheyAreOld) {
  NodeClaims claims;
  claims.hear({1000, 1}, {blame("p5-1", NodeRecordKind::kLost, "k")}, kNow);
  claims.check(checked("p5-2", false, kNow));
  claims.forget_old(kNow + kNodeRecordsKeptMs + 1);
  EXPECT_EQ(claims.to_json(), NodeClaims().to_json());
}

TEST(FleetLemons, OutliveTheService) {
  const TemporaryDirectory directory;
  test::HandClock clock;
  {
    FleetLemons lemons(directory.path(), clock);
    lemons.hear({1000, 1}, {blame("p5-1", NodeRecordKind::kLost, "k")});
    lemons.hear({1001, 1}, {blame("p5-1", NodeRecordKind::kLost, "k")});
    lemons.save(true);
  }
  FleetLemons lemons(directory.path(), clock);
  ASSERT_EQ(lemons.lemons().size(), 1U);
  EXPECT_EQ(lemons.lemons()[0].node, "p5-1");
  EXPECT_EQ(lemons.lemons()[0].worst, "jobs of 2 users speak against it");
  ASSERT_TRUE(lemons.check(checked("p5-1", true, 0)).ok());
  EXPECT_TRUE(FleetLemons(directory.path(), clock).lemons().empty()) << "at once";
}

TEST(FleetLemons, BeginAnewWhereTheirFileIsDamaged) {
  const TemporaryDirectory directory;
  test::HandClock clock;
  ASSERT_TRUE(write_file_atomic(directory / "node-claims.json", "{\"claims\": [").ok());
  EXPECT_TRUE(FleetLemons(directory.path(), clock).scores().empty());
  EXPECT_TRUE(read_file(directory / "node-claims.json.damaged").ok());
}

// One EIO at the start of the service had the scores of months written over.
TEST(FleetLemons, FileThatCannotBeReadIsNotReplaced) {
  const TemporaryDirectory directory;
  test::HandClock clock;
  const std::string path = directory / "node-claims.json";
  ASSERT_EQ(::symlink(path.c_str(), path.c_str()), 0);  // ELOOP: cannot be looked at
  {
    FleetLemons lemons(directory.path(), clock);
    EXPECT_FALSE(lemons.check(checked("p5-1", false, 0)).ok());
    lemons.save(true);
    EXPECT_EQ(lemons.scores().size(), 1U) << "it serves";
  }
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  EXPECT_FALSE(path_exists(path + ".damaged").value());
}

}  // namespace
}  // namespace hpctl::cluster
