// SPDX-License-Identifier: Apache-2.0
// The messages between coordinator and members of the network check: JSON in frames that prove the
// secret of the run (common/net/frame_stream.h).
//
//   member → coordinator   {"rank", "name", "address", "efa_devices", "gpus", "nccl",
//                           "nccl_trouble", "fabric", "fabric_trouble"}   when it has come
//   coordinator → member   {"round", "way", "word", "address"}   "" = the peer comes to it
//   member → coordinator   {"round", "bytes_per_s", "trouble", "wrong",
//                           "network", "provider", "network_trouble",     its rate, its transport
//                           "clock_ms"}    its wall clock when it had the order; Unix epoch
//   coordinator → member   {"done": true}
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/base/bounded_json.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace hpctl::agent {

// The rendezvous of the processes of one run: a file on a file system that all see, mode 0600.
struct Meeting {
  std::string address;  // of the coordinator, "IP:PORT"
  std::string secret;
};
std::string to_text(const Meeting& meeting);
Result<Meeting> parse_meeting(const std::string& text, const std::string& path);

// Bounded: only our processes are in the run, but a member may be of another version.
inline nlohmann::json parse_message(const std::string& text) {
  return parse_json(text, {4'096, 4, 64});
}

// The deadline of a frame that has so long from now on.
inline int64_t frame_deadline(std::chrono::milliseconds limit) {
  return SystemClock().monotonic_ms() + limit.count();
}

}  // namespace hpctl::agent
