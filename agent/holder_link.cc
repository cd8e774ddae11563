// SPDX-License-Identifier: Apache-2.0
#include "agent/holder_link.h"

#include <unistd.h>

#include <csignal>
#include <string>

#include "common/base/log.h"

namespace hpctl::agent {
namespace {

constexpr int64_t kAliveEveryMs = 400;
// A holder that leaves so many unanswered (5 s) is stopped; counted, as the machine may have slept.
constexpr int kUnansweredSigns = 12;

}  // namespace

void HolderLink::tell(const holder::ToHolder& message) {
  if (const auto sent = socket_.send_now(holder::encode(message)); !sent.ok()) {
    log_error(sent.error().message);
    broken_ = true;
  }
}

std::optional<HolderLink::Incoming> HolderLink::receive() {
  while (true) {
    auto packet = socket_.receive();
    if (!packet.ok()) {
      log_error(packet.error().message);
      broken_ = true;
      return std::nullopt;
    }
    if (!packet->has_value()) return std::nullopt;
    auto event = holder::decode_to_agent((*packet)->bytes);
    if (!event.ok()) {
      log_error(event.error().message);
      broken_ = true;
      return std::nullopt;
    }
    if (!std::holds_alternative<holder::AliveToo>(*event)) {
      return Incoming{*std::move(event), std::move((*packet)->descriptor)};
    }
    unanswered_signs_ = 0;
  }
}

void HolderLink::show_life(int64_t now_ms) {
  const auto holder = static_cast<pid_t>(holder_pid_);
  if (unanswered_signs_ >= kUnansweredSigns && ::getppid() == holder) {
    log_error("the holder (pid " + std::to_string(holder) +
              ") does not answer; ending it, which loses the node");
    ::kill(holder, SIGKILL);
  }
  tell(holder::Alive{alive_limit_ms_});
  ++unanswered_signs_;
  alive_at_ms_ = now_ms + kAliveEveryMs;
}

}  // namespace hpctl::agent
