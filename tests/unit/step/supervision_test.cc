// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/supervision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>

#include "common/base/file.h"
#include "common/process/process_stat.h"
#include "common/worker/step_protocol.h"
#include "tests/support/processes.h"
#include "tests/unit/step/supervision_fixture.h"

namespace hpctl::shim {
namespace {

class SupervisionTest : public SupervisionFixture {
 protected:
  // A program that tells this line, and stays.
  void start_telling(const std::string& line) {
    const std::string script = "echo $HPCTL_PROGRESS_FILE >" + (directory_ / "path") + "; echo " +
                               line + " >$HPCTL_PROGRESS_FILE; exec sleep 1000";
    start(script.c_str(), 1);
  }
  std::string path_told() const {
    std::string path = read_file(directory_ / "path").value();
    return path.substr(0, path.find('\n'));
  }
  // Stands in for hpstacks.
  void write_stacks_by(const std::string& script) {
    settings_.stacks = directory_ / "hpstacks";
    std::ofstream(settings_.stacks) << "#!/bin/sh\n" << script << "\n";
    ASSERT_EQ(::chmod(settings_.stacks.c_str(), 0700), 0);
  }
  // The shim has seen its end.
  static void await_reaped(pid_t program) {
    while (::kill(program, 0) == 0) ::poll(nullptr, 0, 1);
  }
};

TEST_F(SupervisionTest, TheEndOfAProgramThatSlurmEndsIsNotTakenForItsOwn) {
  for (const char* script : {"kill -TERM $$", "exit 5"}) {
    start(script, kPatienceMs);
    ASSERT_FALSE(HasFatalFailure());
    const auto started = next();
    ASSERT_TRUE(started && std::holds_alternative<step::Started>(*started));
    await_reaped(static_cast<pid_t>(std::get<step::Started>(*started).pid));
    ASSERT_EQ(::kill(shim_, SIGTERM), 0);
    const auto said = next();
    ASSERT_TRUE(said.has_value());
    EXPECT_TRUE(std::holds_alternative<step::Ending>(*said)) << script << " " << said->index();
    EXPECT_FALSE(next()) << "the controller would start the step again";
    const int status = status_of_shim();
    EXPECT_EQ(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status),
              script[0] == 'k' ? -SIGTERM : 5);
  }
}

TEST_F(SupervisionTest, AProgramThatEndsByItselfIsReported) {
  start("kill -TERM $$", 1);
  ASSERT_FALSE(HasFatalFailure());
  const auto started = next();
  ASSERT_TRUE(started && std::holds_alternative<step::Started>(*started));
  const auto said = next();
  ASSERT_TRUE(said && std::holds_alternative<step::Exited>(*said));
  EXPECT_EQ(std::get<step::Exited>(*said).signal, SIGTERM);
}

// Both wait for a shim that had no turn, in whichever order it then reads them.
TEST_F(SupervisionTest, TheEndOfAProgramThatDiedBeforeItWasToldToStopIsReported) {
  start("exec sleep 1000", 1);
  ASSERT_FALSE(HasFatalFailure());
  const auto started = next();
  ASSERT_TRUE(started && std::holds_alternative<step::Started>(*started));
  const auto program = static_cast<pid_t>(std::get<step::Started>(*started).pid);
  int status = 0;
  ASSERT_EQ(::kill(shim_, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(shim_, &status, WUNTRACED), shim_);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_TRUE(kill_process(program));
  ASSERT_TRUE(controller_->send(step::encode(step::ToShim(step::Stop{1, 1'000}))).ok());
  ASSERT_EQ(::kill(shim_, SIGCONT), 0);
  const auto exited = next();
  ASSERT_TRUE(exited && std::holds_alternative<step::Exited>(*exited));
  EXPECT_EQ(std::get<step::Exited>(*exited).signal, SIGKILL);
  const auto stopped = next();
  EXPECT_TRUE(stopped && std::holds_alternative<step::Stopped>(*stopped));
}

// Its sockets are closed, so the order that its peers' complaint has caused may come before its end
// can be seen.
TEST_F(SupervisionTest, TheEndOfAProgramThatWasDyingWhenItWasToldToStopIsReported) {
  start("exec " HPCTL_LEADER_EXITS, 1);
  ASSERT_FALSE(HasFatalFailure());
  const auto started = next();
  ASSERT_TRUE(started && std::holds_alternative<step::Started>(*started));
  const auto program = static_cast<pid_t>(std::get<step::Started>(*started).pid);
  for (int waited = 0; !is_exiting(program); ++waited) {
    ASSERT_LT(waited, kPatienceMs);
    ::poll(nullptr, 0, 1);
  }
  ASSERT_TRUE(controller_->send(step::encode(step::ToShim(step::Stop{1, 1'000}))).ok());
  const auto exited = next();
  EXPECT_TRUE(exited && std::holds_alternative<step::Exited>(*exited));
  const auto stopped = next();
  EXPECT_TRUE(stopped && std::holds_alternative<step::Stopped>(*stopped));
}

// What the order itself ends is not.
TEST_F(SupervisionTest, TheEndThatWasAskedForIsNotReported) {
  start("exec sleep 1000", 1);
  ASSERT_FALSE(HasFatalFailure());
  const auto started = next();
  ASSERT_TRUE(started && std::holds_alternative<step::Started>(*started));
  ASSERT_TRUE(controller_->send(step::encode(step::ToShim(step::Stop{1, 1'000}))).ok());
  const auto stopped = next();
  EXPECT_TRUE(stopped && std::holds_alternative<step::Stopped>(*stopped));
}

// A stopped program does not end by SIGTERM alone; its stacks come first.
TEST_F(SupervisionTest, AProgramThatHangsIsEndedAfterItsStacksAreWritten) {
  settings_.stacks_limit_ms = kPatienceMs;
  write_stacks_by("kill -0 ${3#*:} && echo \"rank 0 in f (m) of $2\"; echo more");
  start("kill -STOP $$", 1);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(next());
  ASSERT_TRUE(controller_->send(step::encode(step::ToShim(step::Stop{1, 1'000, 1}))).ok());
  const auto stopped = next();
  ASSERT_TRUE(stopped && std::holds_alternative<step::Stopped>(*stopped));
  EXPECT_EQ(std::get<step::Stopped>(*stopped).stacks,
            std::filesystem::current_path().string() +
                "/hpctl-stacks-supervision-test/g1-rank0000.txt: rank 0 in f (m) of 1");
}

// Also where the step is given up for it.
TEST_F(SupervisionTest, AProgramThatHangsLeavesItsStacksWhenTheStepIsGivenUp) {
  settings_.stacks_limit_ms = kPatienceMs;
  write_stacks_by("kill -0 ${3#*:} && echo \"rank 0 in f (m) of $2\"");
  start("kill -STOP $$", 1);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(next());
  ASSERT_TRUE(controller_->send(step::encode(step::ToShim(step::Finish{7, 1}))).ok());
  const auto stopped = next();
  ASSERT_TRUE(stopped && std::holds_alternative<step::Stopped>(*stopped));
  EXPECT_THAT(std::get<step::Stopped>(*stopped).stacks,
              ::testing::EndsWith("/g1-rank0000.txt: rank 0 in f (m) of 1"));
  EXPECT_FALSE(next());
  const int status = status_of_shim();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(SupervisionTest, StacksThatTakeTooLongOrCannotBeWrittenAreNotWaitedFor) {
  for (const char* script : {"exec sleep 1000", "", "exit 1"}) {
    write_stacks_by(script);
    if (*script == '\0') settings_.stacks = directory_ / "nothing";
    start("exec sleep 1000", 1);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_TRUE(next());
    ASSERT_TRUE(controller_->send(step::encode(step::ToShim(step::Stop{1, 1'000, 1}))).ok());
    const auto stopped = next();
    ASSERT_TRUE(stopped && std::holds_alternative<step::Stopped>(*stopped));
    EXPECT_EQ(std::get<step::Stopped>(*stopped).stacks, "");
    TearDown();
  }
}

TEST_F(SupervisionTest, WhatTheProgramTellsIsPassedOnAndItsFileGoesWithIt) {
  start_telling("3 512");
  ASSERT_FALSE(HasFatalFailure());
  const auto started = next();
  ASSERT_TRUE(started && std::holds_alternative<step::Started>(*started));
  const auto pid = std::get<step::Started>(*started).pid;
  // Twice, as it is told also where nothing is new; at first it may still be on its way to sleep.
  for (int asleep = 0; asleep < 2;) {
    const auto said = next();
    ASSERT_TRUE(said && std::holds_alternative<step::Progress>(*said));
    const auto& told = std::get<step::Progress>(*said);
    EXPECT_EQ(told.generation, 1U);
    EXPECT_EQ(told.pid, pid);
    EXPECT_EQ(told.step, 3U);
    EXPECT_EQ(told.tokens, 512U);
    asleep += told.process_state == "S" ? 1 : 0;
  }
  const std::string path = path_told();
  EXPECT_TRUE(is_accessible(path));
  ASSERT_TRUE(kill_process(static_cast<pid_t>(pid)));
  for (auto said = next();; said = next()) {
    ASSERT_TRUE(said);
    if (std::holds_alternative<step::Exited>(*said)) break;
  }
  EXPECT_FALSE(is_accessible(std::filesystem::path(path).parent_path()));
}

// However soon it ends.
TEST_F(SupervisionTest, TheLastStepIsToldBeforeTheEnd) {
  start("echo 9 >>$HPCTL_PROGRESS_FILE", 1);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(next());
  auto said = next();
  ASSERT_TRUE(said && std::holds_alternative<step::Progress>(*said));
  // More than once of one that takes its time to end.
  for (; said && std::holds_alternative<step::Progress>(*said); said = next()) {
    EXPECT_EQ(std::get<step::Progress>(*said).step, 9U);
  }
  EXPECT_TRUE(said && std::holds_alternative<step::Exited>(*said));
}

TEST_F(SupervisionTest, WhatAKilledShimLeftIsRemovedByTheNext) {
  start_telling("1");
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(next());
  ASSERT_TRUE(next());
  ASSERT_EQ(::kill(shim_, SIGKILL), 0);
  status_of_shim();
  const std::string left = path_told();
  start_telling("1");
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(next());
  ASSERT_TRUE(next());
  EXPECT_FALSE(is_accessible(left));
  EXPECT_TRUE(is_accessible(path_told()));
}

}  // namespace
}  // namespace hpctl::shim
