// SPDX-License-Identifier: Apache-2.0
// What agents and files say that cannot be: it costs at most the job that it is about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/base/plausible.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::HasSubstr;

class Soundness : public ::testing::Test {
 protected:
  void SetUp() override {
    id = shell.submit(small_job("demo"));
    other = shell.submit(small_job("other"));
    shell.settle();
    shell.progress(id, 1);
    shell.progress(other, 1);
  }
  const Job& job() const { return shell.job(id); }
  AgentRegistered registration(uint64_t generation_seen) const {
    AgentRegistered e;
    e.job = id;
    e.node = "n1";
    e.boot_id = shell.node(id, "n1").boot_id;
    e.generation_seen = {generation_seen};
    return e;
  }
  // The job has failed with that reason, and the other one has not noticed.
  void expect_failed(const std::string& reason) const {
    EXPECT_EQ(job().state, JobState::kFailed);
    EXPECT_THAT(job().reason, HasSubstr(reason));
    EXPECT_EQ(shell.job(other).state, JobState::kRunning);
  }

  FakeShell shell;
  JobId id;
  JobId other;
};

TEST_F(Soundness, AGenerationThatNoJobReachesIsRefused) {
  const StepResult result = shell.feed(registration(UINT64_MAX));
  EXPECT_THAT(result.refusal, HasSubstr("generation 18446744073709551615, which no job reaches"));
  EXPECT_EQ(job().directory_generation, Generation{1});
  EXPECT_EQ(job().state, JobState::kRunning);
}

TEST_F(Soundness, TheLastGenerationFailsTheJobAndNotTheController) {
  shell.feed(registration(kMaxGeneration));
  EXPECT_EQ(job().directory_generation, Generation{kMaxGeneration});
  shell.exit_worker(id, 0, 0, 9, 5);
  shell.settle();
  expect_failed("no generation can follow 1000000000000");
}

TEST_F(Soundness, AStoredGenerationThatCannotBeFailsItsJobAtTheNextStart) {
  shell.state.jobs.at(id).directory_generation = {UINT64_MAX};
  shell.restart();
  shell.settle();
  expect_failed("damaged (generation 18446744073709551615)");
}

TEST_F(Soundness, RowsThatLackWhatRulesRelyOnFailTheirJob) {
  const std::vector<std::pair<std::string, std::function<void(State&)>>> damages = {
      {"rank 0 is missing",
       [&](State& s) {
         s.slots.erase({id, Rank{0}});
       }},
      {"rank 3 is apart",
       [&](State& s) {
         s.slots.at({id, Rank{3}}).node = "n0";
       }},
      {"n0 has more than one group",
       [&](State& s) {
         s.slots.at({id, Rank{2}}).node = "n0";
         s.slots.at({id, Rank{3}}).node = "n0";
       }},
      {"node 'n1' that the job does not have",
       [&](State& s) {
         s.nodes.erase({id, "n1"});
       }},
      {"it has no spec", [&](State& s) { s.jobs.at(id).spec = {}; }},
      {"-1 active nodes", [&](State& s) { s.jobs.at(id).active_nodes = -1; }},
      {"ranks outside",
       [&](State& s) {
         s.slots[{id, Rank{4}}].key = {id, Rank{4}};
       }},
      {"for a node 'n9'",
       [&](State& s) {
         const ActionId action{Seq{1}, 99};
         s.outbox[action] = {action, "", EndNode{id, "n9"}};
       }},
      {"generation 0 is to be recorded",
       [&](State& s) {
         const ActionId action{Seq{1}, 99};
         RecordGeneration record;
         record.job = id;
         s.outbox[action] = {action, "", record};
       }},
  };
  const State sound = shell.state;
  for (const auto& [reason, damage] : damages) {
    shell.state = sound;
    damage(shell.state);
    shell.restart();
    shell.settle();
    expect_failed(reason);
  }
}

TEST_F(Soundness, RowsOfNoJobAreLeftOut) {
  shell.state.nodes[{JobId{77}, "n0"}].key = {JobId{77}, "n0"};
  shell.state.slots[{JobId{77}, Rank{0}}].key = {JobId{77}, Rank{0}};
  const ActionId action{Seq{1}, 99};
  shell.state.outbox[action] = {action, "", LaunchNode{JobId{77}, "n0"}};
  EXPECT_EQ(drop_strays(shell.state).size(), 3U);
  EXPECT_TRUE(drop_strays(shell.state).empty());
  shell.restart();
  EXPECT_EQ(job().state, JobState::kRunning);
}

TEST_F(Soundness, AStepPastTheEndIsNotBelieved) {
  const auto last = static_cast<uint64_t>(job().spec.train->steps);
  shell.feed(CheckpointCommitted{id, job().generation, last + 1});
  shell.exit_worker(id, 0, 0, 9, kMaxStep);
  EXPECT_EQ(job().furthest_step, 1U);
}

TEST_F(Soundness, ARecordWhoseMembersCannotBeIsNotAdopted) {
  JobAdopted adoption;
  adoption.job = JobId{42};
  adoption.spec = small_job("adopted");
  adoption.nodes = {"a", "b"};
  adoption.generation = {3};
  const auto members = [](std::vector<std::string> nodes) {
    std::vector<std::pair<Rank, std::string>> made;
    for (const std::string& node : nodes) {
      made.emplace_back(Rank{static_cast<int32_t>(made.size())}, node);
    }
    return made;
  };
  for (const auto& nodes : std::vector<std::vector<std::string>>{
           {"a", "b", "a", "b"}, {"a", "a", "a", "a"}, {"", "", "b", "b"}}) {
    adoption.members = members(nodes);
    EXPECT_THAT(shell.feed(adoption).refusal, HasSubstr("generation 3 is damaged"));
  }
  adoption.members = members({"a", "a", "b", "b"});
  adoption.members[1].first = Rank{0};
  EXPECT_THAT(shell.feed(adoption).refusal, HasSubstr("its ranks are not 0, 1, ..."));
  adoption.members = members({"a", "a", "b", "b"});
  EXPECT_EQ(shell.feed(adoption).refusal, "");
}

}  // namespace
}  // namespace hpctl::core
