// SPDX-License-Identifier: Apache-2.0
// hpctl top in a real terminal, tmux's: a real job is looked at while one of its workers and its
// controller are killed. With HPCTL_SCREENSHOTS=DIR what is seen is written there, as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "common/base/file.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTmux = "/usr/bin/tmux";
constexpr seconds kPatience{60};

class Top : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(kTmux, X_OK) != 0) GTEST_SKIP() << "no " << kTmux << ": the package tmux";
    job_ = cluster_.submit(
        "name: quick-brown-fox\nnodes: 2\nworkers_per_node: 2\n"
        "workload:\n  train:\n    model: {preset: debugmodel}\n"
        "    data: {path: /usr/share/common-licenses/GPL-3, seq_len: 64}\n"
        "    batch: {micro: 1, global: 4}\n    steps: 100000\n    precision: fp32\n"
        "checkpoint: {every_steps: 20}\n");
    const auto started = tmux({"-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40",
                               "env PS1='ready> ' HISTFILE= /bin/sh"});
    ASSERT_EQ(started.exit_code, 0) << started.err;
    ASSERT_TRUE(shows("ready>"));
  }
  void TearDown() override { tmux({"kill-server"}); }

  CommandResult tmux(std::vector<std::string> words) const {
    words.insert(words.begin(), {kTmux, "-S", cluster_.directory() + "/tmux"});
    return run_command(words, {"HPCTL_HOME=" + cluster_.paths().home(), "LC_ALL=C.UTF-8"});
  }
  std::string screen() const { return tmux({"capture-pane", "-p"}).out; }
  std::string fact(const std::string& name) const {
    std::string text = tmux({"display-message", "-p", "#{" + name + "}"}).out;
    return text.substr(0, text.find('\n'));
  }
  void press(const std::string& key) const { tmux({"send-keys", key}); }
  void run(const std::string& command) const { tmux({"send-keys", command, "Enter"}); }
  void start_top(const std::string& more) const {
    run(std::string(std::getenv("HPCTL_BIN")) + "/hpctl top " + more);
  }
  bool eventually(const std::function<bool()>& done) const {
    return wait_until(cluster_.directory(), done, kPatience);
  }
  bool shows(const std::string& text) const {
    const bool shown = eventually([&] { return screen().find(text) != std::string::npos; });
    EXPECT_TRUE(shown) << "no \"" << text << "\" in\n" << screen();
    return shown;
  }
  // What the terminal is set to, by its own words; its size is the first line of them.
  std::string settings(const std::string& name) const {
    const std::string path = cluster_.directory() + "/" + name;
    run("stty -a | tail -n +2 > " + path + ".part; mv " + path + ".part " + path);
    EXPECT_TRUE(eventually([&] { return path_exists(path); })) << screen();
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
    return eventually([&] { return top_pid() == 0 && fact("alternate_on") == "0"; });
  }
  void keep(const std::string& name) const {
    const char* directory = std::getenv("HPCTL_SCREENSHOTS");
    if (directory == nullptr) return;
    EXPECT_TRUE(write_file_atomic(directory + ("/" + name + ".txt"), screen()).ok());
  }

  LocalCluster cluster_;
  JobId job_;
};

TEST_F(Top, ShowsAFaultAsItHappensAndLeavesTheTerminalAsItWas) {
  ASSERT_TRUE(cluster_.wait_for_step(job_, 3, kPatience));
  const std::string before = settings("before");
  start_top("");
  ASSERT_TRUE(shows("quick-brown-fox"));
  EXPECT_TRUE(shows("GOODPUT"));
  EXPECT_EQ(fact("alternate_on"), "1");
  press("Enter");
  EXPECT_TRUE(shows("job 1 quick-brown-fox  RUNNING"));
  EXPECT_TRUE(shows("training"));
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job_), 2)));
  EXPECT_TRUE(shows("last fault: worker 2 on n1 died of SIGKILL"));
  EXPECT_TRUE(shows("generation 2"));
  keep("top-job");
  // Smaller, then larger: the last line is the screen's.
  for (const std::string height : {"12", "50"}) {
    tmux({"resize-window", "-x", "70", "-y", height});
    const auto is_drawn = [&] {
      const std::string text = screen();
      return std::count(text.begin(), text.end(), '\n') == std::stoi(height) &&
             text.substr(text.rfind('\n', text.size() - 2) + 1).starts_with("arrows: scroll");
    };
    EXPECT_TRUE(eventually(is_drawn)) << screen();
  }
  press("Left");
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
  keep("top");
  press("q");
  EXPECT_TRUE(is_at_the_shell()) << screen();
  EXPECT_EQ(settings("after-q"), before);
}

TEST_F(Top, EndsBySignalsAndWithItsTerminal) {
  const std::string before = settings("before");
  start_top(to_string(job_));
  ASSERT_TRUE(shows("arrows: scroll"));
  press("C-c");
  EXPECT_TRUE(is_at_the_shell()) << screen();
  EXPECT_EQ(settings("after-interrupt"), before);
  start_top("");
  ASSERT_TRUE(shows("sort by job"));
  ::kill(top_pid(), SIGTERM);
  EXPECT_TRUE(is_at_the_shell()) << screen();
  EXPECT_EQ(settings("after-term"), before);
  start_top("");
  ASSERT_TRUE(shows("sort by job"));
  tmux({"kill-server"});
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

}  // namespace
}  // namespace hpctl::testing
