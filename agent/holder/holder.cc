// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/holder.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "agent/core/respawn.h"
#include "agent/core/signs_of_life.h"
#include "agent/holder/agent_memory.h"
#include "agent/holder/event_loop.h"
#include "agent/holder/holder_protocol.h"
#include "agent/holder/job_node.h"
#include "agent/holder/locked_memory.h"
#include "agent/holder/node_lock.h"
#include "agent/holder/probe_port.h"
#include "agent/holder/reaper.h"
#include "agent/holder/spawn.h"
#include "agent/holder/stack_taker.h"
#include "agent/holder/worker.h"
#include "agent/holder/worker_mark.h"
#include "agent/holder/worker_table.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/random_hex.h"
#include "common/net/packet_socket.h"
#include "common/process/log_writer.h"

namespace hpctl::holder {
namespace {

// After SIGTERM to the holder: a last checkpoint, within Slurm's KillWait (30 s by default). Of
// this time the controller has the first part to order what is to become of the workers.
constexpr uint32_t kTerminationGraceMs = 25'000;
constexpr uint32_t kOrderWithinMs = 5'000;
constexpr int64_t kLastLogsMs = 2'000;  // of the log writer, which may be stuck
constexpr int64_t kSweepTimeoutMs = 5'000;
constexpr int64_t kFirstSignOfLifeMs = 10'000;  // of a new agent process

std::string new_boot_id() {
  auto id = random_hex(8);
  HP_CHECK(id.ok());
  return *std::move(id);
}

// A file that is no program will be none at the next attempt either. One that is not there may be
// back: a mount is away, or an upgrade is under way. The controller counts attempts.
bool is_permanent(ErrorCode code) { return code == ErrorCode::kInvalidArgument; }

void log_failed_exec(const SpawnedProcess& process) {
  const auto outcome = process.exec_outcome();
  if (outcome && !outcome->ok()) log_error(outcome->error().message);
}

WorkerState state_of(const Worker& worker) {
  return {worker.incarnation,
          worker.generation,
          worker.rank,
          worker.local_rank,
          static_cast<uint64_t>(worker.pid()),
          worker.part,
          static_cast<uint8_t>(worker.is_ready ? 1 : 0),
          worker.origin};
}

// A process the holder keeps running: the agent proper, and the reaper.
struct Kept {
  explicit Kept(int max_short_lives) : policy(max_short_lives) {}

  std::optional<SpawnedProcess> process;
  agent::RespawnPolicy policy;
  bool hung = false;  // it was ended for that
  int64_t started_ms = 0;
  int64_t start_at_ms = 0;  // due start while no process runs
};

class Holder {
 public:
  Holder(const HolderOptions& options, LogWriter& logs, UniqueFd lock, UniqueFd signals)
      : options_(options),
        lock_(std::move(lock)),
        signals_(std::move(signals)),
        boot_id_(new_boot_id()),
        memory_(boot_id_, static_cast<uint64_t>(::getpid())),
        workers_(
            loop_, logs, options.node, boot_id_, options.ping_times,
            [this](const Worker& worker, const Outcome& outcome) {
              worker_started(worker, outcome);
            },
            [this](Exited record, const Worker& worker) {
              worker_ended(std::move(record), worker);
            },
            [this](const Worker& worker) { worker_changed(worker); }),
        stacks_(loop_, options.stacks_program, options.paths.job_stacks(options.job),
                options.stacks_limit_ms,
                [this](const Kill& order, const std::string& told) { end_workers(order, told); }) {}

  int run();

 private:
  // The parts that keep the node alive.
  void open_probe_port();
  Outcome start_reaper();
  Outcome start_agent();
  void start_what_is_due();
  void kept_ended(Kept& kept, const std::string& what);
  void agent_ended();
  void on_signal();
  void reap_children();

  // The agent's requests.
  void read_agent();
  void greet();
  void send(const ToAgent& message, int descriptor = -1);
  void send_state(const Worker& worker);
  void on(const AcceptGeneration& request) { memory_.saw(request.generation); }
  void on(const Spawn& request);
  void on(const Kill& request);
  void end_workers(const Kill& order, const std::string& stacks);
  void on(KeepReport request) { memory_.keep(std::move(request)); }
  void on(const DropReport& request) { memory_.drop(request); }
  void on(const End& request);
  void on(const Strike& request) { workers_.strike(request); }
  void on(const Alive& sign);
  void end_hung_agent();

