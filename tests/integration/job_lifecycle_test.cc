// SPDX-License-Identifier: Apache-2.0
// A job that ends, is resumed as another one, asked about, and removed: real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr milliseconds kEnough = std::chrono::minutes(2);

void kill_controller_of(const LocalCluster& cluster) {
  const json controller = json::parse(read_file(cluster.paths().controller_json()).value());
  const auto pid = controller["pid"].get<pid_t>();
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_TRUE(wait_until(
      cluster.paths().home(), [&] { return ::kill(pid, 0) != 0; }, kEnough));
}

// The nodes of a job end a little after the job, and until then it cannot be removed.
CommandResult until_done(const LocalCluster& cluster, const std::vector<std::string>& words) {
  CommandResult result;
  wait_until(
      cluster.paths().home(),
      [&] {
        result = cluster.hpctl(words);
        return result.exit_code == 0;
      },
      kEnough);
  return result;
}

TEST(JobLifecycle, ResumeGoesOnAndRemovalForgets) {
  LocalCluster cluster;
  const TrainingJob job{.name = "life", .steps = 6, .checkpoint_every = 3};
  const JobId first = cluster.submit(job.yaml());
  ASSERT_EQ(cluster.wait_for_end(first, kEnough), "FINISHED");
  EXPECT_THAT(cluster.hpctl({"resume", "life"}).err, HasSubstr("all 6 steps are trained"));

  const CommandResult resumed = cluster.hpctl(
      {"resume", "life", "--set", "workload.train.steps=9", "--wait", "--json"}, kEnough);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("it goes on from step-6.g1 in "));
  const json second = json::parse(resumed.out);
  EXPECT_EQ(second["step"], 9);
  EXPECT_EQ(second["generation"], 2) << "of the same chain";
  const std::string checkpoints = second["checkpoint_dir"];
  EXPECT_EQ(checkpoints, cluster.paths().default_checkpoints(first));

  const CommandResult evaluated = cluster.hpctl(
      {"eval", "life", "--data", "/usr/share/common-licenses/GPL-3", "--sequences", "20", "--json"},
      kEnough);
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(json::parse(evaluated.out)["step"], 9);
  const CommandResult generated = cluster.hpctl(
      {"generate", "life", "--tokenizer", "byte", "--prompt", "The ", "--tokens", "4"}, kEnough);
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_TRUE(generated.out.starts_with("The ")) << generated.out;

  const CommandResult removed = until_done(cluster, {"rm", to_string(first)});
  ASSERT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_THAT(removed.out, HasSubstr("its checkpoints stay in " + checkpoints));
  EXPECT_TRUE(is_accessible(checkpoints + "/step-9.g2"));
  EXPECT_FALSE(is_accessible(cluster.paths().job_status(first)));
  EXPECT_THAT(cluster.hpctl({"status", to_string(first)}).err, HasSubstr("no job"));
  kill_controller_of(cluster);
  EXPECT_THAT(cluster.hpctl({"ps"}).out, Not(HasSubstr(" 6/6 "))) << "from the records";
  const CommandResult pruned = until_done(cluster, {"prune", "--keep", "0s"});
  EXPECT_EQ(pruned.exit_code, 0) << "by a new controller: " << pruned.err;
  EXPECT_EQ(cluster.hpctl({"ps"}).out, "");
  EXPECT_TRUE(is_accessible(checkpoints + "/step-9.g2")) << "nobody asked for their removal";
  cluster.stop_and_expect_no_leftovers(kEnough);
}

}  // namespace
}  // namespace hpctl::testing
