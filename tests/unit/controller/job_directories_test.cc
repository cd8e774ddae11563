// SPDX-License-Identifier: Apache-2.0
// A job's directory is made once. The status files of a running job made it again within a second
// of its deletion, and the finding that it is gone hardly ever showed.
#include "controller/publish/job_directories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/base/file.h"
#include "controller/publish/status_file_writer.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr JobId kJob{3};

class JobDirectoriesTest : public ::testing::Test {
 protected:
  std::string path() const { return paths_.job(kJob); }
  // As a controller does whenever the job has changed.
  void write() {
    StatusFileWriter writer(paths_, directories_, [] { return true; });
    JobView view;
    view.job = kJob.value;
    view.state = "RUNNING";
    writer.status(view);
    EventView event;
    event.seq = ++events_;
    event.type = "Noted";
    writer.events(kJob, shared_, {event});
    EXPECT_THAT(writer.stop(), IsEmpty());
  }

  const TemporaryDirectory dir_;
  const HomePaths paths_{dir_ / "home"};
  const std::string shared_ = dir_ / "checkpoints";
  std::vector<std::string> told_;  // written by one thread at a time: stop() waits for the writer's
  JobDirectories directories_{paths_, true,
                              [this](JobId, const std::string& what) { told_.push_back(what); }};
  uint64_t events_ = 0;
};

TEST_F(JobDirectoriesTest, DeletedDirectoryIsToldOnceAndStaysAway) {
  write();
  EXPECT_TRUE(read_status(paths_, kJob).ok());
  EXPECT_EQ(directories_.lost(kJob), "");
  ASSERT_TRUE(remove_tree(path()).ok());
  write();
  write();
  EXPECT_FALSE(is_accessible(path()));
  EXPECT_EQ(directories_.lost(kJob), path());
  EXPECT_THAT(told_, ElementsAre("the job's directory " + path() +
                                 " is gone: it was deleted, or its file system is away; its "
                                 "records and logs are not written"));
  const Outcome gone = directories_.check(kJob);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
}

TEST_F(JobDirectoriesTest, DirectoryThatIsBackIsWrittenAgain) {
  write();
  ASSERT_TRUE(remove_tree(path()).ok());
  write();
  ASSERT_TRUE(make_directories(path()).ok());
  write();
  EXPECT_TRUE(read_status(paths_, kJob).ok());
  EXPECT_EQ(directories_.lost(kJob), "");
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_EQ(told_[1], "the job's directory " + path() + " is there again");
}

TEST_F(JobDirectoriesTest, SharedEventsAreWrittenWithoutIt) {
  ASSERT_TRUE(make_directories(shared_).ok());
  ASSERT_TRUE(write_file_atomic(shared_ + "/owner.json", "{}").ok());
  write();
  ASSERT_TRUE(remove_tree(path()).ok());
  write();
  EXPECT_EQ(read_events(shared_ + "/events.jsonl").value().size(), 2U);
}

// After a restart of the controller.
TEST_F(JobDirectoriesTest, DirectoryOfAFormerProcessIsNotMadeAgain) {
  directories_.was_made(kJob);
  EXPECT_FALSE(directories_.check(kJob).ok());
  EXPECT_FALSE(is_accessible(path()));
}

TEST_F(JobDirectoriesTest, DirectoryThatCannotBeLookedAtIsNotGone) {
  directories_.was_made(kJob);
  ASSERT_TRUE(make_directories(paths_.jobs()).ok());
  ASSERT_EQ(::symlink(path().c_str(), path().c_str()), 0);
  const Outcome looked = directories_.check(kJob);
  ASSERT_FALSE(looked.ok());
  EXPECT_NE(looked.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(directories_.lost(kJob), "");
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(JobDirectoriesTest, SlurmJobsDirectoryIsNeverMade) {
  const HomePaths paths = HomePaths::of_job(dir_ / "submit-1", kJob, "n0");
  JobDirectories directories(paths, false, [](JobId, const std::string&) {});
  EXPECT_FALSE(directories.check(kJob).ok());
  EXPECT_FALSE(is_accessible(dir_ / "submit-1"));
}

}  // namespace
}  // namespace hpctl
