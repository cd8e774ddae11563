// SPDX-License-Identifier: Apache-2.0
#include "controller/step/step_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/base/log.h"

namespace hpctl::step {
namespace {

constexpr int kAcceptsARound = 64;  // then those that are there are read
constexpr int64_t kAcceptPauseMs = 100;

bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

bool is_readable(int fd) {
  pollfd look{fd, POLLIN, 0};
  return ::poll(&look, 1, 0) == 1;
}

// A node that vanishes without a word is noticed within about 20 s.
void watch_peer(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace

StepServer::StepServer(UniqueFd listener, UniqueFd lifeline, std::string token,
                       StepSettings settings, StrangerLimits limits)
    : listener_(std::move(listener)),
      lifeline_(std::move(lifeline)),
      token_(std::move(token)),
      limits_(limits),
      controller_(std::move(settings), *this) {}

void StepServer::run() {
  while (!srun_gone_ && !controller_.done()) {
    poll_once();
    controller_.tick(clock_.monotonic_ms());
    drop_broken();
  }
}

int64_t StepServer::wait_ms() const {
  int64_t due = controller_.next_deadline().value_or(INT64_MAX);
  for (const auto& [fd, peer] : peers_) {
    if (peer->task < 0) due = std::min(due, peer->since_ms + limits_.hello_ms);
  }
  if (!may_accept()) due = std::min(due, accept_from_ms_);
  if (due == INT64_MAX) return -1;
  return std::clamp<int64_t>(due - clock_.monotonic_ms(), 0, 60'000);
}

void StepServer::poll_once() {
  const int listener = may_accept() ? listener_.get() : -1;  // poll() leaves out -1
  std::vector<pollfd> waits = {{listener, POLLIN, 0}, {lifeline_.get(), POLLIN, 0}};
  for (const auto& [fd, peer] : peers_) {
    waits.push_back(
        {fd, static_cast<short>(peer->stream.has_unsent() ? POLLIN | POLLOUT : POLLIN), 0});
  }
  if (::poll(waits.data(), waits.size(), static_cast<int>(wait_ms())) < 0) return;
  srun_gone_ = waits[1].revents != 0;
  for (size_t i = 2; i < waits.size(); ++i) {
    if (waits[i].revents == 0) continue;
    Peer& peer = *peers_.at(waits[i].fd);
    if ((waits[i].revents & POLLOUT) != 0 && !peer.stream.flush().ok()) peer.broken = true;
    if ((waits[i].revents & ~POLLOUT) != 0) read(peer);
  }
  if (waits[0].revents != 0) accept_all();
}

// Where no descriptor is left, the connection stays in the queue and poll() would return at once.
void StepServer::accept_all() {
  for (int i = 0; i < kAcceptsARound; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      // accept() needs a descriptor before it looks for a waiting connection.
      if (!is_out_of_descriptors(errno) || !is_readable(listener_.get())) return;
      if (drop_oldest_stranger()) return;
      accept_from_ms_ = clock_.monotonic_ms() + kAcceptPauseMs;
      return;
    }
    if (strangers_ >= limits_.at_once) drop_oldest_stranger();
    watch_peer(fd.get());
    const int number = fd.get();
    auto peer = std::make_unique<Peer>(Peer{FrameStream(std::move(fd)), clock_.monotonic_ms()});
    // A stranger gets no further than receive().
    if (!peer->stream.authenticate(token_, FrameStream::Side::kAccepted).ok()) continue;
    peers_[number] = std::move(peer);
    ++strangers_;
  }
}

// False where there is none.
bool StepServer::drop_oldest_stranger() {
  const auto age = [](const auto& entry) {
    return entry.second->task < 0 ? entry.second->since_ms : INT64_MAX;
  };
  const auto oldest = std::min_element(
      peers_.begin(), peers_.end(), [&](const auto& a, const auto& b) { return age(a) < age(b); });
  if (oldest == peers_.end() || oldest->second->task >= 0) return false;
  peers_.erase(oldest);
  --strangers_;
  return true;
}

void StepServer::read(Peer& peer) {
  while (!peer.broken) {
    auto packet = peer.stream.receive();
    if (!packet.ok()) {
      peer.broken = true;
      return;
    }
    if (!packet->has_value()) return;
    if (peer.task < 0) {
      on_hello(peer, **packet);
      continue;
    }
    const auto message = decode_to_controller(**packet);
    if (!message.ok()) {
      say(message.error().message);
      peer.broken = true;
      return;
    }
    controller_.message(peer.task, *message, clock_.monotonic_ms());
  }
}

void StepServer::on_hello(Peer& peer, const std::string& packet) {
  const auto message = decode_to_controller(packet);
  const Hello* hello = message.ok() ? std::get_if<Hello>(&*message) : nullptr;
  peer.broken = true;
  if (hello == nullptr || !begun_.insert(peer.stream.peer_nonce()).second) return;  // played back
  if (descriptors_.contains(hello->task)) return;
  // A shim that waits says no more before it is welcome.
  if (!peer.stream.receive().ok()) return controller_.gave_up(*hello);
  peer.task = hello->task;
  --strangers_;
  descriptors_[hello->task] = peer.stream.fd();
  peer.broken = false;
  const std::string refusal = controller_.hello(*hello, clock_.monotonic_ms());
  if (refusal.empty()) return;
  say(refusal);
  descriptors_.erase(hello->task);
  peer.task = -1;
  ++strangers_;
  peer.broken = true;
}

void StepServer::drop_broken() {
  const int64_t now = clock_.monotonic_ms();
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = *it->second;
    const bool late = peer.task < 0 && (now >= peer.since_ms + limits_.hello_ms);
    if (!peer.broken && !late) {
      ++it;
      continue;
    }
    const int32_t task = peer.task;
    it = peers_.erase(it);
    if (task < 0) {
      --strangers_;
      continue;
    }
    descriptors_.erase(task);
    controller_.lost(task, now);
  }
}

StepServer::Peer* StepServer::peer_of(int32_t task) {
  const auto it = descriptors_.find(task);
  return it == descriptors_.end() ? nullptr : peers_.at(it->second).get();
}

void StepServer::send(int32_t task, const ToShim& message) {
  Peer* peer = peer_of(task);
  // A broken connection is reported by drop_broken(), not from inside a decision.
  if (peer != nullptr && !peer->broken && !peer->stream.send(encode(message)).ok()) {
    peer->broken = true;
  }
}

void StepServer::say(const std::string& line) {
  log_text("hpctl: " + line + "\n");  // to srun's stderr
}

}  // namespace hpctl::step
