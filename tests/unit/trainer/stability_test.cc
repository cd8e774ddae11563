// SPDX-License-Identifier: Apache-2.0
// Steps that are unfit: the judgement by itself, and whole workers that leave samples out, go back,
// stop, or find that a machine computes wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "common/base/file.h"
#include "tests/support/promise.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/checkpoint/ledger_check.h"
#include "trainer/data/sample_order.h"
#include "trainer/optim/stability.h"
#include "trainer/state/rollback.h"

namespace hpctl {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Job;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string problem(const StabilitySpec& spec, const StabilityRecord& record, double loss,
                    double grad_norm) {
  return stability_problem(spec, record, loss, grad_norm).reason;
}

StabilitySpec watching() {
  StabilitySpec spec;
  spec.spikes = true;
  return spec;
}

StabilityRecord steady(size_t steps) {
  StabilityRecord record;
  const StabilitySpec spec = watching();
  for (size_t i = 0; i < steps; ++i) {
    remember_step(spec, record, 2.0 + 0.1 * std::sin(static_cast<double>(i)), 1.0);
  }
  return record;
}

TEST(Stability, NotFiniteIsNeverFit) {
  const StabilitySpec spec;
  EXPECT_EQ(problem(spec, {}, 2.0, 1.0), "");
  EXPECT_THAT(problem(spec, {}, kNan, 1.0), HasSubstr("not finite"));
  EXPECT_THAT(problem(spec, {}, 2.0, HUGE_VAL), HasSubstr("not finite"));
}

TEST(Stability, SpikesStandOutOfTheWindow) {
  const StabilityRecord record = steady(200);
  EXPECT_EQ(record.losses.size(), 128U) << "the window";
  EXPECT_EQ(problem(watching(), record, 2.3, 1.0), "");
  EXPECT_EQ(problem(watching(), record, 0.1, 0.0), "") << "low values are fine";
  EXPECT_THAT(problem(watching(), record, 4.0, 1.0), HasSubstr("loss 4"));
  EXPECT_EQ(problem(watching(), record, 2.0, 1.05), "") << "within 6 % of a flat curve";
  EXPECT_THAT(problem(watching(), record, 2.0, 1.07), HasSubstr("gradient norm 1.07"));
  EXPECT_EQ(problem(StabilitySpec{}, record, 4.0, 1.0), "") << "spikes are off";
}

TEST(Stability, TheFactorIsALimitOfItsOwn) {
  StabilitySpec spec = watching();
  spec.z_score = 1e6;
  spec.factor = 1.5;
  EXPECT_EQ(problem(spec, steady(20), 2.9, 1.0), "");
  EXPECT_NE(problem(spec, steady(20), 3.2, 1.0), "");
}

TEST(Stability, TheFirstStepsAreNoSpikes) {
  EXPECT_EQ(problem(watching(), steady(kFewestSteps - 1), 100.0, 1.0), "");
  EXPECT_NE(problem(watching(), steady(kFewestSteps), 100.0, 1.0), "");
}

// The loss of this rank is not a number when it is computed for the fifth time.
bool fifth_loss_is_wrong() { return setenv("HPCTL_FAILPOINT", "trainer.loss:5", 1) == 0; }
bool seventh_loss_is_wrong() { return setenv("HPCTL_FAILPOINT", "trainer.loss:7", 1) == 0; }

void expect_exact_ledger(const Job& job) {
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, IsEmpty()) << broken_promise("ledger");
}

Manifest manifest_of(const Job& job, const std::string& name) {
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/" + name);
  EXPECT_TRUE(manifest.ok()) << manifest.error().message;
  return manifest.ok() ? *manifest : Manifest{};
}

// What rank 0 told on its page, in order.
std::vector<BadStep> told(const Job& job) {
  std::vector<BadStep> steps;
  const ProgressPage& page = job.workers.front()->page();
  for (uint64_t n = 1; n <= page.bad_steps.load(); ++n) {
    const BadStepSlot& slot = page.bad_step.at(n - 1);
    EXPECT_EQ(slot.number.load(), n);
    steps.push_back({n, slot.step.load(), slot.resumed_step.load(), slot.samples.load(),
                     static_cast<BadStepFinding>(slot.finding.load()),
                     static_cast<BadStepVerdict>(slot.verdict.load()),
                     static_cast<BadStepOutcome>(slot.outcome.load()), slot.blamed_rank.load(),
                     std::string(slot.reason, slot.reason_length.load())});
  }
  return steps;
}

