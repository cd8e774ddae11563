// SPDX-License-Identifier: Apache-2.0
// hpctl watch -A of an operator, who has none of the jobs, at a cluster controller with three: what
// is wrong with which of them is said as it begins and ends, also when the controller of the job is
// gone, and the heartbeat goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/fault/cluster_service.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/whole_lines.h"

namespace hpctl {
namespace {

using nlohmann::json;
using test::as_nobody;
using test::kCall;
using test::kPatienceMs;
using ::testing::HasSubstr;
using ::testing::Not;

// Fails for good when its gate opens.
JobSpec failing_job() {
  JobSpec spec = test::gated_job(7);
  spec.name = "failing";
  spec.nodes = 1;
  return spec;
}

// Fails once when its gate opens, and finishes when the file `end` is there.
JobSpec stumbling_job() {
  JobSpec spec = test::gated_job();
  spec.name = "stumbling";
  spec.nodes = 1;
  spec.command.back() =
      "[ -e up ] || { until [ -e gate ]; do sleep 0.05; done; touch up; exit 7; }; "
      "until [ -e end ]; do sleep 0.05; done";
  spec.recovery.max_restarts = 1;
  return spec;
}

void put(const test::JobCluster& job, const std::string& file) {
  ASSERT_TRUE(write_file_atomic(job.job_dir() + "/" + file, "").ok());
}

class ClusterWatch : public test::ClusterController {
 protected:
  ClusterWatch() : ClusterController(test::job_with_a_spare()) {}
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: to be somebody else as well";
    ClusterController::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(::chmod(nobodys_.path().c_str(), 0777), 0);
    kill_service();
    start_service({}, {"--operators", "nobody"});
    start_job();
    start_other_job(failing_);
    start_other_job(stumbling_);
  }

  // So many of the jobs whose controllers run.
  int served() const {
    const auto list = list_cluster_jobs(address_, kCall);
    return list.ok() ? list->jobs_size() : -1;
  }
  std::string beat() const { return nobodys_ / "beat"; }
  std::string lines() const { return directory_ / "watch"; }
  pid_t start_watcher() {
    return spawn_hpctl_of(
        as_nobody(), {"watch", "-A", "--json", "--interval", "1", "--heartbeat", beat()}, lines());
  }
  Said look_once() { return hpctl_of(as_nobody(), {"watch", "-A", "--once"}); }
  // "begins critical failed JOB of USER NODE" of each line of the watcher.
  std::string told() const {
    std::string all;
    const auto text = read_file(lines());
    for (const std::string& line : test::whole_lines(text.ok() ? *text : "")) {
      const json told = json::parse(line, nullptr, false);
      if (!told.is_object()) continue;  // a complaint, which comes on standard error
      const json& finding = told.at("finding");
      all += told.at("change").get<std::string>() + " " +
             finding.at("severity").get<std::string>() + " " +
             finding.at("kind").get<std::string>() + " " + finding.at("job").dump() + " of " +
             finding.at("user").get<std::string>() + " " + finding.at("node").get<std::string>() +
             "\n";
    }
    return all;
  }
  void expect_told(const std::string& line) const {
    const auto is_told = [&] { return told().find(line + "\n") != std::string::npos; };
    EXPECT_TRUE(test::eventually(is_told, kPatienceMs)) << line << " is not in\n" << told();
  }
  // A heartbeat that is later than now.
  json next_beat() const {
    const auto before = read_file(beat());
    std::string text;
    const auto is_another = [&] {
      const auto now = read_file(beat());
      if (now.ok()) text = *now;
      return now.ok() && (!before.ok() || *now != *before);
    };
    EXPECT_TRUE(test::eventually(is_another, kPatienceMs)) << "no heartbeat";
    return json::parse(text, nullptr, false);
  }

  TemporaryDirectory nobodys_;
  test::JobCluster failing_{failing_job(), other_number(1)};
  test::JobCluster stumbling_{stumbling_job(), other_number(2)};
};

TEST_F(ClusterWatch, NamesWhatIsWrongWithWhichJob) {
  const auto all_run = [&] { return look_once().text == "nothing found (3 jobs)\n"; };
  ASSERT_TRUE(test::eventually(all_run, kPatienceMs)) << look_once().text;
  EXPECT_EQ(look_once().code, 0);
  const pid_t watcher = start_watcher();
  json beat = next_beat();
  EXPECT_EQ(beat.at("jobs"), 3) << beat.dump();
  EXPECT_EQ(beat.at("worst"), nullptr);

  const Said order =
      hpctl_of(as_nobody(), {"nodes", "quarantine", "n1", "--job", to_string(cluster_.job())});
  EXPECT_EQ(order.code, 0) << order.text;
  const std::string own = to_string(cluster_.job()) + " of root ";
  expect_told("begins warn node_quarantined " + own + "n1");
  expect_told("begins warn spares_exhausted " + own);
  EXPECT_EQ(look_once().code, 1) << look_once().text;

  put(stumbling_, "gate");
  const std::string stumbling = to_string(stumbling_.job()) + " of root ";
  expect_told("begins critical budget_low " + stumbling);
  EXPECT_EQ(look_once().code, 2);
  put(stumbling_, "end");
  expect_told("ends critical budget_low " + stumbling);
  EXPECT_TRUE(test::eventually([&] { return served() == 2; }, kPatienceMs)) << log_text();
  EXPECT_EQ(look_once().code, 1) << "what is over counts no more\n" << look_once().text;

  put(failing_, "gate");
  const std::string failed = "critical failed " + to_string(failing_.job()) + " of root ";
  expect_told("begins " + failed);
  EXPECT_TRUE(test::eventually([&] { return served() == 1; }, kPatienceMs)) << log_text();
  // Nobody is left to say it, and it stays said.
  next_beat();
  beat = next_beat();
  EXPECT_EQ(beat.at("worst"), "critical") << told();
  const Said once = look_once();
  EXPECT_EQ(once.code, 2) << once.text;
  EXPECT_THAT(once.text, HasSubstr("critical  job " + to_string(failing_.job()) +
                                   " failing of root: it failed"));
  EXPECT_THAT(told(), Not(HasSubstr("ends " + failed)));
  // Nor does it end with the service.
  kill_service();
  start_service({}, {"--operators", "nobody"});
  EXPECT_THAT(look_once().text, HasSubstr("failing of root: it failed"));

  ASSERT_EQ(::kill(watcher, SIGTERM), 0);
  EXPECT_EQ(cluster_.wait_for(watcher, kPatienceMs), 2) << "of what is found at the end";
  expect_finish_undisturbed();
}

// A watcher that cannot see says so: no answer is not a heartbeat.
TEST_F(ClusterWatch, WithoutAnAnswerThereIsNoHeartbeat) {
  kill_service();
  const Said said = hpctl_of(as_nobody(), {"watch", "-A", "--once", "--heartbeat", beat()});
  EXPECT_EQ(said.code, 3) << said.text;
  EXPECT_THAT(said.text, HasSubstr("the cluster controller at " + address_ + " does not answer"));
  EXPECT_FALSE(is_accessible(beat()));
}

}  // namespace
}  // namespace hpctl
