// SPDX-License-Identifier: Apache-2.0
// A home whose jobs/ is on a file server that does not answer: every verb waited for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "common/base/host.h"
#include "controller/publish/status_files.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/support/pausable_mount.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using test::CommandRun;
using test::PausableMount;
using test::run_hpctl;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSilent[] = " has not answered for ";

// What a verb says, and the moment when it has said some words.
class AwaitedText final : public std::stringbuf {
 public:
  explicit AwaitedText(std::string words) : words_(std::move(words)) {}
  void await() { said_.get_future().wait(); }
  // How often the words were said.
  size_t count() const {
    const std::string text = str();
    size_t found = 0;
    for (size_t at = text.find(words_); at != std::string::npos; at = text.find(words_, at + 1)) {
      ++found;
    }
    return found;
  }

 protected:
  int sync() override {
    if (!is_said_ && count() > 0) {
      is_said_ = true;
      said_.set_value();
    }
    return 0;
  }

 private:
  const std::string words_;
  bool is_said_ = false;
  std::promise<void> said_;
};

std::future<int> run_beside(const std::vector<std::string>& words, std::streambuf& out,
                            std::streambuf& err) {
  return std::async(std::launch::async, [words, &out, &err] {
    std::ostream out_stream(&out);
    std::ostream err_stream(&err);
    Terminal terminal{out_stream, err_stream};
    return run_command_line(words, terminal);
  });
}

class SilentDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("HPCTL_CLUSTER", "", 1);
    const std::string server = home_.directory() + "/server";
    ASSERT_TRUE(make_directories(server).ok());
    ASSERT_TRUE(make_directories(jobs()).ok());
    mount_.emplace(server, jobs());
    if (!mount_->mounted()) GTEST_SKIP() << "needs root and /dev/fuse";
  }
  void TearDown() override { ::unsetenv("HPCTL_CLUSTER"); }

  std::string jobs() const { return home_.paths().jobs(); }
  std::string silence() const { return "hpctl: " + jobs() + kSilent; }

  // The look that waited has ended.
  bool answers_again() const {
    for (int look = 0; look < 1000 && !directory_answers(jobs()); ++look) ::poll(nullptr, 0, 10);
    return directory_answers(jobs());
  }

  ScopedHome home_;
  std::optional<PausableMount> mount_;
};

TEST_F(SilentDirectory, ControllerAnswersWithoutIt) {
  ScriptedController controller(home_.paths());
  controller.jobs = {running_job(1, "quick")};
  controller.explanation.set_summary("it runs");
  EXPECT_THAT(run_hpctl({"status", "1"}).err, Not(HasSubstr(kSilent)));
  mount_->pause();
  const CommandRun status = run_hpctl({"status", "quick"});
  EXPECT_EQ(status.status, kExitOk);
  EXPECT_THAT(status.out, HasSubstr("34 of 60"));
  EXPECT_THAT(status.err, HasSubstr(silence()));
  const CommandRun why = run_hpctl({"why", "1"});
  EXPECT_EQ(why.status, kExitOk);
  EXPECT_THAT(why.out, HasSubstr("it runs"));
  EXPECT_THAT(why.err, HasSubstr(silence()));
  const CommandRun ps = run_hpctl({"ps"});
  EXPECT_EQ(ps.status, kExitOk);
  EXPECT_THAT(ps.out, HasSubstr("quick"));
  EXPECT_THAT(ps.err, HasSubstr(silence()));
  const CommandRun nodes = run_hpctl({"nodes"});
  EXPECT_EQ(nodes.status, kExitOk);
  EXPECT_THAT(nodes.out, HasSubstr("n0"));
  EXPECT_THAT(nodes.err, HasSubstr(silence()));
  EXPECT_EQ(run_hpctl({"nodes", "release", "n0", "--job", "1"}).status, kExitOk);
  EXPECT_THAT(controller.orders(), ElementsAre("release 1 n0"));
  EXPECT_EQ(run_hpctl({"cancel", "quick"}).status, kExitOk);
  EXPECT_THAT(controller.cancelled(), ElementsAre("1"));
  const CommandRun unknown = run_hpctl({"status", "9"});
  EXPECT_EQ(unknown.status, kExitNoController) << "it may be there";
  EXPECT_THAT(unknown.err, HasSubstr(silence()));
  mount_->resume();
  ASSERT_TRUE(answers_again());
  for (const char* verb : {"status", "why"}) {
    EXPECT_THAT(run_hpctl({verb, "1"}).err, Not(HasSubstr(kSilent))) << verb;
  }
  EXPECT_THAT(run_hpctl({"ps"}).err, Not(HasSubstr(kSilent)));
}

