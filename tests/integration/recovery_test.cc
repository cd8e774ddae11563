// SPDX-License-Identifier: Apache-2.0
// Recoveries of a running job in detail: which processes stay, which step follows, what is told.
// chaos_test.cc has each kind of fault once and compares the bits of the result.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <set>
#include <sstream>

#include "common/base/file.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/processes.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr seconds kLong{120};
// Enough that the fault comes after a checkpoint and well before the end.
constexpr int kSteps = 70;
constexpr uint64_t kFaultStep = 12;

// A machine that loads LibTorch for four workers may leave an agent no time for seconds, and then
// its node is not to be lost.
TrainingJob job_of(int steps) {
  return {.steps = steps, .checkpoint_every = 5, .heartbeat_timeout = "10s"};
}
TrainingJob short_job() { return job_of(kSteps); }

class Recovery : public ::testing::Test {
 protected:
  // Submits and waits until the job is well into training. Who is who is asked before that: on a
  // busy machine an answer may take as long as the steps that are left.
  void start(const TrainingJob& job) {
    job_ = cluster_.submit(job.yaml());
    ASSERT_TRUE(cluster_.wait_for_step(job_, 1, kLong)) << diagnosis();
    before_ = cluster_.status(job_);
    ASSERT_GT(worker_pid(before_, 0), 0) << before_;
    ASSERT_TRUE(cluster_.wait_for_step(job_, kFaultStep, kLong)) << diagnosis();
  }
  void expect_finish() {
    EXPECT_EQ(cluster_.wait_for_end(job_, kLong), "FINISHED") << diagnosis();
    after_ = cluster_.status(job_);
  }
  // Until it trains.
  void await_generation(uint64_t generation) {
    EXPECT_TRUE(wait_until(
        cluster_.paths().job(job_),
        [&] {
          after_ = cluster_.status(job_);
          return after_["generation"] == generation && after_["state"] == "RUNNING";
        },
        kLong))
        << diagnosis();
  }
  // Until every node has one that is ready.
  void await_standbys() {
    const auto is_ready = [](const json& node) {
      return node.contains("standbys") && node["standbys"]["wanted"] == 1 &&
             node["standbys"]["ready"] == 1 && node["standbys"]["memory_bytes"] > 1'000'000;
    };
    EXPECT_TRUE(wait_until(
        cluster_.paths().job(job_),
        [&] {
          const json nodes = cluster_.status(job_)["nodes"];
          return std::all_of(nodes.begin(), nodes.end(), is_ready);
        },
        kLong))
        << diagnosis();
  }
  std::string diagnosis() const {
    std::string text = cluster_.hpctl({"status", to_string(job_)}).out;
    text += cluster_.hpctl({"events", to_string(job_)}).out;
    text += cluster_.hpctl({"logs", to_string(job_), "--tail", "20"}).out;
    return text;
  }
  std::string causes(const std::string& type) const {
    std::string text;
    for (const json& event : cluster_.events(job_)) {
      if (event["type"] == type) text += event["cause"].get<std::string>() + "\n";
    }
    return text;
  }
  // The step that each killed worker was in.
  std::set<uint64_t> steps_of_the_killed() const {
    std::set<uint64_t> steps;
    for (const json& event : cluster_.events(job_)) {
      if (event["type"] != "WorkerExited") continue;
      const std::string cause = event["cause"];
      if (cause.find("SIGKILL") != std::string::npos) {
        steps.insert(event["step"].get<uint64_t>() + 1);
      }
    }
    return steps;
  }

  LocalCluster cluster_;
  JobId job_;
  json before_;
  json after_;
};

// A fault costs the process that died: a standby was ready for its place.
TEST_F(Recovery, TheOthersKeepTheirProcesses) {
  start(job_of(100000));
  await_standbys();
  ASSERT_TRUE(end_process(worker_pid(before_, 2)));
  await_generation(2);
  EXPECT_EQ(after_["restarts"], 1);
  EXPECT_NE(causes("WorkerExited").find("SIGKILL"), std::string::npos) << causes("WorkerExited");
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(worker_pid(after_, rank), worker_pid(before_, rank)) << rank << "\n" << diagnosis();
  }
  const auto standby = read_file(cluster_.paths().job_logs(job_) + "/standby-n1.log");
  ASSERT_TRUE(standby.ok()) << standby.error().message;
  const std::string name = " pid " + std::to_string(worker_pid(after_, 2)) + " ";
  EXPECT_NE(standby->find(name), std::string::npos) << *standby << diagnosis();
  EXPECT_EQ(causes("StandbySteppedIn"), "a standby on n1 has taken the place of rank 2\n");
  const std::string started = causes("WorkersStarted");
  EXPECT_NE(started.find("n0 started its workers (2 stayed); "), std::string::npos) << started;
  EXPECT_NE(started.find("n1 started its workers (1 stayed, 1 stood by); "), std::string::npos)
      << started;
  EXPECT_NE(cluster_.hpctl({"why", to_string(job_)}).out.find("StandbySteppedIn"),
            std::string::npos);
}

