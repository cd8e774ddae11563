// SPDX-License-Identifier: Apache-2.0
// hpctl nodes: orders about a node, lemons, and what a deep check makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/job/node_record.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using test::CommandRun;
using test::run_hpctl;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(NodesVerb, QuarantineAndRelease) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  for (const char* name : {"n0", "n1"}) controller.jobs[0].add_nodes()->set_name(name);
  const CommandRun ran =
      run_hpctl({"nodes", "quarantine", "n1", "--reason", "link flaps", "--for", "2h"});
  EXPECT_EQ(ran.out, "n1 of job 1 is quarantined\n") << ran.err;
  EXPECT_EQ(run_hpctl({"nodes", "release", "n1", "--job", "quick"}).out,
            "n1 of job 1 is released\n");
  EXPECT_EQ(run_hpctl({"nodes", "reboot", "n1", "--reason", "it hangs"}).out,
            "n1 of job 1 is to be rebooted once its work has left\n");
  EXPECT_EQ(run_hpctl({"nodes", "replace", "n1", "--yes"}).out,
            "n1 of job 1 is to be replaced once its work has left\n");
  EXPECT_THAT(controller.orders(),
              ::testing::ElementsAre("quarantine 1 n1 link flaps 7200000", "release 1 n1",
                                     "reboot 1 n1 it hangs", "replace 1 n1  --yes"));
  const CommandRun refused = run_hpctl({"nodes", "quarantine", "n0"});
  EXPECT_EQ(refused.status, kExitFailed);
  EXPECT_THAT(refused.err, HasSubstr("n0 has ranks"));
  EXPECT_THAT(run_hpctl({"nodes", "quarantine", "n7"}).err, HasSubstr("no live job has a node n7"));
  EXPECT_EQ(run_hpctl({"nodes", "quarantine", "n1", "--for", "soon"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"nodes", "release", "n1", "--yes"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"nodes", "bless", "n1"}).status, kExitUsage);
}

// What jobs of the home say against n0 of running_job(), whose instance is i-0.
void blame_n0(const ScopedHome& home, uint64_t job, NodeRecordKind kind) {
  const NodeRecord record{SystemClock().wall_ms(), job, "n0", "i-0", kind, "fault 1", "it fell"};
  const std::string file = std::to_string(job) + ".jsonl";
  EXPECT_TRUE(append_node_records(node_records_directory(home.paths()), file, {record}).ok());
}

TEST(NodesVerb, LemonsAreSeen) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  EXPECT_EQ(run_hpctl({"nodes", "lemons"}).err, "no job speaks against any node\n");
  EXPECT_THAT(run_hpctl({"nodes"}).out, Not(HasSubstr("LEMON")));
  blame_n0(home, 8, NodeRecordKind::kLost);
  blame_n0(home, 9, NodeRecordKind::kHang);
  EXPECT_EQ(run_hpctl({"nodes", "quick"}).out,
            "JOB  NODE  ROLE    STATE  HOLDER  AGENT  INSTANCE  LEMON\n"
            "1    n0    active  up     11      12     i-0       4.0 lemon\n");
  EXPECT_EQ(run_hpctl({"nodes", "lemons"}).out,
            "NODE  INSTANCE  LEMON      RECORDS  REASON\n"
            "n0    i-0       4.0 lemon  2        it fell\n");
  const auto listed = nlohmann::json::parse(run_hpctl({"nodes", "--json"}).out);
  EXPECT_EQ(listed.at("nodes")[0].at("lemon").at("lemon"), true);
  EXPECT_NEAR(listed.at("nodes")[0].at("lemon").at("score").get<double>(), 4, 0.01);
  const auto lemons = nlohmann::json::parse(run_hpctl({"nodes", "lemons", "--json"}).out);
  EXPECT_EQ(lemons.at("nodes")[0].at("instance_id"), "i-0");
  EXPECT_EQ(run_hpctl({"nodes", "lemons", "--for", "1h"}).status, kExitUsage);
}

// A stand-in for srun, which prints what an hpagent would, and ends as it would.
CommandRun check_by_srun(const ScopedHome& home, const std::string& answer, int status,
                         const std::vector<std::string>& options = {}) {
  const std::string directory = home.directory() + "/bin";
  EXPECT_TRUE(make_directories(directory).ok());
  std::ofstream(directory + "/srun") << "#!/bin/sh\necho \"$@\" >" << directory << "/said\n"
                                     << "cat <<'END'\n"
                                     << answer << "\nEND\nexit " << status << "\n";
  std::filesystem::permissions(directory + "/srun", std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (directory + ":" + path).c_str(), 1);
  std::vector<std::string> words = {"nodes", "check", "n0"};
  words.insert(words.end(), options.begin(), options.end());
  const CommandRun ran = run_hpctl(words);
  ::setenv("PATH", path.c_str(), 1);
  return ran;
}

TEST(NodesVerb, ADeepCheckReleasesALemonOrConfirmsIt) {
  const ScopedHome home;
  blame_n0(home, 8, NodeRecordKind::kHardware);
  const auto score = [&] { return run_hpctl({"nodes", "lemons", "--json"}).out; };
  const CommandRun broken = check_by_srun(home, "srun: error: no such node", 1);
  EXPECT_EQ(broken.status, kExitNoController);
  EXPECT_THAT(broken.err, HasSubstr("did not run (exit code 1); nothing is recorded"));
  EXPECT_THAT(score(), HasSubstr("\"lemon\":true"));

  const CommandRun passed =
      check_by_srun(home,
                    R"({"verdict":"pass","instance_id":"i-0","findings":[{"check":"host.burn",)"
                    R"("verdict":"pass","reason":"96 processors"}]})",
                    0, {"--job", "17"});
  EXPECT_EQ(passed.status, kExitOk) << passed.err;
  EXPECT_THAT(passed.out, HasSubstr("pass  host.burn: 96 processors\nn0 passed a deep check"));
  EXPECT_EQ(score(), "{\"nodes\":[]}\n");
  const auto said = read_file(home.directory() + "/bin/said");
  EXPECT_THAT(*said, HasSubstr("--nodelist=n0 --jobid=17 --overlap "));
  EXPECT_THAT(*said, HasSubstr("/hpagent check all --deep --json\n"));

  const CommandRun failed =
      check_by_srun(home,
                    R"({"verdict":"fail","instance_id":"i-0","findings":[{"check":"gpu.count",)"
                    R"("verdict":"fail","reason":"7 of 8"}]})",
                    3);
  EXPECT_EQ(failed.status, kExitFailed);
  EXPECT_THAT(score(), HasSubstr("gpu.count: 7 of 8"));
  EXPECT_THAT(score(), HasSubstr("\"lemon\":true"));
}

}  // namespace
}  // namespace hpctl::testing
