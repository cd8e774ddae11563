// SPDX-License-Identifier: Apache-2.0
// hpctl ps in this process, against a scripted controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>

#include "common/base/json.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using test::CommandRun;
using test::run_hpctl;
using ::testing::HasSubstr;
using ::testing::Not;

class Ps : public ::testing::Test {
 protected:
  Ps() {
    ::setenv("HPCTL_CLUSTER", "", 1);
    v1::JobStatus ended = running_job(2, "other");
    ended.set_state("FAILED");
    ended.set_reason("no restarts left");
    ended.set_ended_wall_ms(ended.submitted_wall_ms() + 65'000);
    ended.set_owner("4000000001");
    v1::JobStatus trains = running_job(1, "quick");
    trains.set_step_ms(2'000);
    trains.set_owner("4000000002");
    trains.set_last_fault("worker 2 on n1 died of SIGKILL");
    controller_.jobs = {trains, ended};
  }
  ~Ps() override { ::unsetenv("HPCTL_CLUSTER"); }

  static std::string first_columns(const std::string& out) {
    std::string text;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) text += line.substr(0, line.find(' ')) + " ";
    return text;
  }

  ScopedHome home_;
  ScriptedController controller_{home_.paths()};
};

TEST_F(Ps, ShowsWhatEachJobDoes) {
  const std::string out = run_hpctl({"ps"}).out;
  EXPECT_THAT(out, HasSubstr("JOB  NAME   USER        STATE    NODES  STEP   TOK/S  ETA  RESTARTS  "
                             "GOODPUT  AGE"));
  EXPECT_THAT(out, HasSubstr("1    quick  4000000002  RUNNING  1      34/60  12.3k  52s  1         "
                             "93%"));
  EXPECT_THAT(out, HasSubstr("recovered: worker 2 on n1 died of SIGKILL\n"));
  EXPECT_THAT(out, HasSubstr("2    other  4000000001  FAILED   1      34/60  12.3k  -"));
  EXPECT_THAT(out, HasSubstr("no restarts left\n"));
  EXPECT_THAT(run_hpctl({"ps", "-w"}).out, HasSubstr("NODELIST"));
}

TEST_F(Ps, Json) {
  const auto document = nlohmann::json::parse(run_hpctl({"ps", "--json"}).out);
  ASSERT_EQ(document.at("jobs").size(), 2U);
  const auto& job = document.at("jobs")[0];
  EXPECT_EQ(job.at("job"), 1);
  EXPECT_EQ(job.at("name"), "quick");
  EXPECT_EQ(job.at("state"), "RUNNING");
  EXPECT_EQ(job.at("nodes"), nlohmann::json({"n0"}));
  EXPECT_EQ(job.at("eta_ms"), 52'000);
  EXPECT_EQ(job.at("restarts"), 1);
  EXPECT_EQ(job.at("lost_ms"), 1'200);
  EXPECT_EQ(document.at("jobs")[1].at("eta_ms"), nullptr);
  // As `hpctl goodput` has it.
  const auto account = nlohmann::json::parse(run_hpctl({"goodput", "2", "--json"}).out);
  EXPECT_EQ(document.at("jobs")[1].at("goodput"), account.at("goodput"));
}

// Both ways: what --help promises is there, and nothing else.
TEST_F(Ps, JsonHasTheKeysThatHelpNames) {
  const std::string help = run_hpctl({"ps", "--help"}).out;
  const size_t begin = help.find("[{\"job\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string list = help.substr(begin, help.find("}]}", begin) - begin);
  std::set<std::string> named;
  const std::regex key("\"([a-z_]+)\"");
  for (std::sregex_iterator at(list.begin(), list.end(), key), none; at != none; ++at) {
    named.insert((*at)[1]);
  }
  const auto document = nlohmann::json::parse(run_hpctl({"ps", "--json"}).out);
  for (const auto& job : document.at("jobs")) {
    std::set<std::string> found;
    for (const auto& [name, value] : job.items()) found.insert(name);
    EXPECT_EQ(found, named);
  }
}

TEST_F(Ps, AnOldControllersJobsAreShownWithoutTheRest) {
  controller_.is_old = true;
  EXPECT_THAT(run_hpctl({"ps"}).out, HasSubstr("1    quick  -     RUNNING  -      -     -      -"));
  const auto job = nlohmann::json::parse(run_hpctl({"ps", "--json"}).out).at("jobs")[0];
  EXPECT_EQ(job.at("state"), "RUNNING");
  EXPECT_EQ(job.at("step"), nullptr);
  EXPECT_EQ(job.at("nodes"), nullptr);
}

TEST_F(Ps, FiltersAndOrder) {
  EXPECT_EQ(first_columns(run_hpctl({"ps", "--state", "live"}).out), "JOB 1 ");
  EXPECT_EQ(first_columns(run_hpctl({"ps", "--state", "ended"}).out), "JOB 2 ");
  EXPECT_EQ(first_columns(run_hpctl({"ps", "--user", "4000000001"}).out), "JOB 2 ");
  EXPECT_EQ(first_columns(run_hpctl({"ps", "--node=n?", "--name=q*"}).out), "JOB 1 ");
  EXPECT_EQ(first_columns(run_hpctl({"ps", "--sort", "-job"}).out), "JOB 2 1 ");
  const CommandRun none = run_hpctl({"ps", "--node", "elsewhere"});
  EXPECT_EQ(none.status, kExitOk);
  EXPECT_EQ(none.err, "none of 2 jobs is like that\n");
  const CommandRun wrong = run_hpctl({"ps", "--sort", "size"});
  EXPECT_EQ(wrong.status, kExitUsage);
  EXPECT_THAT(wrong.err, HasSubstr("there is no key \"size\"; one of job, name"));
  EXPECT_EQ(run_hpctl({"ps", "--state", "going"}).status, kExitUsage);
}

TEST_F(Ps, OfAllUsersNeedsAClusterController) {
  const CommandRun ran = run_hpctl({"ps", "-A"});
  EXPECT_EQ(ran.status, kExitNoController);
  EXPECT_THAT(ran.err, HasSubstr("set HPCTL_CLUSTER=HOST:PORT"));
  ::setenv("HPCTL_CLUSTER", "127.0.0.1", 1);
  EXPECT_THAT(run_hpctl({"ps", "-A"}).err, HasSubstr("HPCTL_CLUSTER: a cluster controller's"));
}

}  // namespace
}  // namespace hpctl::testing
