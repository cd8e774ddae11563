// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/agent_session.h"

namespace hpctl {
namespace {

constexpr size_t kSendLimit = 1024;

}  // namespace

AgentSession::AgentSession(Received received, Closed closed)
    : received_(std::move(received)), closed_(std::move(closed)) {}

void AgentSession::start() {
  self_ = shared_from_this();
  StartRead(&incoming_);
}

void AgentSession::send(v1::ControllerMessage message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closing_) return;
  if (outgoing_.size() >= kSendLimit) {
    closing_ = true;
    status_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the agent does not read");
    return;
  }
  outgoing_.push_back(std::move(message));
  if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
}

void AgentSession::close(const grpc::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closing_) status_ = status;
  closing_ = true;
  finish_if_idle();
}

void AgentSession::finish_if_idle() {
  if (!closing_ || finished_ || !outgoing_.empty()) return;
  finished_ = true;
  Finish(status_);
}

void AgentSession::OnReadDone(bool ok) {
  if (!ok) {
    close(grpc::Status::OK);
    return;
  }
  received_(*this, incoming_);
  incoming_.Clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!finished_) StartRead(&incoming_);
}

void AgentSession::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  outgoing_.pop_front();
  if (!ok) {
    outgoing_.clear();
    closing_ = true;
  }
  if (!outgoing_.empty()) {
    StartWrite(&outgoing_.front());
  } else {
    finish_if_idle();
  }
}

void AgentSession::OnCancel() { close(grpc::Status::CANCELLED); }

void AgentSession::OnDone() {
  {
    // OnCancel may have run on another thread; that it is over is ordered here, in our own terms.
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  closed_(*this);
  self_.reset();
}

}  // namespace hpctl
