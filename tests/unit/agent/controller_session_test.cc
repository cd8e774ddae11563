// SPDX-License-Identifier: Apache-2.0
// A session whose way to the controller lies on a file server that does not answer. The agent that
// waited for it showed no life, and was replaced until its node gave up.
#include "agent/controller_session.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <semaphore>

#include "common/base/fd.h"
#include "tests/support/hand_clock.h"

namespace hpctl::agent {
namespace {

constexpr int64_t kOrphanMs = 60'000;

// connect() and start() wait until they may go on.
class StalledAccess final : public ControllerAccess {
 public:
  Result<Dialled> connect(Patience&) override {
    ++connects;
    may_connect.acquire();
    if (is_over) return Error{ErrorCode::kFailedPrecondition, "the job has ended with 0"};
    return Error{ErrorCode::kUnavailable, "no controller is recorded"};
  }
  bool is_succeeded() const override { return false; }
  int64_t look_every_ms() const override { return 1'000; }
  StartPlan start_plan() const override { return {3'000, 8'000}; }
  int64_t orphan_timeout_ms() const override { return kOrphanMs; }
  Outcome start() override {
    ++starts;
    may_start.acquire();
    return Ok{};
  }
  std::string address() const override { return ""; }

  std::atomic<int> connects = 0;
  std::atomic<int> starts = 0;
  std::atomic<bool> is_over = false;
  std::counting_semaphore<> may_connect{0};
  std::counting_semaphore<> may_start{0};
};

class StalledSession : public ::testing::Test {
 protected:
  StalledSession()
      : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        access_(new StalledAccess),
        session_(JobId{1}, std::unique_ptr<ControllerAccess>(access_), wake_.get(), clock_,
                 {[] { return v1::AgentMessage(); },
                  [](const v1::ControllerMessage&) { return true; }}) {}
  ~StalledSession() override {
    access_->may_connect.release();
    access_->may_start.release();
  }

  void await_answer() {
    pollfd rung{wake_.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&rung, 1, 60'000), 1);
    uint64_t count = 0;
    ASSERT_EQ(::read(wake_.get(), &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
  }
  std::optional<ControllerSession::Hopeless> on_time() {
    return session_.on_time(clock_.monotonic_ms(), true);
  }

  test::HandClock clock_;
  UniqueFd wake_;
  StalledAccess* const access_;
  ControllerSession session_;
};

TEST_F(StalledSession, AgentsThreadGoesOnWhileItConnects) {
  EXPECT_FALSE(on_time());
  EXPECT_TRUE(session_.is_waiting());
  EXPECT_GT(session_.due_ms(), clock_.monotonic_ms()) << "the loop does not spin";
  clock_.now_ms += 30'000;
  EXPECT_FALSE(on_time());
  EXPECT_EQ(access_->starts, 0) << "one thing at a time";
  access_->may_connect.release();
  await_answer();
  EXPECT_FALSE(on_time()) << "the attempt failed, and a start is due";
  EXPECT_EQ(access_->connects, 1);
  EXPECT_TRUE(session_.is_waiting());
  access_->may_start.release();
  await_answer();
  EXPECT_EQ(access_->starts, 1);
  EXPECT_FALSE(on_time()) << "it connects to what it started";
  EXPECT_TRUE(session_.is_waiting());
}

TEST_F(StalledSession, OrphanBoundHoldsWhileItConnects) {
  EXPECT_FALSE(on_time());
  EXPECT_EQ(session_.due_ms(), clock_.monotonic_ms() + kOrphanMs);
  clock_.now_ms += kOrphanMs;
  const auto hopeless = on_time();
  ASSERT_TRUE(hopeless);
  EXPECT_EQ(hopeless->exit_code, 1);
}

TEST_F(StalledSession, EndOfTheJobIsHeardWhenTheServerIsBack) {
  EXPECT_FALSE(on_time());
  access_->is_over = true;
  access_->may_connect.release();
  await_answer();
  const auto hopeless = on_time();
  ASSERT_TRUE(hopeless);
  EXPECT_EQ(hopeless->reason, "the job has ended with 0");
}

}  // namespace
}  // namespace hpctl::agent