// The controller of a job of Slurm listens on the machine where it runs.
TEST_F(SilentDirectory, CancelReachesTheControllerOfASlurmJobHere) {
  const JobId job{static_cast<uint64_t>(::getpid())};  // names a directory in /tmp
  const HomePaths paths = HomePaths::of_job(home_.paths().job(job), job, host_name());
  {
    ScriptedController controller(paths);
    controller.jobs = {running_job(job.value, "slurm")};
    mount_->pause();
    const CommandRun run = run_hpctl({"cancel", to_string(job)});
    EXPECT_EQ(run.status, kExitOk) << run.err;
    EXPECT_THAT(controller.cancelled(), ElementsAre(to_string(job)));
  }
  const CommandRun gone = run_hpctl({"cancel", to_string(job)});
  EXPECT_EQ(gone.status, kExitNoController);
  EXPECT_THAT(gone.err, HasSubstr(silence()));
  EXPECT_THAT(gone.err, HasSubstr("`scancel " + to_string(job) + "` ends it"));
  mount_->resume();
  EXPECT_TRUE(remove_tree(paths.socket_directory()).ok());
}

TEST_F(SilentDirectory, WithoutAControllerItIsNamed) {
  const std::string file = home_.directory() + "/job.yaml";
  ASSERT_TRUE(write_file_atomic(file, "name: quick\nworkload: {command: [\"true\"]}\n").ok());
  mount_->pause();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status", "1"},
                                                {"why", "1"},
                                                {"ps"},
                                                {"cancel", "1"},
                                                {"nodes"},
                                                {"nodes", "lemons"},
                                                {"nodes", "release", "n0"},
                                                {"audit"},
                                                {"audit", "1"},
                                                {"events", "1"},
                                                {"logs", "1"},
                                                {"goodput", "1"},
                                                {"top", "1", "--json"},
                                                {"watch", "1", "--once"},
                                                {"open"},
                                                {"open", "1"},
                                                {"chaos", "1", "--faults", "kill-worker"},
                                                {"checkpoint", "ls", "1"},
                                                {"submit", file, "--local"}}) {
    const CommandRun run = run_hpctl(words);
    EXPECT_EQ(run.status, kExitNoController) << words[0] << run.err;
    EXPECT_THAT(run.err, HasSubstr(jobs() + kSilent)) << words[0];
  }
  const CommandRun list = run_hpctl({"checkpoint", "ls", jobs() + "/1/checkpoints"});
  EXPECT_EQ(list.status, kExitNoController);
  EXPECT_THAT(list.err, HasSubstr(jobs() + "/1/checkpoints" + kSilent));
  mount_->resume();
  ASSERT_TRUE(answers_again());
  EXPECT_EQ(run_hpctl({"ps"}).status, kExitOk);
}

TEST_F(SilentDirectory, WaitWaitsForItAndSaysSoOnce) {
  JobView ended;
  ended.job = 1;
  ended.name = "quick";
  ended.state = "FINISHED";
  ASSERT_TRUE(make_directories(home_.paths().job(JobId{1})).ok());
  ASSERT_TRUE(write_status(home_.paths(), ended, [] { return true; }).ok());
  mount_->pause();
  std::stringbuf out;
  AwaitedText err(kSilent);
  auto status = run_beside({"wait", "quick"}, out, err);
  err.await();
  mount_->resume();
  EXPECT_EQ(status.get(), kExitOk) << err.str();
  EXPECT_EQ(err.count(), 1U) << err.str();
}

// The waiting ended when it could not start the controller again.
TEST_F(SilentDirectory, WaitSurvivesTheControllerMeanwhile) {
  ScriptedController controller(home_.paths());
  controller.jobs = {running_job(1, "quick")};
  std::promise<void> waits;
  controller.on_get_job = [&waits, is_told = false]() mutable {
    if (!std::exchange(is_told, true)) waits.set_value();
  };
  controller.calls_before_hook = 1;  // to find the job
  AwaitedText out("answered");       // a word: lines are wrapped
  std::stringbuf err;
  auto status = run_beside({"wait", "quick"}, out, err);
  waits.get_future().wait();
  mount_->pause();
  controller.stop();
  out.await();
  controller.polls_until_end = 0;
  controller.start();
  EXPECT_EQ(status.get(), kExitOk) << err.str();
  EXPECT_EQ(out.count(), 1U) << out.str();
  mount_->resume();
}

TEST(DirectoryAnswer, ErrorIsAnAnswer) {
  EXPECT_TRUE(directory_answers("/nonexistent/directory"));
  EXPECT_TRUE(directory_answers("/dev/null"));
  EXPECT_TRUE(directory_answers("/"));
}

}  // namespace
}  // namespace hpctl::testing
