// SPDX-License-Identifier: Apache-2.0
// Submission, cancellation and the shell's view of Step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::HasSubstr;

TEST(Submit, TheSameKeyIsTheSameJob) {
  FakeShell shell;
  const JobId first = shell.submit(small_job("a"), 1000, "key");
  EXPECT_EQ(shell.submit(small_job("a"), 1000, "key"), first);
  EXPECT_EQ(shell.state.jobs.size(), 1U);
  EXPECT_NE(shell.submit(small_job("b"), 1001, "key"), first) << "keys belong to a user";
}

TEST(Submit, ABadSpecIsRefusedWithItsKey) {
  FakeShell shell;
  JobSpec spec = small_job("a");
  spec.train->batch.global = 3;
  const auto result = shell.feed(JobSubmitted{spec, 1000, ""});
  EXPECT_FALSE(result.submitted.has_value());
  EXPECT_THAT(result.refusal, HasSubstr("workload.train.batch.global"));
  EXPECT_TRUE(shell.state.jobs.empty());
}

TEST(Submit, NameAndDirectoryAreUniqueAmongLiveJobs) {
  FakeShell shell;
  const JobId first = shell.submit(small_job("a"));
  EXPECT_THAT(shell.feed(JobSubmitted{small_job("a"), 1000, ""}).refusal, HasSubstr("name"));
  JobSpec other = small_job("b");
  other.checkpoint.dir = "/ckpt/a";
  EXPECT_THAT(shell.feed(JobSubmitted{other, 1000, ""}).refusal, HasSubstr("checkpoint.dir"));
  shell.feed(CancelRequested{first, 1000});
  EXPECT_EQ(shell.job(first).state, JobState::kCancelled);
  EXPECT_NE(shell.submit(small_job("a")), first);
}

TEST(Submit, RanksAreBoundContiguously) {
  FakeShell shell;
  JobSpec spec = small_job("a");
  spec.nodes = 3;
  spec.train->batch.global = 6;
  const JobId id = shell.submit(spec);
  EXPECT_EQ(shell.slot(id, 0).node, "n0");
  EXPECT_EQ(shell.slot(id, 1).node, "n0");
  EXPECT_EQ(shell.slot(id, 5).node, "n2");
}

TEST(Submit, TheSchedulerMayGiveNumberAndNodes) {
  FakeShell shell;
  JobSpec spec = small_job("a");
  spec.spares = 1;
  const JobId id =
      *shell.feed(JobSubmitted{spec, 1000, "", {2}, {"p5-9", "p5-1", "p5-4"}}).submitted;
  EXPECT_EQ(id, JobId{2});
  EXPECT_EQ(shell.slot(id, 0).node, "p5-9");
  EXPECT_EQ(shell.slot(id, 3).node, "p5-1");
  EXPECT_TRUE(shell.state.nodes.contains({id, "p5-4"})) << "the spare is a node without ranks";
  EXPECT_EQ(shell.submit(small_job("b")), JobId{1});
  EXPECT_EQ(shell.submit(small_job("c")), JobId{3}) << "2 is taken";
}

