// SPDX-License-Identifier: Apache-2.0
#include "controller/access/handshakes.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "common/net/host_port.h"

namespace hpctl {

// Without a descriptor for it no thread is woken, and waiting ones look after kPatience.
Handshakes::Handshakes() : room_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Handshakes::begin(uint16_t port, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  begun_.emplace(port, now);
}

void Handshakes::end(const std::string& peer) {
  const auto caller = CallPeer::parse(peer);
  if (!caller) return;
  const std::lock_guard lock(mutex_);
  const auto found = begun_.find(caller->end.port);
  if (found == begun_.end()) return;
  const bool was_full = begun_.size() >= kMost;
  begun_.erase(found);
  if (was_full) ::eventfd_write(room_.get(), 1);
}

std::chrono::milliseconds Handshakes::until_room(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(begun_, [now](const auto& begun) { return now - begun.second >= kPatience; });
  if (begun_.size() < kMost) return std::chrono::milliseconds(0);
  const auto oldest =
      std::min_element(begun_.begin(), begun_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::chrono::ceil<std::chrono::milliseconds>(oldest->second + kPatience - now);
}

}  // namespace hpctl
