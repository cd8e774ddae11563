// SPDX-License-Identifier: Apache-2.0
// Worker: one training process as the holder sees it: process, progress page, log.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "agent/holder_protocol.h"
#include "agent/rank_log.h"
#include "agent/spawn.h"
#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl::holder {

struct Worker {
  uint64_t incarnation = 0;  // names the process, as generation and rank name its part in the job
  uint64_t generation = 0;
  int32_t rank = 0;
  int32_t local_rank = 0;
  SpawnedProcess process;
  UniqueFd progress;
  UniqueFd control;  // our end; invalid for a command
  std::string mark;
  bool by_request = false;
  int64_t kill_at_ms = 0;  // SIGKILL is due then; 0 = not asked to end
  std::unique_ptr<RankLog> log;

  pid_t pid() const { return process.pid; }
  // Signals the process group. Safe until the worker has been reaped: its id cannot be reused.
  void signal_group(int signal) const;
};

// Context of a node's workers that outlives each of them.
struct WorkerPlace {
  std::string node;
  std::string boot_id;
  int arena = -1;  // memfd of the local rank
};

// Starts the worker that `request` describes, as that incarnation.
Result<std::unique_ptr<Worker>> start_worker(const Spawn& request, uint64_t incarnation,
                                             const WorkerPlace& place);

// A memfd of size 0 for a local rank's state; the worker sizes it.
Result<UniqueFd> make_arena();

// The exit record of a worker that waitid() found ended (code and status as in siginfo_t). Reads
// the page and the rest of the log.
Exited exit_record(Worker& worker, int code, int status);

}  // namespace hpctl::holder
