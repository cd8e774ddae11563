// SPDX-License-Identifier: Apache-2.0
// hpctl top in a real terminal, tmux's: a real job is looked at while one of its workers and its
// controller are killed. With HPCTL_SCREENSHOTS=DIR the pictures of docs/images are written there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "common/base/file.h"
#include "tests/fault/cluster_service.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/tmux_screen.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Top : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TmuxScreen::is_installed()) GTEST_SKIP() << "no tmux: the package tmux";
    job_ = cluster_.submit(
        "name: quick-brown-fox\nnodes: 2\nworkers_per_node: 2\n"
        "workload:\n  train:\n    model: {preset: debugmodel}\n"
        "    data: {path: /usr/share/common-licenses/GPL-3, seq_len: 64}\n"
        "    batch: {micro: 1, global: 4}\n    steps: 100000\n    precision: fp32\n"
        "checkpoint: {every_steps: 20}\n");
    screen_.open();
  }

  bool eventually(const std::function<bool()>& done) const { return screen_.eventually(done); }
  bool shows(const std::string& text) const { return screen_.shows(text); }
  // What the terminal is set to, by its own words; its size is the first line of them.
  std::string settings(const std::string& name) const {
    const std::string path = cluster_.directory() + "/" + name;
    screen_.run("stty -a | tail -n +2 > " + path + ".part; mv " + path + ".part " + path);
    EXPECT_TRUE(eventually([&] { return is_accessible(path); })) << screen_.text();
    return read_file(path).value();
  }
  // Of `hpctl top` that runs in the terminal.
  pid_t top_pid() const {
    for (const pid_t pid : cluster_.processes()) {
      const auto words = read_file("/proc/" + std::to_string(pid) + "/cmdline");
      if (words.ok() && words->find(std::string("hpctl\0top", 9)) != std::string::npos) return pid;
    }
    return 0;
  }
  bool is_at_the_shell() const {
    return eventually([&] { return top_pid() == 0 && screen_.fact("alternate_on") == "0"; });
  }

  LocalCluster cluster_;
  TmuxScreen screen_{cluster_.directory(), {"HPCTL_HOME=" + cluster_.paths().home()}};
  JobId job_;
};

TEST_F(Top, ShowsAFaultAsItHappensAndLeavesTheTerminalAsItWas) {
  ASSERT_TRUE(cluster_.wait_for_step(job_, 3, TmuxScreen::kPatience));
  const std::string before = settings("before");
  screen_.start_top("");
  ASSERT_TRUE(shows("quick-brown-fox"));
  EXPECT_TRUE(shows("GOODPUT"));
  EXPECT_EQ(screen_.fact("alternate_on"), "1");
  screen_.press("Enter");
  EXPECT_TRUE(shows("job 1 quick-brown-fox  RUNNING"));
  EXPECT_TRUE(shows("training"));
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job_), 2)));
  EXPECT_TRUE(shows("last fault: worker 2 on n1 died of SIGKILL"));
  EXPECT_TRUE(shows("generation 2  1 restart"));
  EXPECT_TRUE(shows("JobRunning  generation 2"));
  screen_.keep("top-job");
  // Smaller, then larger: the last line is the screen's.
  for (const std::string height : {"12", "50"}) {
    screen_.resize("70", height);
    const auto is_drawn = [&] {
      const std::string text = screen_.text();
      return std::count(text.begin(), text.end(), '\n') == std::stoi(height) &&
             text.substr(text.rfind('\n', text.size() - 2) + 1).starts_with("arrows: scroll");
    };
    EXPECT_TRUE(eventually(is_drawn)) << screen_.text();
  }
  screen_.press("Left");
  EXPECT_TRUE(shows("sort by job"));
  // The controller dies under it; it goes on, and shows what the next one says.
  const auto controller = cluster_.status(job_)["controller"]["pid"].get<pid_t>();
  ASSERT_TRUE(end_process(controller));
  EXPECT_TRUE(eventually([&] {
    const auto status = cluster_.status(job_);
    return status["controller"]["pid"] != controller && status["state"] == "RUNNING";
  }));
  EXPECT_TRUE(shows("RUNNING"));
  ASSERT_NE(top_pid(), 0);
  screen_.press("q");
  EXPECT_TRUE(is_at_the_shell()) << screen_.text();
  EXPECT_EQ(settings("after-q"), before);
}

