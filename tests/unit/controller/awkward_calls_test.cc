// SPDX-License-Identifier: Apache-2.0
// Streams of agents that end and begin in awkward orders; orders that come at an awkward time.
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>

#include "common/net/role_token.h"
#include "tests/support/raw_call.h"
#include "tests/unit/controller/called_controller.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kCallPatience{20};
constexpr JobId kCalledJob{1};

// Nothing is performed. A test may hold the owner thread between a commit and its answers.
class HeldEffects final : public OwnerEffects {
 public:
  void committed(const Committed&) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!armed_) return;
    held_ = true;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kCallPatience, [this] { return !armed_; }));
  }
  void perform(const core::Action&, const core::State&) override {}
  std::vector<core::EventBody> sweep(int64_t) override { return {}; }
  void stalled(int64_t) override {}

  // From the next commit on, until release().
  void hold() {
    const std::lock_guard<std::mutex> lock(mutex_);
    armed_ = true;
  }
  bool wait_until_held() {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kCallPatience, [this] { return held_; });
  }
  void release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    armed_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool armed_ = false;
  bool held_ = false;
};

class AwkwardCalls : public testing::Test, protected CalledController<HeldEffects> {
 protected:
  AwkwardCalls() : CalledController(false) {}

  std::shared_ptr<grpc::Channel> connect_agent() const { return connect(agent_token(kOwnerToken)); }
  JobSpec spec() const {
    JobSpec spec;
    spec.name = "job";
    spec.command = {"true"};
    spec.checkpoint.dir = "/checkpoints";
    return spec;
  }
  void submit() {
    core::JobSubmitted submitted;
    submitted.spec = spec();
    submitted.job = kCalledJob;
    loop_->post(submitted);
  }
  // What the rows say of the node, when all that was posted before has been taken up.
  bool is_connected() {
    std::promise<bool> answer;
    loop_->ask([&](const core::State* state) {
      answer.set_value(state->nodes.at({kCalledJob, "n0"}).connected);
    });
    return answer.get_future().get();
  }
  bool wait_for_streams(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kCallPatience;
    while (link_->connected() != count) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
};

// One stream of the only life of node n0, over a connection of its own.
class Stream {
 public:
  explicit Stream(std::shared_ptr<grpc::Channel> channel)
      : channel_(std::move(channel)), stub_(v1::AgentLink::NewStub(channel_)) {
    context_.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    stream_ = stub_->Connect(&context_);
    v1::AgentMessage message;
    message.set_job(kCalledJob.value);
    message.set_node("n0");
    message.set_boot_id("life");
    message.mutable_register_agent()->set_agent_pid(1);
    EXPECT_TRUE(stream_->Write(message));
  }
  ~Stream() { end(); }
  bool is_welcomed() {
    v1::ControllerMessage answer;
    return stream_->Read(&answer) && answer.has_welcome();
  }
  grpc::Status say(const v1::AgentMessage& message) {
    stream_->Write(message);
    v1::ControllerMessage answer;
    while (stream_->Read(&answer)) {
    }
    const grpc::Status status = stream_->Finish();
    stream_.reset();
    return status;
  }
  void end() {
    if (stream_ == nullptr) return;
    context_.TryCancel();
    stream_->Finish();
    stream_.reset();
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AgentLink::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ControllerMessage>> stream_;
};

// Else the next 64 would wait for a second: also of a connection whose token counts for nothing.
TEST_F(AwkwardCalls, ACallTellsThatItsHandshakeIsOver) {
  const auto begin = Handshakes::Clock::now();
  for (size_t i = 0; i < Handshakes::kMost; ++i) {
    const auto channel =
        connect_address(address_, identity_.certificate, i % 2 == 0 ? kOwnerToken : "?");
    const auto stub = v1::Controller::NewStub(channel.value());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    v1::GetVersionResponse response;
    EXPECT_EQ(stub->GetVersion(&context, {}, &response).ok(), i % 2 == 0);
  }
  EXPECT_EQ(authenticator_.handshakes().until_room(begin).count(), 0) << "as no time had passed";
}

// Both are on their way when the controller was away for a moment: an agent that was killed, and
// its successor. Taken for the end of the new one, the node is lost 2 s later, in full health.
TEST_F(AwkwardCalls, TheEndOfAFormerStreamIsNotThatOfTheNext) {
  submit();
  Stream former(connect_agent());
  ASSERT_TRUE(former.is_welcomed());
  effects_.hold();
  Stream next(connect_agent());
  ASSERT_TRUE(effects_.wait_until_held());
  former.end();
  ASSERT_TRUE(wait_for_streams(0));
  effects_.release();
  ASSERT_TRUE(next.is_welcomed());
  EXPECT_TRUE(is_connected());
  EXPECT_EQ(liveness_.heard_nodes(kCalledJob, loop_->now_ms()).size(), 1U);
  next.end();
  ASSERT_TRUE(wait_for_streams(0));
  EXPECT_FALSE(is_connected());
  EXPECT_TRUE(liveness_.heard_nodes(kCalledJob, loop_->now_ms()).empty());
}

// gRPC by itself takes them for the end of the stream, with which the agent would be content.
TEST_F(AwkwardCalls, BytesThatAreNoMessageEndTheStreamWithAnErrorAndAreWrittenDown) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
  const grpc::Status status =
      call_raw(connect_agent(), "/hpctl.v1.AgentLink/Connect", std::string(100, '\xff'), context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "its bytes are no AgentMessage");
  const auto refused = audited_.taken();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].call, "Connect");
  EXPECT_EQ(refused[0].role, "agent");
  EXPECT_EQ(refused[0].outcome, "INVALID_ARGUMENT");
  EXPECT_TRUE(refused[0].is_refused_call);
}

