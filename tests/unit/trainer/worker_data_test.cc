// SPDX-License-Identifier: Apache-2.0
// Whole workers on blends, parts and documents: what is evaluated, and that it leaves no trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/job/lineage.h"
#include "tests/support/promise.h"
#include "tests/unit/data/answer_data.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/checkpoint/ledger_check.h"
#include "trainer/data/ledger.h"

namespace hpctl {
namespace {

using ::testing::Each;
using testing::Job;

// "validation_loss" or "test_loss".
std::vector<double> losses_of(const Job& job, const char* key) {
  std::vector<double> losses;
  for (const auto& line : job.metrics()) {
    if (line.contains(key)) losses.push_back(line[key]);
  }
  return losses;
}

// A blend of two directories of ten documents each, every fifth of them for validation.
void use_blend(Job& job) {
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(make_directories(job / name).ok());
    for (int file = 0; file < 10; ++file) {
      std::ofstream text(job / name + "/" + std::to_string(file));
      for (int i = 0; i < 60; ++i)
        text << name << " says " << i * file % 17 << " and " << i << "\n";
    }
  }
  job.workload.train.data.path = "";
  job.workload.train.data.blend = {{job / "a", 2}, {job / "b", 1}};
  job.workload.train.data.split = {8, 2, 0};
  job.workload.train.validation.sequences = 5;  // not a multiple of two workers
}

TEST(Worker, ValidationIsTheSameForEveryWorldSizeAndLeavesNoTrace) {
  Job without(2);
  use_blend(without);
  ASSERT_THAT(without.run(), Each(kExitFinished)) << without.messages();
  EXPECT_TRUE(losses_of(without, "validation_loss").empty());
  std::vector<std::vector<double>> losses;
  for (const int world_size : {1, 2}) {
    Job job(world_size);
    use_blend(job);
    job.workload.train.validation.every_steps = 3;
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    losses.push_back(losses_of(job, "validation_loss"));
    if (world_size == 1) continue;
    EXPECT_EQ(job.digest("step-8.g1"), without.digest("step-8.g1")) << broken_promise("digest");
  }
  ASSERT_EQ(losses[0].size(), 3U) << "after steps 3 and 6, and after the last";
  EXPECT_LT(losses[0].back(), losses[0].front());
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses[1][i], losses[0][i], 1e-4);
}

TEST(Worker, TheTestPartIsEvaluatedOnceAtTheEnd) {
  std::vector<double> losses;
  for (const int world_size : {1, 2}) {
    Job job(world_size);
    use_blend(job);
    job.workload.train.data.split = {8, 1, 1};
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    ASSERT_EQ(losses_of(job, "test_loss").size(), 1U);
    EXPECT_TRUE(losses_of(job, "validation_loss").empty()) << "not asked for";
    const auto line = job.metrics().back();
    EXPECT_EQ(line["step"], 8);
    EXPECT_GT(line["sequences"], 10);
    losses.push_back(line["test_loss"]);
    EXPECT_NEAR(line["perplexity"], std::exp(losses.back()), 1e-9);
    if (world_size == 1) continue;
    job.resume("step-8.g1", 8);
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    EXPECT_EQ(losses_of(job, "test_loss"), std::vector<double>(2, losses.back()))
        << "what was durable is evaluated again";
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-4);
}

TEST(Worker, PartsAreEvaluatedWholeForEveryMicroBatch) {
  std::vector<nlohmann::json> lines;
  for (const int64_t micro : {1, 4, 8}) {
    Job job(1);
    use_blend(job);
    job.workload.train.data.split = {8, 1, 1};
    job.workload.train.batch.global = 8;
    job.workload.train.batch.micro = micro;
    job.workload.train.steps = 1;
    job.workload.train.validation = {.every_steps = 1, .sequences = 0};
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    for (const auto& line : job.metrics()) {
      if (line.contains("perplexity")) lines.push_back(line);
    }
  }
  ASSERT_EQ(lines.size(), 6U);
  ASSERT_NE(lines[0]["sequences"].get<int>() % 8, 0) << "the last micro-batch is smaller";
  for (size_t i = 2; i < lines.size(); ++i) {
    const char* loss = i % 2 == 0 ? "validation_loss" : "test_loss";
    EXPECT_EQ(lines[i]["sequences"], lines[i % 2]["sequences"]);
    EXPECT_NEAR(lines[i][loss], lines[i % 2][loss], 1e-4);
  }
}

TEST(Worker, DocumentsAreKeptApartForEveryWorldSize) {
  std::vector<std::vector<double>> losses;
  for (const int world_size : {1, 2}) {
    Job job(world_size);
    use_blend(job);
    job.workload.train.data.seq_len = 96;
    job.workload.train.data.mask = DocumentMask::kDocuments;
    job.workload.train.validation.every_steps = 8;
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    losses.push_back(losses_of(job, "validation_loss"));
    losses.back().push_back(job.metrics().front()["loss"]);
  }
  for (const double loss : losses[0]) EXPECT_GT(loss, 2.0) << "a mean over what is counted";
  Job across(1);
  use_blend(across);
  across.workload.train.data.seq_len = 96;
  ASSERT_THAT(across.run(), Each(kExitFinished)) << across.messages();
  EXPECT_NEAR(losses[1][0], losses[0][0], 1e-4);
  EXPECT_NEAR(losses[1][1], losses[0][1], 1e-5);
  EXPECT_NE(across.metrics().front()["loss"], losses[0][1]);
}

void use_answers(Job& job) {
  test::put_answers(job / "sums", test::sums(400));
  job.workload.train.data.path = job / "sums";
  job.workload.train.data.format = DataFormat::kSft;
  job.workload.train.batch.global = 12;
}

