// SPDX-License-Identifier: Apache-2.0
// A home whose jobs/ is on a file server that does not answer: status, why and ps waited for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <optional>
#include <string>

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
using ::testing::HasSubstr;
using ::testing::Not;

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
  std::string silence() const { return "hpctl: " + jobs() + " does not answer; "; }

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
  EXPECT_THAT(run_hpctl({"status", "1"}).err, Not(HasSubstr("does not answer")));
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
  const CommandRun unknown = run_hpctl({"status", "9"});
  EXPECT_EQ(unknown.status, kExitNoController) << "it may be there";
  EXPECT_THAT(unknown.err, HasSubstr(silence()));
  mount_->resume();
  ASSERT_TRUE(answers_again());
  for (const char* verb : {"status", "why"}) {
    EXPECT_THAT(run_hpctl({verb, "1"}).err, Not(HasSubstr("does not answer"))) << verb;
  }
  EXPECT_THAT(run_hpctl({"ps"}).err, Not(HasSubstr("does not answer")));
}

TEST_F(SilentDirectory, WithoutAControllerItIsNamed) {
  mount_->pause();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"status", "1"}, {"why", "1"}, {"ps"}}) {
    const CommandRun run = run_hpctl(words);
    EXPECT_EQ(run.status, kExitNoController) << words[0];
    EXPECT_THAT(run.err, HasSubstr(jobs() + " does not answer; ")) << words[0];
  }
  mount_->resume();
  ASSERT_TRUE(answers_again());
  EXPECT_EQ(run_hpctl({"ps"}).status, kExitOk);
}

TEST(DirectoryAnswer, ErrorIsAnAnswer) {
  EXPECT_TRUE(directory_answers("/nonexistent/directory"));
  EXPECT_TRUE(directory_answers("/dev/null"));
  EXPECT_TRUE(directory_answers("/"));
}

}  // namespace
}  // namespace hpctl::testing
