// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/scripted_controller.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hpctl::test {

void ScriptedController::start() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = false;
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr);
}

void ScriptedController::stop() {
  if (!server_) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    for (grpc::ServerContext* context : contexts_) context->TryCancel();
  }
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

grpc::Status ScriptedController::Connect(grpc::ServerContext* context, Stream* stream) {
  {
    const std::lock_guard lock(mutex_);
    if (stops_) return {grpc::StatusCode::UNAVAILABLE, "it stops"};
    contexts_.insert(context);
    stream_ = stream;
  }
  v1::AgentMessage message;
  while (stream->Read(&message)) {
    const std::lock_guard lock(mutex_);
    if (stops_) break;
    v1::ControllerMessage answer;
    answer.set_job(message.job());
    if (message.has_register_agent() && !behaviour.refuse.empty()) {
      answer.mutable_refused()->set_reason(behaviour.refuse);
      answer.mutable_refused()->set_permanent(true);
      stream->Write(answer);
    } else if (message.has_register_agent()) {
      answer.mutable_welcome()->set_controller_pid(1);
      answer.mutable_welcome()->set_heartbeat_interval_ms(behaviour.heartbeat_ms);
      answer.mutable_welcome()->set_orphan_timeout_ms(behaviour.orphan_timeout_ms);
      answer.mutable_welcome()->set_hang_timeout_ms(behaviour.hang_timeout_ms);
      answer.mutable_welcome()->set_exits_together(behaviour.exits_together);
      stream->Write(answer);
    } else if (message.report_seq() != 0 && behaviour.acknowledge) {
      answer.mutable_report_ack()->set_report_seq(message.report_seq());
      answer.mutable_report_ack()->set_first_report_seq(
          message.workers_exited().first_report_seq());
      stream->Write(answer);
    }
    received_.push_back(message);
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  contexts_.erase(context);
  if (stream_ == stream) stream_ = nullptr;
  return grpc::Status::OK;
}

v1::AgentMessage ScriptedController::take(
    const std::function<bool(const v1::AgentMessage&)>& fits) {
  std::unique_lock lock(mutex_);
  v1::AgentMessage taken;
  const bool found = changed_.wait_for(lock, std::chrono::seconds(60), [&] {
    const auto it = std::find_if(received_.begin(), received_.end(), fits);
    if (it == received_.end()) return false;
    taken = *it;
    received_.erase(it);
    return true;
  });
  EXPECT_TRUE(found) << "the agent did not send what was waited for";
  return taken;
}

size_t ScriptedController::count(v1::AgentMessage::KindCase kind) {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(received_.begin(), received_.end(),
                    [kind](const auto& message) { return message.kind_case() == kind; }));
}

void ScriptedController::send(v1::ControllerMessage message) {
  const std::lock_guard lock(mutex_);
  ASSERT_NE(stream_, nullptr);
  stream_->Write(message);
}

void ScriptedController::acknowledge(const v1::AgentMessage& report) {
  v1::ControllerMessage message;
  message.set_job(report.job());
  message.mutable_report_ack()->set_report_seq(report.report_seq());
  send(message);
}

}  // namespace hpctl::test
