// SPDX-License-Identifier: Apache-2.0
// The holder with real workers and a stand-in for the agent proper: child environment, exits that
// are never lost, restarts of the agent, and that nothing survives the holder.
#include <map>
#include <set>

#include "agent/holder/progress_view.h"
#include "agent/holder/worker_mark.h"
#include "tests/support/memory_cgroup.h"
#include "tests/support/promise.h"
#include "tests/support/stalled_mount.h"
#include "tests/unit/agent/holder_fixture.h"

namespace hpctl::holder {
namespace {

TEST_F(HolderTest, WorkerStartsInACleanEnvironment) {
  start_holder();
  ASSERT_GT(spawn(worker(1, 0, {"report", "exit", "0"})).pid, 0U);
  const Exited exited = expect<Exited>();
  EXPECT_EQ(exited.exit_code, 0);
  EXPECT_EQ(exited.signal, 0);
  const std::string log = log_with(0, "OMP_NUM_THREADS");
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
  const std::string log = log_with(0, "OMP_NUM_THREADS");
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

TEST_F(HolderTest, AnExitTellsThatTheKernelHadNoMemoryLeft) {
  start_holder();
  const MemoryCgroup group(uint64_t{256} << 20);
  if (group.path().empty()) GTEST_SKIP() << "needs root and a memory cgroup: none here";
  ASSERT_TRUE(group.take(holder_.pid()));
  spawn(worker(1, 0, {"grow"}));
  const Exited ended = expect<Exited>();
  EXPECT_EQ(ended.signal, SIGKILL);
  EXPECT_EQ(ended.message,
            "the kernel's OOM killer has ended a process here; its cgroup's memory limit is "
            "256 MiB");
  // Another SIGKILL is not the kernel's.
  const WorkerState killed = spawn(worker(1, 1, {"hang"}));
  ::kill(static_cast<pid_t>(killed.pid), SIGKILL);
  EXPECT_EQ(expect<Exited>().message, "");
  EXPECT_TRUE(group.release(holder_.pid()));
}

// One ENOENT, of a directory whose mount was away for a moment, ended jobs that had idle spares.
TEST_F(HolderTest, MissingFileIsNoPermanentFailure) {
  start_holder();
  Spawn request = worker(1, 0, {});
  request.argv = {"/nowhere/hptrain"};
  tell(request);
  SpawnFailed failed = expect<SpawnFailed>();
  EXPECT_EQ(failed.permanent, 0);
  EXPECT_EQ(failed.reason, "cannot execute /nowhere/hptrain: No such file or directory");
  request.argv = {"no-such-program-in-path"};
  tell(request);
  failed = expect<SpawnFailed>();
  EXPECT_NE(failed.reason.find("cannot find program no-such-program-in-path"), std::string::npos);
  request.argv = {"true"};
  request.directory = "/nowhere";
  tell(request);
  failed = expect<SpawnFailed>();
  EXPECT_EQ(failed.permanent, 0);
  EXPECT_NE(failed.reason.find("working directory /nowhere"), std::string::npos);
}

TEST_F(HolderTest, FileThatIsNoProgramIsAPermanentFailure) {
  const std::string file = home_.path() + "/no-program";
  ASSERT_TRUE(write_file_atomic(file, "no first line\n").ok());
  ASSERT_EQ(::chmod(file.c_str(), 0755), 0);
  start_holder();
  Spawn request = worker(1, 0, {});
  request.argv = {file};
  tell(request);
  EXPECT_EQ(expect<SpawnFailed>().permanent, 1);
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
  ASSERT_TRUE(eventually([&] { return is_accessible(home_.path() + "/ready"); }));
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
  ASSERT_TRUE(eventually([&] { return is_accessible(home_.path() + "/deaf"); }));
  tell(Kill{2, 100});
  std::map<int, int> signals;  // in whichever order they come to their end
  for (int i = 0; i < 2; ++i) {
    const Exited ended = expect<Exited>();
    EXPECT_EQ(ended.by_request, 1);
    signals[ended.rank] = ended.signal;
  }
  EXPECT_EQ(signals, (std::map<int, int>{{0, SIGTERM}, {1, SIGKILL}}));
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
  EXPECT_TRUE(eventually([&] { return !process_runs(child); })) << broken_promise("leftover");
  EXPECT_TRUE(process_runs(stray)) << "another worker's";
  ::kill(static_cast<pid_t>(two.pid), SIGKILL);
  EXPECT_EQ(expect<Exited>().rank, 1);
  EXPECT_TRUE(eventually([&] { return !process_runs(stray); })) << broken_promise("leftover");
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

TEST_F(HolderTest, NothingSurvivesTheHolder) {
  start_holder();
  const WorkerState one = spawn(worker(1, 0, {"child", "hang"}));
  const WorkerState two = spawn(worker(1, 1, {"stray", "hang"}));
  const pid_t child = logged_pid(0, "sleeper");
  const pid_t stray = logged_pid(1, "sleeper");
  ::kill(holder_.pid(), SIGKILL);
  for (const pid_t pid :
       {static_cast<pid_t>(one.pid), static_cast<pid_t>(two.pid), child, stray, agent_pid_}) {
    EXPECT_TRUE(eventually([&] { return !process_runs(pid); }))
        << pid << broken_promise("leftover");
  }
  // A free lock means that nothing is left, so whoever comes next waits for the reaper.
  EXPECT_EQ(holder_.wait_for_end(), 256 + SIGKILL);
  const std::string old_boot = hello_.boot_id;
  start_holder();
  EXPECT_NE(hello_.boot_id, old_boot);
  EXPECT_EQ(hello_.generation_seen, 0U);
}

// recovery.hang_rules
TEST_F(HolderTest, LinesThatMatchAreTold) {
  start_holder();
  Spawn request = worker(1, 0, {});
  request.argv = {"/bin/sh", "-c", "echo loss=1; echo other; exec sleep 600"};
  request.workload.clear();
  request.hang_patterns = {"^loss=", "never"};
  const WorkerState state = spawn(request);
  LogMatches lines = expect<LogMatches>();
  ASSERT_EQ(lines.matched_ms.size(), 2U);
  // Whether the line came before the first message is chance.
  if (lines.matched_ms[0] == 0) lines = expect<LogMatches>();
  ASSERT_EQ(lines.matched_ms.size(), 2U);
  EXPECT_EQ(lines.incarnation, state.incarnation);
  EXPECT_GT(lines.matched_ms[0], 0);
  EXPECT_EQ(lines.matched_ms[1], 0);
}

// `hpctl submit` refuses it; a spec may come another way.
TEST_F(HolderTest, AWrongPatternFailsTheStartForGood) {
  start_holder();
  Spawn request = worker(1, 0, {});
  request.hang_patterns = {"loss=("};
  tell(request);
  const auto failed = expect<SpawnFailed>();
  EXPECT_EQ(failed.permanent, 1);
  EXPECT_NE(failed.reason.find("recovery.hang_rules: \"loss=(\" is not a regular expression"),
            std::string::npos)
      << failed.reason;
}

TEST_F(HolderTest, SigtermEndsTheWorkersThenTheHolder) {
  start_holder();
  const WorkerState one = spawn(worker(1, 0, {"stray", "hang"}));
  const pid_t stray = logged_pid(0, "sleeper");
  ::kill(holder_.pid(), SIGHUP);
  ::kill(holder_.pid(), SIGTERM);
  EXPECT_EQ(expect<ToldToEnd>().reason, "signal 15");
  EXPECT_TRUE(process_runs(static_cast<pid_t>(one.pid))) << "an order may come";
  EXPECT_EQ(holder_.wait_for_end(), 0) << "none came";
  EXPECT_FALSE(process_runs(static_cast<pid_t>(one.pid))) << broken_promise("leftover");
  EXPECT_FALSE(process_runs(stray)) << broken_promise("leftover");
  EXPECT_FALSE(process_runs(agent_pid_)) << broken_promise("leftover");
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
  ASSERT_TRUE(eventually([&] { return is_accessible(home_.path() + "/ready"); }));
  tell(End{0, 3'000, "given up"});
  const std::string lock = home_.paths().node_lock(kJob, "n0");
  ASSERT_TRUE(
      eventually([&] { return text_of(lock) == std::to_string(holder_.pid()) + " ending\n"; }));
  test::Child second([this] { return run_holder(options()); });
  EXPECT_EQ(holder_.wait_for_end(), 0);
  EXPECT_FALSE(process_runs(static_cast<pid_t>(deaf.pid))) << broken_promise("leftover");
  EXPECT_TRUE(eventually([&] { return text_of(lock) == std::to_string(second.pid()) + "\n"; }))
      << "it is the node now";
}

TEST_F(HolderTest, GivesUpWhenTheAgentCannotBeKeptAlive) {
  holder_ = test::Child([this] {
    HolderOptions broken = options();
    broken.agent_argv = {"/nowhere/hpagent"};
    broken.max_short_lives = 8;  // 2 s of trying
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

// The holder wrote the logs itself: a file server that paused for 5 s ended the node. A FIFO that
// nobody reads stands for a file on it.
TEST_F(HolderTest, StalledLogDirectoryDoesNotStopTheHolder) {
  start_holder();
  const std::string log = log_path(0);
  ASSERT_TRUE(make_directories(home_.paths().job_logs(kJob)).ok());
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  spawn(worker(1, 0, {"fill", "5000", "exit", "0"}));
  EXPECT_EQ(expect<Exited>().exit_code, 0);
  spawn(worker(2, 1, {"exit", "7"}));
  EXPECT_EQ(expect<Exited>().exit_code, 7);
  const UniqueFd writer = open_pidfd(log_writer());
  ASSERT_TRUE(writer.valid());
  tell(End{0, 0, "done"});
  EXPECT_EQ(holder_.wait_for_end(), 0) << "a writer that is stuck is left behind";
  // The file server is back: nothing is lost, and nothing is left.
  const UniqueFd file(::open(log.c_str(), O_RDONLY | O_CLOEXEC));
  const auto text = read_all(file.get(), log, 64U << 20);
  ASSERT_TRUE(text.ok());
  EXPECT_GE(text->size(), 5'000 * 100U);
  EXPECT_TRUE(await_end(writer)) << broken_promise("leftover");
  EXPECT_NE(text_of(log_path(1)).find("generation 2 rank 1"), std::string::npos);
}

// The holder waited for the exec of a program on a file server, and was taken for hung.
TEST_F(HolderTest, StalledExecDoesNotStopTheHolder) {
  start_holder();
  const std::string directory = home_.path() + "/mount";
  ASSERT_TRUE(make_directories(directory).ok());
  test::StalledMount mount(directory);
  if (!mount.mounted()) GTEST_SKIP() << "needs root and /dev/fuse: this machine lets us not mount";
  Spawn stalled = worker(1, 0, {});
  stalled.argv = {directory + "/hptrain"};
  tell(stalled);
  Spawn standing = worker(1, 2, {});
  standing.directory = directory;
  tell(standing);
  EXPECT_EQ(spawn(worker(1, 1, {"hang"})).rank, 1) << "the next order is carried out";
  // The next agent repeats the order, and the answer comes when there is one.
  ::kill(agent_pid_, SIGKILL);
  accept_agent();
  EXPECT_EQ(greeted<WorkerState>().size(), 1U) << "what has not begun is not there yet";
  tell(stalled);
  EXPECT_EQ(spawn(worker(1, 3, {"hang"})).rank, 3) << "it has read the order before";
  mount.end();
  std::set<int32_t> failed;
  for (int i = 0; i < 2; ++i) {
    const SpawnFailed answer = expect<SpawnFailed>();
    EXPECT_EQ(answer.permanent, 0) << answer.reason;
    failed.insert(answer.rank);
  }
  EXPECT_EQ(failed, (std::set<int32_t>{0, 2}));
  EXPECT_GT(spawn(worker(1, 0, {"hang"})).pid, 0U) << "nothing stands in the way";
}

TEST_F(HolderTest, WorkerKilledBeforeItsExecIsReportedOnce) {
  start_holder();
  const std::string directory = home_.path() + "/mount";
  ASSERT_TRUE(make_directories(directory).ok());
  test::StalledMount mount(directory);
  if (!mount.mounted()) GTEST_SKIP() << "needs root and /dev/fuse: this machine lets us not mount";
  Spawn stalled = worker(1, 0, {});
  stalled.argv = {directory + "/hptrain"};
  tell(stalled);
  tell(Kill{1, 0, 600'000, 0});  // it cannot leave its generation by itself
  EXPECT_EQ(expect<WorkerState>().rank, 0);
  const Exited ended = expect<Exited>();
  EXPECT_EQ(ended.signal, SIGKILL);
  EXPECT_EQ(ended.by_request, 1);
}

// The holder wrote its own log to the job's directory, too: it hung in its first line. A full pipe
// stands for a file on a server that does not answer.
TEST_F(HolderTest, StalledOwnLogDoesNotStopTheHolder) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd log(ends[0]);
  stderr_.reset(ends[1]);
  const std::string full(static_cast<size_t>(::fcntl(log.get(), F_GETPIPE_SZ)), '.');
  ASSERT_EQ(::write(stderr_.get(), full.data(), full.size()), static_cast<ssize_t>(full.size()));
  start_holder();
  stderr_.reset();
  for (int i = 0; i < 3; ++i) {
    ::kill(agent_pid_, SIGKILL);  // which the holder logs
    accept_agent();
  }
  spawn(worker(1, 0, {"exit", "7"}));
  EXPECT_EQ(expect<Exited>().exit_code, 7);
  const UniqueFd writer = open_pidfd(log_writer());
  tell(End{0, 0, "done"});
  EXPECT_EQ(holder_.wait_for_end(), 0) << "a writer that is stuck is left behind";
  const auto text = read_all(log.get(), "the log", SIZE_MAX);
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("workers are not disturbed"), std::string::npos);
  EXPECT_NE(text->find("holder of node n0 ended"), std::string::npos) << "nothing is lost";
  EXPECT_TRUE(await_end(writer)) << broken_promise("leftover");
}

TEST_F(HolderTest, LogWriterThatDiesIsReplaced) {
  start_holder();
  pid_t first = -1;
  ASSERT_TRUE(eventually([&] { return (first = log_writer()) > 0; }));
  ::kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return log_writer() > 0 && log_writer() != first; }));
  spawn(worker(1, 0, {"print", "after", "hang"}));
  log_with(0, "after\n");
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
  expect_children(3);  // the reaper, the agent and the log keeper, and no stray
}

// ---- stacks of a generation that hangs
// -----------------------------------------------------------

std::string stacks_file(const test::TemporaryHome& home, const std::string& name) {
  return home.paths().job_stacks(kJob) + "/" + name;
}

TEST_F(HolderTest, StacksAreWrittenBeforeTheOrderIsCarriedOut) {
  start_holder();
  const auto spawn_and_step = [&](const Spawn& request) {
    const WorkerState started = spawn(request);
    const ProgressView page(descriptor_.get());
    EXPECT_TRUE(eventually([&] { return page.sample().step == 9; })) << "it is in main()";
    return started;
  };
  const WorkerState stays = spawn_and_step(worker(1, 0, {"map", "step", "9", "obey"}));
  const WorkerState hangs = spawn_and_step(worker(1, 1, {"map", "step", "9", "hang"}));
  tell(Kill{1, 0, 600'000, 1});
  const StacksTaken taken = expect<StacksTaken>();
  EXPECT_EQ(taken.generation, 1U);
  const std::string where = "stacks: " + stacks_file(home_, "g1-rank*.txt") + ": rank ";
  EXPECT_TRUE(taken.told.starts_with(where)) << taken.told;
  EXPECT_NE(taken.told.find("probe_worker"), std::string::npos) << taken.told;
  const std::string text = text_of(stacks_file(home_, "g1-rank0001.txt"));
  EXPECT_NE(text.find("process " + std::to_string(hangs.pid)), std::string::npos) << text;
  EXPECT_NE(text.find("main (probe_worker)"), std::string::npos) << text;
  // Nobody is traced any more: one obeys, the other one goes on as it was.
  EXPECT_EQ(expect<Exited>().stays, 1);
  EXPECT_EQ(expect<WorkerState>().pid, stays.pid);
  for (const uint64_t pid : {stays.pid, hangs.pid}) {
    const std::string status = text_of("/proc/" + std::to_string(pid) + "/status");
    EXPECT_NE(status.find("TracerPid:\t0\n"), std::string::npos) << status;
  }
  // Repeated by another agent: they were told already. And an order without the wish waits for
  // nothing.
  tell(Kill{1, 0, 600'000, 1});
  tell(Kill{1, 0, 0, 0});
  EXPECT_EQ(expect<Exited>().signal, SIGKILL);
}

TEST_F(HolderTest, WithoutHpstacksTheOrderIsCarriedOutAtOnce) {
  stacks_program_ = "/nowhere/hpstacks";
  start_holder();
  spawn(worker(1, 0, {"map", "hang"}));
  tell(Kill{1, 0, 0, 1});
  EXPECT_EQ(expect<Exited>().signal, SIGKILL);
}

TEST_F(HolderTest, StacksThatTakeTooLongAreNotWaitedFor) {
  stacks_program_ = home_.path() + "/slow";
  stacks_limit_ms_ = kStacksLimitMs;
  ASSERT_TRUE(write_file_atomic(stacks_program_, "#!/bin/sh\nexec sleep 600\n").ok());
  ASSERT_EQ(::chmod(stacks_program_.c_str(), 0755), 0);
  start_holder();
  spawn(worker(1, 0, {"map", "hang"}));
  const auto ordered = std::chrono::steady_clock::now();
  tell(Kill{1, 0, 0, 1});
  EXPECT_EQ(expect<Exited>().signal, SIGKILL);
  EXPECT_GE(std::chrono::steady_clock::now() - ordered, std::chrono::milliseconds(kStacksLimitMs))
      << "stacks come first";
  expect_children(3);  // reaper, agent, log keeper: hpstacks is gone
}

}  // namespace
}  // namespace hpctl::holder
