// SPDX-License-Identifier: Apache-2.0
// The launcher with a shell script for srun, which does what a file of the node tells it to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <csignal>
#include <fstream>

#include "common/base/file.h"
#include "controller/schedulers/slurm/srun_launcher.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(60);

class Launcher : public testing::Test {
 protected:
  Launcher() {
    // srun NODE PROGRAM NODE: sources one script after the other of those that the node has.
    const std::string script =
        "cd " + directory_.path() +
        "; echo $$ $* >> $1.calls; n=$(wc -l < $1.calls); [ -e $1.$n ] || n=last; . ./$1.$n";
    settings_.command = {"/bin/sh", "-c", script, "srun"};
    settings_.program = {"hpagent"};
    settings_.log_path = [this](const std::string& node) { return directory_ / (node + ".log"); };
    settings_.first_pause_ms = 5;
    settings_.patience_ms = 60'000;
  }
  std::unique_ptr<SrunLauncher> make() {
    return std::make_unique<SrunLauncher>(
        settings_, [this](const std::string& node, bool was_up, const std::string& cause) {
          const std::lock_guard<std::mutex> lock(mutex_);
          ended_.push_back(node + (was_up ? " was up: " : ": ") + cause);
          changed_.notify_all();
        });
  }
  void when(const std::string& node, const std::string& time, const std::string& commands) {
    ASSERT_TRUE(write_file_atomic(directory_ / (node + "." + time), commands + "\n").ok());
  }
  std::string await_end() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return !ended_.empty(); })) return "nothing";
    const std::string first = ended_.front();
    ended_.erase(ended_.begin());
    return first;
  }
  std::vector<std::string> calls(const std::string& node) const {
    std::ifstream in(directory_ / (node + ".calls"));
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  bool await_calls(const std::string& node, size_t count) const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (calls(node).size() < count) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  TemporaryDirectory directory_;
  SrunSettings settings_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> ended_;
};

TEST_F(Launcher, WhatSlurmRefusesIsReportedWithItsWords) {
  when("n1", "last", "echo 'srun: error: Requested node is not in this allocation' >&2; exit 1");
  const auto launcher = make();
  launcher->launch("n1");
  EXPECT_EQ(await_end(),
            "n1: srun exited with code 1: srun: error: Requested node is not in this allocation");
  ASSERT_EQ(calls("n1").size(), 1U);
  EXPECT_THAT(calls("n1").front(), testing::EndsWith(" n1 hpagent n1"));
}

// Every node was excluded from the next life of such a job, which then waited for ever.
TEST(SrunWords, ARefusalForTheJobIsNoFaultOfTheNode) {
  const std::string create = "srun: error: Unable to create step for job 7: ";
  EXPECT_TRUE(is_refused_for_job(create + "More processors requested than permitted"));
  EXPECT_TRUE(is_refused_for_job(create + "Requested node configuration is not available"));
  EXPECT_TRUE(is_refused_for_job("srun exited with code 1: srun: unrecognized option '--x'"));
  EXPECT_FALSE(
      is_refused_for_job(create + "Required node not available (down, drained or reserved)"));
  EXPECT_FALSE(is_refused_for_job("srun: error: Requested node is not in this allocation"));
  EXPECT_FALSE(
      is_refused_for_job("srun: error: Task launch for StepId=7.1 failed on node n1: "
                         "Communication connection failure"));
  EXPECT_FALSE(is_refused_for_job("srun killed by SIGKILL"));
}

TEST_F(Launcher, AnAbsentSlurmctldIsWaitedFor) {
  const char* absent = "echo 'srun: error: Unable to contact slurm controller' >&2; exit 1";
  when("n1", "1", absent);
  when("n1", "2", absent);
  when("n1", "last", "exec sleep 60");
  const auto launcher = make();
  launcher->launch("n1");
  launcher->launch("n1");  // under way: the same
  ASSERT_TRUE(await_calls("n1", 3));
  launcher->registered("n1");
  ASSERT_EQ(::kill(std::stoi(calls("n1").back()), SIGKILL), 0);
  EXPECT_EQ(await_end(), "n1 was up: srun killed by SIGKILL");
  EXPECT_EQ(calls("n1").size(), 3U);
}

TEST_F(Launcher, PatienceEnds) {
  settings_.patience_ms = 300;
  when("n1", "last", "echo 'srun: error: Socket timed out on send/recv operation' >&2; exit 1");
  const auto launcher = make();
  const auto launched = std::chrono::steady_clock::now();
  launcher->launch("n1");
  EXPECT_THAT(await_end(), HasSubstr("Socket timed out"));
  // Not how often it was tried by then: one try may take as long.
  EXPECT_GE(std::chrono::steady_clock::now() - launched, std::chrono::milliseconds(299));
}

TEST_F(Launcher, NodesDoNotWaitForEachOther) {
  when("n1", "last", "exec sleep 60");
  when("n2", "last", "exit 3");
  const auto launcher = make();
  launcher->launch("n1");
  launcher->launch("n2");
  EXPECT_EQ(await_end(), "n2: srun exited with code 3");
  ASSERT_TRUE(await_calls("n1", 1));
  EXPECT_EQ(::kill(std::stoi(calls("n1").front()), SIGKILL), 0);
}

TEST_F(Launcher, ASecondLifeReplacesTheFirstWithoutNews) {
  when("n1", "last", "exec sleep 60");
  const auto launcher = make();
  launcher->launch("n1");
  ASSERT_TRUE(await_calls("n1", 1));
  launcher->registered("n1");
  launcher->launch("n1");  // the core has given the first life up
  ASSERT_TRUE(await_calls("n1", 2));
  ASSERT_EQ(::kill(std::stoi(calls("n1").front()), SIGKILL), 0);
  ASSERT_EQ(::kill(std::stoi(calls("n1").back()), SIGKILL), 0);
  EXPECT_EQ(await_end(), "n1: srun killed by SIGKILL");
  EXPECT_TRUE(ended_.empty());
}

TEST_F(Launcher, AStoppedLauncherLeavesWhatRuns) {
  when("n1", "last", "exec sleep 60");
  auto launcher = make();
  launcher->launch("n1");
  ASSERT_TRUE(await_calls("n1", 1));
  launcher.reset();
  EXPECT_EQ(::kill(std::stoi(calls("n1").front()), SIGKILL), 0) << "it was alive";
  EXPECT_TRUE(ended_.empty());
}

}  // namespace
}  // namespace hpctl
