// SPDX-License-Identifier: Apache-2.0
// torchrun and its like as workload.command: what they would start, and what is said about them.
#include "hpctl/rank_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/file.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

Words started(const Words& command) {
  const auto launcher = find_rank_launcher(command);
  return launcher ? launcher->command : Words{"no launcher"};
}

TEST(RankLauncher, CommandsWithoutTheirLauncher) {
  EXPECT_THAT(started({"torchrun", "--nnodes=2", "--nproc-per-node", "8", "--standalone",
                       "--rdzv_endpoint", "$(hostname):29500", "train.py", "--lr", "1"}),
              ElementsAre("python3", "train.py", "--lr", "1"));
  EXPECT_THAT(started({"/v/bin/torchrun", "--nproc_per_node=8", "-m", "pkg.train", "-x"}),
              ElementsAre("/v/bin/python", "-m", "pkg.train", "-x"));
  EXPECT_THAT(started({"torchrun", "--no-python", "./train", "a"}), ElementsAre("./train", "a"));
  EXPECT_THAT(started({"python", "-u", "-m", "torch.distributed.run", "--nnodes", "1", "t.py"}),
              ElementsAre("python", "-u", "t.py"));
  EXPECT_THAT(started({"/v/bin/python", "/v/bin/torchrun", "t.py"}),
              ElementsAre("/v/bin/python", "t.py"));
  EXPECT_THAT(started({"uv", "run", "torchrun", "t.py"}),
              ElementsAre("uv", "run", "python3", "t.py"));
  EXPECT_THAT(started({"uv", "run", "--", "python", "-m", "torch.distributed.run", "t.py"}),
              ElementsAre("uv", "run", "--", "python", "t.py"));
  EXPECT_THAT(started({"accelerate", "launch", "--multi_gpu", "--num_processes", "8", "t.py"}),
              ElementsAre("python3", "t.py"));
  EXPECT_THAT(started({"deepspeed", "--hostfile", "hosts", "--num_gpus=8", "t.py", "--deepspeed"}),
              ElementsAre("python3", "t.py", "--deepspeed"));
  EXPECT_THAT(started({"torchrun", "--standalone"}), ElementsAre()) << "not understood";
}

TEST(RankLauncher, CommandsWithinTheTextOfAShell) {
  const auto launcher = find_rank_launcher(
      {"/bin/bash", "-euo", "pipefail", "-c",
       "source env.sh && cd /job\nOMP_NUM_THREADS=4 exec torchrun \\\n  --nproc-per-node=8 "
       "train.py --name \"a b\"; echo done"});
  ASSERT_TRUE(launcher);
  EXPECT_TRUE(launcher->in_shell);
  EXPECT_EQ(launcher->workers, "8");
  EXPECT_THAT(launcher->command, ElementsAre("python3", "train.py", "--name", "\"a b\""));
  EXPECT_THAT(started({"sh", "-c", "(accelerate launch t.py)"}), ElementsAre("python3", "t.py"));
}

TEST(RankLauncher, OtherProgramsAreNone) {
  for (const Words& command :
       {Words{}, Words{"python3", "train.py", "--launcher", "torchrun"}, Words{"./torchrun.sh"},
        Words{"accelerate", "config"}, Words{"python3", "-c", "import torchrun"},
        Words{"bash", "-lc", "echo torchrun t.py # torchrun t.py"}, Words{"bash", "torchrun"},
        Words{"bash", "-c", "python3 t.py 'a; torchrun'"}, Words{"uv", "run", "train.py"}}) {
    EXPECT_THAT(started(command), ElementsAre("no launcher"));
  }
}

class SubmitLauncher : public ::testing::Test {
 protected:
  test::CommandRun dry_run(const std::string& text) {
    const std::string file = home_.directory() + "/job.yaml";
    EXPECT_TRUE(write_file_atomic(file, text).ok());
    return test::run_hpctl({"submit", file, "--local", "--dry-run"});
  }

  ScopedHome home_;
};

// Eight launchers of eight ranks each started on every node, and all met at one port.
TEST_F(SubmitLauncher, OneForEachWorkerIsRefused) {
  const auto run = dry_run(
      "name: c\nworkers_per_node: 8\nworkload: {command: [torchrun, --nproc_per_node=8, "
      "train.py]}\n");
  EXPECT_EQ(run.status, kExitUsage);
  EXPECT_EQ(run.err,
            "hpctl: workload.command: hpctl starts every rank, so it would start torchrun 8 times "
            "on each node, and each of them the ranks of a node; write command: [python3, "
            "train.py], or keep torchrun with workers_per_node: 1\n");
}

TEST_F(SubmitLauncher, OneForEachNodeIsAWarning) {
  const auto run =
      dry_run("name: c\nnodes: 2\nworkload: {command: [torchrun, --nproc_per_node=8, train.py]}\n");
  EXPECT_EQ(run.status, kExitOk);
  EXPECT_EQ(run.err,
            "hpctl: warning: workload.command starts torchrun, so hpctl sees no rank, only "
            "launchers; to have it start the ranks, write command: [python3, train.py] and "
            "workers_per_node: 8\n");
  EXPECT_THAT(run.out, HasSubstr("name: c\n"));
}

}  // namespace
}  // namespace hpctl::testing
