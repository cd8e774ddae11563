// SPDX-License-Identifier: Apache-2.0
#include "hpctl/prepared_data.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>

#include "common/base/file.h"
#include "common/job/job_spec.h"
#include "controller/publish/status_files.h"
#include "tests/unit/cli/job_yaml_text.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const int64_t kNow = ::time(nullptr);
const int64_t kOld = kNow - kUnusedDataSeconds;

class PreparedDataTest : public ::testing::Test {
 protected:
  // A whole dataset that was taken last at `used_s`.
  std::string dataset(const std::string& name, int64_t used_s) {
    const std::string prefix = data_.directory() + "/" + name;
    for (const char* end : {".bin", ".idx", ".json", ".parts/0.bin"}) put(prefix + end);
    for (const char* end : {".bin", ".idx", ".json", ".parts"}) set_time(prefix + end, used_s);
    return prefix;
  }
  static void put(const std::string& path, const std::string& text = "x") {
    ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(write_file_atomic(path, text).ok());
  }
  static void set_time(const std::string& path, int64_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  // `ended_s`: 0 = it has not.
  void job(JobId id, const std::string& data, int64_t ended_s) {
    JobSpec spec = test::good(test::kMinimal);
    spec.train->data.path.clear();
    spec.train->data.blend = {{"/elsewhere", 1}, {data, 2}};
    put(home_.paths().job_spec(id), to_json_text(spec));
    JobView view;
    view.job = id.value;
    view.state = ended_s == 0 ? "RUNNING" : "FINISHED";
    view.ended_at = WallTime(ended_s * 1000);
    ASSERT_TRUE(write_status(home_.paths(), view).ok());
  }

  ScopedHome home_;
  PreparedData data_{home_.paths()};
};

TEST_F(PreparedDataTest, WhatNobodyTookForLongGoes) {
  EXPECT_THAT(data_.remove_unused(kNow), IsEmpty()) << "there is no directory yet";
  const std::string old = dataset("a-text-0123456789abcdef", kOld);
  const std::string recent = dataset("text-fedcba9876543210", kOld + 1);
  put(data_.directory() + "/of-a-user.bin");
  set_time(data_.directory() + "/of-a-user.bin", kOld);
  EXPECT_THAT(data_.remove_unused(kNow), ElementsAre(old));
  EXPECT_THAT(list_directory(data_.directory()).value(),
              ElementsAre(".lock", "of-a-user.bin", "text-fedcba9876543210.bin",
                          "text-fedcba9876543210.idx", "text-fedcba9876543210.json",
                          "text-fedcba9876543210.parts"));
  data_.mark_used(recent);
  EXPECT_THAT(data_.remove_unused(kNow + 2), IsEmpty());
  EXPECT_THAT(data_.remove_unused(::time(nullptr) + kUnusedDataSeconds), ElementsAre(recent));
}

TEST_F(PreparedDataTest, LiveAndRecentJobsKeepTheirs) {
  const std::string live = dataset("live-0123456789abcdef", kOld);
  const std::string ended = dataset("ended-0123456789abcdef", kOld);
  const std::string recent = dataset("recent-0123456789abcdef", kOld);
  job(JobId{1}, live, 0);
  job(JobId{2}, ended, kOld);
  job(JobId{3}, recent, kOld + 1);
  // Waits in Slurm's queue.
  const std::string waits = dataset("waits-0123456789abcdef", kOld);
  JobSpec spec = test::good(test::kMinimal);
  spec.train->data.path = waits;
  put(home_.paths().jobs() + "/submit-0a1b/job.json", to_json_text(spec));
  EXPECT_THAT(data_.remove_unused(kNow), ElementsAre(ended));
}

TEST_F(PreparedDataTest, AnUnreadableJobMightNeedAnything) {
  const std::string old = dataset("text-0123456789abcdef", kOld);
  put(home_.paths().job_spec(JobId{4}), "{");
  EXPECT_THAT(data_.remove_unused(kNow), IsEmpty());
  ASSERT_TRUE(remove_tree(home_.paths().job(JobId{4})).ok());
  EXPECT_THAT(data_.remove_unused(kNow), ElementsAre(old));
}

TEST_F(PreparedDataTest, NothingGoesWhileASubmissionLooks) {
  const std::string old = dataset("text-0123456789abcdef", kOld);
  UniqueFd held = data_.hold();
  ASSERT_TRUE(held.valid());
  EXPECT_TRUE(data_.hold().valid()) << "several may look";
  EXPECT_THAT(data_.remove_unused(kNow), IsEmpty());
  held.reset();
  EXPECT_THAT(data_.remove_unused(kNow), ElementsAre(old));
}

}  // namespace
}  // namespace hpctl::testing
