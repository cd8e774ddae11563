// SPDX-License-Identifier: Apache-2.0
// The holder with real workers and a stand-in for the agent proper: child environment, exits that
// are never lost, restarts of the agent, and that nothing survives the holder.
#include "agent/holder.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <map>
#include <optional>

#include "agent/holder_protocol.h"
#include "agent/progress_view.h"
#include "agent/worker_mark.h"
#include "common/base/packet_socket.h"
#include "tests/unit/agent/node_fixture.h"

namespace hpctl::holder {
namespace {

using test::eventually;
using test::number_after;
using test::text_of;

constexpr JobId kJob{7};

class HolderTest : public ::testing::Test {
 protected:
  HolderTest() : socket_path_(home_.path() + "/agent.sock") {
    listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
  }

  HolderOptions options() const {
    return {home_.paths(),
            kJob,
            "n0",
            {test::test_program("fake_agent"), socket_path_},
            {test::product_program("hpagent"), "--guardian"}};
  }

  void start_holder() {
    holder_ = test::Child([this] {
      ::setenv("OMP_NUM_THREADS", "3", 1);
      return run_holder(options());
    });
    accept_agent();
  }

  // Takes over the connection of the agent that the holder has just started; reads its greeting.
  void accept_agent() {
    agent_.reset();
    pollfd ready{listener_.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 60'000), 1) << "the holder did not start an agent";
    PacketSocket connection(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    std::optional<Packet> packet;
    ASSERT_TRUE(eventually([&] {
      auto received = connection.receive();
      if (received.ok()) packet = std::move(*received);
      return packet.has_value();
    }));
    std::memcpy(&agent_pid_, packet->bytes.data(), sizeof(agent_pid_));
    agent_.emplace(std::move(packet->descriptor));
    greeting_.clear();
    for (;;) {
      ToAgent message = next();
      if (std::holds_alternative<HelloEnd>(message)) break;
      greeting_.push_back(std::move(message));
    }
    hello_ = std::get<Hello>(greeting_.at(0));
    tell(Alive{600'000});  // this one is not to be replaced because the machine is slow
    expect<AliveToo>();
  }

  ToAgent next() {
    std::optional<Packet> packet;
    const bool arrived = eventually([&] {
      auto received = agent_->receive();
      if (received.ok()) packet = std::move(*received);
      return packet.has_value();
    });
    if (!arrived) {
      ADD_FAILURE() << "no message from the holder";
      return HelloEnd{};
    }
    descriptor_ = std::move(packet->descriptor);
    auto message = decode_to_agent(packet->bytes);
    EXPECT_TRUE(message.ok());
    return std::move(message).value();
  }
  template <typename T>
  T expect() {
    ToAgent message = next();
    EXPECT_TRUE(std::holds_alternative<T>(message)) << "got kind " << message.index();
    return std::holds_alternative<T>(message) ? std::get<T>(message) : T{};
  }
  template <typename T>
  std::vector<T> greeted() const {
    std::vector<T> found;
    for (const ToAgent& message : greeting_) {
      if (const T* one = std::get_if<T>(&message)) found.push_back(*one);
    }
    return found;
  }

  void tell(const ToHolder& message) { ASSERT_TRUE(agent_->send_now(encode(message)).ok()); }

  Spawn worker(uint64_t generation, int32_t rank, std::vector<std::string> script) const {
    Spawn spawn;
    spawn.generation = generation;
    spawn.rank = rank;
    spawn.local_rank = rank;
    spawn.argv = std::move(script);
    spawn.argv.insert(spawn.argv.begin(), test::test_program("probe_worker"));
    spawn.env = {"RANK=" + std::to_string(rank), "HPCTL_GENERATION=" + std::to_string(generation)};
    spawn.directory = home_.path();
    spawn.log_path = log_path(rank);
    spawn.workload = "{\"rank\":" + std::to_string(rank) + "}";
    return spawn;
  }
  WorkerState spawn(const Spawn& request) {
    tell(request);
    return expect<WorkerState>();
  }
  std::string log_path(int32_t rank) const { return home_.paths().rank_log(kJob, Rank{rank}); }
  pid_t logged_pid(int32_t rank, const std::string& key) const {
    eventually([&] { return number_after(text_of(log_path(rank)), key) > 0; });
    return static_cast<pid_t>(number_after(text_of(log_path(rank)), key));
  }

  test::TemporaryHome home_;
  std::string socket_path_;
  UniqueFd listener_;
  test::Child holder_;
  std::optional<PacketSocket> agent_;
  pid_t agent_pid_ = 0;
  Hello hello_;
  std::vector<ToAgent> greeting_;
  UniqueFd descriptor_;
};

TEST_F(HolderTest, WorkerStartsInACleanEnvironment) {
  start_holder();
  ASSERT_GT(spawn(worker(1, 0, {"report", "exit", "0"})).pid, 0U);
  const Exited exited = expect<Exited>();
  EXPECT_EQ(exited.exit_code, 0);
  EXPECT_EQ(exited.signal, 0);
  const std::string log = text_of(log_path(0));
  EXPECT_NE(log.find("generation 1 rank 0 on n0"), std::string::npos) << log;
  EXPECT_EQ(number_after(log, "pgid_is_pid"), 1);
  EXPECT_EQ(number_after(log, "pdeathsig"), SIGKILL);
  EXPECT_EQ(number_after(log, "blocked_signals"), 0);
  EXPECT_EQ(number_after(log, "handled_signals"), 0) << "SIGPIPE and SIGHUP must be reset";
  EXPECT_NE(log.find("fds 0,1,2,3,4,5,6,\n"), std::string::npos) << log;
  EXPECT_NE(log.find("workload {\"rank\":0}"), std::string::npos);
  EXPECT_EQ(number_after(log, "arena_bytes"), 0);
  EXPECT_NE(log.find("cwd " + home_.path() + "\n"), std::string::npos);
  EXPECT_EQ(number_after(log, "OMP_NUM_THREADS"), 3) << "the holder's environment is inherited";
  const std::string own = text_of("/proc/" + std::to_string(holder_.pid()) + "/oom_score_adj");
  EXPECT_GT(number_after(log, "oom_score_adj"), std::atol(own.c_str()));
}

// Descriptor 6 is then the program's own.
TEST_F(HolderTest, ACommandHasNoControlSocket) {
  start_holder();
  Spawn command = worker(1, 0, {"report", "exit", "0"});
  command.workload.clear();
  ASSERT_GT(spawn(command).pid, 0U);
  EXPECT_EQ(expect<Exited>().exit_code, 0);
  const std::string log = text_of(log_path(0));
  EXPECT_NE(log.find("fds 0,1,2,3,4,5,\n"), std::string::npos) << log;
}

TEST_F(HolderTest, ExitTellsCodeSignalStepAndLastWords) {
  start_holder();
  spawn(worker(1, 0, {"map", "step", "4", "commit", "2", "say", "disk full on /x", "exit", "93"}));
  const Exited said = expect<Exited>();
  EXPECT_EQ(said.exit_code, 93);
  EXPECT_EQ(said.last_step, 4U);
  EXPECT_EQ(said.checkpoint_step, 2U);
  EXPECT_EQ(said.message, "disk full on /x");
  EXPECT_EQ(said.by_request, 0);
  spawn(worker(1, 1, {"print", "ImportError: no module named x\xff", "exit", "1"}));
  EXPECT_EQ(expect<Exited>().message, "ImportError: no module named x?")
      << "without a progress page the last line of output has to do, as valid UTF-8";
  const WorkerState killed = spawn(worker(1, 2, {"hang"}));
  ::kill(static_cast<pid_t>(killed.pid), SIGABRT);  // which no sanitizer takes for itself
  EXPECT_EQ(expect<Exited>().signal, SIGABRT);
}

TEST_F(HolderTest, MissingBinaryIsAPermanentFailureWithItsCause) {
  start_holder();
  Spawn request = worker(1, 0, {});
  request.argv = {"/nowhere/hptrain"};
  tell(request);
  SpawnFailed failed = expect<SpawnFailed>();
  EXPECT_EQ(failed.permanent, 1);
  EXPECT_EQ(failed.reason, "cannot execute /nowhere/hptrain: No such file or directory");
  request.argv = {"no-such-program-in-path"};
  tell(request);
  failed = expect<SpawnFailed>();
  EXPECT_NE(failed.reason.find("cannot find program no-such-program-in-path"), std::string::npos);
  request.argv = {"true"};
  request.directory = "/nowhere";
  tell(request);
  EXPECT_NE(expect<SpawnFailed>().reason.find("working directory /nowhere"), std::string::npos);
}

TEST_F(HolderTest, ExitRecordsOutliveTheAgentAndAreCoveredOnce) {
  start_holder();
  const WorkerState running = spawn(worker(3, 0, {"map", "step", "8", "hang"}));
  const WorkerState dead = spawn(worker(3, 1, {"exit", "5"}));
  EXPECT_EQ(expect<Exited>().exit_id, 1U);

  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  EXPECT_TRUE(process_runs(static_cast<pid_t>(running.pid))) << "workers are not disturbed";
  EXPECT_EQ(hello_.generation_seen, 3U);
  const auto workers = greeted<WorkerState>();
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].pid, dead.pid);
  EXPECT_EQ(workers[0].part, WorkerPart::kEnded);
  EXPECT_EQ(workers[1].pid, running.pid);
  EXPECT_EQ(workers[1].part, WorkerPart::kMember);
  const auto exits = greeted<Exited>();
  ASSERT_EQ(exits.size(), 1U);
  EXPECT_EQ(exits[0].exit_code, 5);

  // The report takes the record's place even when its sender dies in the same instant.
  tell(KeepReport{1, exits[0].exit_id, 3, 6, 3, 2, "report one"});
  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  EXPECT_TRUE(greeted<Exited>().empty());
  const auto reports = greeted<StoredReport>();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].bytes, "report one");
  EXPECT_EQ(hello_.last_report, 1U);
  EXPECT_EQ(hello_.committed_step, 6U);
  EXPECT_EQ(hello_.bad_step_number, 2U);

