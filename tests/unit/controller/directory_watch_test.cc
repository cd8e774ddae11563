// SPDX-License-Identifier: Apache-2.0
// A job's directory that does not answer holds up nobody who watches it.
#include "controller/leadership/directory_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/hand_clock.h"

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class DirectoryWatchTest : public ::testing::Test {
 protected:
  ~DirectoryWatchTest() override { answer(); }

  void look() {
    std::unique_lock lock(mutex_);
    ++looks_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return answers_; });
  }
  void be_silent() {
    const std::lock_guard lock(mutex_);
    answers_ = false;
  }
  void answer() {
    const std::lock_guard lock(mutex_);
    answers_ = true;
    changed_.notify_all();
  }
  int looks() {
    const std::lock_guard lock(mutex_);
    return looks_;
  }
  void await_looks(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return looks_ >= count; });
  }
  // Until the look that was answered has ended.
  void await_end() {
    while (watch_.waits_ms() > 0) std::this_thread::yield();
  }

  test::HandClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int looks_ = 0;
  bool answers_ = true;
  DirectoryWatch watch_{"/shared/job", "nothing is seen", [this] { look(); }, clock_};
};

TEST_F(DirectoryWatchTest, SilentDirectoryCostsOneLookAndOneLine) {
  be_silent();
  CaptureStderr();
  watch_.tick();
  await_looks(1);
  clock_.now_ms += 9'999;
  watch_.tick();
  EXPECT_EQ(watch_.waits_ms(), 9'999);
  EXPECT_THAT(GetCapturedStderr(), IsEmpty());
  CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    clock_.now_ms += 500;
    watch_.tick();
  }
  const std::string told = GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("/shared/job has not answered for 10 s: nothing is seen; "));
  EXPECT_THAT(told, Not(HasSubstr("for 11 s"))) << "it is said once";
  EXPECT_EQ(looks(), 1);
  answer();
  await_end();
  CaptureStderr();
  watch_.tick();
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("/shared/job answers again, after 11 s"));
  await_looks(2);
}

TEST_F(DirectoryWatchTest, EndNamesADirectoryThatIsSilent) {
  watch_.tick();
  await_looks(1);
  await_end();
  be_silent();
  watch_.tick();
  await_looks(2);
  EXPECT_THAT(watch_.stop(), ElementsAre("/shared/job"));
  answer();
}

}  // namespace
}  // namespace hpctl
