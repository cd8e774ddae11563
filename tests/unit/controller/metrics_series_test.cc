// SPDX-License-Identifier: Apache-2.0
// The status page reads metrics.jsonl: steps that a recovery repeats, an incomplete last line, and
// spikes in long jobs. The timeline shows a job's history as segments and marks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "controller/page/metrics_file.h"
#include "controller/page/metrics_series.h"
#include "controller/page/page_files.h"
#include "controller/page/page_timeline.h"
#include "controller/page/rank_times.h"
#include "controller/page/recent_jobs.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kNoEnd = UINT64_MAX;
constexpr size_t kLossMetric = 0;
constexpr size_t kValidationMetric = 1;

std::string metrics_line(uint64_t step, uint64_t generation, double loss) {
  return json{{"step", step}, {"generation", generation}, {"loss", loss}}.dump();
}
std::string validation_line(uint64_t step, uint64_t generation, double loss) {
  return json{{"step", step}, {"generation", generation}, {"validation_loss", loss}}.dump();
}

// The last step and mean loss of each bucket.
using Losses = std::vector<std::pair<uint64_t, double>>;
Losses losses_of(const MetricsSeries& series) {
  Losses losses;
  for (const auto& bucket : series.look(0, kNoEnd, 1'000)) {
    losses.emplace_back(bucket.last, bucket.metrics[kLossMetric].mean());
  }
  return losses;
}

void append_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

TEST(MetricsSeries, RepeatedStepsReplaceTheFormerOnes) {
  MetricsSeries series;
  for (uint64_t step = 1; step <= 5; ++step)
    series.add_line(metrics_line(step, 1, 10 + static_cast<double>(step)));
  EXPECT_TRUE(series.add_line(validation_line(5, 1, 9)));
  EXPECT_TRUE(series.add_line(metrics_line(4, 2, 1)));
  EXPECT_EQ(losses_of(series), (Losses{{1, 11}, {2, 12}, {3, 13}, {4, 1}}));
  EXPECT_TRUE(std::isnan(series.newest()[kValidationMetric].value)) << "it was taken back, too";
  ASSERT_EQ(series.generations().size(), 2U);
  EXPECT_EQ(series.generations()[1].generation, 2U);
  EXPECT_EQ(series.generations()[1].step, 4U);
  EXPECT_FALSE(series.add_line(metrics_line(2, 1, 99))) << "a late line of the former generation";
  EXPECT_EQ(series.last_step(), 4U);
}

TEST(MetricsSeries, LinesThatAreNoMetricsChangeNothing) {
  MetricsSeries series;
  for (const std::string line :
       {"", "{", "[]", "null", "{\"step\":-1,\"loss\":1}", "{\"step\":1.5,\"loss\":1}",
        "{\"loss\":1}", "\xff\xfe", "{\"step\":18446744073709551615,\"loss\":1}"}) {
    EXPECT_FALSE(series.add_line(line)) << line;
  }
  EXPECT_FALSE(series.add_line(std::string(MetricsSeries::kMostLineBytes + 1, ' ')));
  EXPECT_EQ(series.last_step(), 0U);
  EXPECT_TRUE(series.look(0, kNoEnd, 10).empty());
  // A loss that was not finite is null: the step counts, and has no value.
  EXPECT_TRUE(series.add_line("{\"step\":1,\"generation\":1,\"loss\":null,\"lr\":0.5}"));
  EXPECT_EQ(series.look(0, kNoEnd, 10).at(0).metrics[kLossMetric].count, 0U);
}

TEST(MetricsSeries, EvaluationsBelongToTheirStep) {
  MetricsSeries series;
  EXPECT_TRUE(series.add_line(validation_line(3, 1, 2))) << "of a step that is not there";
  series.add_line(metrics_line(4, 1, 5));
  series.add_line(validation_line(4, 1, 7));
  series.add_line(validation_line(4, 2, 6));  // once more, by the next generation
  const auto picture = series.look(0, kNoEnd, 10);
  ASSERT_EQ(picture.size(), 1U);
  EXPECT_EQ(picture[0].metrics[kValidationMetric].mean(), 6);
  EXPECT_EQ(picture[0].metrics[kLossMetric].mean(), 5);
  EXPECT_EQ(series.newest()[kValidationMetric].step, 4U);
}

TEST(MetricsSeries, ASpikeStaysInFewPointsOfALongJob) {
  MetricsSeries series;
  constexpr uint64_t kSteps = 3 * MetricsSeries::kMostBuckets;
  constexpr uint64_t kSpike = 12'345;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    series.add_line(metrics_line(step, 1, step == kSpike ? 100 : 2));
  }
  EXPECT_EQ(series.first_step(), 1U);
  EXPECT_EQ(series.last_step(), kSteps);
  const auto picture = series.look(0, kNoEnd, 100);
  ASSERT_LE(picture.size(), 100U);
  EXPECT_GE(picture.size(), 90U);
  uint64_t next = 1;
  size_t spikes = 0;
  uint64_t steps = 0;
  for (const auto& bucket : picture) {
    EXPECT_EQ(bucket.first, next);
    next = bucket.last + 1;
    const MetricRange& loss = bucket.metrics[kLossMetric];
    steps += loss.count;
    EXPECT_EQ(loss.low, 2);
    if (loss.high < 100) continue;
    ++spikes;
    EXPECT_LE(bucket.first, kSpike);
    EXPECT_GE(bucket.last, kSpike);
  }
  EXPECT_EQ(spikes, 1U);
  EXPECT_EQ(steps, kSteps);
  // A zoom has the steps around it alone.
  for (const auto& bucket : series.look(kSpike - 50, kSpike + 50, 100)) {
    EXPECT_GE(bucket.last, kSpike - 50);
    EXPECT_LE(bucket.first, kSpike + 50);
  }
}