TEST(BadSteps, AreSkippedByAllRanks) {
  Job job(2);
  job.workload.train.stability.policy = BadStepPolicy::kSkip;
  job.workload.checkpoint.every_steps = 6;  // an earlier save would put this off on a slow disk
  job.prepared_rank = 1;
  job.in_child = fifth_loss_is_wrong;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const Manifest manifest = manifest_of(job, "step-8.g1");
  EXPECT_EQ(manifest.skipped, (std::vector<SampleRange>{{16, 20}}));
  EXPECT_EQ(manifest.sample_cursor, 36U);
  EXPECT_EQ(manifest.stability.skips, 1U);
  EXPECT_EQ(job.metrics().size(), 8U);
  expect_exact_ledger(job);
  ASSERT_EQ(told(job).size(), 1U);
  const BadStep bad_step = told(job).front();
  EXPECT_EQ(bad_step.finding, BadStepFinding::kNotFinite);
  EXPECT_EQ(bad_step.outcome, BadStepOutcome::kSkipped);
  EXPECT_EQ(bad_step.step, 5U);
  EXPECT_EQ(bad_step.resumed_step, 4U);
  EXPECT_EQ(bad_step.samples, 4U);
  EXPECT_THAT(bad_step.reason, HasSubstr("loss nan"));
  EXPECT_EQ(job.workers[1]->page().bad_steps.load(), 0U) << "rank 0 speaks for all";

  // What was skipped stays skipped, whoever goes on from where.
  const std::string digest = job.digest("step-8.g1");
  job.in_child = nullptr;
  job.resume("step-6.g1", 6);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), digest) << broken_promise("digest");
}

TEST(BadSteps, RollBackToACheckpoint) {
  Job job(2);
  job.workload.train.stability.policy = BadStepPolicy::kRollback;
  job.workload.train.stability.rollback_steps = 2;
  job.workload.train.stability.skip_steps = 1;
  job.in_child = seventh_loss_is_wrong;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const Manifest manifest = manifest_of(job, "step-8.g1");
  // Step 7 took [24, 28); one batch more was asked for. Back at step 3, whose cursor is 12.
  EXPECT_EQ(manifest.skipped, (std::vector<SampleRange>{{24, 32}}));
  EXPECT_EQ(manifest.sample_cursor, 40U);
  std::vector<uint64_t> steps;
  for (const auto& line : job.metrics()) steps.push_back(line.at("step"));
  EXPECT_EQ(steps, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8}));
  ASSERT_EQ(told(job).size(), 1U);
  EXPECT_EQ(told(job).front().outcome, BadStepOutcome::kRolledBack);
  EXPECT_EQ(told(job).front().resumed_step, 3U);
  EXPECT_EQ(told(job).front().samples, 8U);
  expect_exact_ledger(job);
}

TEST(BadSteps, RollBackToTheSeedWhenThereIsNothingElse) {
  Job job(1);
  job.workload.checkpoint.every_steps = 20;
  job.workload.train.stability.policy = BadStepPolicy::kRollback;
  job.in_child = fifth_loss_is_wrong;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(manifest_of(job, "step-8.g1").skipped, (std::vector<SampleRange>{{16, 20}}));
  EXPECT_EQ(job.metrics().size(), 4U + 8U);
  expect_exact_ledger(job);
}

// The only checkpoint left is less than rollback_steps away.
TEST(BadSteps, RollBackToTheOldestCheckpointRatherThanToTheSeed) {
  Job job(2);
  job.workload.checkpoint.every_steps = 5;
  job.workload.train.stability.policy = BadStepPolicy::kRollback;
  job.workload.train.stability.rollback_steps = 2;
  job.in_child = seventh_loss_is_wrong;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  ASSERT_EQ(told(job).size(), 1U);
  EXPECT_EQ(told(job).front().resumed_step, 5U);
  EXPECT_LT(job.metrics().size(), 6U + 8U) << "not from the seed";
  expect_exact_ledger(job);
}