  // Workers.
  std::string refusal_of(const Spawn& request) const;
  Result<const Worker*> start(const Spawn& request);
  void refuse(uint64_t generation, int32_t rank, const Error& error);
  void worker_started(const Worker& worker, const Outcome& outcome);
  void worker_ended(Exited record, const Worker& worker);
  void worker_changed(const Worker& worker);
  void tell_log_matches();
  void told_to_end(const std::string& why);
  void end_without_order();
  void begin_end(int exit_code, uint32_t grace_ms, const std::string& why);
  void finish_end();
  int64_t next_timeout_ms() const;

  const HolderOptions options_;
  const SystemClock clock_;
  EventLoop loop_;
  UniqueFd lock_;
  UniqueFd signals_;
  const std::string boot_id_;
  AgentMemory memory_;

  UniqueFd reaper_pipe_;  // our end; the reaper acts when it closes
  Kept reaper_{options_.max_short_lives};
  Kept agent_{options_.max_short_lives};
  std::optional<PacketSocket> agent_socket_;
  agent::SignsOfLife agent_signs_;
  std::optional<ProbePort> probe_port_;

  WorkerTable workers_;
  StackTaker stacks_;

  std::string told_to_end_;       // by which signal; "" = none came
  int64_t end_by_ms_ = 0;         // then the node ends, unless it does already
  std::optional<int> exit_code_;  // set once the node is ending
};

// ---- life of the node ---------------------------------------------------------------------------

int Holder::run() {
  open_probe_port();
  loop_.add(signals_.get(), EPOLLIN, [this](uint32_t) { on_signal(); });
  if (const auto started = start_reaper(); !started.ok()) {
    log_error(started.error().message);
    return 1;
  }
  agent_.start_at_ms = clock_.monotonic_ms();
  log_info("holder of node " + options_.node + " of job " + to_string(options_.job) +
           " started, boot id " + boot_id_);
  while (!exit_code_ || !workers_.living().empty()) {
    start_what_is_due();
    loop_.run_once(next_timeout_ms());
    tell_log_matches();
    stacks_.end_overdue();
    workers_.ask_standbys();
    workers_.kill_overdue();
    end_hung_agent();
    end_without_order();
  }
  finish_end();
  return *exit_code_;
}

// Without one the node is as good; only its loss is found later.
void Holder::open_probe_port() {
  auto port = ProbePort::open(options_.paths.is_one_job());
  if (!port.ok()) {
    log_warning(port.error().message);
    return;
  }
  probe_port_ = std::move(*port);
  memory_.has_probe_port(probe_port_->port());
  loop_.add(probe_port_->fd(), EPOLLIN, [this](uint32_t) {
    if (!probe_port_->accept_one()) loop_.remove(probe_port_->fd());
  });
}

Outcome Holder::start_reaper() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot create the reaper's pipe");
  const UniqueFd read_end(ends[0]);
  reaper_pipe_.reset(ends[1]);
  SpawnPlan plan;
  plan.program = options_.reaper_argv.front();
  plan.argv = options_.reaper_argv;
  plan.argv.push_back(boot_id_);
  plan.env = environment_with({});
  plan.directory = "/";
  plan.descriptors = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO, read_end.get(), lock_.get()};
  plan.die_with_parent = false;
  HP_TRY_ASSIGN(reaper_.process, start_process(plan));
  reaper_.started_ms = clock_.monotonic_ms();
  return Ok{};
}

Outcome Holder::start_agent() {
  HP_TRY_ASSIGN(auto pair, PacketSocket::make_pair());
  SpawnPlan plan;
  plan.program = options_.agent_argv.front();
  plan.argv = options_.agent_argv;
  plan.env = environment_with({});
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  plan.descriptors = {null.get(), STDERR_FILENO, STDERR_FILENO, pair.second.get()};
  HP_TRY_ASSIGN(agent_.process, start_process(plan));
  agent_.started_ms = clock_.monotonic_ms();
  agent_signs_.seen(agent_.started_ms, kFirstSignOfLifeMs);
  agent_socket_.emplace(std::move(pair.first));
  loop_.add(agent_socket_->fd(), EPOLLIN, [this](uint32_t) { read_agent(); });
  loop_.add(agent_.process->pidfd.get(), EPOLLIN, [this](uint32_t) { agent_ended(); });
  greet();
  return Ok{};
}

