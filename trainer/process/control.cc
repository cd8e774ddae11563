// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/control.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/worker/injected_fault.h"
#include "common/worker/worker_abi.h"
#include "trainer/process/fault_injector.h"
#include "trainer/process/stop_request.h"
#include "trainer/process/workload_check.h"

namespace hpctl {

namespace {

Result<Workload> read_join(const control::Join& join, const UniqueFd& document) {
  if (!document.valid()) {
    return Error{ErrorCode::kInvalidArgument, "an order to join generation " +
                                                  std::to_string(join.generation) +
                                                  " came without its workload"};
  }
  HP_TRY_ASSIGN(const std::string text,
                read_file("/proc/self/fd/" + std::to_string(document.get())));
  HP_TRY_ASSIGN(Workload workload, workload_from_json(text));
  HP_TRY(check_workload(workload));
  if (workload.generation == join.generation) return workload;
  return Error{ErrorCode::kInvalidArgument,
               "an order to join generation " + std::to_string(join.generation) +
                   " came with the workload of generation " + std::to_string(workload.generation)};
}

Outcome take_descriptor(int number, const UniqueFd& descriptor) {
  const std::string what = "an order to take descriptor " + std::to_string(number);
  if (number != kProgressFd && number != kArenaFd) {
    return Error{ErrorCode::kInvalidArgument, what + ", which no process hands over"};
  }
  if (!descriptor.valid()) return Error{ErrorCode::kInvalidArgument, what + " came without it"};
  if (::dup2(descriptor.get(), number) < 0) return errno_error(what + " cannot be followed");
  return Ok{};
}

}  // namespace

UniqueFd control_socket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  const bool is_one =
      ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
  return is_one ? UniqueFd(fd) : UniqueFd();
}

Control::Control(UniqueFd socket) {
  if (!socket.valid()) {
    ended_ = true;
    return;
  }
  socket_.emplace(std::move(socket));
  reader_ = std::thread([this] { read(); });
}

Control::~Control() {
  if (!reader_.joinable()) return;
  ::shutdown(socket_->fd(), SHUT_RDWR);
  reader_.join();
}

void Control::say(const control::FromWorker& message) {
  if (!socket_) return;
  // Never waits. After hundreds of unread messages there is no reader.
  if (!socket_->flush().ok() || socket_->has_queued()) return;
  const Outcome sent = socket_->send_or_queue(control::encode(message));
  if (!sent.ok()) log_warning("control socket: " + sent.error().message);
}

void Control::enter(uint64_t generation, std::function<void()> abort) {
  const std::lock_guard lock(mutex_);
  live_ = generation;
  abort_ = std::move(abort);
  abort_called_ = aborted_through_ >= generation;
  if (abort_called_) abort_();
}

bool Control::may_abort() {
  const std::lock_guard lock(mutex_);
  return !abort_called_ && !ended_;
}

void Control::await_abort() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return abort_called_ || ended_; });
}

bool Control::leave() {
  const std::lock_guard lock(mutex_);
  live_.reset();
  abort_ = nullptr;
  return std::exchange(abort_called_, false);
}

Result<std::optional<Workload>> Control::await_join() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return joined_ || ended_; });
  if (!joined_) return std::optional<Workload>();
  const Result<Workload> joined = *std::exchange(joined_, std::nullopt);
  if (!joined.ok()) return joined.error();
  return std::optional(*joined);
}

void Control::read() {
  for (;;) {
    pollfd readable{socket_->fd(), POLLIN, 0};
    if (::poll(&readable, 1, -1) < 0) continue;  // a signal
    auto packet = socket_->receive();
    if (!packet.ok()) break;
    if (!packet->has_value()) continue;
    const auto message = control::decode_to_worker((*packet)->bytes);
    const Outcome followed =
        message.ok() ? on(*message, (*packet)->descriptor) : Outcome(message.error());
    if (followed.ok()) continue;
    log_error(followed.error().message + "; nothing more is taken from the control socket");
    break;
  }
  end();
}

Outcome Control::on(const control::ToWorker& message, const UniqueFd& descriptor) {
  if (const auto* join = std::get_if<control::Join>(&message)) {
    Result<Workload> workload = read_join(*join, descriptor);
    const std::lock_guard lock(mutex_);
    joined_ = std::move(workload);
    changed_.notify_one();
  } else if (const auto* abort = std::get_if<control::Abort>(&message)) {
    const std::lock_guard lock(mutex_);
    aborted_through_ = std::max(aborted_through_, abort->generation);
    if (!live_ || abort_called_ || *live_ > aborted_through_) return Ok{};
    abort_called_ = true;
    abort_();
    changed_.notify_one();
  } else if (const auto* ping = std::get_if<control::Ping>(&message)) {
    say(control::Pong{ping->number});  // a standby's other thread says nothing after Ready
  } else if (const auto* suffer = std::get_if<control::Suffer>(&message)) {
    const auto fault = from_word<InjectedFault>(suffer->fault);
    if (fault && is_told_to_trainer(*fault)) order_fault(*fault, suffer->generation);
  } else if (const auto* taken = std::get_if<control::Take>(&message)) {
    return take_descriptor(taken->descriptor, descriptor);
  } else {
    request_stop();
    end();
  }
  return Ok{};
}

// There will be no order for another generation.
void Control::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_one();
}

}  // namespace hpctl
