// SPDX-License-Identifier: Apache-2.0
// hpctl chaos in this process, against a scripted controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "common/base/json.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using test::CommandRun;
using test::run_hpctl;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobStatus attackable() {
  v1::JobStatus job = running_job(1, "quick");
  job.set_chaos(true);
  return job;
}

// `ms` after the fault.
v1::Event consequence(int64_t ms, const std::string& type, const std::string& node, int32_t rank) {
  v1::Event e = event(0, type, "why");
  e.set_wall_ms(1'763'700'000'000 + ms);
  e.set_node(node);
  e.set_rank(rank);
  return e;
}

class ChaosVerb : public ::testing::Test {
 protected:
  std::string plan(const std::string& text) const {
    const std::string path = home_.directory() + "/plan.yaml";
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return path;
  }
  ScopedHome home_;
  ScriptedController controller_{home_.paths()};
};

TEST_F(ChaosVerb, ReportsEachFaultAndTheTotals) {
  controller_.jobs = {attackable()};
  controller_.history = {event(5, "JobRunning", "generation 1 completed step 1")};
  controller_.consequences = {consequence(31, "WorkerExited", "n0", 0),
                              consequence(31, "JobRecovering", "n0", 0),
                              consequence(200, "JobRunning", "", -1)};
  const std::string file = plan("seed: 9\nfaults: [{fault: kill-worker, at_step: 34}]\n");
  const CommandRun run = run_hpctl({"chaos", "quick", "--plan", file});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_THAT(controller_.orders(), ElementsAre("inject kill-worker 0 n0"));
  EXPECT_THAT(run.out,
              HasSubstr("2025-11-21T04:40:00.000Z  kill-worker         rank 0 on n0    yes    "
                        "rank 0, right         0.031 s   0.200 s   0\n"));
  EXPECT_THAT(run.out, HasSubstr("1 fault of 1 injected, seed 9\n"
                                 "  recall      100.00 %: 1 of 1 found\n"
                                 "  precision   100.00 %: 1 of 1 blamed rightly, 0 blamed on "
                                 "nobody\n"));
  const CommandRun again = run_hpctl({"chaos", "quick", "--plan", file, "--json"});
  const auto document = nlohmann::json::parse(again.out);
  EXPECT_EQ(document["faults"][0]["blame"], "right");
  EXPECT_EQ(document["faults"][0]["noticed_ms"], 31);
  EXPECT_EQ(document["faults"][0]["back_ms"], 200);
  EXPECT_EQ(document["totals"]["recall"], 1.0);
  EXPECT_EQ(document["state"], "RUNNING");
}

TEST_F(ChaosVerb, WhoDoesNotAllowItIsNotAttacked) {
  controller_.jobs = {running_job(1, "quick")};
  const CommandRun run = run_hpctl({"chaos", "1", "--faults", "kill-worker", "--every", "1ms"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("does not say debug: {chaos: true}; submit it again with that"));
  EXPECT_THAT(controller_.orders(), IsEmpty());
}

TEST_F(ChaosVerb, EverythingIsCheckedBeforeTheFirstFault) {
  controller_.jobs = {attackable()};
  const std::string misfit =
      plan("faults: [{fault: kill-worker}, {fault: kill-worker, rank: 7}]\n");
  const CommandRun unfit = run_hpctl({"chaos", "1", "--plan", misfit});
  EXPECT_EQ(unfit.status, kExitUsage);
  EXPECT_THAT(unfit.err, HasSubstr("plan.yaml:1: faults[1]: job 1 has no rank 7"));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"chaos", "1"},
        {"chaos", "1", "--faults", "kill-everything"},
        {"chaos", "1", "--faults", ""},
        {"chaos", "1", "--faults", "kill-worker", "--every", "soon"},
        {"chaos", "1", "--faults", "kill-worker", "--count", "0"},
        {"chaos", "1", "--faults", "kill-worker", "--plan", misfit},
        {"chaos", "1", "--plan", misfit, "--count", "3"},
        {"chaos", "1", "--plan", home_.directory() + "/absent.yaml"},
        {"chaos", "1", "--plan", home_.directory()}}) {
    const CommandRun wrong = run_hpctl(words);
    EXPECT_EQ(wrong.status, kExitUsage) << wrong.err;
    EXPECT_NE(wrong.err, "");
  }
  EXPECT_THAT(controller_.orders(), IsEmpty());
}

TEST_F(ChaosVerb, ARefusedFaultIsToldAndTheNextOneTried) {
  controller_.jobs = {attackable()};
  controller_.inject_status = {grpc::StatusCode::FAILED_PRECONDITION,
                               "kill-worker was not injected: no worker of rank 0 runs now"};
  const std::string file = plan("faults: [{fault: kill-worker}, {fault: kill-worker}]\n");
  const CommandRun run = run_hpctl({"chaos", "1", "--plan", file});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.out, HasSubstr("no worker of rank 0 runs now"));
  EXPECT_THAT(run.out, HasSubstr("0 faults of 2 injected"));
}

// With the controller the answer dies; its history tells.
TEST_F(ChaosVerb, ALostAnswerIsLookedUpInTheHistory) {
  controller_.jobs = {attackable()};
  controller_.inject_status = {grpc::StatusCode::UNAVAILABLE, "gone"};
  controller_.consequences = {consequence(700, "AgentRegistered", "n0", -1)};
  controller_.on_get_job = [this] { controller_.jobs[0].set_step(controller_.jobs[0].step() + 1); };
  const CommandRun run =
      run_hpctl({"chaos", "1", "--plan", plan("faults: [{fault: kill-controller}]\n"), "--json"});
  EXPECT_EQ(run.status, kExitOk) << run.out;
  const auto document = nlohmann::json::parse(run.out);
  EXPECT_EQ(document["faults"][0]["back_ms"], 700);
  EXPECT_EQ(document["totals"]["precision"], nullptr);
}

TEST_F(ChaosVerb, WhatIsNotSurvivedInTimeEndsTheRun) {
  controller_.jobs = {attackable()};
  controller_.consequences = {consequence(31, "JobRecovering", "n0", 0)};
  const std::string file =
      plan("recover_within: 1s\nfaults: [{fault: kill-worker}, {fault: kill-worker}]\n");
  const CommandRun run = run_hpctl({"chaos", "1", "--plan", file});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.out, HasSubstr("  not back within 1 s\n"));
  EXPECT_THAT(run.out, HasSubstr("1 fault of 2 injected"));
  EXPECT_THAT(controller_.orders(), ElementsAre("inject kill-worker 0 n0"));
}

TEST_F(ChaosVerb, AnInterruptEndsTheRunWithTheReportSoFar) {
  controller_.jobs = {attackable()};
  controller_.calls_before_hook = 3;
  controller_.on_get_job = [] { ::kill(::getpid(), SIGINT); };
  const CommandRun run = run_hpctl({"chaos", "1", "--faults", "kill-worker", "--every", "1h"});
  EXPECT_EQ(run.status, kExitInterrupted);
  EXPECT_THAT(run.out, HasSubstr("0 faults of 1 injected, seed 1; interrupted"));
  EXPECT_THAT(controller_.orders(), IsEmpty());
}

TEST_F(ChaosVerb, TheEndOfTheJobEndsTheRun) {
  controller_.jobs = {attackable()};
  controller_.polls_until_end = 4;
  const CommandRun run = run_hpctl({"chaos", "1", "--faults", "kill-worker", "--every", "1h"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.out, HasSubstr("the job ended before, FINISHED"));
}

}  // namespace
}  // namespace hpctl::testing
