// SPDX-License-Identifier: Apache-2.0
// A whole controller in this process, with a mode and a scheduler that the test holds: what comes
// before what, and what the owner thread does not wait for.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "common/base/file.h"
#include "common/rpc/controller_process.h"
#include "controller/controller.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"
#include "tests/support/scripted_http.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr JobId kOwnedJob{1};
constexpr std::chrono::seconds kOwnersPatience{60};

// What was called, in order.
class Record {
 public:
  void add(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(what);
    called_.notify_all();
  }
  bool await(const std::string& what, std::chrono::milliseconds patience, int times = 1) {
    std::unique_lock<std::mutex> lock(mutex_);
    return called_.wait_for(
        lock, patience, [&] { return std::count(calls_.begin(), calls_.end(), what) >= times; });
  }
  std::vector<std::string> calls() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable called_;
  std::vector<std::string> calls_;
};

class FakeScheduler final : public Scheduler {
 public:
  FakeScheduler(Record& record, bool launches) : record_(record), launches_(launches) {}
  void resume(const core::State&) override {
    record_.await("launch", std::chrono::milliseconds(200));  // it has every chance to be first
    record_.add("resume");
  }
  core::EventBody launch(ActionId id, const core::LaunchNode& action) override {
    record_.add("launch");
    if (launches_) return core::NodeLaunched{id, action.job, action.node, 1};
    return core::ActionFailed{id, action.job, action.node, "a test", true};
  }
  void registered(const core::NodeKey&, uint64_t) override {}
  void stop() override {}

 private:
  Record& record_;
  const bool launches_;
};

class FakeMode final : public ControllerMode {
 public:
  FakeMode(Record& record, std::optional<core::EventBody> first, bool stands_back,
           bool launches = false)
      : record_(record), first_(std::move(first)), stands_back_(stands_back), launches_(launches) {}

  std::unique_ptr<Scheduler> make_scheduler(Scheduler::Post) override {
    return std::make_unique<FakeScheduler>(record_, launches_);
  }
  bool is_superseded() override {
    if (is_silent) answered_.wait();
    return false;
  }
  // The directory is silent meanwhile.
  bool may_record() override {
    record_.add("may record");
    answered_.wait();
    return true;
  }
  void let_record() { may_answer_.set_value(); }

  bool is_silent = false;  // the directory, until let_record(); set before the controller starts

  std::optional<core::EventBody> first_event() override { return first_; }
  std::string node() const override { return "here"; }
  JobIdentity identify(const core::Job& job) const override {
    JobIdentity identity;
    identity.uuid = to_string(job.id);
    return identity;
  }
  HomePaths users_home() const override { return HomePaths("/nonexistent"); }
  bool accepts_jobs() const override { return false; }
  bool stands_back() const override { return stands_back_; }
  bool has_last_word() const override { return true; }
  void job_ended(const core::Job&, const JobView&) override {
    record_.add("last word");
    said_.wait();
  }
  void nodes_ended(JobId) override { record_.add("nodes ended"); }
  void let_speak() { may_say_.set_value(); }

 private:
  Record& record_;
  const std::optional<core::EventBody> first_;
  const bool stands_back_;
  const bool launches_;
  std::promise<void> may_answer_;
  const std::shared_future<void> answered_ = may_answer_.get_future().share();
  std::promise<void> may_say_;
  const std::shared_future<void> said_ = may_say_.get_future().share();
};

class OwnerThread : public ::testing::Test {
 protected:
  ~OwnerThread() override { EXPECT_TRUE(remove_tree(paths_.socket_directory()).ok()); }

