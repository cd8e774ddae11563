// SPDX-License-Identifier: Apache-2.0
// The local scheduler with real holders: a launch done again finds its own, a new launch replaces
// a former life, even one that hangs.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "controller/schedulers/local/holder_process.h"
#include "controller/schedulers/local/local_scheduler.h"
#include "tests/fault/live_controller.h"

namespace hpctl {
namespace {

constexpr int64_t kPatienceMs = 60'000;

class LocalSchedulerTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(make_directories(home_.paths().job(kNode.job)).ok()); }
  std::unique_ptr<LocalScheduler> make() {
    return std::make_unique<LocalScheduler>(
        home_.paths(), test::program("hpagent"),
        [this](JobId, const Scheduler::MakeEvent&) { told_ += 1; });
  }
  // Pid of the launched holder; 0 when the launch failed.
  static uint64_t launch(LocalScheduler& scheduler, uint64_t seq) {
    const auto answer = scheduler.launch({Seq{seq}, 0}, {kNode.job, kNode.name});
    const auto* launched = std::get_if<core::NodeLaunched>(&answer);
    return launched == nullptr ? 0 : launched->holder_pid;
  }
  static bool await_lock(const LocalScheduler& scheduler, uint64_t pid) {
    const SystemClock clock;
    const int64_t deadline = clock.monotonic_ms() + kPatienceMs;
    const auto has_lock = [&] {
      const auto present = scheduler.present_holder(kNode);
      return present.ok() && *present == pid;
    };
    while (!has_lock()) {
      if (clock.monotonic_ms() >= deadline) return false;
      ::poll(nullptr, 0, 10);
    }
    return true;
  }

  inline static const core::NodeKey kNode{JobId{1}, "n0"};
  test::LiveController home_;  // for its directory and its clean-up
  std::atomic<int> told_{0};
};

TEST_F(LocalSchedulerTest, ALaunchDoneAgainFindsItsHolder) {
  auto scheduler = make();
  const uint64_t holder = launch(*scheduler, 5);
  ASSERT_NE(holder, 0U);
  ASSERT_TRUE(await_lock(*scheduler, holder));
  EXPECT_EQ(launch(*scheduler, 5), holder);
  scheduler = make();  // as after a restart of the controller
  EXPECT_EQ(launch(*scheduler, 5), holder);
  EXPECT_EQ(launch(*scheduler, 4), holder) << "an older launch does not end a newer life";
  EXPECT_TRUE(process_lives(static_cast<pid_t>(holder)));
}

TEST_F(LocalSchedulerTest, ANewLaunchReplacesAHolderThatHangs) {
  const auto scheduler = make();
  const uint64_t former = launch(*scheduler, 5);
  ASSERT_NE(former, 0U);
  ASSERT_TRUE(await_lock(*scheduler, former));
  ASSERT_EQ(::kill(static_cast<pid_t>(former), SIGSTOP), 0);
  const uint64_t holder = launch(*scheduler, 9);
  EXPECT_NE(holder, 0U);
  EXPECT_NE(holder, former);
  EXPECT_FALSE(process_lives(static_cast<pid_t>(former)));
  EXPECT_TRUE(await_lock(*scheduler, holder)) << "once the former reaper has freed it";
  EXPECT_EQ(told_, 0) << "the core gave the former life up itself";
}

TEST_F(LocalSchedulerTest, AProcessThatIsNoHolderOfTheNodeIsLeftAlone) {
  const auto scheduler = make();
  EXPECT_FALSE(launch_of_holder(::getpid(), kNode));
  EXPECT_TRUE(kill_holder(::getpid(), kNode).ok());
  const uint64_t holder = launch(*scheduler, 5);
  ASSERT_TRUE(await_lock(*scheduler, holder));
  const auto pid = static_cast<pid_t>(holder);
  EXPECT_TRUE(kill_holder(pid, {JobId{1}, "n1"}).ok());
  EXPECT_TRUE(kill_holder(pid, {JobId{2}, "n0"}).ok());
  EXPECT_TRUE(process_lives(pid));
  EXPECT_EQ(launch_of_holder(pid, kNode), (ActionId{Seq{5}, 0}));
}

// A lock file that cannot be looked at, as on a file server with ESTALE: a link that leads to
// itself.
class HiddenLock {
 public:
  explicit HiddenLock(std::string path) : path_(std::move(path)) {
    EXPECT_EQ(::rename(path_.c_str(), (path_ + ".away").c_str()), 0);
    EXPECT_EQ(::symlink(path_.c_str(), path_.c_str()), 0);
  }
  ~HiddenLock() { EXPECT_EQ(::rename((path_ + ".away").c_str(), path_.c_str()), 0); }
  HiddenLock(const HiddenLock&) = delete;
  HiddenLock& operator=(const HiddenLock&) = delete;

 private:
  const std::string path_;
};

// A controller that started while the home's file system was away reported living nodes lost.
TEST_F(LocalSchedulerTest, LockThatCannotBeLookedAtIsNotAbsent) {
  auto scheduler = make();
  const uint64_t holder = launch(*scheduler, 5);
  ASSERT_TRUE(await_lock(*scheduler, holder));
  scheduler = make();
  core::State state;
  core::Node node;
  node.key = kNode;
  node.state = core::NodeState::kUp;
  node.holder_pid = holder;
  state.nodes[kNode] = node;
  {
    const HiddenLock hidden(home_.paths().node_lock(kNode.job, kNode.name));
    EXPECT_FALSE(scheduler->present_holder(kNode).ok());
    scheduler->resume(state);
    EXPECT_EQ(told_, 0) << "the holder lives";
    EXPECT_EQ(launch(*scheduler, 9), 0U) << "no second holder beside it";
    EXPECT_TRUE(process_lives(static_cast<pid_t>(holder)));
  }
  ASSERT_EQ(::kill(static_cast<pid_t>(holder), SIGKILL), 0);
  const SystemClock clock;
  const int64_t deadline = clock.monotonic_ms() + kPatienceMs;
  while (told_ == 0 && clock.monotonic_ms() < deadline) ::poll(nullptr, 0, 10);
  EXPECT_EQ(told_, 1) << "its end was reported when the lock file could be looked at";
}

}  // namespace
}  // namespace hpctl
