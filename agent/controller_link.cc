// SPDX-License-Identifier: Apache-2.0
#include "agent/controller_link.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace hpctl::agent {

// Everything but the constructor's arguments is guarded by mutex_. At most one read and one write
// are under way, as gRPC demands; a hold keeps the call alive while our own thread may still start
// a write.
class ControllerLink::Stream final
    : public grpc::ClientBidiReactor<v1::AgentMessage, v1::ControllerMessage> {
 public:
  Stream(const std::shared_ptr<grpc::Channel>& channel, int wake_fd)
      : wake_fd_(wake_fd), stub_(v1::AgentLink::NewStub(channel)) {
    stub_->async()->Connect(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  void send(const v1::AgentMessage& message) {
    const std::lock_guard lock(mutex_);
    if (closed_ || (message.report_seq() == 0 && outbox_.size() >= kFullOutbox)) return;
    outbox_.push_back(message);
    if (outbox_.size() == 1) StartWrite(&outbox_.front());
  }

  std::vector<v1::ControllerMessage> take_received() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(paused_, false) && !finishing_) StartRead(&incoming_);
    return std::exchange(inbox_, {});
  }

  bool closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  std::string finish() {
    std::unique_lock lock(mutex_);
    if (!finishing_) {
      finishing_ = true;
      if (!closed_) context_.TryCancel();
      closed_ = true;
      RemoveHold();
    }
    done_.wait(lock, [this] { return status_.has_value(); });
    return status_->error_message();
  }

 private:
  void OnReadDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      if (ok) {
        inbox_.push_back(std::move(incoming_));
        incoming_.Clear();
        paused_ = inbox_.size() >= kFullInbox;
        if (!paused_) StartRead(&incoming_);
      } else {
        closed_ = true;
      }
    }
    wake();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    outbox_.pop_front();
    if (!ok || closed_) outbox_.clear();
    if (!outbox_.empty()) StartWrite(&outbox_.front());
  }

  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    done_.notify_all();  // under the lock: finish() may destroy us as soon as it is released
  }

  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_fd_, &one, sizeof(one));
  }

  const int wake_fd_;
  grpc::ClientContext context_;
  const std::unique_ptr<v1::AgentLink::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable done_;
  v1::ControllerMessage incoming_;
  std::vector<v1::ControllerMessage> inbox_;
  std::deque<v1::AgentMessage> outbox_;  // front is being written
  bool paused_ = false;                  // reading waits for take_received()
  bool closed_ = false;
  bool finishing_ = false;
  std::optional<grpc::Status> status_;
};

ControllerLink::ControllerLink(const std::shared_ptr<grpc::Channel>& channel, int wake_fd)
    : stream_(std::make_unique<Stream>(channel, wake_fd)) {}
ControllerLink::~ControllerLink() { stream_->finish(); }

void ControllerLink::send(const v1::AgentMessage& message) { stream_->send(message); }
std::vector<v1::ControllerMessage> ControllerLink::take_received() {
  return stream_->take_received();
}
bool ControllerLink::closed() const { return stream_->closed(); }
std::string ControllerLink::finish() { return stream_->finish(); }

}  // namespace hpctl::agent