// A directory that shows no record is an empty mount point, for a job that has written some.
TEST(Submit, RequeuedJobWaitsForTheRecordsThatItWrote) {
  FakeShell shell;
  JobSubmitted submitted{small_job("a"), 1000, "", {2}, {"a", "b"}};
  submitted.totals.generation = Generation{3};
  const JobId id = *shell.feed(submitted).submitted;
  shell.settle();
  EXPECT_EQ(shell.state.jobs.at(id).generation, Generation{3});
  EXPECT_THAT(shell.state.jobs.at(id).reason, HasSubstr("the record of generation 3 is gone"));
  shell.newest_record[id] = 3;
  shell.pass(1'000);
  shell.settle();
  EXPECT_EQ(shell.state.jobs.at(id).generation, Generation{4});
}

TEST(Submit, LemonsAreTheSpares) {
  FakeShell shell;
  JobSpec spec = small_job("a");
  spec.spares = 2;
  JobSubmitted submitted{spec, 1000, "", {2}, {"a", "b", "c", "d"}};
  submitted.lemons = {"a", "elsewhere"};
  submitted.former.excluded = {"b"};
  const JobId id = *shell.feed(submitted).submitted;
  EXPECT_EQ(shell.slot(id, 0).node, "c");
  EXPECT_EQ(shell.slot(id, 3).node, "d");
}

TEST(Submit, ALemonGetsRanksWhereNoOtherNodeIsLeft) {
  FakeShell shell;
  JobSubmitted submitted{small_job("a"), 1000, "", {2}, {"a", "b"}};
  submitted.lemons = {"a"};
  const JobId id = *shell.feed(submitted).submitted;
  EXPECT_EQ(shell.slot(id, 0).node, "b");
  EXPECT_EQ(shell.slot(id, 3).node, "a");
}

TEST(Submit, ABadNumberOrNodeListIsRefused) {
  FakeShell shell;
  const JobId first = shell.submit(small_job("a"));
  const auto refusal = [&](JobId job, const std::vector<std::string>& nodes) {
    return shell.feed(JobSubmitted{small_job("b"), 1000, "", job, nodes}).refusal;
  };
  EXPECT_THAT(refusal(first, {}), HasSubstr("there is a job 1 already"));
  EXPECT_THAT(refusal({}, {"x"}), HasSubstr("expected 2 different names, found 1: x"));
  EXPECT_THAT(refusal({}, {"x", "x"}), HasSubstr("expected 2 different names, found 2: x, x"));
  EXPECT_THAT(refusal({}, {"x", ""}), HasSubstr("expected 2 different names"));
}

TEST(Cancel, NeedsTheOwnerOrRoot) {
  FakeShell shell;
  const JobId id = shell.submit(small_job("a"));
  EXPECT_THAT(shell.feed(CancelRequested{id, 1001}).refusal, HasSubstr("belongs to uid 1000"));
  EXPECT_THAT(shell.feed(CancelRequested{{9}, 1000}).refusal, HasSubstr("no job 9"));
  EXPECT_EQ(shell.feed(CancelRequested{id, 0}).refusal, "");
  EXPECT_THAT(shell.feed(CancelRequested{id, 1000}).refusal, HasSubstr("has ended"));
}

TEST(Remove, NeedsTheOwnerAndACompleteEnd) {
  FakeShell shell;
  const JobId id = shell.submit(small_job("a"));
  EXPECT_THAT(shell.feed(JobRemoved{id, 1000}).refusal,
              HasSubstr("end it first: hpctl cancel " + to_string(id)));
  shell.feed(CancelRequested{id, 1000});
  EXPECT_THAT(shell.feed(JobRemoved{id, 1000}).refusal, HasSubstr("its nodes are still ending"));
  shell.settle();
  EXPECT_THAT(shell.feed(JobRemoved{id, 1001}).refusal, HasSubstr("belongs to uid 1000"));
  EXPECT_EQ(shell.feed(JobRemoved{id, 1000}).refusal, "");
  EXPECT_TRUE(shell.job(id).removed);
  EXPECT_THAT(shell.feed(JobRemoved{id, 0}).refusal, HasSubstr("there is no job"));
}

TEST(Step, MarksEveryChangedRow) {
  // A copy that takes over only what was marked dirty must stay equal to the original.
  static State copy;
  copy = State{};
  FakeShell shell;
  shell.stepper = [](State& state, const Event& event) {
    StepResult result = step(state, event);
    for (const JobId id : result.dirty.jobs) copy.jobs[id] = state.jobs.at(id);
    for (const NodeKey& key : result.dirty.nodes) copy.nodes[key] = state.nodes.at(key);
    for (const SlotKey& key : result.dirty.slots) copy.slots[key] = state.slots.at(key);
    for (const ActionId id : result.dirty.outbox) {
      copy.outbox.erase(id);
      if (state.outbox.contains(id)) copy.outbox[id] = state.outbox.at(id);
    }
    rebuild_index(copy);
    EXPECT_EQ(copy.index, state.index);
    return result;
  };
  const JobId id = shell.submit(small_job("a"));
  shell.settle();
  shell.progress(id, 1);
  shell.exit_worker(id, 1, 0, 9, 5);
  shell.settle();
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "gone"});
  shell.settle();
  shell.pass(60'000);
  shell.settle();
  shell.progress(id, 9);
  for (int32_t rank = 0; rank < 4; ++rank) shell.exit_worker(id, rank, 0, 0, 100);
  shell.settle();
  EXPECT_EQ(shell.job(id).state, JobState::kFinished);
  EXPECT_EQ(copy.jobs.at(id).state, JobState::kFinished);
}

