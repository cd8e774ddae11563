// SPDX-License-Identifier: Apache-2.0
// The margins of a job until the next fault ends it, and how long it has made no progress. A
// summary has them beside the job's state, so one look shows whether the job needs attention
// (common/watch). Made by the job's controller; travels as JobMargins of the wire contract.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hpctl {

struct JobMargins {
  int64_t max_restarts = 0;     // recovery.max_restarts
  int64_t window_ms = 0;        // recovery.window
  int64_t recent_restarts = 0;  // of max_restarts: those begun within the window
  int64_t hour_restarts = 0;    // begun within an hour, or the window where that is shorter
  uint32_t spares_wanted = 0;   // nodes.spares
  uint32_t spares_left = 0;     // spares that are up or on their way
  std::vector<std::string> quarantined;  // nodes, in the order of their names
  std::vector<std::string> slow;         // nodes that hold the others up, likewise
  // While it is RUNNING: for so long it has completed no step, and some rank has not moved at all;
  // 0 = its scheduler has stopped it, or nothing is known yet.
  int64_t still_ms = 0;
  int64_t recovering_ms = 0;    // since the fault that is not made good yet; 0 = there is none
  std::string requeue_refusal;  // why the scheduler does not requeue it; "" = it would
  // Nodes of it that jobs before this one speak against (node_record.h), in the order of names:
  // those that it trains on, or may.
  std::vector<std::string> lemons;
  int64_t storage_ms =
      0;  // for so long it has waited for storage, without training; 0 = it does not
  uint64_t failed_saves = 0;      // while it is RUNNING: in a row, for want of room or of storage
  int64_t mirror_behind_ms = 0;   // a copy to its mirror has been due for so long; 0 = none is
  int64_t since_restart_ms = 0;   // since the newest of recent_restarts; 0 = there is none
  std::string hang_warning = {};  // what recovery.hang_rules warns of; "" = nothing
};

}  // namespace hpctl
