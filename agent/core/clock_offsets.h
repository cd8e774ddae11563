// SPDX-License-Identifier: Apache-2.0
// How far the wall clocks of a check's nodes are from each other. What nodes write down with a time
// is put in order by people, and files of a shared file system by programs.
//
// A node tells its clock when an order reaches it, and the coordinator knows its own from when it
// sent the order. The difference of the two is the node's offset and the order's way, which takes
// no less than nothing; so the smallest difference of all rounds is the closest. Each node is
// compared with the median of the others: a coordinator whose clock is off is named like any other
// node, and of two nodes both are. Pure.
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
  // Of nodes that are kMuchClockOffsetMs from the others or more: how much they are ahead.
  std::map<int32_t, int64_t> far_off_ms() const;

 private:
  std::map<int32_t, int64_t> offsets_ms_;
};

}  // namespace hpctl::agent