TEST(MetricsSeries, ABucketThatWasTakenBackInPartGoesAsAWhole) {
  MetricsSeries series;
  constexpr uint64_t kSteps = MetricsSeries::kMostBuckets + 10;
  for (uint64_t step = 0; step < kSteps; ++step) series.add_line(metrics_line(step, 1, 2));
  ASSERT_EQ(series.width(), 2U);
  series.add_line(metrics_line(1'001, 2, 3));
  const auto picture = series.look(990, kNoEnd, 100);
  ASSERT_FALSE(picture.empty());
  EXPECT_EQ(picture.back().first, 1'001U);
  EXPECT_EQ(picture.back().metrics[kLossMetric].low, 3) << "nothing of the former step 1000";
}

TEST(MetricsFile, HalfALastLineWaitsForItsEnd) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  MetricsFile file(path);
  ASSERT_TRUE(file.read_on().ok()) << "there is none yet";
  EXPECT_TRUE(file.is_read());
  const std::string second = metrics_line(2, 1, 5);
  append_text(path, metrics_line(1, 1, 6) + "\n" + second.substr(0, 10));
  ASSERT_TRUE(file.read_on().ok());
  EXPECT_EQ(file.series().last_step(), 1U);
  EXPECT_TRUE(file.is_read());
  append_text(path, second.substr(10) + "\n");
  ASSERT_TRUE(file.read_on().ok());
  EXPECT_EQ(file.series().last_step(), 2U);
  EXPECT_EQ(file.read_bytes(), file.size());
  // Another file in its place is read from its beginning.
  ASSERT_TRUE(write_file_atomic(path, metrics_line(9, 1, 1) + "\n").ok());
  ASSERT_TRUE(file.read_on().ok());
  EXPECT_EQ(losses_of(file.series()), (Losses{{9, 1}}));
}

TEST(MetricsFile, APipeOrALinkIsNotRead) {
  const TemporaryDirectory directory;
  const std::string pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(MetricsFile(pipe).read_on().ok());
  ASSERT_EQ(::symlink("/etc/passwd", (directory / "link").c_str()), 0);
  EXPECT_FALSE(MetricsFile(directory / "link").read_on().ok());
}

class PageFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(make_directories(paths_.job_logs(JobId{3})).ok()); }

  const TemporaryDirectory directory_;
  const HomePaths paths_{directory_.path()};
  PageFiles files_{paths_};
};

