// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/agent_session.h"

#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <utility>

#include "common/base/check.h"

namespace hpctl {
namespace {

constexpr size_t kSendLimit = 1024;

template <typename Message>
using Traits = grpc::SerializationTraits<Message>;

}  // namespace

AgentSession::AgentSession(Caller caller, Received received, Closed closed)
    : caller_(std::move(caller)), received_(std::move(received)), closed_(std::move(closed)) {}

void AgentSession::start() {
  self_ = shared_from_this();
  StartRead(&incoming_bytes_);
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
  if (outgoing_.size() == 1) write_next();
}

void AgentSession::write_next() {
  bool is_ours = false;
  outgoing_bytes_.Clear();
  const grpc::Status written =
      Traits<v1::ControllerMessage>::Serialize(outgoing_.front(), &outgoing_bytes_, &is_ours);
  HP_CHECK(written.ok());
  StartWrite(&outgoing_bytes_);
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
  const bool is_message = Traits<v1::AgentMessage>::Deserialize(&incoming_bytes_, &incoming_).ok();
  received_(*this, is_message ? &incoming_ : nullptr);
  incoming_.Clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!finished_) StartRead(&incoming_bytes_);
}

void AgentSession::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  outgoing_.pop_front();
  if (!ok) {
    outgoing_.clear();
    closing_ = true;
  }
  if (!outgoing_.empty()) {
    write_next();
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