void Holder::start_what_is_due() {
  const int64_t now = clock_.monotonic_ms();
  if (exit_code_) return;
  if (!reaper_.process && now >= reaper_.start_at_ms) {
    if (const auto started = start_reaper(); !started.ok()) {
      log_error(started.error().message);
      reaper_.started_ms = now;
      kept_ended(reaper_, "reaper");
    }
  }
  if (!agent_.process && now >= agent_.start_at_ms) {
    if (const auto started = start_agent(); !started.ok()) {
      log_error(started.error().message);
      agent_.started_ms = now;
      kept_ended(agent_, "agent");
    }
  }
}

void Holder::kept_ended(Kept& kept, const std::string& what) {
  if (kept.process) log_failed_exec(*kept.process);
  kept.process.reset();
  if (exit_code_) return;
  const int64_t now = clock_.monotonic_ms();
  const bool hung = std::exchange(kept.hung, false);
  const auto pause = kept.policy.pause_after(now - kept.started_ms, hung);
  if (!pause) {
    begin_end(
        1, 0,
        "the " + what + " process " + (hung ? "hangs again and again" : "cannot be kept alive"));
    return;
  }
  kept.start_at_ms = now + *pause;
}

void Holder::agent_ended() {
  if (!agent_.process) return;
  int status = 0;
  if (::waitpid(agent_.process->pid, &status, WNOHANG) != agent_.process->pid) return;
  // Out of the way first: reading its last packets can lead here again.
  const SpawnedProcess ended = std::move(*agent_.process);
  agent_.process.reset();
  loop_.remove(ended.pidfd.get());
  read_agent();  // what it sent before it died counts: above all reports to keep
  if (agent_socket_) loop_.remove(agent_socket_->fd());
  agent_socket_.reset();
  log_failed_exec(ended);
  if (!exit_code_) {
    log_warning("agent process " + std::to_string(ended.pid) + " ended (" +
                (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                     : "exit " + std::to_string(WEXITSTATUS(status))) +
                "); workers are not disturbed");
  }
  kept_ended(agent_, "agent");
}

void Holder::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      reap_children();
    } else {
      told_to_end("signal " + std::to_string(info.ssi_signo));
    }
  }
}

// Any ended children: also orphans of a worker, which come to us because the holder is their
// subreaper.
void Holder::reap_children() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    if (workers_.reap(info.si_pid)) continue;
    if (agent_.process && agent_.process->pid == info.si_pid) {
      agent_ended();
    } else {
      ::waitpid(info.si_pid, nullptr, 0);
      if (reaper_.process && reaper_.process->pid == info.si_pid) {
        log_warning("reaper process ended; starting another");
        kept_ended(reaper_, "reaper");
      }
    }
  }
  workers_.kill_strays();
}

// ---- the agent's requests -----------------------------------------------------------------------

void Holder::read_agent() {
  while (agent_socket_) {
    // A peer that is gone takes nothing more; its sent messages count.
    const bool flushed = agent_socket_->flush().ok() && !agent_socket_->has_queued();
    if (flushed) loop_.change(agent_socket_->fd(), EPOLLIN);
    auto packet = agent_socket_->receive();
    if (!packet.ok()) {
      // Its end is closed: it is about to end, which the pidfd will tell.
      loop_.remove(agent_socket_->fd());
      agent_socket_.reset();
      return;
    }
    if (!packet->has_value()) return;
    auto request = decode_to_holder((*packet)->bytes);
    if (!request.ok()) {
      log_error(request.error().message + "; ending the agent process");
      if (agent_.process) ::kill(agent_.process->pid, SIGKILL);
      return;
    }
    std::visit([this](auto& message) { on(std::move(message)); }, *request);
  }
}

void Holder::send(const ToAgent& message, int descriptor) {
  if (!agent_socket_) return;  // the next agent is greeted with the present state
  if (!agent_socket_->send_or_queue(encode(message), descriptor).ok()) return;
  if (agent_socket_->has_queued()) loop_.change(agent_socket_->fd(), EPOLLIN | EPOLLOUT);
}

// The agent begins a new page for it, so the lines that match are told again behind it.
void Holder::send_state(const Worker& worker) {
  const bool is_member = worker.part == WorkerPart::kMember;
  if (LogWatch* watch = worker.log->watch()) watch->forget_taken();
  send(state_of(worker), is_member ? worker.progress.get() : -1);
}

