// SPDX-License-Identifier: Apache-2.0
// `hpctl init`: what it writes passes our own checks, and no file is replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/file.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using test::CommandRun;
using test::run_hpctl;
using ::testing::HasSubstr;

TEST(Init, EveryKindPassesTheDryRun) {
  const ScopedHome home;
  for (const std::string kind : {"trainer", "script", "finetune"}) {
    const std::string file = home.directory() + "/" + kind + ".yaml";
    const CommandRun written = run_hpctl({"init", kind, file});
    EXPECT_EQ(written.status, kExitOk) << written.err;
    EXPECT_THAT(written.out, HasSubstr("wrote " + file));
    const CommandRun checked = run_hpctl({"submit", file, "--local", "--dry-run", "--gpu", "h100"});
    EXPECT_EQ(checked.status, kExitOk) << kind << ": " << checked.err;
    EXPECT_EQ(checked.err, "") << kind << " has nothing to warn of";
  }
}

TEST(Init, AFileThatExistsStays) {
  const ScopedHome home;
  const std::string file = home.directory() + "/job.yaml";
  ASSERT_TRUE(write_file_atomic(file, "name: mine\n").ok());
  const CommandRun run = run_hpctl({"init", "trainer", file});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr(file + " exists, and hpctl init replaces no file"));
  EXPECT_EQ(read_file(file).value(), "name: mine\n");
  EXPECT_EQ(run_hpctl({"init", "trainer", home.directory() + "/none/job.yaml"}).status,
            kExitFailed);
  EXPECT_EQ(run_hpctl({"init", "sbatch"}).status, kExitUsage);
}

}  // namespace
}  // namespace hpctl::testing
