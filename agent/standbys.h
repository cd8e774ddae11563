// SPDX-License-Identifier: Apache-2.0
// The standbys of a node: processes of the built-in trainer that have loaded their engine, or of
// Python with its imports done, and wait for the rank of a dead one. The holder lets them join;
// this class decides how many there should be. They start after the first step of a generation, not
// before: a start, and above all a recovery, must not share the machine with them. A command that
// reports no steps gets them when it has run for a minute. A spare, which has no ranks, has one for
// each rank that it may get.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "agent/holder/holder_protocol.h"
#include "common/base/result.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

class Standbys {
 public:
  using Start = std::function<void(const holder::Spawn&)>;
  // Bytes of a process; 0 = not known. Asked once of each that has become ready.
  using Memory = std::function<uint64_t(uint64_t pid)>;

  explicit Standbys(Memory memory) : memory_(std::move(memory)) {}

  // The workers of `start`, or, where it has no ranks, those that may come, are about to be
  // started. An agent that was started again starts no standbys before the next generation.
  void plan(const v1::StartWorkers& start);
  // make_standby() of that `start` is to be given to take_order().
  bool awaits_order() const { return planned_ > 0 && !order_; }
  // The order to start a standby; an error: there are none. True: they are due by now.
  bool take_order(Result<holder::Spawn> order);
  // They run: it is known by now which of the standbys are among them.
  void all_run(int64_t now_ms);
  // The holder's report about any process. A standby that has ended before its use is replaced
  // after a while, a few times in a generation.
  void on(const holder::WorkerState& worker, int64_t now_ms);
  // A step was made, or due_ms() is over: those that are missing are started. Without an order they
  // are due when it comes.
  void replenish(const Start& start);
  int64_t due_ms() const { return wanted_ == 0 || !order_ ? INT64_MAX : due_ms_; }

  // Fills `heartbeat` with the number of standbys, and whether more will be ready, if that has
  // changed since the last heartbeat that contained it, or if none has. It does not wait for a
  // standby that has not loaded after a minute.
  void tell(v1::Heartbeat& heartbeat, int64_t now_ms);
  // The next controller, or the next stream to it, has received nothing.
  void forget_told() { told_.reset(); }

 private:
  bool is_settled(uint32_t ready, int64_t now_ms) const;

  struct Waiting {
    bool is_ready = false;
    uint64_t memory_bytes = 0;
  };
  struct Count {
    uint32_t ready = 0;
    uint32_t loading = 0;
    uint64_t memory_bytes = 0;
    bool settled = false;
    auto operator<=>(const Count&) const = default;
  };

  const Memory memory_;
  std::optional<holder::Spawn> order_;
  bool are_due_ = false;  // without an order
  uint32_t planned_ = 0;
  uint32_t wanted_ = 0;  // 0 also when those of this generation were started
  int64_t due_ms_ = INT64_MAX;
  int64_t settled_by_ms_ = INT64_MAX;
  int32_t replaced_ = 0;
  std::map<uint64_t, Waiting> waiting_;  // by incarnation
  std::optional<Count> told_;
};

}  // namespace hpctl::agent