void Holder::greet() {
  memory_.tell([this](const ToAgent& message) { send(message); },
               [this] {
                 for (const auto& [pid, worker] : workers_.living()) {
                   if (!worker->is_starting()) send_state(*worker);
                 }
               });
  if (!told_to_end_.empty() && !exit_code_) send(ToldToEnd{told_to_end_});
}

// The next agent, which is greeted with them, hears what is lost here. An agent that stands still
// hears the newest once it goes on: its queue does not grow.
void Holder::tell_log_matches() {
  if (!agent_socket_ || agent_socket_->has_queued()) return;
  for (const auto& [pid, worker] : workers_.living()) {
    LogWatch* watch = worker->log->watch();
    const bool is_told = watch != nullptr && worker->part == WorkerPart::kMember &&
                         !worker->is_starting() && watch->take_news();
    if (is_told) send(LogMatches{worker->incarnation, watch->matched_ms()});
  }
}

void Holder::on(const Spawn& request) {
  const Result<const Worker*> started = start(request);
  if (!started.ok()) return refuse(request.generation, request.rank, started.error());
  if (*started != nullptr) send_state(**started);
}

void Holder::refuse(uint64_t generation, int32_t rank, const Error& error) {
  log_error("rank " + std::to_string(rank) + ": " + error.message);
  send(SpawnFailed{generation, rank, static_cast<uint8_t>(is_permanent(error.code) ? 1 : 0),
                   error.message});
}

void Holder::worker_started(const Worker& worker, const Outcome& outcome) {
  if (!outcome.ok()) return refuse(worker.generation, worker.rank, outcome.error());
  send_state(worker);
}

void Holder::on(const Kill& request) {
  // The node ends without an order: the workers keep the grace that a signal left them, also where
  // a recovery on the other nodes would give them less.
  if (!told_to_end_.empty() && exit_code_) return;
  // The order that was waited for: its grace counts, and the node ends behind it.
  if (!told_to_end_.empty()) end_by_ms_ = clock_.monotonic_ms() + kTerminationGraceMs;
  memory_.ended_through(request.generation);
  if (request.stacks != 0) {
    stacks_.take(request, workers_);
  } else {
    end_workers(request, "");
  }
}

void Holder::end_workers(const Kill& order, const std::string& stacks) {
  if (!stacks.empty()) send(StacksTaken{order.generation, stacks});
  reap_children();  // who ended by itself before this request did not end because of it
  workers_.end(order);
}

void Holder::on(const End& request) {
  begin_end(request.exit_code, request.grace_ms, request.reason);
}

void Holder::on(const Alive& sign) {
  agent_signs_.seen(clock_.monotonic_ms(), sign.next_within_ms);
  send(AliveToo{});
}

void Holder::end_hung_agent() {
  if (!agent_.process || clock_.monotonic_ms() < agent_signs_.look_at_ms()) return;
  read_agent();  // we may be the one who was late
  if (!agent_.process || !agent_signs_.have_ceased(clock_.monotonic_ms())) return;
  log_warning("agent process " + std::to_string(agent_.process->pid) + " hangs; ending it");
  ::kill(agent_.process->pid, SIGKILL);
  agent_.hung = true;
  agent_signs_.forget();
}

// ---- workers ------------------------------------------------------------------------------------

std::string Holder::refusal_of(const Spawn& request) const {
  const std::string generation = "generation " + std::to_string(request.generation);
  if (exit_code_) return "the node is ending";
  const Hello& facts = memory_.facts();
  if (request.generation < facts.generation_seen) {
    return generation + " is stale: the node has seen " + std::to_string(facts.generation_seen);
  }
  if (request.generation <= facts.ended_through) return generation + " was ended on this node";
  return "";
}

Result<const Worker*> Holder::start(const Spawn& request) {
  reap_children();  // so that a worker that has just ended does not stand in the way
  if (const std::string refusal = refusal_of(request); !refusal.empty()) {
    return Error{ErrorCode::kFailedPrecondition, refusal};
  }
  HP_TRY_ASSIGN(const Worker* worker, workers_.start(request));
  memory_.saw(request.generation);
  return worker;
}

void Holder::worker_ended(Exited record, const Worker& worker) {
  memory_.ended(state_of(worker));
  send(memory_.keep(std::move(record)));
}

void Holder::worker_changed(const Worker& worker) {
  memory_.ended(state_of(worker));
  send_state(worker);
}