class RollbackSource : public ::testing::Test {
 protected:
  RollbackSource() {
    workload_.checkpoint_dir = dir_ / "checkpoints";
    workload_.generation = 2;
  }
  std::string add(const std::string& name) {
    const std::string path = workload_.checkpoint_dir + "/" + name;
    EXPECT_TRUE(make_directories(path).ok());
    EXPECT_TRUE(write_file_atomic(path + "/manifest.json", "{}").ok());
    return path;
  }
  void start_from(const std::string& name, uint64_t step) {
    workload_.resume_checkpoint = add(name);
    workload_.start_step = step;
  }
  std::string source(uint64_t target) const {
    const auto found = rollback_source(workload_, target);
    return found.ok() ? found->substr(found->rfind('/') + 1) : found.error().message;
  }

  TemporaryDirectory dir_;
  Workload workload_;
};

TEST_F(RollbackSource, IsTheSeedOnlyWhenNothingElseIsLeft) {
  EXPECT_EQ(source(900), "");
  add("step-1000.g1");
  EXPECT_EQ(source(900), "") << "of another generation";
  add("step-1000.g2");
  add("step-1010.g2");
  EXPECT_EQ(source(900), "step-1000.g2");
  EXPECT_EQ(source(1009), "step-1000.g2");
  EXPECT_EQ(source(1010), "step-1010.g2");
}

TEST_F(RollbackSource, IsTheStartOnlyWhereThatIsNearer) {
  start_from("step-800.g1", 800);
  EXPECT_EQ(source(700), "step-800.g1");
  add("step-49980.g2");
  add("step-49990.g2");
  EXPECT_EQ(source(49900), "step-49980.g2") << "not 49,100 steps back";
  EXPECT_EQ(source(900), "step-800.g1");
  EXPECT_EQ(source(700), "step-800.g1");
  ASSERT_TRUE(remove_tree(workload_.resume_checkpoint).ok());
  EXPECT_EQ(source(900), "step-49980.g2");
}

TEST_F(RollbackSource, IsNothingInMemory) {
  workload_.from_memory = true;
  workload_.start_step = 800;
  const auto found = rollback_source(workload_, 700);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kDataLoss) << "another generation can go back";
  add("step-820.g2");
  EXPECT_EQ(source(700), "step-820.g2");
}

TEST(BadSteps, StopWithAReason) {
  Job job(2);
  job.in_child = fifth_loss_is_wrong;
  EXPECT_THAT(job.run(), Each(1)) << "a restart executes the step again";
  EXPECT_THAT(job.messages(), HasSubstr("step 5: loss nan"));
  ASSERT_EQ(told(job).size(), 1U);
  EXPECT_EQ(told(job).front().outcome, BadStepOutcome::kStopped);
}

TEST(BadSteps, AreBoundedInNumber) {
  Job job(1);
  job.workload.train.stability.policy = BadStepPolicy::kSkip;
  job.workload.train.stability.max_skips = 0;
  job.in_child = fifth_loss_is_wrong;
  EXPECT_THAT(job.run(), Each(kExitDoNotRestart));
  EXPECT_THAT(job.messages(), HasSubstr("max_skips"));
  ASSERT_EQ(told(job).size(), 1U);
  EXPECT_EQ(told(job).front().outcome, BadStepOutcome::kGaveUp);
}

TEST(BadSteps, ExecutedAgainTellTheMachineFromTheData) {
  Job job(2);
  job.workload.node = "n7";
  job.workload.train.stability.policy = BadStepPolicy::kSkip;
  job.workload.train.stability.reexecute = true;
  job.prepared_rank = 1;
  job.in_child = fifth_loss_is_wrong;
  EXPECT_EQ(job.run(), (std::vector<int>{kExitPeerLost, 1})) << "the faulty one is blamed";
  EXPECT_THAT(job.messages(), HasSubstr("rank 1 computed another loss"));
  EXPECT_THAT(job.messages(), HasSubstr("hardware of node n7"));
  ASSERT_EQ(told(job).size(), 1U);
  EXPECT_EQ(told(job).front().verdict, BadStepVerdict::kOtherResult);
  EXPECT_EQ(told(job).front().blamed_rank, 1);
}

