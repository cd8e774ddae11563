// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/worker_table.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "agent/holder/progress_view.h"
#include "agent/holder/worker_mark.h"
#include "common/base/log.h"
#include "common/process/process_stat.h"
#include "common/worker/injected_fault.h"

namespace hpctl::holder {
namespace {

constexpr int32_t kMaxLocalRank = 1'023;
constexpr int64_t kKillAgainMs = 1'000;
constexpr int kMessagesAtOnce = 16;  // of one worker, which may be broken

// It has left its generation, but its storage holds up a save of it. It would join only after that,
// and all ranks would wait for it.
bool is_saving(const Worker& worker) {
  return worker.part == WorkerPart::kIdle && worker.rank >= 0 &&
         ProgressView(worker.progress.get()).sample().phase ==
             static_cast<uint32_t>(WorkerPhase::kSaving);
}

bool is_stopped(pid_t pid) { return process_stat(pid, kStateField) == "T"; }

}  // namespace

std::string WorkerTable::refusal_of(const Spawn& request) const {
  if (request.argv.empty()) return "the command is empty";
  const bool is_standby = request.rank == -1 && request.local_rank == -1;
  if (is_standby) return "";
  if (request.local_rank < 0 || request.local_rank > kMaxLocalRank) return "bad local rank";
  for (const auto& [pid, worker] : workers_) {
    if (worker->part == WorkerPart::kIdle) continue;
    if (worker->generation < request.generation || worker->rank == request.rank ||
        worker->local_rank == request.local_rank) {
      return "process " + std::to_string(pid) + " of rank " + std::to_string(worker->rank) +
             ", generation " + std::to_string(worker->generation) + " is still there";
    }
  }
  return "";
}

Worker* WorkerTable::idle_for(const Spawn& request) const {
  Worker* standby = nullptr;
  const bool can_be_told = !request.workload.empty() || request.python != 0;
  if (request.rank < 0 || !can_be_told) return nullptr;
  for (const auto& [pid, worker] : workers_) {
    const bool can_join = worker->part == WorkerPart::kIdle && worker->control &&
                          worker->kill_at_ms == 0 && !worker->is_starting();
    if (!can_join) continue;
    if (worker->local_rank == request.local_rank) return worker.get();
    if (worker->rank >= 0) continue;
    // One that is ready goes before one that still loads.
    if (standby == nullptr || !standby->is_ready) standby = worker.get();
  }
  return standby;
}

// A call on storage that does not answer may outlast the SIGKILL; nothing waits for its end.
void WorkerTable::end_saving(const Spawn& request) {
  if (request.rank < 0) return;
  for (const auto& [pid, worker] : workers_) {
    if (worker->local_rank != request.local_rank || !is_saving(*worker)) continue;
    log_warning("process " + std::to_string(pid) + " still saves a checkpoint of generation " +
                std::to_string(worker->generation) + "; another process takes its place in " +
                std::to_string(request.generation));
    end_one(*worker, 0);
  }
}

bool WorkerTable::is_starting(const Spawn& request) const {
  return request.rank >= 0 && std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
           const Worker& worker = *entry.second;
           return worker.is_starting() && worker.kill_at_ms == 0 && worker.rank == request.rank &&
                  worker.generation == request.generation &&
                  worker.local_rank == request.local_rank;
         });
}

Result<const Worker*> WorkerTable::start(const Spawn& request) {
  if (is_starting(request)) return nullptr;  // another agent repeats the order
  if (const std::string refusal = refusal_of(request); !refusal.empty()) {
    return Error{ErrorCode::kFailedPrecondition, refusal};
  }
  oom_kills_.forget();
  end_saving(request);
  WorkerPlace place{node_, boot_id_, -1, &logs_};
  if (request.rank >= 0) {
    UniqueFd& arena = arenas_[request.local_rank];
    if (!arena.valid()) {
      HP_TRY_ASSIGN(arena, make_arena());
    }
    place.arena = arena.get();
  }
  while (Worker* idle = idle_for(request)) {
    // A standby may have waited for days; one that is stopped would take the order and not answer.
    const Outcome joined = is_stopped(idle->pid())
                               ? Outcome(Error{ErrorCode::kUnavailable, "it is stopped (state T)"})
                               : join_worker(*idle, request, place);
    if (joined.ok()) {
      if (request.python != 0) close_control(*idle);  // from here on it is as any command
      return idle;
    }
    log_warning("process " + std::to_string(idle->pid()) + " cannot join generation " +
                std::to_string(request.generation) + ": " + joined.error().message +
                "; another is taken or started");
    end_one(*idle, 0);
  }
  HP_TRY(spawn(request, place));
  return nullptr;
}