  tell(DropReport{1});
  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  EXPECT_TRUE(greeted<StoredReport>().empty());
  EXPECT_EQ(hello_.last_report, 1U) << "numbers are never used twice";
}

TEST_F(HolderTest, ProgressPageCanBeReadByEveryAgentAndNotTruncated) {
  start_holder();
  spawn(worker(1, 0, {"map", "step", "41", "file", home_.path() + "/ready", "hang"}));
  ASSERT_TRUE(eventually([&] { return path_exists(home_.path() + "/ready"); }));
  EXPECT_EQ(ProgressView(descriptor_.get()).sample().step, 41U);
  EXPECT_NE(::ftruncate(descriptor_.get(), 0), 0) << "a worker could end its agent by SIGBUS";
  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  EXPECT_EQ(greeted<WorkerState>().size(), 1U);
}

TEST_F(HolderTest, KillIsBySignalThenForceAndMarksTheExit) {
  start_holder();
  spawn(worker(2, 0, {"hang"}));
  spawn(worker(2, 1, {"deaf", "file", home_.path() + "/deaf", "hang"}));
  ASSERT_TRUE(eventually([&] { return path_exists(home_.path() + "/deaf"); }));
  tell(Kill{2, 100});
  const Exited first = expect<Exited>();
  EXPECT_EQ(first.rank, 0);
  EXPECT_EQ(first.signal, SIGTERM);
  EXPECT_EQ(first.by_request, 1);
  const Exited second = expect<Exited>();
  EXPECT_EQ(second.signal, SIGKILL);
  EXPECT_EQ(second.by_request, 1);
}

TEST_F(HolderTest, AFaultJustBeforeTheRequestToEndIsNotByRequest) {
  start_holder();
  const WorkerState one = spawn(worker(2, 0, {"hang"}));
  ::kill(holder_.pid(), SIGSTOP);  // so that it finds death and request at the same time
  ::kill(static_cast<pid_t>(one.pid), SIGSEGV);
  ASSERT_TRUE(eventually([&] { return !process_runs(static_cast<pid_t>(one.pid)); }));
  tell(Kill{2, 0});
  ::kill(holder_.pid(), SIGCONT);
  EXPECT_EQ(expect<Exited>().by_request, 0);
}

TEST_F(HolderTest, RefusesStaleGenerationsAndStartsBesideLeftovers) {
  start_holder();
  spawn(worker(5, 0, {"hang"}));
  const auto refused = [&](const Spawn& request) {
    tell(request);
    return expect<SpawnFailed>().reason;
  };
  EXPECT_NE(refused(worker(4, 1, {"hang"})).find("stale"), std::string::npos);
  EXPECT_NE(refused(worker(6, 1, {"hang"})).find("still there"), std::string::npos);
  EXPECT_NE(refused(worker(5, 0, {"hang"})).find("still there"), std::string::npos);
  tell(Kill{5, 0});
  expect<Exited>();
  EXPECT_NE(refused(worker(5, 1, {"hang"})).find("was ended"), std::string::npos);
  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  EXPECT_EQ(hello_.ended_through, 5U);
  EXPECT_GT(spawn(worker(6, 1, {"hang"})).pid, 0U);
}

TEST_F(HolderTest, WhatAWorkerStartedGoesWithIt) {
  start_holder();
  const WorkerState one = spawn(worker(1, 0, {"child", "hang"}));
  const pid_t child = logged_pid(0, "sleeper");
  const WorkerState two = spawn(worker(1, 1, {"stray", "hang"}));
  const pid_t stray = logged_pid(1, "sleeper");
  ::kill(static_cast<pid_t>(one.pid), SIGKILL);
  EXPECT_EQ(expect<Exited>().rank, 0);
  EXPECT_TRUE(eventually([&] { return !process_runs(child); }));
  EXPECT_TRUE(process_runs(stray)) << "another worker's";
  ::kill(static_cast<pid_t>(two.pid), SIGKILL);
  EXPECT_EQ(expect<Exited>().rank, 1);
  EXPECT_TRUE(eventually([&] { return !process_runs(stray); }));
}

// What it left behind must not be taken for its successor's.
TEST_F(HolderTest, AProcessWithTheSamePartIsAnotherIncarnation) {
  start_holder();
  const WorkerState first = spawn(worker(1, 0, {"hang"}));
  EXPECT_EQ(mark_of(static_cast<pid_t>(first.pid)),
            hello_.boot_id + "." + std::to_string(first.incarnation));
  ::kill(static_cast<pid_t>(first.pid), SIGKILL);
  EXPECT_EQ(expect<Exited>().incarnation, first.incarnation);
  const WorkerState second = spawn(worker(1, 0, {"hang"}));
  EXPECT_GT(second.incarnation, first.incarnation);
  EXPECT_NE(mark_of(static_cast<pid_t>(second.pid)), mark_of(static_cast<pid_t>(first.pid)));
  EXPECT_EQ(mark_of(static_cast<pid_t>(second.pid)),
            hello_.boot_id + "." + std::to_string(second.incarnation));
  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  ASSERT_EQ(greeted<WorkerState>().size(), 2U);
  for (const WorkerState& worker : greeted<WorkerState>()) {
    EXPECT_EQ(worker.incarnation,
              worker.part == WorkerPart::kMember ? second.incarnation : first.incarnation);
  }
}

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
  ASSERT_EQ(ended.seals.size(), 1U);
  EXPECT_EQ(ended.seals.front(), (Seal{17, 77, 1}));

