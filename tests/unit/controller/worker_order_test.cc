// SPDX-License-Identifier: Apache-2.0
// Addresses in StartWorkers: where rank 0 is, and where each node's own workers listen.
#include "controller/agents/worker_order.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "common/base/file.h"
#include "common/worker/workload.h"
#include "controller/agents/agent_report.h"
#include "controller/engine/checkpoint_dir_actions.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr JobId kJob{9};

class WorkerOrder : public ::testing::Test {
 protected:
  WorkerOrder() : paths_(directory_.path()) {
    core::Job& job = state_.jobs[kJob];
    job.id = kJob;
    job.spec.name = "t";
    job.spec.nodes = 2;
    job.spec.workers_per_node = 2;
    job.spec.checkpoint.dir = directory_.path() + "/checkpoints";
    EXPECT_TRUE(make_directories(paths_.job(kJob)).ok());
    for (const char* name : {"n0", "n1", "n2"}) {
      const core::NodeKey key{kJob, name};
      state_.nodes[key].key = key;
    }
    for (int rank = 0; rank < 4; ++rank) place(rank, rank < 2 ? "n0" : "n1");
  }
  void place(int rank, const std::string& node) {
    const core::SlotKey key{kJob, Rank{rank}};
    state_.slots[key].key = key;
    state_.slots[key].node = node;
  }
  v1::StartWorkers order(const std::string& node, std::vector<Rank> ranks,
                         uint64_t generation = 3) const {
    const core::Action action{
        {Seq{5}, 0}, "", core::StartWorkers{kJob, node, Generation{generation}, ranks, "", 0}};
    return OrderMaker(paths_, ports_).make(action, state_).start_workers();
  }
  void record() {
    core::RecordGeneration wanted;
    wanted.job = kJob;
    wanted.generation = Generation{3};
    const auto done =
        record_generation({Seq{4}, 0}, wanted, make_record({Seq{4}, 0}, wanted, state_, 1),
                          state_.jobs[kJob].spec.checkpoint.dir, paths_);
    ASSERT_TRUE(std::holds_alternative<core::GenerationRecorded>(done));
  }
  static std::string bind_address(const v1::StartWorkers& order) {
    const auto workload = workload_from_json(order.workload_json());
    return workload.ok() ? workload->bind_address : workload.error().message;
  }

  TemporaryDirectory directory_;
  HomePaths paths_;
  RendezvousPorts ports_;
  core::State state_;
};

TEST_F(WorkerOrder, OnlyTheTrainerGetsADocumentAndStandbys) {
  const v1::StartWorkers command = order("n1", {Rank{2}, Rank{3}});
  EXPECT_EQ(command.workload_json(), "");
  EXPECT_EQ(command.standbys(), 0U);
  state_.jobs[kJob].spec.train.emplace();
  const v1::StartWorkers train = order("n1", {Rank{2}, Rank{3}});
  EXPECT_NE(train.workload_json(), "");
  EXPECT_EQ(train.standbys(), 1U);
}

TEST_F(WorkerOrder, EnvironmentFilesAreNamedAndNotRead) {
  state_.jobs[kJob].spec.env_files = {"/nowhere/a.env", "/nowhere/b.env"};
  const v1::StartWorkers start = order("n1", {Rank{2}, Rank{3}});
  ASSERT_EQ(start.env_files_size(), 2);
  EXPECT_EQ(start.env_files(0), "/nowhere/a.env");
  EXPECT_EQ(start.env_files(1), "/nowhere/b.env");
}

