// SPDX-License-Identifier: Apache-2.0
// Worker: one training process as the holder sees it: process, progress page, log. A process of the
// built-in trainer can take part in one generation after another (common/worker/worker_control.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/holder/holder_protocol.h"
#include "agent/holder/rank_log.h"
#include "agent/holder/spawn.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/net/packet_socket.h"

namespace hpctl::holder {

struct Worker {
  uint64_t incarnation = 0;  // names the process, as generation and rank name its part in the job
  uint64_t generation = 0;
  int32_t rank = 0;        // -1 = a standby, which has been in none yet
  int32_t local_rank = 0;  // likewise
  WorkerPart part = WorkerPart::kMember;
  WorkerOrigin origin = WorkerOrigin::kStarted;  // of its part
  SpawnedProcess process;
  UniqueFd progress;
  std::optional<PacketSocket> control;  // our end; none for a command
  std::string mark;
  bool abort_asked = false;
  // For a standby that has reported Ready: the time of its next check, and the number of the check
  // that it has not answered (0 = none).
  bool is_ready = false;
  int64_t ask_at_ms = 0;
  uint64_t asked = 0;
  bool by_request = false;
  int64_t kill_at_ms = 0;  // SIGKILL is due then; 0 = not asked to end
  std::unique_ptr<RankLog> log;

  pid_t pid() const { return process.pid; }
  // It is still unknown whether its program could be executed.
  bool is_starting() const { return process.exec_pipe.valid(); }
  // Signals the process group. Safe until the worker has been reaped: its id cannot be reused.
  void signal_group(int signal) const;
};

// Context of a node's workers that outlives each of them.
struct WorkerPlace {
  std::string node;
  std::string boot_id;
  int arena = -1;             // memfd of the local rank; a standby has none
  LogWriter* logs = nullptr;  // outlives the workers
};

// Starts the worker that `request` describes, as that incarnation; does not wait for the exec.
Result<std::unique_ptr<Worker>> start_worker(const Spawn& request, uint64_t incarnation,
                                             const WorkerPlace& place);

// Orders an idle process to take the rank that `request` describes. An error: it received nothing,
// or only half, and is of no use any more.
Outcome join_worker(Worker& worker, const Spawn& request, const WorkerPlace& place);

// A memfd of size 0 for a local rank's state; the worker sizes it.
Result<UniqueFd> make_arena();

// The exit record of a worker that waitid() found ended (code and status as in siginfo_t). Reads
// the page, the rest of the log, and its arena (-1 = it has none).
Exited exit_record(Worker& worker, int code, int status, int arena);

// For a process that has left its generation and stays.
Exited left_record(Worker& worker, int arena);

}  // namespace hpctl::holder