  core::EventBody submission() const {
    core::JobSubmitted submitted;
    submitted.spec.name = "t";
    submitted.spec.command = {"true"};
    submitted.spec.checkpoint.dir = directory_ / "checkpoints";
    submitted.uid = ::geteuid();
    return submitted;
  }
  v1::JobStatus status() const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kOwnersPatience);
    v1::GetJobRequest request;
    request.set_job(to_string(kOwnedJob));
    v1::JobStatus status;
    const auto answer =
        v1::Controller::NewStub(connect_controller(paths_))->GetJob(&context, request, &status);
    if (!answer.ok()) status.set_state(answer.error_message());
    return status;
  }
  std::string state() const { return status().state(); }
  static core::AgentRegistered registration(const std::string& boot_id) {
    core::AgentRegistered registered;
    registered.job = kOwnedJob;
    registered.node = "n0";
    registered.instance_id = "i-0";
    registered.boot_id = boot_id;
    registered.holder_pid = 1;
    registered.agent_pid = 2;
    return registered;
  }

  TemporaryDirectory directory_;
  const HomePaths paths_{directory_.path()};
  Record record_;
};

TEST_F(OwnerThread, TheSchedulerHearsWhatWasBeforeItIsAskedForAnything) {
  {
    FakeMode mode(record_, submission(), true);
    Controller controller(paths_, {}, mode);
    ASSERT_TRUE(controller.start().ok());
    ASSERT_EQ(state(), "STARTING");
  }
  EXPECT_EQ(record_.calls(), std::vector<std::string>({"resume"})) << "its launch is still open";
  FakeMode mode(record_, std::nullopt, false);
  mode.let_speak();
  Controller controller(paths_, {}, mode);
  ASSERT_TRUE(controller.start().ok());
  EXPECT_TRUE(record_.await("launch", kOwnersPatience));
  controller.stop();
  std::vector<std::string> calls = record_.calls();
  ASSERT_GE(calls.size(), 3U);
  calls.resize(3);  // the end of the job may have been told as well
  EXPECT_EQ(calls, std::vector<std::string>({"resume", "resume", "launch"}));
}

TEST_F(OwnerThread, DoesNotWaitForTheLastWordButTheNodesDo) {
  FakeMode mode(record_, submission(), false);
  Controller controller(paths_, {}, mode);
  ASSERT_TRUE(controller.start().ok());
  // Its launch cannot succeed.
  EXPECT_TRUE(record_.await("last word", kOwnersPatience));
  EXPECT_EQ(state(), "FAILED");
  EXPECT_FALSE(record_.await("nodes ended", std::chrono::milliseconds(0)));
  mode.let_speak();
  EXPECT_TRUE(record_.await("nodes ended", kOwnersPatience));
  controller.stop();
}

// It was looked for a successor first, in the directory that the notification was about.
TEST_F(OwnerThread, WebhookIsSentWhileTheDirectoryIsSilent) {
  test::ScriptedHttp server;
  core::EventBody first = submission();
  std::get<core::JobSubmitted>(first).spec.notify.webhook = server.url("/hook");
  FakeMode mode(record_, std::move(first), false);
  mode.is_silent = true;
  mode.let_speak();
  Controller controller(paths_, {}, mode);
  ASSERT_TRUE(controller.start().ok());
  EXPECT_EQ(server.requests(1).size(), 1U) << "its launch cannot succeed";
  mode.let_record();
  controller.stop();
}

// A silent directory held the order up, and the job's node was lost meanwhile. Later the record was
// created all the same, and was taken for another controller's.
TEST_F(OwnerThread, WithdrawnRecordIsNotCreatedLater) {
  FakeMode mode(record_, submission(), false, true);
  mode.let_speak();
  Controller controller(paths_, {}, mode);
  ASSERT_TRUE(controller.start().ok());
  ASSERT_TRUE(record_.await("launch", kOwnersPatience));
  controller.post(registration("boot-1"));
  ASSERT_TRUE(record_.await("may record", kOwnersPatience));
  controller.post(core::NodeLost{kOwnedJob, "n0", "boot-1", "a test"});
  ASSERT_TRUE(record_.await("launch", kOwnersPatience, 2));
  mode.let_record();
  controller.post(registration("boot-2"));
  EXPECT_TRUE(record_.await("may record", kOwnersPatience, 2));
  const auto deadline = std::chrono::steady_clock::now() + kOwnersPatience;
  while (status().generation() == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(status().generation(), 1U) << "the number is free";
  controller.stop();
}

}  // namespace
}  // namespace hpctl