TEST_F(Top, EndsBySignalsAndWithItsTerminal) {
  const std::string before = settings("before");
  screen_.start_top(to_string(job_));
  ASSERT_TRUE(shows("arrows: scroll"));
  screen_.press("C-c");
  EXPECT_TRUE(is_at_the_shell()) << screen_.text();
  EXPECT_EQ(settings("after-interrupt"), before);
  screen_.start_top("");
  ASSERT_TRUE(shows("sort by job"));
  const pid_t top = top_pid();
  ASSERT_GT(top, 0);  // kill(0) would be us
  ASSERT_EQ(::kill(top, SIGTERM), 0);
  EXPECT_TRUE(is_at_the_shell()) << screen_.text();
  EXPECT_EQ(settings("after-term"), before);
  screen_.start_top("");
  ASSERT_TRUE(shows("sort by job"));
  screen_.tmux({"kill-server"});
  EXPECT_TRUE(eventually([&] { return top_pid() == 0; }));
}

TEST_F(Top, IsPrintedOnceIntoAPipe) {
  const CommandResult list = cluster_.hpctl({"top"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("quick-brown-fox"));
  EXPECT_THAT(list.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(cluster_.hpctl({"top", "1"}).out, HasSubstr("job 1 quick-brown-fox"));
  EXPECT_EQ(cluster_.hpctl({"top", "9"}).exit_code, 1);
}

JobSpec training_job() {
  TrainingJob job;
  job.name = "pretrain";
  job.steps = 100'000;
  return job.spec();
}

JobSpec command_job() {
  JobSpec spec = test::gated_job(3);
  spec.name = "evaluate";
  return spec;
}

// Jobs of a cluster, which a home that knows nothing sees by their cluster controller.
class TopOfACluster : public test::ClusterController {
 protected:
  TopOfACluster() : ClusterController(training_job()) {}
  void SetUp() override {
    if (!TmuxScreen::is_installed()) GTEST_SKIP() << "no tmux: the package tmux";
    ClusterController::SetUp();
  }

  test::JobCluster other_{command_job(), other_number(1)};
  TmuxScreen screen_{directory_.path(),
                     {"HPCTL_CLUSTER=" + address_, "HPCTL_HOME=" + directory_.path() + "/home"}};
};

TEST_F(TopOfACluster, ListsTheJobsOfAll) {
  start_job();
  start_other_job(other_);
  ASSERT_TRUE(cluster_.wait_for_status(
      [](const v1::JobStatus& status) { return status.step() >= 3; }, test::kPatienceMs));
  screen_.open();
  screen_.resize("120", "12");
  screen_.start_top("-A");
  EXPECT_TRUE(screen_.shows("pretrain"));
  EXPECT_TRUE(screen_.shows("/100000"));
  EXPECT_TRUE(screen_.shows("evaluate"));
  other_.open_gate();
  EXPECT_TRUE(screen_.shows("FAILED"));
  screen_.keep("top-all");
  // Only what is filtered for is left.
  screen_.press("/");
  screen_.press("evalu");
  EXPECT_TRUE(screen_.eventually([&] {
    const std::string text = screen_.text();
    return text.find("evaluate") != std::string::npos && text.find("pretrain") == std::string::npos;
  })) << screen_.text();
  screen_.press("Escape");
  EXPECT_TRUE(screen_.shows("pretrain"));
}

TEST(TerminalPicture, HasTheAttributesOfTheScreen) {
  const std::string html = test::html_of_terminal("a<b\x1b[7m c\x1b[0;32mgreen\x1b[2mdim\x1b[0m\n");
  EXPECT_THAT(html, HasSubstr(">a&lt;b</span>"));
  EXPECT_THAT(html, HasSubstr("color:#1a1d23;background:#d8dce4\"> c<"));
  EXPECT_THAT(html, HasSubstr("color:#7cc47f;background:#1a1d23\">green<"));
  EXPECT_THAT(html, HasSubstr("color:#7cc47f;background:#1a1d23;opacity:.65\">dim<"));
  EXPECT_THAT(html, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace hpctl::testing