// 2^28 over 128 tokens is beyond fp16 already where the loss is differentiated.
void use_fp16(Job& job) {
  job.workload.train.precision = Precision::kFp16;
  job.workload.train.loss_scale = {
      .initial = 1 << 28, .growth_interval = 3, .hysteresis = 2, .min = 1};
}

TEST(LossScale, FollowsOverflowsThatAreNoMatterOfStability) {
  Job job(2);
  use_fp16(job);
  job.workload.train.stability.max_skips = 0;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const Manifest manifest = manifest_of(job, "step-8.g1");
  const LossScaleRecord& record = manifest.loss_scale;
  EXPECT_GT(record.overflows, 3U);
  EXPECT_LT(record.scale, 1U << 28);
  EXPECT_EQ(manifest.stability.skips, 0U);
  EXPECT_EQ(sample_count(manifest.skipped), 4 * record.overflows);
  EXPECT_EQ(manifest.sample_cursor, 4 * (8 + record.overflows)) << "eight steps all the same";
  const auto lines = job.metrics();
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_EQ(lines.back()["loss_scale"], record.scale);
  EXPECT_EQ(lines.back()["overflows"], record.overflows);
  EXPECT_GT(lines.front()["overflows"], 3) << "before the first step that fits";
  EXPECT_GT(lines.back()["overflows"], lines.front()["overflows"]) << "it grows until it overflows";
  EXPECT_LT(lines.front()["grad_norm"], 100) << "without the scale";
  expect_exact_ledger(job);

  // The overflows behind the checkpoint happen again.
  const std::string digest = job.digest("step-8.g1");
  job.resume("step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), digest) << broken_promise("digest");

  // Another precision has no use for it.
  job.resume("step-3.g1", 3);
  job.workload.train.precision = Precision::kFp32;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(manifest_of(job, "step-8.g3").loss_scale, LossScaleRecord{});
}

TEST(LossScale, AnUnfitLossAndAnOverflowAtTheLeastScaleAreLeftToStability) {
  Job job(2);
  use_fp16(job);
  job.workload.train.stability.policy = BadStepPolicy::kSkip;
  job.workload.train.loss_scale.initial = 1024;
  job.prepared_rank = 1;
  job.in_child = fifth_loss_is_wrong;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(manifest_of(job, "step-8.g1").stability.skips, 1U);
  EXPECT_EQ(manifest_of(job, "step-8.g1").loss_scale.overflows, 0U);

  Job low(1);
  use_fp16(low);
  low.workload.train.loss_scale.min = low.workload.train.loss_scale.initial;
  EXPECT_THAT(low.run(), Each(1));
  EXPECT_THAT(low.messages(), HasSubstr("is not finite"));
}

// One passage of noise in an orderly text: the loss of the step that takes it jumps.
TEST(BadSteps, ASpikeInTheDataIsLeftOut) {
  Job job(2);
  TrainSpec& train = job.workload.train;
  constexpr uint64_t kWindows = 400;
  constexpr uint64_t kNoisySample = 150;
  const uint64_t noisy = window_of_sample(train.seed, kWindows, kNoisySample);
  std::ofstream text(train.data.path, std::ios::trunc);
  for (uint64_t i = 0; i <= kWindows * 32; ++i) {
    const uint64_t at = i - noisy * 32;  // wraps around before the noise
    text << static_cast<char>(at >= 2 && at < 30 ? 128 + i * 37 % 101 : "abcd"[i % 4]);
  }
  text.close();
  train.steps = 50;
  train.stability.policy = BadStepPolicy::kSkip;
  train.stability.spikes = true;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const Manifest manifest = manifest_of(job, "step-50.g1");
  EXPECT_EQ(manifest.skipped, (std::vector<SampleRange>{{148, 152}}));
  EXPECT_EQ(manifest.stability.losses.size(), 50U);
  expect_exact_ledger(job);
}

}  // namespace
}  // namespace hpctl
