// SPDX-License-Identifier: Apache-2.0
// A file server that does not answer in the middle of a step.
#include "trainer/loop/storage_wait.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>

namespace hpctl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlow{20};

class StorageWaitTest : public ::testing::Test {
 protected:
  StorageWaitTest() { workload_.storage_limit_ms = 60'000; }

  uint64_t reported() const { return progress_.page().storage_failures.load(); }
  // What the page said at the end of an attempt that is much slower than kSlow.
  uint64_t reported_of_slow_attempt() {
    StorageWait wait(workload_, progress_, kSlow);
    uint64_t failures = 0;
    const Outcome outcome = wait.until_done([&]() -> Outcome {
      for (int look = 0; look < 30 && reported() == 0; ++look) ::poll(nullptr, 0, 10);
      failures = reported();
      return Ok{};
    });
    EXPECT_TRUE(outcome.ok());
    EXPECT_EQ(reported(), 0U) << "it has answered";
    return failures;
  }

  Workload workload_;
  Progress progress_ = Progress::attach(-1).value();
};

// The thread of the step waits in the kernel, and cannot say so itself.
TEST_F(StorageWaitTest, AttemptThatDoesNotReturnIsReported) {
  progress_.step_done({.step = 3});
  StorageWait wait(workload_, progress_, kSlow);
  const Outcome outcome = wait.until_done([&]() -> Outcome {
    for (int look = 0; look < 3'000 && reported() == 0; ++look) ::poll(nullptr, 0, 10);
    EXPECT_EQ(reported(), 1U);
    return Ok{};
  });
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(reported(), 0U) << "it has answered";
}

TEST_F(StorageWaitTest, FirstStepIsNotWaitedFor) { EXPECT_EQ(reported_of_slow_attempt(), 0U); }

TEST_F(StorageWaitTest, NothingIsReportedAfterTheLimit) {
  progress_.step_done({.step = 3});
  workload_.storage_limit_ms = 1;
  EXPECT_EQ(reported_of_slow_attempt(), 0U);
}

}  // namespace
}  // namespace hpctl