TEST(Step, NothingIsPerformedThatWasWithdrawnInTheSameStep) {
  FakeShell shell;
  const JobId id = shell.submit(small_job("a"));
  shell.settle_one_kind();  // nodes are up, the directory is searched
  const auto result = shell.feed(CancelRequested{id, 1000});
  for (const Action& action : result.actions) EXPECT_TRUE(shell.state.outbox.contains(action.id));
}

TEST(Deadline, IsWhatTheJobSaysAndElseWhatItsBackendSays) {
  FakeShell shell;
  JobSpec spec = small_job("a");
  spec.limits.first_step_ms = 90'000;
  Backend backend;
  backend.limits = cluster_limits(true);
  const JobId id = *shell.feed(JobSubmitted{spec, 1000, "", {}, {}, backend}).submitted;
  EXPECT_EQ(*next_deadline(shell.state), shell.now_ms + cluster_limits(true).launch_ms);
  shell.settle();
  EXPECT_EQ(*next_deadline(shell.state), shell.now_ms + 90'000);
  shell.restart();
  EXPECT_EQ(*next_deadline(shell.state), shell.now_ms + cluster_limits(true).register_ms)
      << "also in the rows of a controller that was started again";
  EXPECT_EQ(shell.job(id).limits.first_step_ms, 90'000);
}

TEST(Deadline, ResumingGivesEverybodyAFreshOne) {
  FakeShell shell;
  const JobId id = shell.submit(small_job("a"));
  shell.settle();
  shell.progress(id, 1);
  shell.feed(AgentDisconnected{id, "n1", shell.node(id, "n1").boot_id});
  shell.now_ms += 60'000;  // nobody was there to see the deadline pass
  shell.restart();
  EXPECT_EQ(shell.job(id).state, JobState::kRunning);
  EXPECT_EQ(*next_deadline(shell.state), shell.now_ms + shell.job(id).limits.register_ms);
  shell.pass(shell.job(id).limits.register_ms);
  EXPECT_EQ(shell.job(id).state, JobState::kRecovering) << "and then they do fire";
}

// The silence of any other is judged outside.
TEST(Deadline, OnlyOneThatANewControllerAwaitsHasToRegisterInTime) {
  FakeShell shell;
  const JobId id = shell.submit(small_job("a"));
  shell.settle();
  shell.progress(id, 1);
  const auto is_suspended_for_a_while = [&] {
    shell.feed(SuspensionChanged{id, true});
    shell.pass(600'000);
    shell.feed(SuspensionChanged{id, false});
  };
  shell.feed(AgentDisconnected{id, "n1", shell.node(id, "n1").boot_id});
  EXPECT_EQ(shell.node(id, "n1").deadline_ms, 0);
  is_suspended_for_a_while();
  EXPECT_EQ(shell.node(id, "n1").deadline_ms, 0);
  shell.restart();
  is_suspended_for_a_while();
  EXPECT_EQ(shell.node(id, "n1").deadline_ms, shell.now_ms + shell.job(id).limits.register_ms);
}

}  // namespace
}  // namespace hpctl::core
