// SPDX-License-Identifier: Apache-2.0
#include "common/job/node_record.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/base/file.h"
#include "common/job/node_record_files.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr int64_t kNow = 1'700'000'000'000;
constexpr int64_t kDay = 24LL * 3'600 * 1'000;

NodeRecord record(uint64_t job, NodeRecordKind kind, int64_t days_ago,
                  const std::string& node = "p5-1", const std::string& instance = "i-1") {
  static int number = 0;
  return {kNow - days_ago * kDay, job, node, instance, kind, "k" + std::to_string(++number), "why"};
}

double score_of(const std::vector<NodeRecord>& records) {
  const auto scores = lemon_scores(records, kNow);
  return scores.empty() ? 0 : scores.front().score;
}

TEST(LemonScore, OneJobAloneMakesALemonOnlyWithAVerdict) {
  std::vector<NodeRecord> losses(50, record(1, NodeRecordKind::kLost, 0));
  for (size_t i = 0; i < losses.size(); ++i) losses[i].key = std::to_string(i);
  EXPECT_DOUBLE_EQ(score_of(losses), 2);
  EXPECT_FALSE(lemon_scores(losses, kNow).front().is_lemon());
  losses.push_back(record(1, NodeRecordKind::kHardware, 0));
  EXPECT_DOUBLE_EQ(score_of(losses), 4) << "the verdict, not the verdict and the rest";
  EXPECT_TRUE(lemon_scores(losses, kNow).front().is_lemon());
}

TEST(LemonScore, SeveralJobsDo) {
  using K = NodeRecordKind;
  EXPECT_DOUBLE_EQ(score_of({record(1, K::kLost, 0), record(2, K::kHang, 0)}), 4);
  EXPECT_DOUBLE_EQ(score_of({record(1, K::kHang, 0), record(2, K::kSlow, 0)}), 3);
}

TEST(LemonScore, FadesWithTimeAndIsForgotten) {
  using K = NodeRecordKind;
  EXPECT_DOUBLE_EQ(score_of({record(1, K::kHardware, 7)}), 2);
  EXPECT_DOUBLE_EQ(score_of({record(1, K::kHardware, 14), record(2, K::kLost, 7)}), 2);
  EXPECT_DOUBLE_EQ(score_of({record(1, K::kHardware, 61)}), 0);
  EXPECT_DOUBLE_EQ(score_of({record(1, K::kHardware, -3)}), 4) << "a clock that went back";
}

TEST(LemonScore, APassedDeepCheckTakesBackWhatWasBefore) {
  using K = NodeRecordKind;
  const std::vector<NodeRecord> released = {record(1, K::kHardware, 2), record(2, K::kLost, 2),
                                            record(0, K::kCheckPassed, 1)};
  EXPECT_DOUBLE_EQ(score_of(released), 0);
  auto again = released;
  again.push_back(record(3, K::kLost, 0));
  EXPECT_DOUBLE_EQ(score_of(again), 2);
  again.push_back(record(0, K::kCheckFailed, 0));
  EXPECT_DOUBLE_EQ(score_of(again), 6);
}

TEST(LemonScore, BelongsToTheInstance) {
  using K = NodeRecordKind;
  const auto scores = lemon_scores(
      {record(1, K::kLost, 3, "p5-1", "i-old"), record(2, K::kHardware, 0, "p5-1", "i-new"),
       record(3, K::kSlow, 0, "m5-1", "")},
      kNow);
  ASSERT_EQ(scores.size(), 3U);
  EXPECT_EQ(scores[0].instance, "i-new") << "highest first";
  EXPECT_EQ(find_lemon_score(scores, "p5-1", "i-old")->score, scores[1].score);
  EXPECT_EQ(find_lemon_score(scores, "p5-1", "")->instance, "i-new");
  EXPECT_EQ(find_lemon_score(scores, "p5-1", "i-third"), nullptr) << "a machine with a clean past";
  EXPECT_NE(find_lemon_score(scores, "m5-1", "i-any"), nullptr);
  EXPECT_EQ(find_lemon_score(scores, "m5-2", ""), nullptr);
}

TEST(LemonScore, WhatIsSaidTwiceCountsOnce) {
  const NodeRecord said = record(1, NodeRecordKind::kSlow, 0);
  EXPECT_DOUBLE_EQ(score_of({said, said, said}), 1);
  NodeRecord elsewhere = said;
  elsewhere.job = 2;
  EXPECT_DOUBLE_EQ(score_of({said, elsewhere}), 2);
}

TEST(NodeRecords, ARoundTripThroughFiles) {
  const TemporaryDirectory directory;
  const std::string records = directory / "home/node-records";
  EXPECT_TRUE(NodeRecordFiles(records).look().empty());
  const NodeRecord lost{kNow, 7, "p5-1", "i-1", NodeRecordKind::kLost, "fault 3", "it \"fell\"\n"};
  NodeRecord passed{kNow + 1, 0, "p5-1", "i-1", NodeRecordKind::kCheckPassed, "", "passed"};
  ASSERT_TRUE(append_node_records(records, "7.jsonl", {lost}).ok());
  ASSERT_TRUE(append_node_records(records, "7.jsonl", {lost}).ok());
  ASSERT_TRUE(append_node_records(records, "checks-2023-11.jsonl", {passed}).ok());
  std::ofstream(records + "/9.jsonl") << "{\"time\": 3}\nnonsense\n" << to_json_line(lost);
  std::ofstream(records + "/notes.txt") << to_json_line(lost) << "\n";
  const auto read = NodeRecordFiles(records).look();
  ASSERT_EQ(read.size(), 4U);
  for (const NodeRecord& found : read) {
    if (found.kind != NodeRecordKind::kLost) continue;
    EXPECT_EQ(to_json_line(found), to_json_line(lost));
  }
  EXPECT_TRUE(lemon_scores(read, kNow + 2).empty());
}

TEST(NodeRecords, DamagedLinesAreLeftOut) {
  const std::string good = to_json_line(record(1, NodeRecordKind::kHang, 0));
  EXPECT_TRUE(node_record_from_json(good));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(node_record_from_json(good.substr(0, size))) << size;
  }
  for (const char* bad :
       {"[]", "7",
        R"({"time":"x","job":1,"node":"n","instance":"","kind":"lost","key":"",)"
        R"("reason":""})",
        R"({"time":"2026-01-01","job":1,"node":"n","instance":"","kind":"worker","key":"",)"
        R"("reason":""})"}) {
    EXPECT_FALSE(node_record_from_json(bad)) << bad;
  }
}

TEST(NodeRecords, LieInTheHomeOfTheJob) {
  EXPECT_EQ(node_records_directory(HomePaths("/home/me/.hpctl")), "/home/me/.hpctl/node-records");
  EXPECT_EQ(node_records_directory(HomePaths::of_job("/fsx/h/jobs/17", JobId{17}, "p5-1")),
            "/fsx/h/node-records");
  EXPECT_EQ(node_records_directory(HomePaths::of_job("/fsx/elsewhere", JobId{17}, "p5-1")), "");
}

TEST(NodeRecords, OldFilesAreRemoved) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(append_node_records(directory.path(), "7.jsonl", {}).ok());
  const int64_t now_s = 4'000'000'000;  // past any file of today
  remove_old_node_records(directory.path(), 1);
  EXPECT_TRUE(is_accessible(directory / "7.jsonl"));
  remove_old_node_records(directory.path(), now_s * 1'000);
  EXPECT_FALSE(is_accessible(directory / "7.jsonl"));
}

}  // namespace
}  // namespace hpctl
