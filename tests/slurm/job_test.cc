// SPDX-License-Identifier: Apache-2.0
// `hpctl submit` on a real Slurm: a job that nobody disturbs, one that loses each kind of process,
// and the ends that a job can have.
#include <gtest/gtest.h>

#include "common/base/file.h"
#include "tests/slurm/slurm_test.h"
#include "tests/support/promise.h"
#include "tests/support/scoped_variable.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;

class SlurmJobs : public SlurmTest {
 protected:
  // The numbers of the job's events of this type, in their order.
  std::vector<uint64_t> seqs_of(JobId job, const std::string& type) const {
    std::vector<uint64_t> seqs;
    for (const json& event : home_.events(job)) {
      if (event["type"] == type) seqs.push_back(event["seq"].get<uint64_t>());
    }
    return seqs;
  }
};

TEST_F(SlurmJobs, SubmitTrainFinish) {
  const SlurmJob spec;
  const auto result = submit(spec, {"--wait"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const json status = json::parse(result.out, nullptr, false);
  ASSERT_FALSE(status.is_discarded()) << result.out;
  const JobId job{std::stoull(status["job"].is_string() ? status["job"].get<std::string>()
                                                        : status["job"].dump())};
  jobs_.push_back(job);
  expect_exact_finish(job, spec);
  EXPECT_EQ(status["generation"], 1);
  EXPECT_EQ(status["restarts"], 0);
  // Answered by what the job left, with no controller.
  EXPECT_EQ(home_.status(job)["state"], "FINISHED");
  EXPECT_FALSE(home_.events(job).empty());
  for (const char* node : {"n1", "n2"}) expect_only_slurmd_on(node);
}

// A plan waits as long as the queue lasts, and begins with the first step.
TEST_F(SlurmJobs, SubmitCarriesOutAPlanOfFaults) {
  const std::string plan = home_.directory() + "/plan.yaml";
  ASSERT_TRUE(write_file_atomic(plan,
                                "seed: 7\n"
                                "faults:\n"
                                "  - {fault: kill-agent, at_step: 20}\n"
                                "  - {fault: kill-controller}\n"
                                "  - {fault: kill-worker, rank: 3}\n"
                                "  - {fault: kill-holder}\n"
                                "  - {fault: cut-agent}\n"
                                "  - {fault: cut-peers}\n")
                  .ok());
  // What the submitter's shell has for other steps changes none of the job's (its own and those
  // that the controller starts later).
  const ScopedVariable cpus("SRUN_CPUS_PER_TASK", "64");
  const ScopedVariable memory("SLURM_MEM_PER_CPU", "900000");
  const auto chaos =
      submit(SlurmJob{.training = {.name = "attacked", .steps = 1000000}}, {"--chaos", plan});
  EXPECT_EQ(chaos.exit_code, 0) << chaos.out << chaos.err;
  const json report = json::parse(chaos.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << chaos.out << chaos.err;
  const JobId job{report["job"].get<uint64_t>()};
  jobs_.push_back(job);
  ASSERT_EQ(report["faults"].size(), 6U) << report.dump(1);
  for (const json& fault : report["faults"]) {
    const bool to_blame = fault["fault"] == "kill-worker" || fault["fault"] == "kill-holder";
    EXPECT_EQ(fault["blame"], to_blame ? "right" : "not due") << fault.dump(1);
  }
  EXPECT_EQ(report["totals"]["recall"], 1.0) << diagnosis(job);
  // Training does not notice the loss of an agent or of the controller.
  const auto recoveries = seqs_of(job, "JobRecovering");
  ASSERT_FALSE(recoveries.empty());
  EXPECT_GT(recoveries.front(), report["faults"][2]["seq"].get<uint64_t>()) << diagnosis(job);
  EXPECT_NE(causes(job, "WorkerExited").find("SIGKILL"), std::string::npos);
  // Whatever one may ask about a job that runs.
  for (const char* verb : {"status", "why", "events", "nodes", "goodput", "open"}) {
    const auto said = home_.hpctl({verb, to_string(job)});
    EXPECT_EQ(said.exit_code, 0) << verb << ": " << said.out << said.err;
  }
  EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "CANCELLED");
  const auto ledger = home_.hpctl({"checkpoint", "ledger", home_.paths().default_checkpoints(job)});
  EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err << broken_promise("ledger");
  const auto gone = [&] { return slurm_state(job).empty(); };
  EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(job);
  const auto ended = slurm({"scontrol", "show", "job", to_string(job)}).out;
  EXPECT_NE(ended.find("JobState=CANCELLED"), std::string::npos) << ended;
  for (const char* node : {"n1", "n2"}) expect_only_slurmd_on(node);
}

TEST_F(SlurmJobs, CancelByScancel) {
  const JobId job = start(SlurmJob{.training = {.name = "endless", .steps = 1000000}});
  ASSERT_FALSE(HasFailure());
  slurm({"scancel", to_string(job)});
  const auto gone = [&] { return slurm_state(job).empty(); };
  EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(job);
  EXPECT_EQ(status(job)["state"], "CANCELLED");
  for (const char* node : {"n1", "n2"}) expect_only_slurmd_on(node);
}

// As Slurm signals the steps of a job that it preempts. The nodes were taken for lost.
TEST_F(SlurmJobs, SigtermToAllStepsEndsTheJobInOrder) {
  const JobId job = start(SlurmJob{.training = {.name = "endless", .steps = 1000000}});
  ASSERT_FALSE(HasFailure());
  slurm({"scancel", "--signal=TERM", to_string(job)});
  const auto gone = [&] { return slurm_state(job).empty(); };
  EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(job);
  EXPECT_EQ(status(job)["state"], "CANCELLED") << diagnosis(job);
  EXPECT_TRUE(seqs_of(job, "JobRecovering").empty()) << diagnosis(job);
  for (const char* node : {"n1", "n2"}) expect_only_slurmd_on(node);
}

TEST_F(SlurmJobs, TwoAtOnceOneOfThemAtItsTimeLimit) {
  const std::string checkpoints = home_.directory() + "/checkpoints";
  const SlurmJob endless{.training = {.name = "endless", .steps = 1000000},
                         .slurm = "{partition: other, time: 5}",
                         .checkpoint_dir = checkpoints};
  const JobId limited = start(endless, 1);
  const SlurmJob spec;
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  end_soon(limited);
  ASSERT_FALSE(HasFailure());
  expect_exact_finish(job, spec);
  const auto gone = [&] { return slurm_state(limited).empty(); };
  EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(limited);
  // It was warned in time and has saved all that it had; Slurm has the script's exit status 1.
  const json after = status(limited);
  EXPECT_EQ(after["state"], "TIMEOUT") << after;
  const auto ended = slurm({"scontrol", "show", "job", to_string(limited)}).out;
  EXPECT_NE(ended.find("JobState=FAILED"), std::string::npos) << ended;
  EXPECT_NE(ended.find("ExitCode=1:0"), std::string::npos) << ended;
  const json saved = json::parse(home_.hpctl({"checkpoint", "show", checkpoints, "--json"}).out);
  const auto reached = after["step"].get<uint64_t>();
  EXPECT_EQ(saved["step"], reached) << causes(limited, "JobTimeout");
  // The same again goes on from there.
  const JobId next = start(endless, reached + 1);
  EXPECT_EQ(home_.hpctl({"cancel", to_string(next)}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(next, kPatience), "CANCELLED");
  const json last = json::parse(home_.hpctl({"checkpoint", "show", checkpoints, "--json"}).out);
  EXPECT_GT(last["step"], reached);
  EXPECT_EQ(last["parent"], saved["generation"]);
}

}  // namespace
}  // namespace hpctl::testing
