// SPDX-License-Identifier: Apache-2.0
// What people and their programs make of a recovery: orders, jobs that are only observed, nodes
// that depart, programs that fail at their start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "common/worker/worker_abi.h"
#include "controller/core/explain.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::HasSubstr;

// An order to quarantine a node sent a job of a hundred nodes back to the queue.
TEST(Orders, ARequeueIsAskedFor) {
  FakeShell shell;
  JobSubmitted submitted;
  submitted.spec = small_job("demo");
  submitted.spec.recovery.on_node_loss = {"spare", "requeue"};
  submitted.uid = 1000;
  submitted.backend.requeues = true;
  shell.feed(submitted);
  const JobId id = shell.state.jobs.begin()->first;
  shell.settle();
  shell.progress(id, 1);
  ASSERT_EQ(shell.job(id).state, JobState::kRunning);
  const auto asked = shell.feed(QuarantineRequested{id, "n1", 1000, "link flaps", 0, true});
  EXPECT_THAT(asked.refusal, HasSubstr("the job would be requeued"));
  EXPECT_THAT(asked.refusal, HasSubstr("--yes"));
  EXPECT_EQ(shell.job(id).state, JobState::kRunning);
  EXPECT_EQ(shell.node(id, "n1").quarantine.by, "");
  const auto told = shell.feed(QuarantineRequested{id, "n1", 1000, "link flaps", 0, false});
  EXPECT_EQ(told.refusal, "");
  EXPECT_EQ(shell.job(id).state, JobState::kRecovering);
}

class Observed : public ::testing::Test {
 protected:
  void SetUp() override {
    JobSpec spec = small_job("demo", true);
    spec.spares = 1;
    spec.recovery.observe = true;
    id = shell.submit(spec);
    shell.settle();
    ASSERT_EQ(shell.job(id).state, JobState::kRunning);
  }
  std::string would() const {
    const auto told = std::find_if(shell.log.rbegin(), shell.log.rend(), [](const LogEntry& entry) {
      return entry.type == "WouldRecover";
    });
    return told == shell.log.rend() ? "" : told->cause;
  }

  FakeShell shell;
  JobId id;
};

TEST_F(Observed, AHangIsLeftAlone) {
  shell.feed(HangDetected{id, shell.job(id).generation, "n1", Rank{2}, "no step"});
  EXPECT_THAT(would(), HasSubstr("all ranks would be restarted: worker 2 on n1 hangs"));
  EXPECT_EQ(shell.job(id).state, JobState::kRunning);
  EXPECT_TRUE(shell.open(ActionKind::kStopWorkers).empty());
  EXPECT_EQ(shell.job(id).restarts, 0);
  const auto chain = explain(shell.log, id);
  EXPECT_EQ(chain.empty() ? "" : chain.back().type, "WouldRecover") << "hpctl why shows it";
}

TEST_F(Observed, ALostNodeEndsTheJobWithWhatWouldHaveBeenDone) {
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "its holder is gone"});
  EXPECT_THAT(would(), HasSubstr("a spare would take the ranks of n1"));
  EXPECT_EQ(shell.job(id).state, JobState::kFailed);
  EXPECT_THAT(shell.job(id).reason, HasSubstr("recovery.observe"));
  EXPECT_TRUE(shell.open(ActionKind::kLaunchNode).empty());
}

TEST_F(Observed, AConsequenceWaitsForItsCause) {
  shell.exit_worker(id, 1, kExitPeerLost, 0, 0, "Connection closed by peer");
  EXPECT_EQ(shell.job(id).state, JobState::kRunning);
  shell.exit_worker(id, 2, 1, 0, 0, "ValueError: bad batch");
  EXPECT_EQ(shell.job(id).state, JobState::kFailed);
  EXPECT_THAT(shell.job(id).reason, HasSubstr("ValueError: bad batch"));
}