TEST_F(PageFilesTest, SeriesHasTheValuesOfTheFile) {
  for (int step = 1; step <= 3; ++step) {
    append_text(paths_.job_metrics(JobId{3}), metrics_line(step, 1, 0.1 * step) + "\n");
  }
  const json answer = json::parse(files_.series(JobId{3}, {}).value());
  EXPECT_EQ(answer["last"], json::parse("[1, 2, 3]"));
  EXPECT_EQ(answer["columns"]["loss"]["v"], (json{0.1 * 1, 0.1 * 2, 0.1 * 3}));
  EXPECT_FALSE(answer["columns"]["loss"].contains("low")) << "every step is by itself";
  EXPECT_FALSE(answer["columns"].contains("mfu"));
  EXPECT_EQ(answer["newest"]["loss"], (json{3, 0.1 * 3}));
  EXPECT_EQ(answer["complete"], true);
  PageFiles::Span two{0, kNoEnd, 2};
  const json fewer = json::parse(files_.series(JobId{3}, two).value());
  EXPECT_EQ(fewer["first"], json::parse("[1, 3]"));
  EXPECT_EQ(fewer["columns"]["loss"]["high"], (json{0.1 * 2, 0.1 * 3}));
  two.points = PageFiles::kMostPoints + 1;
  EXPECT_EQ(files_.series(JobId{3}, two).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(json::parse(files_.series(JobId{4}, {}).value())["first"], json::array());
}

// Room for two: the third takes that of the job that was looked at longest ago.
TEST_F(PageFilesTest, SeriesAreForgottenTheLeastUsedFirst) {
  std::string lines;
  for (uint64_t step = 1; step <= 100; ++step) lines += metrics_line(step, 1, 2) + "\n";
  for (uint64_t job = 5; job <= 8; ++job) {
    ASSERT_TRUE(make_directories(paths_.job_logs(JobId{job})).ok());
    append_text(paths_.job_metrics(JobId{job}), lines);
  }
  MetricsFile one(paths_.job_metrics(JobId{5}));
  ASSERT_TRUE(one.read_on().ok());
  const size_t bytes = one.series().memory_bytes();
  ASSERT_GT(bytes, 0U);
  PageFiles files(paths_, 2 * bytes + bytes / 2);
  const auto look = [&](uint64_t job) {
    const json answer = json::parse(files.series(JobId{job}, {}).value());
    EXPECT_EQ(answer["last_step"], 100);
  };
  look(5);
  look(6);
  look(5);
  look(7);
  EXPECT_THAT(files.jobs_in_memory(), ElementsAre(JobId{7}, JobId{5}));
  look(6);
  EXPECT_THAT(files.jobs_in_memory(), ElementsAre(JobId{6}, JobId{7}));
  // One that is larger than all the room stays while it is looked at.
  PageFiles tight(paths_, bytes / 2);
  EXPECT_TRUE(tight.series(JobId{8}, {}).ok());
  EXPECT_THAT(tight.jobs_in_memory(), ElementsAre(JobId{8}));
}

TEST_F(PageFilesTest, TheTailOfALogIsPrintable) {
  const std::string path = paths_.rank_log(JobId{3}, Rank{1});
  append_text(path, "one\ntwo\nthr\x1b[31mee\nfour");
  const json tail = json::parse(files_.log_tail(JobId{3}, Rank{1}, 2).value());
  EXPECT_EQ(tail["lines"], (json{"thr?[31mee", "four"}));
  const json all = json::parse(files_.log_tail(JobId{3}, Rank{1}, 100).value());
  EXPECT_EQ(all["lines"].size(), 4U);
  EXPECT_EQ(all["lines"][0], "one");
  const json none = json::parse(files_.log_tail(JobId{3}, Rank{2}, 5).value());
  EXPECT_EQ(none["lines"], json::array());
  EXPECT_EQ(files_.log_tail(JobId{3}, Rank{-1}, 5).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(PageFilesTest, CheckpointsAreListedNewestFirst) {
  const std::string directory = directory_ / "checkpoints";
  for (const char* name : {"step-10.g1", "step-30.g1", "step-20.g2", "generations", "step-x"}) {
    ASSERT_TRUE(make_directories(directory + "/" + name).ok());
  }
  const json answer = json::parse(files_.checkpoints(JobId{3}, directory).value());
  std::vector<std::string> names;
  for (const json& row : answer["checkpoints"]) names.push_back(row[0]);
  EXPECT_THAT(names, ElementsAre("step-20.g2", "step-30.g1", "step-10.g1"));
  EXPECT_EQ(answer["checkpoints"][0][3], 0) << "without a manifest";
}

StoredEntry stored(int64_t wall_ms, const std::string& type, uint64_t step = 0,
                   const std::string& cause = "") {
  StoredEntry entry{0, wall_ms, {}};
  entry.entry.type = type;
  entry.entry.step = step;
  entry.entry.cause = cause;
  return entry;
}

TEST(PageTimeline, AFaultBecomesSegmentsAndMarks) {
  const PageTimeline timeline = timeline_of(
      {stored(1, "JobSubmitted"), stored(2, "StartWorkers"), stored(5, "JobRunning"),
       stored(6, "CheckpointCommitted", 0, "checkpoint step-30.g1 is durable"),
       stored(9, "JobRecovering", 41, "worker 2 died"), stored(10, "WaitNodes"),
       stored(11, "WaitNodes"), stored(12, "StartWorkers"), stored(15, "JobRunning"),
       stored(20, "SuspensionChanged"), stored(25, "SuspensionChanged"), stored(30, "JobFailed")});
  std::string parts;
  for (const TimelineSegment& segment : timeline.segments) {
    parts += std::to_string(segment.from_ms) + " " + segment.part + " " +
             std::to_string(segment.regain_step) + "; ";
  }
  EXPECT_EQ(parts,
            "1 start 0; 5 train 0; 9 decide 0; 10 wait 0; 12 restart 0; 15 train 41; "
            "20 suspended 0; 25 train 41; 30 ended 0; ");
  ASSERT_EQ(timeline.marks.size(), 2U);
  EXPECT_EQ(timeline.marks[0].kind, "checkpoint");
  EXPECT_EQ(timeline.marks[0].step, 30U);
  EXPECT_EQ(timeline.marks[1].step, 41U);
  EXPECT_THAT(timeline.marks[1].text, HasSubstr("worker 2"));
}

TEST(PageTimeline, WhatBeginsWhileSuspendedGoesOn) {
  const PageTimeline timeline = timeline_of(
      {stored(1, "JobSubmitted"), stored(2, "JobRunning"),
       stored(3, "SuspensionChanged", 0, "the scheduler suspends the job; no node is late"),
       stored(4, "JobRecovering", 7, "a node died"),
       stored(5, "SuspensionChanged", 0,
              "the scheduler lets the job go on; every node gets its full time")});
  ASSERT_EQ(timeline.segments.size(), 4U);
  EXPECT_EQ(timeline.segments.back().part, "decide");
}

TEST(PageTimeline, IsBoundedAndKeepsTheNewest) {
  std::vector<StoredEntry> history = {stored(0, "JobSubmitted")};
  for (int64_t i = 1; i <= 1'000; ++i) {
    history.push_back(stored(2 * i, "JobRunning"));
    history.push_back(stored(2 * i + 1, "JobRecovering", static_cast<uint64_t>(i)));
  }
  const PageTimeline timeline = timeline_of(history);
  EXPECT_EQ(timeline.segments.size(), PageTimeline::kMostSegments);
  EXPECT_EQ(timeline.segments.back().from_ms, 2'001);
  EXPECT_EQ(timeline.marks.size(), PageTimeline::kMostMarks);
  EXPECT_EQ(timeline.marks.back().step, 1'000U);
}

TEST(RankTimes, KeepsTheSlowestOfALongTime) {
  RankTimes times;
  for (int64_t i = 0; i < 1'000; ++i) {
    const float slow = i == 500 ? 90 : 10;
    times.add(JobId{1}, i * 1'000, static_cast<uint64_t>(i), {10, slow, 0});
  }
  const auto& columns = times.of(JobId{1});
  ASSERT_LT(columns.size(), RankTimes::kMostColumns);
  ASSERT_GT(columns.size(), RankTimes::kMostColumns / 3);
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) {
      EXPECT_GT(columns[i].wall_ms, columns[i - 1].wall_ms);
    }
    ASSERT_EQ(columns[i].ms.size(), 3U);
    EXPECT_EQ(columns[i].ms[0], 10);
  }
  times.add(JobId{2}, 0, 1, std::vector<float>(3 * RankTimes::kMostRows, 5));
  ASSERT_EQ(times.of(JobId{2}).size(), 1U);
  EXPECT_EQ(times.of(JobId{2})[0].ranks_per_row, 3U);
  EXPECT_EQ(times.of(JobId{2})[0].ms.size(), RankTimes::kMostRows);
  EXPECT_TRUE(times.of(JobId{3}).empty());
}

TEST(RecentJobs, JobsThatRunStayAndThoseThatEndedGoInOrderOfUse) {
  RecentJobs<int> jobs;
  constexpr uint64_t kMost = RecentJobs<int>::kMostEnded;
  for (uint64_t job = 1; job <= 3 * kMost; ++job) jobs.of_running(JobId{job}) = 7;
  EXPECT_EQ(jobs.size(), 3 * kMost) << "they run";
  for (uint64_t job = 1; job <= kMost; ++job) {
    jobs.end(JobId{job});
    jobs.end(JobId{job});  // its end is shown again
  }
  jobs.end(JobId{1'000});  // it never had a value
  EXPECT_EQ(jobs.size(), 3 * kMost);
  ASSERT_NE(jobs.look(JobId{1}), nullptr);
  jobs.end(JobId{kMost + 1});
  EXPECT_NE(jobs.look(JobId{1}), nullptr) << "it was looked at";
  EXPECT_EQ(jobs.look(JobId{2}), nullptr);
  jobs.of_running(JobId{3}) = 8;  // goes on, and does not count any more
  for (uint64_t job = kMost + 2; job <= 2 * kMost; ++job) jobs.end(JobId{job});
  ASSERT_NE(jobs.look(JobId{3}), nullptr);
  EXPECT_EQ(*jobs.look(JobId{3}), 8);
  EXPECT_EQ(jobs.size(), 2 * kMost + 1) << "those that run, and the last that ended";
}

TEST(RankTimes, AnEndedJobIsForgottenOnceManyHaveEndedSince) {
  RankTimes times;
  const auto train_and_end = [&](uint64_t job) {
    times.add(JobId{job}, 1'000, 1, {10, 20});
    times.end(JobId{job});
  };
  train_and_end(1);
  EXPECT_EQ(times.of(JobId{1}).size(), 1U);
  for (uint64_t job = 2; job <= 100; ++job) train_and_end(job);
  EXPECT_TRUE(times.of(JobId{1}).empty());
  EXPECT_EQ(times.of(JobId{100}).size(), 1U);
}

}  // namespace
}  // namespace hpctl
