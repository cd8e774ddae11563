// SPDX-License-Identifier: Apache-2.0
// The cluster controller's status page in a real Chromium: two jobs of it in one page, one of which
// fails while it is looked at. With HPCTL_SCREENSHOTS=DIR what is seen is written there.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/jobfile/job_yaml.h"
#include "tests/fault/cluster_service.h"
#include "tests/integration/training_job.h"
#include "tests/support/browser.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using test::Browser;

JobSpec pretraining_job() {
  TrainingJob job;
  job.name = "pretrain";
  job.steps = 100'000;
  const JobYaml parsed = parse_job_yaml(job.yaml(), "/");
  HP_CHECK(parsed.spec.has_value());
  return *parsed.spec;
}

JobSpec evaluating_job() {
  JobSpec spec = test::gated_job();
  spec.name = "evaluate";
  spec.nodes = 1;
  spec.spares = 1;
  spec.command.back() += "; exit 3";
  spec.recovery.max_restarts = 0;
  return spec;
}

class ClusterPage : public test::ClusterController {
 protected:
  ClusterPage() : ClusterController(pretraining_job()) {}
  void SetUp() override {
    if (!Browser::is_installed()) GTEST_SKIP() << "chromium and chromium-driver are not installed";
    ClusterController::SetUp();
  }
  // Through a link of his own; `who` as of hpctl_of().
  std::unique_ptr<Browser> look(const std::vector<std::string>& who) {
    const Said opened = hpctl_of(who, {"open", "-A", "--json"});
    EXPECT_EQ(opened.code, 0) << opened.text;
    const json link = json::parse(opened.text, nullptr, false);
    EXPECT_EQ(link.at("node"), kHead) << opened.text;
    auto browser = Browser::start({1280, 900, false});
    if (browser) browser->go(link.at("url"));
    return browser;
  }
  static bool shows(Browser& browser, const std::string& text) {
    return browser.wait_for("return document.body.innerText.includes(" + json(text).dump() + ")");
  }
  static void keep(Browser& browser, const std::string& name) {
    const char* directory = std::getenv("HPCTL_SCREENSHOTS");
    if (directory == nullptr) return;
    EXPECT_TRUE(
        write_file_atomic(directory + ("/" + name + ".png"), browser.screenshot("html")).ok());
  }

  static constexpr const char* kHead = test::kHead;
  test::JobCluster other_{evaluating_job(), other_number(1)};
};

TEST_F(ClusterPage, ShowsTheJobsOfAll) {
  start_job();
  start_other_job(other_);
  ASSERT_TRUE(cluster_.wait_for_status(
      [](const v1::JobStatus& status) { return status.step() >= 3; }, test::kPatienceMs));
  const auto browser = look({});
  ASSERT_NE(browser, nullptr);
  EXPECT_TRUE(shows(*browser, "2 jobs: 2 RUNNING"));
  EXPECT_EQ(browser->run("return document.title"), "hpctl all jobs at head");
  EXPECT_EQ(browser->run("return document.querySelectorAll('tbody tr').length"), 2);
  EXPECT_TRUE(shows(*browser, "pretrain"));
  // Nodes over jobs: both have an n0 and an n1, by these names.
  const std::string node = "document.querySelector('#node-grid .cell[data-node=n1]')";
  const std::string id = to_string(other_.job());
  EXPECT_TRUE(browser->wait_for("return " + node + "?.title.includes('job " + id +
                                " RUNNING') && " + node + ".classList.contains('good')"));
  // A node in quarantine is red, and named in words.
  EXPECT_EQ(hpctl_of({}, {"nodes", "quarantine", "n1", "--job", id}).code, 0);
  EXPECT_TRUE(browser->wait_for("return " + node + ".classList.contains('bad')"));
  EXPECT_TRUE(shows(*browser, "in quarantine"));
  EXPECT_TRUE(shows(*browser, "warn"));
  keep(*browser, "page-cluster");
  // One job: its summary, and the words that lead to the rest.
  browser->run(
      "[...document.querySelectorAll('tbody a')].find("
      "(link) => link.textContent === 'evaluate').click()");
  EXPECT_TRUE(shows(*browser, "hpctl open " + id));
  EXPECT_TRUE(shows(*browser, "no spare is left of 1"));
  ASSERT_TRUE(write_file_atomic(other_.job_dir() + "/gate", "").ok());
  EXPECT_TRUE(browser->wait_for("return document.title.startsWith('evaluate FAILED')"));
  EXPECT_TRUE(shows(*browser, "it failed"));
  EXPECT_TRUE(
      browser->wait_for("return document.getElementById('said').textContent.includes("
                        "'evaluate is FAILED')"));
  browser->run("document.getElementById('home').click()");
  EXPECT_TRUE(shows(*browser, "1 RUNNING, 1 FAILED"));
  EXPECT_EQ(browser->complaints(), "");
}

// Whose they are not is shown none of them.
TEST_F(ClusterPage, ShowsNobodyTheJobsOfOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: to be somebody else as well";
  start_job();
  const auto browser = look(test::as_nobody());
  ASSERT_NE(browser, nullptr);
  EXPECT_TRUE(shows(*browser, "your jobs at head"));
  EXPECT_TRUE(shows(*browser, "0 jobs"));
  browser->run("location.hash = '#job=" + std::to_string(::geteuid()) + "." +
               to_string(cluster_.job()) + "'");
  EXPECT_TRUE(shows(*browser, "there is no such job"));
  EXPECT_EQ(browser->run("return document.body.innerText.includes('pretrain')"), false);
}

}  // namespace
}  // namespace hpctl::testing
