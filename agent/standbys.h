// SPDX-License-Identifier: Apache-2.0
// The standbys of a node: processes of the built-in trainer that have loaded their engine, or of
// Python with its imports done, and wait for the part of one that dies. The holder lets them join;
// here is how many there should be. They are started after the first step of a generation, not
// before: a start, and above all a recovery, is not to share the machine with them. A command that
// tells no steps has them when it has run for a minute. A spare, which has no ranks, has one for
// each that it may get.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "agent/holder_protocol.h"
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
  // What a standby is started with; an error: there are none. True: they are due by now.
  bool take_order(Result<holder::Spawn> order);
  // They run: it is known by now which of the standbys are among them.
  void all_run(int64_t now_ms);
  // What the holder says of any process. One that has ended before it was needed is replaced after
  // a while, a few times in a generation.
  void on(const holder::WorkerState& worker, int64_t now_ms);
  // A step was made, or due_ms() is over: those that are missing are started. Without an order they
  // are due when it comes.
  void replenish(const Start& start);
  int64_t due_ms() const { return wanted_ == 0 || !order_ ? INT64_MAX : due_ms_; }

  // How many there are, and whether more will be ready: fills `heartbeat` in where that has changed
  // since it was told last, or since nothing was. One that has not loaded after a minute is not
  // waited for.
  void tell(v1::Heartbeat& heartbeat, int64_t now_ms);
  // The next controller, or the next stream to it, was told nothing.
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
