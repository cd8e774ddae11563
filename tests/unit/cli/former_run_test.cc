// SPDX-License-Identifier: Apache-2.0
// A job file that is submitted again: whether somebody says that the steps are trained once more.
#include "hpctl/former_run.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/file.h"
#include "controller/publish/status_files.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

class FormerRun : public ::testing::Test {
 protected:
  FormerRun() {
    spec_.name = "quick";
    spec_.train.emplace();
  }

  void record(uint64_t job, const std::string& name, const std::string& state, uint64_t step) {
    JobView view;
    view.job = job;
    view.name = name;
    view.state = state;
    view.step = view.checkpoint_step = step;
    view.checkpoint_dir = directory(job);
    EXPECT_TRUE(make_directories(view.checkpoint_dir).ok());
    EXPECT_TRUE(write_status(home_.paths(), view).ok());
  }
  std::string directory(uint64_t job) const {
    return home_.paths().default_checkpoints(JobId{job});
  }
  std::string told() const { return describe_former_run(spec_, home_.paths()); }

  ScopedHome home_;
  JobSpec spec_;
};

TEST_F(FormerRun, NewestWithStepsIsNamed) {
  EXPECT_EQ(told(), "") << "an empty home";
  record(1, "quick", "FAILED", 20);
  record(2, "quick", "FINISHED", 60);
  record(3, "quick", "FAILED", 0);
  record(4, "other", "FINISHED", 80);
  record(5, "quick", "RUNNING", 30);
  EXPECT_EQ(told(),
            "job 2 quick (FINISHED) has a checkpoint of step 60, and this job starts from step 0; "
            "to go on from that one: hpctl resume 2, or submit with --set checkpoint.dir=" +
                directory(2));
  ASSERT_TRUE(remove_tree(directory(2)).ok());
  EXPECT_EQ(told().substr(0, 5), "job 1") << "whose checkpoints are there";
}

TEST_F(FormerRun, AJobFileThatSaysWhereToBeginNeedsNoNote) {
  record(1, "quick", "FINISHED", 60);
  spec_.checkpoint.resume = "none";
  EXPECT_EQ(told(), "");
  spec_.checkpoint.resume = "latest";
  spec_.checkpoint.dir = "/ckpt";
  EXPECT_EQ(told(), "");
  spec_.checkpoint.dir = "";
  EXPECT_NE(told(), "");
  spec_.train.reset();
  EXPECT_EQ(told(), "") << "a program decides itself where it goes on";
}

}  // namespace
}  // namespace hpctl::testing