TEST_F(WorkerOrder, HangPatternsOfACommandGoToTheHolder) {
  state_.jobs[kJob].spec.recovery.hang_rules = {{"loss=", 60'000}, {"saved", 3'600'000}};
  const v1::StartWorkers start = order("n1", {Rank{2}, Rank{3}});
  ASSERT_EQ(start.hang_patterns_size(), 2);
  EXPECT_EQ(start.hang_patterns(0), "loss=");
  EXPECT_EQ(start.hang_patterns(1), "saved");
}

TEST_F(WorkerOrder, ASpareOfAJobThatTrainsHasAStandbyForEachRank) {
  core::Job& job = state_.jobs[kJob];
  const core::NodeKey spare{kJob, "n2"};
  for (auto& [key, node] : state_.nodes) node.state = core::NodeState::kUp;
  state_.index.ranks[{kJob, "n0"}] = {Rank{0}, Rank{1}};
  state_.index.ranks[{kJob, "n1"}] = {Rank{2}, Rank{3}};
  job.state = core::JobState::kRecovering;
  EXPECT_FALSE(stands_by(state_, spare)) << "not beside a recovery";
  job.state = core::JobState::kRunning;
  EXPECT_TRUE(stands_by(state_, spare));
  EXPECT_FALSE(stands_by(state_, {kJob, "n0"})) << "it has ranks";

  job.spec.health.preflight = {"net"};
  job.spec.train.emplace();
  const v1::StartWorkers like = make_stand_by(spare, state_, paths_).stand_by().like();
  EXPECT_EQ(like.standbys(), 2U);
  EXPECT_EQ(like.ranks_size(), 0);
  EXPECT_EQ(like.preparation().preflight(0), "net");
  EXPECT_EQ(like.log_dir(), order("n1", {Rank{2}, Rank{3}}).log_dir());
  job.spec.recovery.standbys = 0;
  EXPECT_EQ(make_stand_by(spare, state_, paths_).stand_by().like().standbys(), 0U);
  job.spec.train.reset();
  job.spec.recovery.standby_imports = {"torch"};
  EXPECT_EQ(make_stand_by(spare, state_, paths_).stand_by().like().standbys(), 2U);
}

TEST_F(WorkerOrder, VirtualNodesShareTheLoopback) {
  state_.jobs[kJob].spec.train.emplace();
  const v1::StartWorkers start = order("n1", {Rank{2}, Rank{3}});
  EXPECT_EQ(start.master_addr(), "127.0.0.1");
  EXPECT_EQ(bind_address(start), "127.0.0.1");
  EXPECT_EQ(start.group_rank(), 1);
  EXPECT_EQ(start.group_world_size(), 2);
}

TEST_F(WorkerOrder, TheMasterIsWhereRank0IsNow) {
  state_.jobs[kJob].spec.train.emplace();
  for (const auto& [name, address] : std::map<std::string, std::string>{
           {"n0", "10.0.0.10"}, {"n1", "10.0.0.11"}, {"n2", "10.0.0.12"}}) {
    state_.nodes[{kJob, name}].address = address;
  }
  EXPECT_EQ(order("n1", {Rank{2}, Rank{3}}).master_addr(), "10.0.0.10");
  EXPECT_EQ(bind_address(order("n1", {Rank{2}, Rank{3}})), "10.0.0.11");
  // n0 is lost; the spare n2 takes its ranks.
  place(0, "n2");
  place(1, "n2");
  const v1::StartWorkers master = order("n2", {Rank{0}, Rank{1}});
  EXPECT_EQ(master.master_addr(), "10.0.0.12");
  EXPECT_EQ(bind_address(master), "10.0.0.12");
  EXPECT_EQ(master.group_rank(), 0);
  EXPECT_EQ(order("n1", {Rank{2}, Rank{3}}).master_addr(), "10.0.0.12");
}

TEST_F(WorkerOrder, AllNodesAreToldTheSamePort) {
  record();
  EXPECT_EQ(order("n0", {Rank{0}, Rank{1}}).master_port(), 0U) << "nothing is read for an order";
  ports_.learn(paths_, kJob, Generation{3});
  const v1::StartWorkers first = order("n0", {Rank{0}, Rank{1}});
  EXPECT_NE(first.master_port(), 0U);
  EXPECT_EQ(order("n1", {Rank{2}, Rank{3}}).master_port(), first.master_port());
}

// Workers left over from another generation wait in another directory, and nothing reads what they
// have written there.
TEST_F(WorkerOrder, EveryGenerationMeetsInADirectoryOfItsOwn) {
  state_.jobs[kJob].spec.train.emplace();
  const auto directory = [&](const std::string& node, uint64_t generation) {
    const auto workload = workload_from_json(order(node, {Rank{0}}, generation).workload_json());
    return workload.ok() ? workload->rendezvous_dir : workload.error().message;
  };
  EXPECT_EQ(directory("n0", 3), directory("n1", 3));
  EXPECT_NE(directory("n0", 3), directory("n0", 4));
  EXPECT_NE(directory("n0", 3), directory("n0", 13));
}

// What is kept of the order before is only what this one has as well.
TEST_F(WorkerOrder, AnOrderIsTheSameAfterAnyOther) {
  record();
  ports_.learn(paths_, kJob, Generation{3});
  core::Job& job = state_.jobs[kJob];
  job.spec.train.emplace();
  job.spec.train->data.path = R"(/a "bind_address":"" of data)";
  state_.nodes[{kJob, "n1"}].address = "10.0.0.11\"";
  core::StartWorkers start{kJob, "n1", Generation{3}, {Rank{2}, Rank{3}}, "", 0};
  OrderMaker maker(paths_, ports_);
  std::set<std::string> different;
  const auto compare = [&] {
    const core::Action action{{Seq{5}, 0}, "", start};
    const v1::ControllerMessage order = maker.make(action, state_);
    const v1::ControllerMessage alone = OrderMaker(paths_, ports_).make(action, state_);
    EXPECT_EQ(order.DebugString(), alone.DebugString());
    EXPECT_TRUE(workload_from_json(order.start_workers().workload_json()).ok());
    EXPECT_TRUE(different.insert(order.DebugString()).second) << order.DebugString();
  };
  const std::vector<std::function<void()>> changes = {
      [] {},
      [&] { start.node = "n0"; },
      [&] {
        start.ranks = {Rank{0}, Rank{1}};
      },
      [&] { start.generation = Generation{4}; },
      [&] { start.checkpoint = "step-10.g2"; },
      [&] { start.start_step = 10; },
      [&] { start.checkpoint.clear(); },
      [&] { start.memory_of = Generation{3}; },
      [&] { start.refilled = {Rank{1}}; },
      [&] { start.former_parts = 8; },
      [&] { job.committed_step = 9; },
      [&] { job.restarts = 2; },
      [&] { job.active_nodes = 1; },
      [&] {
        state_.nodes[{kJob, "n0"}].address = "10.0.0.10";
      },
      [&] { place(0, "n2"); },
      [&] { start.generation = Generation{3}; },
      [&] {
        job.recent_faults.push_back({"why", "n0", 0, 9, Seq{8}});
      }};
  for (const auto& change : changes) {
    change();
    compare();
  }
}

// A command may have something to close; the built-in trainer recovers the faster.
TEST_F(WorkerOrder, SurvivorsOfACommandGetATermFirst) {
  const auto grace = [&](bool graceful) {
    const core::StopWorkers stop{kJob, "n0", Generation{3}, graceful};
    return OrderMaker(paths_, ports_)
        .make({{Seq{5}, 1}, "a peer died", stop}, state_)
        .stop_workers()
        .grace_ms();
  };
  JobSpec& spec = state_.jobs[kJob].spec;
  EXPECT_EQ(grace(false), 1'000U);
  spec.recovery.grace_ms = 20'000;
  EXPECT_EQ(grace(false), 20'000U);
  spec.train.emplace();
  EXPECT_EQ(grace(false), 0U);
  EXPECT_EQ(grace(true), local_limits().last_checkpoint_ms);
}

// slurm.signal B:TERM@600: of ten minutes, 35 s are for the end of the nodes and a reserve.
TEST_F(WorkerOrder, AtTheTimeLimitTheLastCheckpointHasTheTimeThatIsLeft) {
  core::Job& job = state_.jobs[kJob];
  job.spec.train.emplace();
  job.spec.slurm.warning_seconds = 600;
  const auto grace = [&] {
    const core::StopWorkers stop{kJob, "n0", Generation{3}, true};
    return OrderMaker(paths_, ports_)
        .make({{Seq{5}, 1}, "the time limit has come", stop}, state_)
        .stop_workers()
        .grace_ms();
  };
  EXPECT_EQ(grace(), 25'000U) << "Slurm's KillWait counts from scancel on, and not slurm.signal";
  job.at_limit = true;
  EXPECT_EQ(grace(), 565'000U);
  job.spec.slurm.warning_seconds = 60;
  EXPECT_EQ(grace(), 25'000U);
  job.spec.slurm.warning_seconds = 600;
  job.spec.limits.last_checkpoint_ms = job.limits.last_checkpoint_ms = 40'000;
  EXPECT_EQ(grace(), 40'000U) << "as the job file says";
}

// Two generations from memory have reached no step: other processes try the memory once more.
TEST_F(WorkerOrder, AfterTwoFruitlessGenerationsWorkersDoNotStay) {
  core::Job& job = state_.jobs[kJob];
  job.spec.train.emplace();
  job.limits.abort_ms = 3'000;
  const auto abort = [&](int64_t fruitless) {
    job.restarts_without_progress = fruitless;
    const core::StopWorkers stop{kJob, "n0", Generation{3}, false};
    return OrderMaker(paths_, ports_)
        .make({{Seq{5}, 1}, "a peer died", stop}, state_)
        .stop_workers()
        .abort_ms();
  };
  EXPECT_EQ(abort(1), 3'000U);
  EXPECT_EQ(abort(2), 0U);
  EXPECT_EQ(abort(3), 3'000U);
}

TEST_F(WorkerOrder, TheLastGenerationOfAnAccusedStateSavesApart) {
  core::Job& job = state_.jobs[kJob];
  job.spec.train.emplace();
  job.spec.checkpoint.dir = "/ckpt";
  job.submit_key = "uuid";
  job.limits.last_checkpoint_ms = 40'000;
  OrderMaker maker(paths_, ports_);
  for (const bool suspect : {false, true}) {
    core::StartWorkers start{kJob, "n1", Generation{3}, {Rank{2}, Rank{3}}, "", 17, Generation{2}};
    start.last = true;
    start.suspect = suspect;
    const auto message = maker.make({{Seq{5}, 0}, "", start}, state_);
    const auto workload = workload_from_json(message.start_workers().workload_json());
    ASSERT_TRUE(workload.ok()) << workload.error().message;
    EXPECT_TRUE(workload->is_last);
    EXPECT_EQ(workload->checkpoint_dir, suspect ? "/ckpt/suspect" : "/ckpt");
    EXPECT_EQ(workload->claimed, !suspect);
    EXPECT_EQ(workload->owner, "uuid");
    EXPECT_EQ(workload->last_checkpoint_ms, 40'000);
  }
}

TEST_F(WorkerOrder, WhoHangsIsAskedForItsStacks) {
  state_.jobs[kJob].spec.train.emplace();
  state_.jobs[kJob].limits.abort_ms = 3'000;
  for (const bool stacks : {false, true}) {
    const core::StopWorkers stop{kJob, "n0", Generation{3}, false, stacks};
    const core::EndNode end{kJob, "n0", stacks};
    const auto make = [&](const core::ActionBody& body) {
      return OrderMaker(paths_, ports_).make({{Seq{5}, 1}, "it hangs", body}, state_);
    };
    EXPECT_EQ(make(stop).stop_workers().stacks(), stacks);
    EXPECT_EQ(make(stop).stop_workers().abort_ms(), stacks ? 1'000 : 3'000);
    EXPECT_EQ(make(end).end_node().stacks(), stacks);
  }
}

// The second reader's order, and what its answer means to the core.
TEST_F(WorkerOrder, SecondReaderIsToldThePartAndItsAnswerCounts) {
  core::DamageClaim claim{"step-20.g2", "n1", "words", {"shard-00001.safetensors", 512, 4096, 5}};
  const core::Action action{
      {Seq{5}, 1}, "why", core::ConfirmDamage{kJob, "n2", claim, Generation{3}}};
  EXPECT_EQ(agent_of(action), (core::NodeKey{kJob, "n2"}));
  state_.jobs[kJob].limits.directory_ms = 7'000;
  const v1::ConfirmDamage order = OrderMaker(paths_, ports_).make(action, state_).confirm_damage();
  EXPECT_EQ(order.directory(), state_.jobs[kJob].spec.checkpoint.dir);
  EXPECT_EQ(order.checkpoint(), "step-20.g2");
  EXPECT_EQ(order.generation(), 3U);
  EXPECT_EQ(order.part().file(), "shard-00001.safetensors");
  EXPECT_EQ(order.part().offset(), 512U);
  EXPECT_EQ(order.part().bytes(), 4096U);
  EXPECT_EQ(order.words(), "words");
  EXPECT_EQ(order.limit_ms(), 7'000U);
  EXPECT_EQ(order.depth(), "");

  v1::AgentMessage message;
  message.set_job(kJob.value);
  message.set_node("n2");
  v1::DamageAnswered& answer = *message.mutable_damage_answered();
  answer.set_action_seq(order.action_seq());
  answer.set_action_index(order.action_index());
  answer.set_what("crc32c does not match");
  EXPECT_FALSE(make_event(message, state_)) << "nobody has asked";
  state_.outbox[action.id] = action;
  const std::map<uint32_t, core::DamageVerdict> verdicts = {{0, core::DamageVerdict::kUnreadable},
                                                            {1, core::DamageVerdict::kSound},
                                                            {2, core::DamageVerdict::kDamaged},
                                                            {3, core::DamageVerdict::kUnreadable},
                                                            {9, core::DamageVerdict::kUnreadable}};
  for (const auto& [told, meant] : verdicts) {
    answer.set_verdict(told);
    const auto event = make_event(message, state_);
    ASSERT_TRUE(event);
    const auto& answered = std::get<core::DamageAnswered>(*event);
    EXPECT_EQ(answered.verdict, meant) << told;
    EXPECT_EQ(answered.what, "crc32c does not match");
  }
  message.set_node("n1");
  EXPECT_FALSE(make_event(message, state_)) << "n2 was asked";
  message.set_node("n2");
  message.mutable_action_done()->set_action_seq(order.action_seq());
  message.mutable_action_done()->set_action_index(order.action_index());
  EXPECT_FALSE(make_event(message, state_)) << "not its answer, and not the end of the node";
}

TEST_F(WorkerOrder, SecondReaderIsToldTheDepthAndTheOtherPlace) {
  state_.jobs[kJob].limits.directory_ms = 7'000;
  state_.jobs[kJob].limits.first_step_ms = 90'000;
  state_.jobs[kJob].spec.checkpoint.verify_before_delete = VerifyDepth::kFull;
  core::DamageClaim claim;
  claim.checkpoint = "/mirror/j/step-20.g2";
  core::ConfirmDamage wanted{kJob, "n2", claim, Generation{3}};
  const auto make = [&] {
    return OrderMaker(paths_, ports_).make({{Seq{5}, 1}, "why", wanted}, state_).confirm_damage();
  };
  EXPECT_EQ(make().directory(), "/mirror/j");
  EXPECT_EQ(make().checkpoint(), "step-20.g2");
  EXPECT_EQ(make().generation(), 0U) << "the newest record lies elsewhere";
  EXPECT_EQ(make().depth(), "");
  wanted.claim.checkpoint = "step-30.g3";
  wanted.before_delete = true;
  EXPECT_EQ(make().directory(), state_.jobs[kJob].spec.checkpoint.dir);
  EXPECT_EQ(make().generation(), 3U);
  EXPECT_EQ(make().depth(), "full");
  EXPECT_EQ(make().limit_ms(), 90'000U);
}

}  // namespace
}  // namespace hpctl
