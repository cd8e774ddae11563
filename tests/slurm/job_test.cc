// SPDX-License-Identifier: Apache-2.0
// `hpctl submit` on a real Slurm, and the processes of a job killed one kind at a time: the job
// finishes by itself with the weights of an undisturbed local run.
#include <gtest/gtest.h>

#include "common/base/file.h"
#include "tests/slurm/slurm_test.h"
#include "tests/support/promise.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;

using SlurmJobs = SlurmTest;

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

TEST_F(SlurmJobs, KilledWorkerAndAgent) {
  const SlurmJob spec;
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  ASSERT_TRUE(end_process(worker_pid(before, 2)));
  ASSERT_TRUE(home_.wait_for_step(job, 50, kPatience));
  EXPECT_NE(causes(job, "WorkerExited").find("SIGKILL"), std::string::npos);
  // The agent proper: its holder starts it again, and training does not notice.
  {
    const HeldTraining held = hold(job);
    const json second = status(job);
    ASSERT_TRUE(end_process(node_pid(second, 0, "agent_pid")));
    const auto another_agent = [&] {
      return node_pid(status(job), 0, "agent_pid") != node_pid(second, 0, "agent_pid");
    };
    EXPECT_TRUE(wait_until(home_.directory(), another_agent, kPatience));
    EXPECT_EQ(status(job)["generation"], second["generation"]);
  }
  expect_exact_finish(job, spec);
}

TEST_F(SlurmJobs, KilledController) {
  const SlurmJob spec;
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  {
    const HeldTraining held = hold(job);
    const auto pid = before["controller"]["pid"].get<pid_t>();
    ASSERT_TRUE(end_process(pid));
    const auto another = [&] {
      const json now = status(job);
      return now["controller"]["pid"] != pid && now["state"] == "RUNNING";
    };
    EXPECT_TRUE(wait_until(home_.directory(), another, kPatience)) << diagnosis(job);
  }
  expect_exact_finish(job, spec);
  EXPECT_EQ(status(job)["generation"], before["generation"]) << "training was disturbed";
}

// A plan waits as long as the queue lasts, and begins with the first step.
TEST_F(SlurmJobs, SubmitCarriesOutAPlanOfFaults) {
  const std::string plan = home_.directory() + "/plan.yaml";
  ASSERT_TRUE(write_file_atomic(plan,
                                "seed: 7\n"
                                "faults:\n"
                                "  - {fault: kill-worker, rank: 3, at_step: 20}\n"
                                "  - {fault: kill-holder}\n"
                                "  - {fault: cut-agent}\n"
                                "  - {fault: cut-peers}\n")
                  .ok());
  const auto chaos =
      submit(SlurmJob{.training = {.name = "attacked", .steps = 1000000}}, {"--chaos", plan});
  EXPECT_EQ(chaos.exit_code, 0) << chaos.out << chaos.err;
  const json report = json::parse(chaos.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << chaos.out << chaos.err;
  const JobId job{report["job"].get<uint64_t>()};
  jobs_.push_back(job);
  ASSERT_EQ(report["faults"].size(), 4U) << report.dump(1);
  for (const json& fault : report["faults"]) {
    const std::string name = fault["fault"];
    EXPECT_EQ(fault["blame"], name.starts_with("kill-") ? "right" : "not due") << fault.dump(1);
  }
  EXPECT_EQ(report["totals"]["recall"], 1.0) << diagnosis(job);
  EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "CANCELLED");
  const auto ledger = home_.hpctl({"checkpoint", "ledger", home_.paths().default_checkpoints(job)});
  EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err << broken_promise("ledger");
  const auto gone = [&] { return slurm_state(job).empty(); };
  EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(job);
}

TEST_F(SlurmJobs, CancelByHpctlAndByScancel) {
  for (const bool by_slurm : {false, true}) {
    const JobId job = start(SlurmJob{.training = {.name = "endless", .steps = 1000000}});
    ASSERT_FALSE(HasFailure());
    if (by_slurm) {
      slurm({"scancel", to_string(job)});
    } else {
      EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
    }
    const auto gone = [&] { return slurm_state(job).empty(); };
    EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(job);
    EXPECT_EQ(status(job)["state"], "CANCELLED");
    for (const char* node : {"n1", "n2"}) expect_only_slurmd_on(node);
  }
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