TEST(Departure, RanksSaveWithTheWholeGraceBeforeASpareTakesThem) {
  FakeShell shell;
  JobSpec spec = small_job("demo", true);
  spec.spares = 1;
  const JobId id = shell.submit(spec);
  shell.settle();
  ASSERT_EQ(shell.job(id).state, JobState::kRunning);
  shell.feed(NodeDeparts{id, "n1", shell.node(id, "n1").boot_id, "signal 15"});
  const auto stops = shell.open(ActionKind::kStopWorkers);
  ASSERT_EQ(stops.size(), 2U);
  for (const Action* stop : stops) EXPECT_TRUE(std::get<StopWorkers>(stop->body).graceful);
  shell.settle();
  shell.pass(1'000);  // the command has not lasted a minute, so there is a back-off
  shell.settle();
  EXPECT_EQ(shell.job(id).state, JobState::kRunning);
  EXPECT_EQ(shell.slot(id, 3).node, "n2");
  EXPECT_TRUE(shell.node(id, "n1").fault_times_ms.empty());
  EXPECT_THAT(shell.job(id).recent_faults.back().cause, HasSubstr("n1 leaves: it was told to end"));
}

TEST(Departure, WithoutAnythingThatTakesTheRanksTheJobGoesOn) {
  FakeShell shell;
  const JobId id = shell.submit(small_job("demo"));
  shell.settle();
  shell.progress(id, 1);
  shell.feed(NodeDeparts{id, "n1", shell.node(id, "n1").boot_id, "signal 15"});
  EXPECT_EQ(shell.job(id).state, JobState::kRunning);
  EXPECT_EQ(shell.log.back().type, "NotPossible");
  shell.feed(NodeDeparts{id, "n1", "another life", "signal 15"});
  EXPECT_EQ(shell.job(id).state, JobState::kRunning);
}

// Runs a command whose rank 1 exits with 1 and says `words`, until it ends or has exited
// `most` times. Returns how often it exited.
size_t exits_until_end(FakeShell& shell, JobId id, size_t most,
                       const std::function<std::string(size_t)>& words) {
  size_t exits = 0;
  while (exits < most && !has_ended(shell.job(id).state)) {
    shell.settle();
    EXPECT_EQ(shell.job(id).state, JobState::kRunning);
    shell.exit_worker(id, 1, 1, 0, 0, words(exits++));
    shell.settle();
    if (!has_ended(shell.job(id).state)) shell.pass(5'000);
  }
  return exits;
}

// "was ended by code 0", and NodeLost of a node that was left on purpose and given back.
TEST(HistoryTexts, SayWhatWasOrdered) {
  FakeShell shell;
  JobSpec spec = small_job("demo");
  spec.spares = 1;
  const JobId id = shell.submit(spec);
  shell.settle();
  shell.progress(id, 1);
  shell.feed(QuarantineRequested{id, "n1", 1000, "maintenance", 0});
  shell.settle();
  shell.progress(id, 2);
  ASSERT_EQ(shell.slot(id, 2).node, "n2");
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "Slurm took it", true, false});
  WorkerExited exited{};
  exited.job = id;
  exited.node = "n0";
  exited.boot_id = shell.node(id, "n0").boot_id;
  exited.rank = Rank{0};
  exited.generation = shell.job(id).generation;
  exited.pid = shell.slot(id, 0).pid;
  exited.by_request = true;
  shell.feed(exited);
  std::string left;
  std::string ended;
  for (const LogEntry& entry : shell.log) {
    if (entry.type == "NodeLeft") left = entry.cause;
    if (entry.type == "WorkerExited" && entry.seq == shell.state.last_seq) ended = entry.cause;
  }
  EXPECT_EQ(left, "n1 has left the job: Slurm took it");
  EXPECT_THAT(ended, HasSubstr("ended as ordered, with code 0"));
}

TEST(ProgramThatFailsAtStart, SameExceptionEndsItAfterThree) {
  FakeShell shell;
  JobSpec spec = small_job("demo", true);
  spec.spares = 1;
  const JobId id = shell.submit(spec);
  const auto words = [](size_t n) {
    return "ModuleNotFoundError: No module named 'x' (pid " + std::to_string(100 + n) + ")";
  };
  EXPECT_EQ(exits_until_end(shell, id, 9, words), kAlikeExits);
  EXPECT_EQ(shell.job(id).state, JobState::kFailed);
  EXPECT_THAT(shell.job(id).reason,
              HasSubstr("your program fails at start: ModuleNotFoundError: No module named 'x'"));
  EXPECT_THAT(shell.job(id).reason, HasSubstr("no node is suspected"));
  for (const LogEntry& entry : shell.log) EXPECT_NE(entry.type, "NodeQuarantined");
}

TEST(ProgramThatFailsAtStart, DifferentExceptionsHaveOneMoreTry) {
  FakeShell shell;
  const JobId id = shell.submit(small_job("demo", true));
  const auto words = [](size_t n) { return n % 2 == 0 ? "KeyError: 'a'" : "ValueError: b"; };
  EXPECT_EQ(exits_until_end(shell, id, 9, words),
            static_cast<size_t>(kMaxRestartsWithoutProgress) + 1);
  EXPECT_THAT(shell.job(id).reason, HasSubstr("did not last a minute"));
  EXPECT_THAT(shell.job(id).reason, ::testing::Not(HasSubstr("suspect")));
}

}  // namespace
}  // namespace hpctl::core