void Holder::told_to_end(const std::string& why) {
  if (exit_code_ || !agent_socket_) return begin_end(0, kTerminationGraceMs, why);
  if (!told_to_end_.empty()) return;  // Slurm may signal twice
  log_info(why + ": waiting for the controller's decision");
  told_to_end_ = why;
  end_by_ms_ = clock_.monotonic_ms() + kOrderWithinMs;
  send(ToldToEnd{why});
}

void Holder::end_without_order() {
  if (told_to_end_.empty() || exit_code_ || clock_.monotonic_ms() < end_by_ms_) return;
  begin_end(0, kTerminationGraceMs - kOrderWithinMs, told_to_end_);
}

void Holder::begin_end(int exit_code, uint32_t grace_ms, const std::string& why) {
  if (!exit_code_) {
    log_info("node ends: " + why);
    exit_code_ = exit_code;
    const std::string path = options_.paths.node_lock(options_.job, options_.node);
    if (const auto said = say_that_we_end(lock_, path); !said.ok()) {
      log_warning(said.error().message);
    }
  }
  stacks_.abandon();
  reap_children();
  workers_.end_all(grace_ms);
}

void Holder::finish_end() {
  if (agent_.process) {
    ::kill(agent_.process->pid, SIGKILL);
    ::waitpid(agent_.process->pid, nullptr, 0);
  }
  if (!kill_marked(boot_id_ + ".", kSweepTimeoutMs)) {
    log_error("processes that the workers started could not be ended");
  }
  // Last, because it shares the lock: a free lock means that nothing is left.
  if (reaper_.process) {
    ::kill(reaper_.process->pid, SIGKILL);
    ::waitpid(reaper_.process->pid, nullptr, 0);
  }
  log_info("holder of node " + options_.node + " ended");
}

int64_t Holder::next_timeout_ms() const {
  int64_t next = std::min(workers_.next_deadline_ms(), stacks_.next_deadline_ms());
  if (agent_.process) next = std::min(next, agent_signs_.look_at_ms());
  if (!exit_code_ && !agent_.process) next = std::min(next, agent_.start_at_ms);
  if (!exit_code_ && !reaper_.process) next = std::min(next, reaper_.start_at_ms);
  if (!exit_code_ && !told_to_end_.empty()) next = std::min(next, end_by_ms_);
  if (next == INT64_MAX) return -1;
  return std::max<int64_t>(0, next - clock_.monotonic_ms());
}

// Signals arrive as descriptors, in the order of the loop; workers get an empty mask.
Result<UniqueFd> take_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&mask, signal);
  if (::sigprocmask(SIG_BLOCK, &mask, nullptr) != 0) return errno_error("cannot block signals");
  UniqueFd fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return errno_error("cannot create a signal descriptor");
  return fd;
}

int hold_node(const HolderOptions& options, LogWriter& logs) {
  auto signals = take_signals();
  if (!signals.ok()) {
    log_error(signals.error().message);
    return 1;
  }
  auto lock = take_node_lock(options.paths.node_lock(options.job, options.node), *signals);
  if (!lock.ok()) {
    log_error(lock.error().message);
    return 1;
  }
  if (!lock->has_value()) {
    log_info("node " + options.node + " of job " + to_string(options.job) +
             " already has a holder, or this one got a request to end before it began");
    return 0;
  }
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    log_warning("cannot become a subreaper; what workers leave behind is ended only at the end");
  }
  Holder holder(options, logs, std::move(**lock), std::move(signals).value());
  return holder.run();
}

}  // namespace

int run_holder(const HolderOptions& options) {
  if (options.paths.is_one_job()) {
    const auto prepared = prepare_job_node(options.paths, options.job, options.node);
    if (!prepared.ok()) {
      log_error(prepared.error().message);
      return 1;
    }
  }
  LogWriter logs;
  // Without one the node is as good; its workers have no logs.
  if (const auto started = logs.start(OwnLog::kThroughWriter); !started.ok()) {
    log_error(started.error().message);
  }
  // Agent and reaper do the same; the reason is logged once.
  if (const auto locked = lock_memory(); !locked.ok()) log_info(locked.error().message);
  const int exit_code = hold_node(options, logs);
  wait_for_successor_here(options.paths, options.node);
  logs.finish(kLastLogsMs);
  return exit_code;
}

}  // namespace hpctl::holder