  const WorkerState second = spawn(worker(2, 0, {"hang"}));
  EXPECT_EQ(second.incarnation, standby.incarnation);
  EXPECT_EQ(second.rank, 0);
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

TEST_F(HolderTest, NothingSurvivesTheHolder) {
  start_holder();
  const WorkerState one = spawn(worker(1, 0, {"child", "hang"}));
  const WorkerState two = spawn(worker(1, 1, {"stray", "hang"}));
  const pid_t child = logged_pid(0, "sleeper");
  const pid_t stray = logged_pid(1, "sleeper");
  ::kill(holder_.pid(), SIGKILL);
  for (const pid_t pid :
       {static_cast<pid_t>(one.pid), static_cast<pid_t>(two.pid), child, stray, agent_pid_}) {
    EXPECT_TRUE(eventually([&] { return !process_runs(pid); })) << pid;
  }
  // A free lock means that nothing is left, so whoever comes next waits for the guardian.
  EXPECT_EQ(holder_.wait_for_end(), 256 + SIGKILL);
  const std::string old_boot = hello_.boot_id;
  start_holder();
  EXPECT_NE(hello_.boot_id, old_boot);
  EXPECT_EQ(hello_.generation_seen, 0U);
}

TEST_F(HolderTest, SigtermEndsTheWorkersThenTheHolder) {
  start_holder();
  const WorkerState one = spawn(worker(1, 0, {"stray", "hang"}));
  const pid_t stray = logged_pid(0, "sleeper");
  ::kill(holder_.pid(), SIGHUP);
  ::kill(holder_.pid(), SIGTERM);
  EXPECT_EQ(holder_.wait_for_end(), 0);
  EXPECT_FALSE(process_runs(static_cast<pid_t>(one.pid)));
  EXPECT_FALSE(process_runs(stray));
  EXPECT_FALSE(process_runs(agent_pid_));
}

TEST_F(HolderTest, EndCommandSetsTheExitCode) {
  start_holder();
  spawn(worker(1, 0, {"hang"}));
  tell(End{1, 0, "refused by the controller"});
  EXPECT_EQ(holder_.wait_for_end(), 1);
}

TEST_F(HolderTest, SecondHolderOfANodeLeavesQuietly) {
  start_holder();
  EXPECT_EQ(text_of(home_.paths().node_lock(kJob, "n0")), std::to_string(holder_.pid()) + "\n");
  test::Child second([this] { return run_holder(options()); });
  EXPECT_EQ(second.wait_for_end(), 0);
  EXPECT_TRUE(process_runs(holder_.pid()));
}

TEST_F(HolderTest, TheNextHolderWaitsWhileTheWorkersOfTheFormerDie) {
  start_holder();
  const WorkerState deaf = spawn(worker(1, 0, {"deaf", "file", home_.path() + "/ready", "hang"}));
  ASSERT_TRUE(eventually([&] { return path_exists(home_.path() + "/ready"); }));
  tell(End{0, 3'000, "given up"});
  const std::string lock = home_.paths().node_lock(kJob, "n0");
  ASSERT_TRUE(
      eventually([&] { return text_of(lock) == std::to_string(holder_.pid()) + " ending\n"; }));
  test::Child second([this] { return run_holder(options()); });
  EXPECT_EQ(holder_.wait_for_end(), 0);
  EXPECT_FALSE(process_runs(static_cast<pid_t>(deaf.pid)));
  EXPECT_TRUE(eventually([&] { return text_of(lock) == std::to_string(second.pid()) + "\n"; }))
      << "it is the node now";
}

TEST_F(HolderTest, GivesUpWhenTheAgentCannotBeKeptAlive) {
  holder_ = test::Child([this] {
    HolderOptions broken = options();
    broken.agent_argv = {"/nowhere/hpagent"};
    return run_holder(broken);
  });
  EXPECT_EQ(holder_.wait_for_end(60'000), 1);
}

TEST_F(HolderTest, OutputThatCannotBeWrittenDoesNotStopTheWorker) {
  start_holder();
  Spawn request = worker(1, 0, {"fill", "5000", "exit", "0"});
  request.log_path = "/dev/full";
  spawn(request);
  EXPECT_EQ(expect<Exited>().exit_code, 0);
  request = worker(1, 0, {"fill", "5000", "exit", "0"});
  request.log_path = "/proc/nowhere/rank-0.log";
  spawn(request);
  EXPECT_EQ(expect<Exited>().exit_code, 0);
}

size_t open_descriptors(pid_t pid) {
  return list_directory("/proc/" + std::to_string(pid) + "/fd")->size();
}

TEST_F(HolderTest, ManyGenerationsLeakNothing) {
  start_holder();
  spawn(worker(1, 0, {"exit", "0"}));
  tell(KeepReport{1, expect<Exited>().exit_id, 0, 0, 0, 0, "r"});
  const size_t before = open_descriptors(holder_.pid());
  for (uint64_t generation = 2; generation <= 300; ++generation) {
    const WorkerState started = spawn(worker(generation, 0, {"stray", "hang"}));
    ASSERT_GT(started.pid, 0U);  // kill(0) would be us
    if (generation % 2 == 0) {
      tell(Kill{generation, 0});
    } else {
      ::kill(static_cast<pid_t>(started.pid), SIGKILL);
    }
    const Exited exited = expect<Exited>();
    ASSERT_EQ(exited.generation, generation);
    tell(KeepReport{generation, exited.exit_id, 0, 0, 0, 0, "r"});
    tell(DropReport{generation});
  }
  tell(AcceptGeneration{1});  // the holder has seen everything before once it answers what follows
  spawn(worker(301, 0, {"exit", "0"}));
  tell(KeepReport{301, expect<Exited>().exit_id, 0, 0, 0, 0, "r"});
  EXPECT_TRUE(eventually([&] { return open_descriptors(holder_.pid()) <= before; }));
  const std::string children = "/proc/" + std::to_string(holder_.pid()) + "/task/" +
                               std::to_string(holder_.pid()) + "/children";
  EXPECT_TRUE(eventually([&] {
    std::istringstream pids(text_of(children));
    return std::distance(std::istream_iterator<int>(pids), std::istream_iterator<int>()) == 2;
  })) << "the guardian and the agent, and no stray: "
      << text_of(children);
}

}  // namespace
}  // namespace hpctl::holder
