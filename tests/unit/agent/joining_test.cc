// SPDX-License-Identifier: Apache-2.0
// Processes of the built-in trainer that leave a generation, idle and join the next, and standbys.
#include <map>
#include <set>

#include "agent/holder/progress_view.h"
#include "common/process/process_stat.h"
#include "tests/unit/agent/holder_fixture.h"

namespace hpctl::holder {
namespace {

// A generation's end without a process's: told to leave, it idles and joins the next one, with a
// page of its own.
TEST_F(HolderTest, AWorkerLeavesItsGenerationAndJoinsTheNext) {
  start_holder();
  const WorkerState first = spawn(worker(1, 0, {"map", "step", "9", "commit", "8", "obey"}));
  const ProgressView old_page(descriptor_.get());
  ASSERT_TRUE(eventually([&] { return old_page.sample().checkpoint_step == 8; }));
  tell(Kill{1, 0, 600'000});
  const Exited left = expect<Exited>();
  EXPECT_EQ(left.incarnation, first.incarnation);
  EXPECT_EQ(left.stays, 1);
  EXPECT_EQ(left.by_request, 1);
  EXPECT_EQ(left.exit_code, kExitPeerLost);
  EXPECT_EQ(left.last_step, 9U);
  EXPECT_EQ(left.checkpoint_step, 8U);
  EXPECT_EQ(left.message, "");
  const WorkerState idle = expect<WorkerState>();
  EXPECT_EQ(idle.part, WorkerPart::kIdle);
  EXPECT_EQ(idle.pid, first.pid);

  const WorkerState second = spawn(worker(2, 0, {"hang"}));
  EXPECT_EQ(second.incarnation, first.incarnation);
  EXPECT_EQ(second.pid, first.pid);
  EXPECT_EQ(second.generation, 2U);
  EXPECT_EQ(second.part, WorkerPart::kMember);
  EXPECT_EQ(first.origin, WorkerOrigin::kStarted);
  EXPECT_EQ(second.origin, WorkerOrigin::kStayed);
  const ProgressView page(descriptor_.get());
  ASSERT_TRUE(eventually([&] { return page.sample().step == 1; }));
  EXPECT_EQ(page.sample().checkpoint_step, 0U);
  EXPECT_EQ(old_page.sample().step, 9U);
  EXPECT_TRUE(eventually([&] {
    return text_of(log_path(0)).find("joined 2\nworkload {\"rank\":0}") != std::string::npos;
  }));
}

// It may say so before it is told; then it is a fault's consequence, not a request's.
TEST_F(HolderTest, AWorkerThatLostAPeerIsReportedOnceAndStays) {
  start_holder();
  const WorkerState started =
      spawn(worker(1, 0, {"map", "step", "4", "say", "rank 1 is gone", "lose", "1", "obey"}));
  const Exited left = expect<Exited>();
  EXPECT_EQ(left.stays, 1);
  EXPECT_EQ(left.by_request, 0);
  EXPECT_EQ(left.exit_code, kExitPeerLost);
  EXPECT_EQ(left.message, "rank 1 is gone");
  // It still stands in the way, and the next agent is told so.
  tell(worker(2, 0, {"hang"}));
  expect<SpawnFailed>();
  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  ASSERT_EQ(greeted<WorkerState>().size(), 1U);
  EXPECT_EQ(greeted<WorkerState>()[0].part, WorkerPart::kLeft);
  ASSERT_EQ(greeted<Exited>().size(), 1U);
  EXPECT_EQ(greeted<Exited>()[0].stays, 1);

  tell(Kill{1, 0, 600'000});
  const WorkerState idle = expect<WorkerState>();  // and no second exit
  EXPECT_EQ(idle.part, WorkerPart::kIdle);
  EXPECT_EQ(spawn(worker(2, 0, {"hang"})).pid, started.pid);
}

// A file server that does not answer holds up its save: all ranks waited for it.
TEST_F(HolderTest, WorkerThatStillSavesIsReplacedByAStandby) {
  start_holder();
  const WorkerState first = spawn(worker(1, 0, {"map", "step", "9", "saving", "obey"}));
  Spawn order = worker(1, -1, {"obey"});
  order.workload = "";
  const WorkerState standby = spawn(order);
  tell(Kill{1, 0, 600'000});
  EXPECT_EQ(expect<Exited>().stays, 1);
  EXPECT_EQ(expect<WorkerState>().part, WorkerPart::kIdle);
  const WorkerState second = spawn(worker(2, 0, {"hang"}));
  EXPECT_EQ(second.incarnation, standby.incarnation);
  EXPECT_EQ(second.rank, 0);
  EXPECT_TRUE(eventually([&] { return !process_runs(static_cast<pid_t>(first.pid)); }));
}

// Without a standby a new process takes the place.
TEST_F(HolderTest, WorkerThatStillSavesIsReplacedByANewProcess) {
  start_holder();
  const WorkerState first = spawn(worker(1, 0, {"map", "step", "9", "saving", "obey"}));
  tell(Kill{1, 0, 600'000});
  EXPECT_EQ(expect<Exited>().stays, 1);
  EXPECT_EQ(expect<WorkerState>().part, WorkerPart::kIdle);
  tell(worker(2, 0, {"hang"}));
  // The former process ends, the new one begins, in either order.
  std::map<uint64_t, WorkerPart> parts;
  for (int i = 0; i < 2; ++i) {
    const auto told = expect<WorkerState>();
    parts[told.incarnation] = told.part;
  }
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts.at(first.incarnation), WorkerPart::kEnded);
  EXPECT_EQ(parts.rbegin()->second, WorkerPart::kMember);
}

TEST_F(HolderTest, AWorkerThatDoesNotLeaveIsEnded) {
  start_holder();
  const WorkerState first = spawn(worker(1, 0, {"map", "step", "9", "hang"}));
  tell(Kill{1, 0, 50});
  tell(Kill{1, 0, 600'000});  // a repetition changes nothing
  const Exited killed = expect<Exited>();
  EXPECT_EQ(killed.stays, 0);
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(killed.by_request, 1);
  EXPECT_NE(spawn(worker(2, 0, {"hang"})).pid, first.pid);
}

// It could not read the order.
TEST_F(HolderTest, AStoppedWorkerIsNotWaitedFor) {
  start_holder();
  const WorkerState worker_state = spawn(worker(1, 0, {"map", "step", "9", "hang"}));
  const auto pid = static_cast<pid_t>(worker_state.pid);
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] { return process_stat(pid, kStateField) == "T"; }));
  tell(Kill{1, 0, 600'000});
  const Exited killed = expect<Exited>();
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(killed.by_request, 1);
}

// The state of the dead rank outlives it; the standby gets it.
TEST_F(HolderTest, AStandbyTakesThePlaceOfADeadWorker) {
  start_holder();
  const WorkerState first =
      spawn(worker(1, 0, {"report", "map", "seal", "17", "print", "sealed", "hang"}));
  Spawn order = worker(1, -1, {"obey"});
  order.workload = "";
  const WorkerState standby = spawn(order);
  EXPECT_EQ(standby.part, WorkerPart::kIdle);
  EXPECT_EQ(standby.rank, -1);
  EXPECT_FALSE(descriptor_.valid());
  ASSERT_TRUE(
      eventually([&] { return text_of(log_path(0)).find("\nsealed") != std::string::npos; }));
  const auto arena = number_after(text_of(log_path(0)), "arena_inode");
  ::kill(static_cast<pid_t>(first.pid), SIGKILL);
  const auto ended = expect<Exited>();
  EXPECT_EQ(ended.stays, 0);
  ASSERT_EQ(ended.seals.own.size(), 1U);
  EXPECT_EQ(ended.seals.own.front(), (Seal{17, 77, 1}));

  const WorkerState second = spawn(worker(2, 0, {"hang"}));
  EXPECT_EQ(second.incarnation, standby.incarnation);
  EXPECT_EQ(second.rank, 0);
  EXPECT_EQ(second.origin, WorkerOrigin::kStandby);
  const ProgressView page(descriptor_.get());
  ASSERT_TRUE(eventually([&] { return page.sample().step == 1; }));
  std::string log;
  ASSERT_TRUE(eventually([&] {
    log = text_of(log_path(0));
    return log.find("joined 2") != std::string::npos;
  }));
  EXPECT_EQ(number_after(log.substr(log.find("joined 2")), "arena_inode"), arena);
  // There was one.
  EXPECT_NE(spawn(worker(2, 1, {"hang"})).incarnation, standby.incarnation);
}

// The other still loads, for as long as its node is busy.
TEST_F(HolderTest, AStandbyThatIsReadyGoesBeforeOneThatIsNot) {
  start_holder();
  Spawn order = worker(1, -1, {"ready", "obey"});
  order.workload = "";
  const WorkerState first = spawn(order);
  ASSERT_EQ(expect<WorkerState>().is_ready, 1);
  order.argv = worker(1, -1, {"obey"}).argv;
  const WorkerState loading = spawn(order);
  order.argv = worker(1, -1, {"ready", "obey"}).argv;
  const WorkerState third = spawn(order);
  ASSERT_EQ(expect<WorkerState>().is_ready, 1);
  // Which of the two is first is nobody's concern.
  EXPECT_EQ((std::set{spawn(worker(1, 0, {"hang"})).incarnation,
                      spawn(worker(1, 1, {"hang"})).incarnation}),
            (std::set{first.incarnation, third.incarnation}));
  EXPECT_EQ(spawn(worker(1, 2, {"hang"})).incarnation, loading.incarnation) << "rather than none";
}

// One that ends before it is needed is no worker's exit, and what cannot join is replaced.
TEST_F(HolderTest, AStandbyThatIsGoneIsNotWaitedFor) {
  start_holder();
  Spawn order = worker(1, -1, {"exit", "3"});
  order.workload = "";
  const WorkerState standby = spawn(order);
  const WorkerState ended = expect<WorkerState>();
  EXPECT_EQ(ended.incarnation, standby.incarnation);
  EXPECT_EQ(ended.part, WorkerPart::kEnded);
  EXPECT_NE(spawn(worker(1, 0, {"hang"})).incarnation, standby.incarnation);
}

// It has not been needed for long, and when it is, it does not answer: another process is started
// at once, and it is not left behind.
TEST_F(HolderTest, AStandbyThatIsStoppedIsReplacedWhenItIsNeeded) {
  start_holder();
  Spawn order = worker(1, -1, {"obey"});
  order.workload = "";
  const WorkerState standby = spawn(order);
  const auto pid = static_cast<pid_t>(standby.pid);
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] { return process_stat(pid, kStateField) == "T"; }));
  tell(worker(1, 0, {"hang"}));
  std::map<uint64_t, WorkerPart> parts;  // in whichever order
  for (int i = 0; i < 2; ++i) {
    const WorkerState state = expect<WorkerState>();
    parts[state.incarnation] = state.part;
  }
  EXPECT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[standby.incarnation], WorkerPart::kEnded);
  EXPECT_EQ(parts.rbegin()->second, WorkerPart::kMember);
}

TEST_F(HolderTest, AStandbyIsAskedWhetherItStillCouldTakePart) {
  ping_times_ = {10, 600'000};
  start_holder();
  Spawn order = worker(1, -1, {"ready", "obey"});
  order.workload = "";
  const WorkerState standby = spawn(order);
  EXPECT_EQ(standby.is_ready, 0);
  const WorkerState ready = expect<WorkerState>();
  EXPECT_EQ(ready.incarnation, standby.incarnation);
  EXPECT_EQ(ready.part, WorkerPart::kIdle);
  EXPECT_EQ(ready.is_ready, 1);
  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  ASSERT_EQ(greeted<WorkerState>().size(), 1U);
  EXPECT_EQ(greeted<WorkerState>()[0].is_ready, 1) << "the next agent is told so";
  ASSERT_TRUE(
      eventually([&] { return text_of(log_path(-1)).find("asked 3\n") != std::string::npos; }));
  EXPECT_EQ(spawn(worker(1, 0, {"hang"})).incarnation, standby.incarnation);
  EXPECT_TRUE(
      eventually([&] { return text_of(log_path(0)).find("joined 1\n") != std::string::npos; }));
}

// It is found before it is needed.
TEST_F(HolderTest, AStandbyThatDoesNotAnswerIsEnded) {
  ping_times_ = {10, 50};
  start_holder();
  Spawn order = worker(1, -1, {"ready", "hang"});
  order.workload = "";
  const WorkerState standby = spawn(order);
  EXPECT_EQ(expect<WorkerState>().is_ready, 1);
  const WorkerState ended = expect<WorkerState>();
  EXPECT_EQ(ended.incarnation, standby.incarnation);
  EXPECT_EQ(ended.part, WorkerPart::kEnded);
}

}  // namespace
}  // namespace hpctl::holder
