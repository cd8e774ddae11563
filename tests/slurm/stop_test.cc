// SPDX-License-Identifier: Apache-2.0
// Jobs of a real Slurm that are told to end at random moments, half of them in an evaluation: the
// last completed step is in a checkpoint, and nothing is left on the nodes. What follows the time
// limit and a preemption is in job_test.cc and preemption_test.cc.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/rng.h"
#include "tests/integration/stopped_job.h"
#include "tests/slurm/slurm_test.h"
#include "tests/support/promise.h"

namespace hpctl::testing {
namespace {

constexpr int kRounds = 2;

struct Stop {
  const char* name;
  std::vector<std::string> command;  // before the job's number; empty = hpctl cancel
};

void PrintTo(const Stop& stop, std::ostream* out) { *out << stop.name; }

class StopOnSlurm : public SlurmTest, public ::testing::WithParamInterface<Stop> {
 protected:
  // It evaluates for about as long as it trains.
  std::string yaml(int round) const {
    SlurmJob job{.training = {.name = "stop" + std::to_string(round),
                              .steps = 1'000'000,
                              .checkpoint_every = 7}};
    job.training.stability = "{}\n    validation: {every_steps: 20, sequences: 300}";
    std::string text = job.yaml();
    const std::string data = "/usr/share/common-licenses/GPL-3,";
    return text.replace(text.find(data), data.size(), texts() + ", split: [1, 1, 0],");
  }
  std::string texts() const { return home_.directory() + "/texts"; }
  void write_texts() const {
    ASSERT_TRUE(make_directories(texts()).ok());
    std::ofstream(texts() + "/0") << std::string(20'000, 'a');
    std::ofstream(texts() + "/1") << std::string(20'000, 'b');
  }
  void stop(JobId job) const {
    std::vector<std::string> command = GetParam().command;
    if (command.empty()) {
      EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
      return;
    }
    command.push_back(to_string(job));
    EXPECT_EQ(slurm(command).exit_code, 0);
  }
};

INSTANTIATE_TEST_SUITE_P(By, StopOnSlurm,
                         ::testing::Values(Stop{"Cancel", {}}, Stop{"Scancel", {"scancel"}},
                                           Stop{"SigtermToSteps", {"scancel", "--signal=TERM"}},
                                           Stop{"SigtermToBatch",
                                                {"scancel", "--batch", "--signal=TERM"}}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(StopOnSlurm, AtAnyMomentLosesNoStep) {
  ASSERT_NO_FATAL_FAILURE(write_texts());
  Rng moments(20261128);
  for (int round = 0; round < kRounds; ++round) {
    const JobId job = start_command(yaml(round), 1);
    ASSERT_FALSE(HasFailure());
    const milliseconds moment(moments.below(2'000));
    wait_until(
        home_.directory(), [] { return false; }, moment);
    stop(job);
    const auto gone = [&] { return slurm_state(job).empty(); };
    EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(job);
    EXPECT_EQ(status(job)["state"], "CANCELLED") << diagnosis(job);
    const uint64_t last = last_step_in(home_.paths().job_metrics(job));
    EXPECT_GT(last, 0U);
    EXPECT_EQ(saved_step_in(home_.paths().default_checkpoints(job)), last)
        << "after " << moment.count() << " ms; " << diagnosis(job) << broken_promise("checkpoint");
    for (const char* node : {"n1", "n2"}) expect_only_slurmd_on(node);
  }
}

}  // namespace
}  // namespace hpctl::testing