Outcome WorkerTable::spawn(const Spawn& request, const WorkerPlace& place) {
  HP_TRY_ASSIGN(std::unique_ptr<Worker> worker, start_worker(request, ++last_incarnation_, place));
  watch(*worker);
  const pid_t pid = worker->pid();
  workers_[pid] = std::move(worker);
  return Ok{};
}

bool WorkerTable::settle(pid_t pid) {
  const auto found = workers_.find(pid);
  if (found == workers_.end()) return false;
  Worker& worker = *found->second;
  const std::optional<Outcome> outcome = worker.process.exec_outcome();
  if (!outcome) return true;
  loop_.remove(worker.process.exec_pipe.get());
  worker.process.exec_pipe.reset();
  if (outcome->ok()) {
    started_(worker, *outcome);
    return true;
  }
  const std::unique_ptr<Worker> failed = std::move(found->second);
  workers_.erase(found);
  unwatch(*failed);
  ::waitpid(pid, nullptr, 0);
  started_(*failed, *outcome);
  return false;
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
  loop_.add(worker.process.exec_pipe.get(), EPOLLIN,
            [this, pid = worker.pid()](uint32_t) { settle(pid); });
  if (!worker.control) return;
  loop_.add(worker.control->fd(), EPOLLIN,
            [this, pid = worker.pid()](uint32_t) { read_control(pid); });
}

void WorkerTable::unwatch(Worker& worker) {
  if (worker.is_starting()) loop_.remove(worker.process.exec_pipe.get());
  loop_.remove(worker.process.pidfd.get());
  if (worker.log->read_end() >= 0) loop_.remove(worker.log->read_end());
  if (worker.control) close_control(worker);
}

void WorkerTable::close_control(Worker& worker) {
  loop_.remove(worker.control->fd());
  worker.control.reset();
}

int WorkerTable::arena_of(const Worker& worker) const {
  const auto arena = arenas_.find(worker.local_rank);
  return arena == arenas_.end() ? -1 : arena->second.get();
}

// ---- what a worker says -------------------------------------------------------------------------

void WorkerTable::read_control(pid_t pid) {
  Worker& worker = *workers_.at(pid);
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    const auto packet = worker.control->receive();
    if (!packet.ok()) return close_control(worker);
    if (!packet->has_value()) return;
    const auto message = control::decode_from_worker((*packet)->bytes);
    if (!message.ok()) {
      log_warning(message.error().message + ", process " + std::to_string(pid) +
                  "; nothing more is taken from it");
      return close_control(worker);
    }
    on(worker, *message);
  }
}

// A message that does not fit the state of the process is ignored.
void WorkerTable::on(Worker& worker, const control::FromWorker& message) {
  if (const auto* lost = std::get_if<control::PeerLost>(&message)) {
    const bool is_news = worker.part == WorkerPart::kMember && !worker.abort_asked &&
                         lost->generation == worker.generation;
    if (!is_news) return;
    worker.part = WorkerPart::kLeft;
    ended_(left_record(worker, arena_of(worker)), worker);
  } else if (std::holds_alternative<control::Ready>(message)) {
    const bool is_news = !std::exchange(worker.is_ready, true) && can_be_asked(worker);
    worker.ask_at_ms = clock_.monotonic_ms() + ping_times_.every_ms;
    if (is_news) changed_(worker);
  } else if (const auto* pong = std::get_if<control::Pong>(&message)) {
    if (worker.asked == 0 || pong->number != worker.asked) return;
    worker.asked = 0;
    worker.ask_at_ms = clock_.monotonic_ms() + ping_times_.every_ms;
  } else if (const auto* aborted = std::get_if<control::Aborted>(&message)) {
    if (!worker.abort_asked || aborted->generation != worker.generation) return;
    worker.abort_asked = false;
    worker.kill_at_ms = 0;
    if (std::exchange(worker.part, WorkerPart::kIdle) == WorkerPart::kMember) {
      ended_(left_record(worker, arena_of(worker)), worker);
    }
    changed_(worker);
  }
}

bool WorkerTable::can_be_asked(const Worker& worker) {
  return worker.rank < 0 && worker.part == WorkerPart::kIdle && worker.is_ready && worker.control &&
         worker.kill_at_ms == 0;
}

