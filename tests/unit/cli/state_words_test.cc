// SPDX-License-Identifier: Apache-2.0
// The state of a job in words.
#include "hpctl/state_words.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr WallTime kToday(1'763'700'000'000);

JobView job_in(const std::string& state) {
  JobView job;
  job.job = 3;
  job.name = "t";
  job.state = state;
  job.step = 40;
  job.total_steps = 100;
  job.submitted_at = kToday.before(60'000);
  return job;
}

std::string words_of(const JobView& job, std::optional<Validation> validation = std::nullopt) {
  return state_in_words(job, validation, true, kToday);
}

TEST(StateWords, AJobThatTrains) {
  JobView job = job_in("RUNNING");
  EXPECT_EQ(words_of(job), "training normally");
  job.step_ms = 1000;
  EXPECT_EQ(words_of(job, Validation{30, 2.5}),
            "training normally, validation loss 2.5000 at step 30, ETA 1m");
  job.margins.emplace();
  job.margins->slow = {"n1"};
  EXPECT_EQ(words_of(job), "training, but n1 holds all others up in every step, ETA 1m");
  job.margins.reset();
  job.total_steps = job.step = 0;
  EXPECT_EQ(words_of(job), "running normally") << "a command that reports no steps";
}

TEST(StateWords, OtherStates) {
  JobView job = job_in("RECOVERING");
  EXPECT_EQ(words_of(job), "recovering from a fault at step 40; there is no checkpoint yet");
  job.checkpoint_step = 30;
  EXPECT_EQ(words_of(job),
            "recovering from a fault at step 40; the newest checkpoint is of step 30");
  EXPECT_EQ(words_of(job_in("PENDING")), "waiting to start");
  EXPECT_EQ(words_of(job_in("FINISHED"), Validation{100, 1.25}),
            "finished at step 40 of 100, validation loss 1.2500 at step 100");
  EXPECT_EQ(words_of(job_in("SUSPENDED")), "suspended: the scheduler has stopped its processes");
  EXPECT_EQ(words_of(job_in("TIMEOUT")), "ended by its time limit at step 40 of 100");
}

TEST(StateWords, ARecordIsNoPresentState) {
  EXPECT_EQ(state_in_words(job_in("RUNNING"), std::nullopt, false, kToday),
            "not known: no controller answers, and this is the last record");
  EXPECT_EQ(state_in_words(job_in("SUSPENDED"), std::nullopt, false, kToday),
            "suspended: the scheduler has stopped its processes")
      << "as Slurm says";
  EXPECT_EQ(state_in_words(job_in("FAILED"), std::nullopt, false, kToday),
            "failed at step 40 of 100");
}

TEST(StateWords, AGoneDirectoryIsNoNormalTraining) {
  const auto words = [](bool is_live) {
    return state_in_words(job_in("RUNNING"), std::nullopt, is_live, kToday, "/home/a/jobs/1");
  };
  EXPECT_EQ(words(true).substr(0, 55), "training, but its directory is gone: /home/a/jobs/1 was");
  EXPECT_EQ(words(false), "not known: its directory is gone, and only Slurm tells of it");
}

TEST(NewestValidation, LiesBehindLaterSteps) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/metrics.jsonl";
  EXPECT_FALSE(newest_validation(path));
  std::string lines;
  for (int step = 1; step <= 30; ++step) {
    lines += "{\"step\":" + std::to_string(step) + ",\"loss\":3}\n";
    if (step % 10 != 0 || step == 30) continue;
    lines += "{\"step\":" + std::to_string(step) + ",\"validation_loss\":2." +
             std::to_string(step) + "}\n";
  }
  ASSERT_TRUE(write_file_atomic(path, lines).ok());
  const auto validation = newest_validation(path);
  ASSERT_TRUE(validation);
  EXPECT_EQ(validation->step, 20U);
  EXPECT_EQ(validation->loss, 2.2);
}

}  // namespace
}  // namespace hpctl