TEST_F(AwkwardCalls, AMessageThatMakesNoSenseEndsTheStreamAndIsWrittenDown) {
  submit();
  Stream stream(connect_agent());
  ASSERT_TRUE(stream.is_welcomed());
  v1::AgentMessage of_another;
  of_another.set_job(kCalledJob.value);
  of_another.set_node("n1");
  EXPECT_EQ(stream.say(of_another).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto refused = audited_.taken();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].job, kCalledJob.value);
  EXPECT_EQ(refused[0].why, "one stream is one life of one node");
}

TEST_F(AwkwardCalls, AStreamThatEndsWhileItsRegistrationIsCommittedIsNotConnected) {
  submit();
  EXPECT_FALSE(is_connected());  // begun
  effects_.hold();
  {
    Stream brief(connect_agent());
    ASSERT_TRUE(effects_.wait_until_held());
  }
  Stream lasting(connect_agent());  // after it: its registration comes behind the end of the other
  effects_.release();
  ASSERT_TRUE(lasting.is_welcomed());
  lasting.end();
  ASSERT_TRUE(wait_for_streams(0));
  EXPECT_FALSE(is_connected());
  EXPECT_TRUE(liveness_.heard_nodes(kCalledJob, loop_->now_ms()).empty());
}

// Nobody else counts how long such a node stays away.
TEST_F(AwkwardCalls, AStreamThatEndsWhileItsRegistrationIsCommittedLeavesItsNodeWatched) {
  submit();
  EXPECT_FALSE(is_connected());  // begun
  effects_.hold();
  {
    Stream brief(connect_agent());
    ASSERT_TRUE(effects_.wait_until_held());
  }
  effects_.release();
  const auto deadline = std::chrono::steady_clock::now() + kCallPatience;
  while (is_connected()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  const auto nobody_sees = [](JobId, const auto&) {
    return std::map<std::string, core::NodeObservation>{};
  };
  EXPECT_TRUE(liveness_.judge(loop_->now_ms(), nobody_sees).lost.empty());
  EXPECT_EQ(liveness_.judge(loop_->now_ms() + 3'600'000, nobody_sees).lost.size(), 1U);
}

// The scheduler may have done it already: what changes the rows now, nobody will ever see.
TEST_F(AwkwardCalls, AnOrderDuringARequeueIsRefusedAndNotForgotten) {
  core::JobAdopted adopted;
  adopted.job = kCalledJob;
  adopted.spec = spec();
  adopted.nodes = {"n0"};
  adopted.backend.requeues = true;
  adopted.former.excluded = {"n0"};  // given again: it is requeued at once
  adopted.former.exclusion_attempt = 1;
  loop_->post(adopted);
  const auto stub = v1::Controller::NewStub(connect());
  const auto quarantine = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    v1::QuarantineNodeRequest request;
    request.set_job(to_string(kCalledJob));
    request.set_node("n0");
    v1::QuarantineNodeResponse response;
    return stub->QuarantineNode(&context, request, &response);
  };
  const auto cancel = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    v1::CancelRequest request;
    request.set_job(to_string(kCalledJob));
    v1::CancelResponse response;
    return stub->Cancel(&context, request, &response);
  };
  EXPECT_EQ(quarantine().error_code(), grpc::StatusCode::UNAVAILABLE);
  const grpc::Status refused = cancel();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE) << "hpctl then asks Slurm";
  EXPECT_NE(refused.error_message().find("is being requeued"), std::string::npos);
  loop_->post([](const core::State& state) -> std::optional<core::EventBody> {
    for (const auto& [id, action] : state.outbox) {
      if (!std::holds_alternative<core::RequeueJob>(action.body)) continue;
      return core::ActionFailed{id, kCalledJob, "", "not allowed", true};
    }
    ADD_FAILURE() << "it is not being requeued";
    return std::nullopt;
  });
  EXPECT_TRUE(cancel().ok()) << "the job goes on here";
}

}  // namespace
}  // namespace hpctl