// Nobody waits for it: nothing is restarted. Once it is mended and released it stands by.
TEST_F(Recovery, AnUnfitSpareIsFoundBeforeItIsNeeded) {
  const std::string scratch = cluster_.directory() + "/scratch";
  TrainingJob job = job_of(100000);
  job.nodes = "{count: 2, spares: 1}";
  job.more = "hooks: {pre: 'test $HPCTL_NODE != n2 || cat " + scratch + "'}\n";
  start(job);
  const auto spare = [&] { return cluster_.status(job_)["nodes"][2]; };
  const std::string directory = cluster_.paths().job(job_);
  ASSERT_TRUE(wait_until(
      directory, [&] { return spare()["role"] == "quarantined"; }, kLong))
      << diagnosis();
  const std::string why = "hooks.pre 1: exit code 1: cat: " + scratch;
  EXPECT_NE(spare()["note"].get<std::string>().find(why), std::string::npos) << spare();
  EXPECT_NE(causes("SpareFoundUnfit").find("spare n2 is unfit: " + why), std::string::npos);
  EXPECT_NE(cluster_.hpctl({"why", to_string(job_)}).out.find("SpareFoundUnfit"),
            std::string::npos);
  EXPECT_EQ(cluster_.status(job_)["restarts"], 0);

  ASSERT_TRUE(write_file_atomic(scratch, "").ok());
  ASSERT_EQ(cluster_.hpctl({"nodes", "release", "n2", "--job", to_string(job_)}).exit_code, 0);
  EXPECT_TRUE(wait_until(
      directory,
      [&] {
        const json node = spare();
        return node.contains("standbys") && node["standbys"]["ready"] == 2;
      },
      kLong))
      << diagnosis();
  EXPECT_EQ(cluster_.status(job_)["restarts"], 0);
}

// Nothing is on disk before the end: what was completed is in the workers' memory, and in that of
// the dead. A step is completed when every rank has it: the one that a rank was in when it was
// killed is not.
TEST_F(Recovery, NoCompletedStepIsDoneAgain) {
  constexpr int kStepsOfTwoFaults = 200;  // the second comes when generation 2 has been seen
  TrainingJob job = job_of(kStepsOfTwoFaults);
  job.checkpoint_every = 100000;
  start(job);
  ASSERT_TRUE(end_process(worker_pid(before_, 2)));
  await_generation(2);
  ASSERT_TRUE(end_process(worker_pid(after_, 3)));
  expect_finish();
  EXPECT_EQ(after_["generation"], 3);
  const std::string starts = causes("StartWorkers");
  EXPECT_NE(starts.find("from the memory of generation 1"), std::string::npos) << starts;
  EXPECT_NE(starts.find("from the memory of generation 2"), std::string::npos) << starts;
  const std::set<uint64_t> in_progress = steps_of_the_killed();
  std::istringstream lines(*read_file(cluster_.paths().job_metrics(job_)));
  uint64_t step = 0;
  uint64_t generation = 0;
  for (std::string line; std::getline(lines, line);) {
    const json metrics = json::parse(line);
    const bool is_next_generation = metrics["generation"] > generation;
    generation = metrics["generation"];
    if (is_next_generation && metrics["step"] == step && in_progress.contains(step)) continue;
    EXPECT_EQ(metrics["step"], ++step) << line << "\n" << causes("WorkerExited");
  }
  EXPECT_EQ(step, kStepsOfTwoFaults);
}

// What a survivor holds is not worth waiting for: a process that does not leave is ended.
TEST_F(Recovery, AWorkerThatCannotLeaveItsGenerationIsEnded) {
  start(job_of(100000));
  ASSERT_EQ(kill(worker_pid(before_, 0), SIGSTOP), 0);
  ASSERT_TRUE(end_process(worker_pid(before_, 2)));
  await_generation(2);
  EXPECT_NE(worker_pid(after_, 0), worker_pid(before_, 0));
  // Told alone, or with the rank beside it that left when it was told to.
  const std::string exits = causes("WorkerExited") + causes("WorkersExited");
  EXPECT_NE(exits.find("was ended by SIGKILL"), std::string::npos) << exits;
}

TEST_F(Recovery, EverythingAtOnceUnderAWaitingClient) {
  const std::string file = cluster_.directory() + "/waited.yaml";
  ASSERT_TRUE(write_file_atomic(file, short_job().yaml()).ok());
  std::future<CommandResult> client = std::async(std::launch::async, [&] {
    return cluster_.hpctl({"submit", "--local", "--wait", file}, seconds(120));
  });
  job_ = JobId{1};
  ASSERT_TRUE(cluster_.wait_for_step(job_, kFaultStep, kLong)) << diagnosis();
  before_ = cluster_.status(job_);
  end_process(before_["controller"]["pid"].get<pid_t>());
  for (size_t node = 0; node < 2; ++node) {
    end_process(node_pid(before_, node, "holder_pid"));
    end_process(node_pid(before_, node, "agent_pid"));
  }
  for (int rank = 0; rank < 4; ++rank) end_process(worker_pid(before_, rank));
  const CommandResult result = client.get();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err << diagnosis();
  after_ = cluster_.status(job_);
  EXPECT_EQ(after_["state"], "FINISHED");
  EXPECT_GE(after_["generation"], 2);
}

