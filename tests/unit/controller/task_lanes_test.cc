// SPDX-License-Identifier: Apache-2.0
// What hangs keeps its own lane and nothing else, and does not keep the process.
#include "controller/engine/task_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::milliseconds kAtOnce{0};
constexpr std::chrono::minutes kPatience{1};

// A directory that does not answer before the end of its scope.
class Dead {
 public:
  ~Dead() { revive(); }
  // Of a task that goes there; `begun` tells that it has.
  void visit() {
    if (!begun_.exchange(true)) is_visited_.set_value();
    answer_.wait();
  }
  void await_visit() { is_visited_.get_future().wait(); }
  void revive() {
    if (!std::exchange(is_alive_, true)) alive_.set_value();
  }

 private:
  std::promise<void> alive_;
  const std::shared_future<void> answer_ = alive_.get_future().share();
  std::promise<void> is_visited_;
  std::atomic<bool> begun_{false};
  bool is_alive_ = false;
};

TEST(TaskLanes, AHungLaneKeepsOneThreadHoweverOftenItIsTried) {
  Dead dead;
  TaskLanes lanes(2, 16);
  for (int i = 0; i < 10; ++i) lanes.post("dead", [&] { dead.visit(); });
  dead.await_visit();
  for (int i = 0; i < 10; ++i) {
    std::promise<void> done;
    lanes.post("lane " + std::to_string(i), [&] { done.set_value(); });
    ASSERT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  }
  dead.revive();
}

TEST(TaskLanes, OfWhatWaitsTheNewestCount) {
  Dead dead;
  std::vector<int> done;
  TaskLanes lanes(2, 3);
  lanes.post("a", [&] { dead.visit(); });
  dead.await_visit();
  for (int i = 0; i < 10; ++i) lanes.post("a", [&, i] { done.push_back(i); });
  dead.revive();
  EXPECT_THAT(lanes.stop(kPatience, TaskLanes::AtStop::kDone), IsEmpty());
  EXPECT_THAT(done, ElementsAre(7, 8, 9));
}

TEST(TaskLanes, TasksOfALaneRunInOrderAndNeverTwoAtOnce) {
  std::vector<int> done;  // not guarded
  TaskLanes lanes(4, 1'000);
  for (int i = 0; i < 1'000; ++i) lanes.post("a", [&, i] { done.push_back(i); });
  EXPECT_THAT(lanes.stop(kPatience, TaskLanes::AtStop::kDone), IsEmpty());
  ASSERT_EQ(done.size(), 1'000U);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

TEST(TaskLanes, TheEndNamesWhatHangsAndDropsWhatWaits) {
  Dead dead;
  std::atomic<int> done = 0;
  {
    TaskLanes lanes(2, 16);
    lanes.post("dead", [&] { dead.visit(); });
    dead.await_visit();
    lanes.post("dead", [&] { ++done; });
    EXPECT_THAT(lanes.stop(kAtOnce, TaskLanes::AtStop::kDropped), ElementsAre("dead"));
    lanes.post("other", [&] { ++done; });
    dead.revive();
  }
  EXPECT_EQ(done, 0);
}

TEST(TaskLanesDeathTest, AProcessLeavesAHungThreadBehind) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Dead dead;
        TaskLanes lanes(2, 16);
        lanes.post("/dead", [&] { dead.visit(); });
        dead.await_visit();
        leave_with_hung_lanes(lanes.stop(kAtOnce, TaskLanes::AtStop::kDropped), 7);
      },
      ::testing::ExitedWithCode(7), "without waiting for /dead");
}

}  // namespace
}  // namespace hpctl
