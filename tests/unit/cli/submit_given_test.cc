// SPDX-License-Identifier: Apache-2.0
// `hpctl submit` with a job file and what is given beside it, within this process: --dry-run.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using test::CommandRun;
using test::run_hpctl;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kJob = "name: c\nworkload: {command: [./train, --lr, '1']}\n";

class SubmitGiven : public ::testing::Test {
 protected:
  std::string file() const { return home_.directory() + "/job.yaml"; }

  CommandRun dry_run(std::vector<std::string> options) {
    EXPECT_TRUE(write_file_atomic(file(), kJob).ok());
    options.insert(options.begin(), {"submit", file(), "--local", "--dry-run"});
    return run_hpctl(options);
  }

  ScopedHome home_;
};

TEST_F(SubmitGiven, SetAndNameReplaceTheFiles) {
  const CommandRun run =
      dry_run({"--set", "nodes=2", "--set=workers_per_node=4", "--name", "d", "--set", "name=c2"});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("name: d\n"), HasSubstr("count: 2\n"),
                             HasSubstr("workers_per_node: 4\n")));
}

TEST_F(SubmitGiven, MistakesStartNothing) {
  const CommandRun key = dry_run({"--set", "nodez=2", "--set", "recovery.window=5"});
  EXPECT_EQ(key.status, kExitUsage);
  EXPECT_EQ(key.err,
            "--set nodez: unknown key \"nodez\"; did you mean \"nodes\"?\n"
            "--set recovery.window: expected a duration such as 500ms, 2s, 30m, 1h, 7d or "
            "7-00:00:00; found \"5\"\n");
  const CommandRun form = dry_run({"--set", "nodes"});
  EXPECT_EQ(form.status, kExitUsage);
  EXPECT_THAT(form.err, HasSubstr("hpctl submit: --set: expected KEY=VALUE, such as "
                                  "workload.train.steps=100, found \"nodes\""));
  EXPECT_EQ(dry_run({"--name", "12"}).status, kExitUsage);
  EXPECT_THAT(dry_run({"--set"}).err, HasSubstr("--set needs a value KEY=VALUE"));
}

TEST_F(SubmitGiven, AVariableInAValueIsAWarning) {
  const CommandRun run =
      dry_run({"--set", "env.set={A: $HOME/bin, B: 'x${TMP}', C: cost $5, D: plain}"});
  EXPECT_EQ(run.status, kExitOk);
  EXPECT_EQ(run.err,
            "hpctl: warning: env.set: the value of A has $HOME, and hpctl expands no variable; "
            "write the value in full, or let a shell expand it: command: [bash, -c, ...]\n"
            "hpctl: warning: env.set: the value of B has $TMP, and hpctl expands no variable; "
            "write the value in full, or let a shell expand it: command: [bash, -c, ...]\n");
  EXPECT_THAT(run.out, HasSubstr("{A: $HOME/bin, ")) << "as written";
}

// Standard input of this process is another file while `run` runs.
CommandRun with_input(const std::string& path, const std::vector<std::string>& words) {
  const UniqueFd before(::dup(STDIN_FILENO));
  EXPECT_TRUE(before.valid());
  const UniqueFd input(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(::dup2(input.get(), STDIN_FILENO), STDIN_FILENO);
  CommandRun run = run_hpctl(words);
  ::dup2(before.get(), STDIN_FILENO);
  return run;
}

TEST_F(SubmitGiven, AJobFileComesOnStandardInput) {
  ASSERT_TRUE(write_file_atomic(file(), kJob).ok());
  const CommandRun run = with_input(file(), {"submit", "-", "--local", "--dry-run"});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_THAT(run.out, HasSubstr(std::filesystem::current_path().string() + "/train"))
      << "relative paths count from the working directory";
  ASSERT_TRUE(write_file_atomic(file(), "name: c\nnodez: 2\nworkload: {command: [x]}\n").ok());
  const CommandRun wrong = with_input(file(), {"submit", "-", "--local", "--dry-run"});
  EXPECT_EQ(wrong.status, kExitUsage);
  EXPECT_EQ(wrong.err, "standard input:2:1: unknown key \"nodez\"; did you mean \"nodes\"?\n");
}

}  // namespace
}  // namespace hpctl::testing
