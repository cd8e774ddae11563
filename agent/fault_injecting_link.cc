// SPDX-License-Identifier: Apache-2.0
#include "agent/fault_injecting_link.h"

#include <algorithm>
#include <utility>

#include "common/worker/injected_fault.h"

namespace hpctl::agent {

void FaultInjectingLink::delay_messages() {
  delay_until_ms_ = clock_.monotonic_ms() + kDelaysLastMs;
  for (auto& [due_at_ms, message] : incoming_) due_at_ms = due_ms();
}

void FaultInjectingLink::lose_messages() { broken_at_ms_ = clock_.monotonic_ms() + kLossMs; }

// When a message of this moment goes on its way.
int64_t FaultInjectingLink::due_ms() const {
  const int64_t now = clock_.monotonic_ms();
  return now < delay_until_ms_ ? now + kDelayMs : now;
}

void FaultInjectingLink::send(const v1::AgentMessage& message) {
  if (loses()) return;
  outgoing_.push_back({due_ms(), message});
  on_time();
}

void FaultInjectingLink::on_time() {
  const int64_t now = clock_.monotonic_ms();
  while (!outgoing_.empty() && outgoing_.front().due_ms <= now) {
    if (!loses()) link_.send(outgoing_.front().message);
    outgoing_.pop_front();
  }
}

std::optional<v1::ControllerMessage> FaultInjectingLink::receive() {
  for (v1::ControllerMessage& message : link_.take_received()) {
    incoming_.push_back({due_ms(), std::move(message)});
  }
  if (loses()) incoming_.clear();
  if (incoming_.empty() || incoming_.front().due_ms > clock_.monotonic_ms()) return std::nullopt;
  v1::ControllerMessage message = std::move(incoming_.front().message);
  incoming_.pop_front();
  return message;
}

bool FaultInjectingLink::closed() const {
  if (broken_at_ms_ != INT64_MAX) return clock_.monotonic_ms() >= broken_at_ms_;
  return incoming_.empty() && link_.closed();
}

int64_t FaultInjectingLink::next_deadline_ms() const {
  int64_t next = broken_at_ms_;
  if (!outgoing_.empty()) next = std::min(next, outgoing_.front().due_ms);
  if (!incoming_.empty()) next = std::min(next, incoming_.front().due_ms);
  return next;
}

}  // namespace hpctl::agent