TEST_F(Recovery, StoppedWorkerIsFoundAndReplaced) {
  start(short_job());
  const pid_t worker = worker_pid(before_, 1);
  ASSERT_EQ(kill(worker, SIGSTOP), 0);
  expect_finish();
  EXPECT_EQ(after_["generation"], 2) << diagnosis();
  // Also when it had begun the same collective as all others.
  const std::string verdict = causes("HangDetected");
  const std::string who = "rank 1 (pid " + std::to_string(worker) + ") is stopped (state T)";
  EXPECT_NE(verdict.find(who), std::string::npos) << verdict;
  // Where each rank stood is written, and where that is, is said.
  const std::string stacks = cluster_.paths().job_stacks(job_);
  for (int rank = 0; rank < 4; ++rank) {
    const auto text = read_file(stacks + "/g1-rank000" + std::to_string(rank) + ".txt");
    ASSERT_TRUE(text.ok()) << text.error().message << diagnosis();
    EXPECT_NE(text->find("main (hptrain)"), std::string::npos) << *text;
    EXPECT_NE(text->find("(libhptrain_engine.so)"), std::string::npos) << *text;
  }
  const std::string why = cluster_.hpctl({"why", to_string(job_), "--json"}).out;
  EXPECT_NE(why.find("stacks: " + stacks + "/g1-rank*.txt: rank "), std::string::npos) << why;
}

// From the next call on the process is for ever at the first instruction of the function, which
// becomes a jump to itself. `symbol` is a part of its line in what nm prints.
void hang_at(pid_t pid, const std::string& symbol) {
#if defined(__aarch64__)
  const std::string jump("\x00\x00\x00\x14", 4);
#else
  const std::string jump("\xeb\xfe");
#endif
  const std::string library = "libhptrain_engine.so";
  const char* programs = std::getenv("HPCTL_BIN");
  ASSERT_NE(programs, nullptr);
  const CommandResult names = run_command({"/usr/bin/nm", programs + ("/" + library)}, {});
  const size_t at = names.out.find(symbol);
  ASSERT_NE(at, std::string::npos) << symbol << " " << names.err;
  const size_t line = names.out.rfind('\n', at) + 1;
  const uint64_t offset = std::stoull(names.out.substr(line), nullptr, 16);
  std::istringstream maps(read_file("/proc/" + std::to_string(pid) + "/maps").value());
  for (std::string map; std::getline(maps, map);) {
    if (map.find(library) == std::string::npos) continue;
    // The first is where the file begins.
    const uint64_t address = std::stoull(map, nullptr, 16) + offset;
    const std::string memory = "/proc/" + std::to_string(pid) + "/mem";
    const UniqueFd fd(::open(memory.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(fd.valid()) << memory << ": " << std::strerror(errno);
    ASSERT_EQ(::pwrite(fd.get(), jump.data(), jump.size(), static_cast<off_t>(address)),
              static_cast<ssize_t>(jump.size()));
    return;
  }
  FAIL() << library << " is not in process " << pid;
}

TEST_F(Recovery, ARankThatHangsWhileItComputesIsFoundSoonAndBlamed) {
  start(job_of(100000));
  const pid_t worker = worker_pid(before_, 2);
  const auto begin = std::chrono::steady_clock::now();
  hang_at(worker, " T _ZN5hpctl12FullySharded16forward_backward");
  await_generation(2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(45)) << "a minute is the usual limit";
  const std::string verdict = causes("HangDetected");
  EXPECT_NE(verdict.find("; rank 2 (pid " + std::to_string(worker) + ") began collective"),
            std::string::npos)
      << verdict;
  const auto stacks = read_file(cluster_.paths().job_stacks(job_) + "/g1-rank0002.txt");
  ASSERT_TRUE(stacks.ok()) << stacks.error().message;
  EXPECT_NE(stacks->find("  #0 hpctl::FullySharded::forward_backward("), std::string::npos)
      << *stacks;
}

TEST_F(Recovery, SpentBudgetFailsWithDiagnosis) {
  job_ = cluster_.submit(
      "name: hopeless\nnodes: 1\nworkers_per_node: 2\n"
      "workload: {command: [/bin/sh, -c, 'exit 7']}\n"
      "recovery: {max_restarts: 2, window: 1h}\n");
  EXPECT_EQ(cluster_.wait_for_end(job_, kLong), "FAILED") << diagnosis();
  const std::string why = cluster_.hpctl({"why", to_string(job_)}).out;
  EXPECT_NE(why.find("code 7"), std::string::npos) << why;
}

}  // namespace
}  // namespace hpctl::testing