void WorkerTable::ask_standbys() {
  const int64_t now = clock_.monotonic_ms();
  for (const auto& [pid, worker] : workers_) {
    if (!can_be_asked(*worker) || now < worker->ask_at_ms) continue;
    if (worker->asked == 0) {
      worker->asked = ++last_question_;
      worker->ask_at_ms = now + ping_times_.limit_ms;
      // A process that cannot receive the message does not answer either.
      [[maybe_unused]] const Outcome told =
          worker->control->send_or_queue(control::encode(control::Ping{worker->asked}));
      continue;
    }
    log_warning("standby process " + std::to_string(pid) + " has not answered for " +
                std::to_string(ping_times_.limit_ms) + " ms; it is ended");
    end_one(*worker, 0);
  }
}

// ---- ends ---------------------------------------------------------------------------------------

bool WorkerTable::reap(pid_t pid) {
  const auto found = workers_.find(pid);
  if (found == workers_.end()) return false;
  siginfo_t info{};
  if (::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid) {
    return true;
  }
  if (!settle(pid)) return true;
  const std::unique_ptr<Worker> worker = std::move(found->second);
  workers_.erase(found);
  // Before reaping: as long as the leader is a zombie, the group's id cannot be anyone else's.
  worker->signal_group(SIGKILL);
  Exited record = exit_record(*worker, info.si_code, info.si_status, arena_of(*worker));
  const bool unexplained = record.message.empty() && record.by_request == 0;
  if (record.signal == SIGKILL && unexplained && oom_kills_.take_one()) {
    record.message = oom_kills_.describe();
  }
  unwatch(*worker);
  ::waitpid(pid, nullptr, 0);
  const WorkerPart was = std::exchange(worker->part, WorkerPart::kEnded);
  if (was == WorkerPart::kMember) {
    ended_(std::move(record), *worker);
  } else {
    changed_(*worker);
  }
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

// The order may be the consequence of a death that is not seen here yet: that one was not
// requested.
void WorkerTable::end_one(Worker& worker, uint32_t grace_ms) {
  worker.by_request = worker.by_request || !is_exiting(worker.pid());
  if (grace_ms > 0 && worker.kill_at_ms == 0) worker.signal_group(SIGTERM);
  const int64_t kill_at = clock_.monotonic_ms() + grace_ms;
  worker.kill_at_ms = worker.kill_at_ms == 0 ? kill_at : std::min(worker.kill_at_ms, kill_at);
}

void WorkerTable::end(const Kill& request) {
  for (const auto& [pid, worker] : workers_) {
    if (worker->part == WorkerPart::kIdle || worker->generation > request.generation) continue;
    const bool may_stay = request.abort_ms > 0 && worker->control && !worker->is_starting() &&
                          (worker->abort_asked || worker->kill_at_ms == 0) &&
                          !is_stopped(pid);  // such a process cannot leave
    if (!may_stay) {
      end_one(*worker, request.grace_ms);
      continue;
    }
    if (worker->abort_asked) continue;  // another agent repeats the order
    worker->by_request = !is_exiting(pid);
    worker->abort_asked = true;
    worker->kill_at_ms = clock_.monotonic_ms() + request.abort_ms;
    // A process that cannot receive the message is ended when its time is over.
    [[maybe_unused]] const Outcome told =
        worker->control->send_or_queue(control::encode(control::Abort{worker->generation}));
  }
  kill_overdue();
}

void WorkerTable::strike(const Strike& request) {
  const auto fault = from_word<InjectedFault>(request.fault);
  if (!fault || target_of(*fault) != FaultTarget::kRank) return;
  for (const auto& [pid, worker] : workers_) {
    if (worker->incarnation != request.incarnation) continue;
    if (!is_told_to_trainer(*fault)) {
      worker->signal_group(traits_of(*fault).signal);
    } else if (worker->control) {
      [[maybe_unused]] const Outcome told = worker->control->send_or_queue(
          control::encode(control::Suffer{worker->generation, request.fault}));
    }
  }
}

void WorkerTable::end_all(uint32_t grace_ms) {
  for (const auto& [pid, worker] : workers_) end_one(*worker, grace_ms);
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
    if (can_be_asked(*worker)) next = std::min(next, worker->ask_at_ms);
  }
  return next;
}

}  // namespace hpctl::holder
