// SPDX-License-Identifier: Apache-2.0
// The offsets between the wall clocks of a check's nodes. OperatorAcl sort the nodes' timestamps,
// and programs compare those of files on a shared file system.
//
// A node reports its clock when an order reaches it, and the coordinator knows its own from when it
// sent the order. The difference is the node's offset plus the order's travel time, which is never
// negative. So the smallest difference of all rounds is the closest. Each node is compared with the
// median of the others: a coordinator whose clock is off is named like any other node, and with two
// nodes both are. Pure.
#pragma once

#include <cstdint>
#include <map>

namespace hpctl::agent {

// Beyond the way of an order on a busy network, and what is seen in a file's times.
inline constexpr int64_t kMuchClockOffsetMs = 1'000;

class ClockOffsets {
 public:
  // Both since the Unix epoch: of the coordinator when it sent an order, of the node when it had
  // it.
  void learn(int32_t node, int64_t sent_ms, int64_t there_ms);
  // Nodes that differ from the others by kMuchClockOffsetMs or more: how much they are ahead.
  std::map<int32_t, int64_t> far_off_ms() const;

 private:
  std::map<int32_t, int64_t> offsets_ms_;
};

}  // namespace hpctl::agent