TEST(Worker, AnswersAreLearntAlikeOnAnyRanksInAnyMicroBatches) {
  Job one(1, use_answers);
  const auto expected = one.metrics();
  ASSERT_EQ(expected.size(), 8U);
  EXPECT_EQ(expected[0]["tokens"], 12 * 32);
  EXPECT_LT(expected[0]["loss_tokens"], 12 * 32 / 2) << "most is prompts";
  EXPECT_LT(expected.back()["loss"], expected.front()["loss"]) << "it learns";
  for (const auto& [world, micro] : {std::pair{2, 1}, {3, 4}}) {
    Job job(world);
    use_answers(job);
    job.workload.train.batch.micro = micro;
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    const auto metrics = job.metrics();
    ASSERT_EQ(metrics.size(), 8U);
    std::vector<uint64_t> counted(9);
    const auto ledger = read_ledger(job.workload.ledger_dir);
    ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
    for (const LedgerEntry& entry : *ledger) counted.at(entry.step) += entry.counted.value();
    for (size_t step = 0; step < 8; ++step) {
      const double loss = expected[step]["loss"];
      EXPECT_NEAR(metrics[step]["loss"], loss, 2e-4 * loss) << step;
      EXPECT_EQ(metrics[step]["loss_tokens"], expected[step]["loss_tokens"]) << step;
      EXPECT_EQ(counted[step + 1], metrics[step]["loss_tokens"]) << step;
    }
    const double norm = expected[0]["grad_norm"];
    EXPECT_NEAR(metrics[0]["loss"], expected[0]["loss"], 1e-5);
    EXPECT_NEAR(metrics[0]["grad_norm"], norm, 1e-5 * norm);
  }
}

TEST(Worker, AnswersGoOnBitForBit) {
  Job job(2, use_answers);
  const std::string digest = job.digest("step-8.g1");
  job.resume("step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), digest) << broken_promise("digest");
}

// Counts how often a file is opened. The kernel tells of like events in a row once, so that reads
// are watched too: they lie between the openings of one process.
class Openings {
 public:
  explicit Openings(const std::string& path) : events_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    EXPECT_GE(inotify_add_watch(events_.get(), path.c_str(), IN_OPEN | IN_ACCESS), 0) << path;
  }

  int count() const {
    std::vector<char> bytes(1 << 16);
    const ssize_t size = ::read(events_.get(), bytes.data(), bytes.size());
    int openings = 0;
    for (ssize_t at = 0; at < size;) {
      inotify_event event{};
      std::memcpy(&event, bytes.data() + at, sizeof event);
      openings += (event.mask & IN_OPEN) != 0 ? 1 : 0;
      at += static_cast<ssize_t>(sizeof event) + event.len;
    }
    return openings;
  }

 private:
  UniqueFd events_;
};

TEST(Worker, AnIndexIsOpenedOnce) {
  Job job(1);
  use_answers(job);
  job.workload.train.data.split = {8, 2, 0};
  job.workload.train.validation.sequences = 4;
  job.workload.train.validation.every_steps = 4;
  const Openings index(job / "sums.idx");
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(losses_of(job, "validation_loss").size(), 2U);
  EXPECT_EQ(index.count(), 1) << "by every epoch and evaluation again";
}

// Steps of 4, 4, 4, 4, 4, 8, 8, 8 samples; after the third, four ranks go on for two.
TEST(Worker, TheLedgerIsExactWhenRanksChangeWithinABlendAndARamp) {
  Job job(2);
  use_blend(job);
  job.workload.train.batch = {.micro = 1, .global = 8, .ramp = {{20, 4}}};
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const double loss = job.metrics().back()["loss"];
  // What the controller does before it starts a generation.
  GenerationRecord record;
  record.generation = 1;
  ASSERT_TRUE(create_generation(job.workload.checkpoint_dir, record).ok());
  record.generation = 2;
  record.parent = 1;
  record.start_step = 3;
  record.checkpoint = "step-3.g1";
  ASSERT_TRUE(create_generation(job.workload.checkpoint_dir, record).ok());
  job.resume("step-3.g1", 3);
  job.workload.world_size = 4;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_NEAR(job.metrics().back()["loss"], loss, 1e-4);
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  EXPECT_EQ(ledger->cursor, 44U) << broken_promise("ledger");
}

// Shares of 1, 1 and 2 samples: two ranks have a second micro-batch without a sample.
TEST(Worker, ThreeRanksGoOnForFourWithTheSameSamplesAndLosses) {
  Job job(4);
  use_blend(job);
  job.workload.train.data.mask = DocumentMask::kDocuments;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const auto of_four = job.metrics();
  ASSERT_EQ(of_four.size(), 8U);
  GenerationRecord record;
  record.generation = 1;
  ASSERT_TRUE(create_generation(job.workload.checkpoint_dir, record).ok());
  record.generation = 2;
  record.parent = 1;
  record.start_step = 3;
  record.checkpoint = "step-3.g1";
  ASSERT_TRUE(create_generation(job.workload.checkpoint_dir, record).ok());
  job.resume("step-3.g1", 3);
  job.workload.world_size = 3;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const auto lines = job.metrics();
  ASSERT_EQ(lines.size(), 13U);
  for (size_t i = 8; i < lines.size(); ++i) {
    const double loss = of_four[i - 5]["loss"];
    const double norm = of_four[i - 5]["grad_norm"];
    EXPECT_NEAR(lines[i]["loss"], loss, 1e-5 * loss) << "step " << lines[i]["step"];
    EXPECT_NEAR(lines[i]["grad_norm"], norm, 1e-4 * norm) << "step " << lines[i]["step"];
  }
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  EXPECT_EQ(ledger->cursor, 32U) << broken_promise("ledger");
}

}  // namespace
}  // namespace hpctl
