// SPDX-License-Identifier: Apache-2.0
// WorkerTable: the workers of a node, from spawn to the last process they left behind.
//
// Belongs to the holder's main thread: PDEATHSIG of a worker is bound to the thread that spawned
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/holder/event_loop.h"
#include "agent/holder/holder_protocol.h"
#include "agent/holder/standby_times.h"
#include "agent/holder/worker.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/process/memory_cgroup.h"
#include "common/worker/worker_control.h"

namespace hpctl::holder {

class WorkerTable {
 public:
  // Called when a new process runs its program, or when that could not be executed (then the
  // process is gone).
  using Started = std::function<void(const Worker& worker, const Outcome& outcome)>;
  // Called when a worker's part in a generation has ended, with the record (exit_id not set). The
  // process was reaped, or has left the generation and stays.
  using Ended = std::function<void(Exited record, const Worker& worker)>;
  // Called when a process has begun to idle, when a standby is ready, and when a process that was
  // no member has ended.
  using Changed = std::function<void(const Worker& worker)>;

  WorkerTable(EventLoop& loop, LogWriter& logs, std::string node, std::string boot_id,
              PingTimes ping_times, Started started, Ended ended, Changed changed)
      : loop_(loop),
        logs_(logs),
        node_(std::move(node)),
        boot_id_(std::move(boot_id)),
        ping_times_(ping_times),
        started_(std::move(started)),
        ended_(std::move(ended)),
        changed_(std::move(changed)) {}

  // As Spawn has it: a process that has joined, or null where one was started, of which Started
  // will tell. Refused (kFailedPrecondition) while a worker of a lower generation, of the
  // same rank or of the same local rank takes part in one.
  Result<const Worker*> start(const Spawn& request);
  // As Kill has it.
  void end(const Kill& request);
  // SIGTERM to every process, SIGKILL after grace_ms.
  void end_all(uint32_t grace_ms);

  // As Strike has it.
  void strike(const Strike& request);

  // Reaps `pid` if it is a worker that has ended. False when it is none of ours.
  bool reap(pid_t pid);
  // Ends what dead workers started and what left their process groups. Call after every SIGCHLD:
  // what such a process has started comes to the holder, their subreaper, when it dies.
  void kill_strays();

  // Asks standbys that are due; one that did not answer in time is ended. Due at
  // next_deadline_ms(), as the next.
  void ask_standbys();
  // SIGKILLs whose grace is over; due at next_deadline_ms() (INT64_MAX = none).
  void kill_overdue();
  int64_t next_deadline_ms() const;

  const std::map<pid_t, std::unique_ptr<Worker>>& living() const { return workers_; }

 private:
  std::string refusal_of(const Spawn& request) const;
  // The process that is to join for `request`, or null: there is none that idles.
  Worker* idle_for(const Spawn& request) const;
  bool is_starting(const Spawn& request) const;
  // Ends the process that had this part if it still saves for its former generation.
  void end_saving(const Spawn& request);
  Outcome spawn(const Spawn& request, const WorkerPlace& place);
  // Tells of a process that starts, once, when its outcome is known. False: it is gone.
  bool settle(pid_t pid);
  void watch(Worker& worker);
  void unwatch(Worker& worker);
  void read_control(pid_t pid);
  void on(Worker& worker, const control::FromWorker& message);
  void close_control(Worker& worker);
  void end_one(Worker& worker, uint32_t grace_ms);
  int arena_of(const Worker& worker) const;  // -1 = it has none
  static bool can_be_asked(const Worker& worker);

  EventLoop& loop_;
  LogWriter& logs_;
  const std::string node_;
  const std::string boot_id_;
  const PingTimes ping_times_;
  const Started started_;
  const Ended ended_;
  const Changed changed_;
  const SystemClock clock_;
  std::map<pid_t, std::unique_ptr<Worker>> workers_;
  uint64_t last_incarnation_ = 0;
  uint64_t last_question_ = 0;
  std::map<int32_t, UniqueFd> arenas_;  // by local rank; they outlive the workers
  OomKills oom_kills_;                  // since the newest start
};

}  // namespace hpctl::holder
