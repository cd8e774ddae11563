// SPDX-License-Identifier: Apache-2.0
// StackTaker: before an order to end workers that hang is carried out, hpstacks (agent/stacks)
// writes where they stand. It runs beside the holder's loop and has kStacksLimitMs, and
// kRecordersLimitMs more where it says that it asks flight recorders, or what the environment says
// in place of them (common/job/stack_files.h); then it is killed, which lets go of every process
// that it had halted, and the order is carried out. An order that does not ask for stacks is not
// held back.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/holder/event_loop.h"
#include "agent/holder/holder_protocol.h"
#include "agent/holder/spawn.h"
#include "agent/holder/worker_table.h"
#include "common/base/clock.h"
#include "common/base/fd.h"

namespace hpctl::holder {

class StackTaker {
 public:
  // Called for each order when it is due, once, with what hpstacks told ("" = no stacks).
  using Due = std::function<void(const Kill& order, const std::string& told)>;

  // `program` is hpstacks, `directory` where its files go; kStacksLimitMs but in tests.
  StackTaker(EventLoop& loop, std::string program, std::string directory, int64_t limit_ms, Due due)
      : loop_(loop),
        program_(std::move(program)),
        directory_(std::move(directory)),
        limit_ms_(limit_ms),
        due_(std::move(due)) {}

  // Takes the stacks of the members of a generation <= order.generation. Without members, or if
  // hpstacks cannot be started, the order is due at once.
  void take(const Kill& order, const WorkerTable& workers);
  // The node ends: nothing waits for stacks any more, and no order is due.
  void abandon();

  void end_overdue();
  int64_t next_deadline_ms() const;  // INT64_MAX = none

 private:
  Outcome start(const std::vector<std::string>& argv);
  void read_output();
  void finish(bool in_time);

  EventLoop& loop_;
  const std::string program_;
  const std::string directory_;
  const int64_t limit_ms_;
  const Due due_;
  const SystemClock clock_;
  std::optional<SpawnedProcess> process_;  // hpstacks; the holder reaps it
  UniqueFd output_;
  std::string said_;  // what was read of its output
  bool asks_recorders_ = false;
  int64_t end_at_ms_ = INT64_MAX;
  std::string files_;         // what it is to write
  std::vector<Kill> orders_;  // that wait for it
};

}  // namespace hpctl::holder
