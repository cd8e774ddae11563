// SPDX-License-Identifier: Apache-2.0
#include "agent/worker_table.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "agent/worker_mark.h"
#include "common/base/process_stat.h"

namespace hpctl::holder {
namespace {

constexpr int32_t kMaxLocalRank = 1'023;
constexpr int64_t kKillAgainMs = 1'000;
constexpr unsigned long kExitingFlag = 0x4;  // PF_EXITING

// A process closes its sockets on its way out, so a peer's complaint, and with it an order to end
// everybody, can arrive before this death is seen. Such a death was not requested.
bool is_dying_already(pid_t pid) {
  constexpr int kFlagsField = 9;
  return (std::strtoul(process_stat(pid, kFlagsField).c_str(), nullptr, 10) & kExitingFlag) != 0;
}

}  // namespace

std::string WorkerTable::refusal_of(const Spawn& request) const {
  if (request.argv.empty()) return "the command is empty";
  if (request.local_rank < 0 || request.local_rank > kMaxLocalRank) return "bad local rank";
  for (const auto& [pid, worker] : workers_) {
    if (worker->generation < request.generation || worker->rank == request.rank ||
        worker->local_rank == request.local_rank) {
      return "process " + std::to_string(pid) + " of rank " + std::to_string(worker->rank) +
             ", generation " + std::to_string(worker->generation) + " is still there";
    }
  }
  return "";
}

Result<const Worker*> WorkerTable::start(const Spawn& request) {
  if (const std::string refusal = refusal_of(request); !refusal.empty()) {
    return Error{ErrorCode::kFailedPrecondition, refusal};
  }
  UniqueFd& arena = arenas_[request.local_rank];
  if (!arena.valid()) {
    HP_TRY_ASSIGN(arena, make_arena());
  }
  HP_TRY_ASSIGN(
      std::unique_ptr<Worker> worker,
      start_worker(request, ++last_incarnation_, WorkerPlace{node_, boot_id_, arena.get()}));
  watch(*worker);
  const Worker* started = worker.get();
  workers_[started->pid()] = std::move(worker);
  return started;
}

void WorkerTable::watch(Worker& worker) {
  loop_.add(worker.process.pidfd.get(), EPOLLIN,
            [this, pid = worker.pid()](uint32_t) { reap(pid); });
  RankLog* log = worker.log.get();
  loop_.add(log->read_end(), EPOLLIN, [this, log](uint32_t) {
    if (log->drain()) return;
    loop_.remove(log->read_end());  // nobody writes any more
    log->close_pipe();
  });
}

bool WorkerTable::reap(pid_t pid) {
  const auto found = workers_.find(pid);
  if (found == workers_.end()) return false;
  siginfo_t info{};
  if (::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid) {
    return true;
  }
  const std::unique_ptr<Worker> worker = std::move(found->second);
  workers_.erase(found);
  // Before reaping: as long as the leader is a zombie, the group's id cannot be anyone else's.
  worker->signal_group(SIGKILL);
  Exited record = exit_record(*worker, info.si_code, info.si_status);
  loop_.remove(worker->process.pidfd.get());
  if (worker->log->read_end() >= 0) loop_.remove(worker->log->read_end());
  ::waitpid(pid, nullptr, 0);
  ended_(std::move(record), *worker);
  kill_strays();
  return true;
}

void WorkerTable::kill_strays() {
  std::set<std::string> living;
  for (const auto& [pid, worker] : workers_) living.insert(worker->mark);
  for (const pid_t pid : own_children()) {
    if (workers_.contains(pid)) continue;
    const std::string mark = mark_of(pid);
    if (mark.starts_with(boot_id_ + ".") && !living.contains(mark)) ::kill(pid, SIGKILL);
  }
}

void WorkerTable::end(uint64_t generation, uint32_t grace_ms) {
  const int64_t kill_at = clock_.monotonic_ms() + grace_ms;
  for (const auto& [pid, worker] : workers_) {
    if (worker->generation > generation) continue;
    worker->by_request = worker->by_request || !is_dying_already(pid);
    if (grace_ms > 0 && worker->kill_at_ms == 0) worker->signal_group(SIGTERM);
    worker->kill_at_ms = worker->kill_at_ms == 0 ? kill_at : std::min(worker->kill_at_ms, kill_at);
  }
  kill_overdue();
}

void WorkerTable::kill_overdue() {
  const int64_t now = clock_.monotonic_ms();
  for (const auto& [pid, worker] : workers_) {
    if (worker->kill_at_ms == 0 || now < worker->kill_at_ms) continue;
    worker->signal_group(SIGKILL);
    worker->kill_at_ms = now + kKillAgainMs;  // what it forked in the same instant
  }
}

int64_t WorkerTable::next_deadline_ms() const {
  int64_t next = INT64_MAX;
  for (const auto& [pid, worker] : workers_) {
    if (worker->kill_at_ms != 0) next = std::min(next, worker->kill_at_ms);
  }
  return next;
}

}  // namespace hpctl::holder
