// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "agent/beat_times.h"
#include "agent/controller_access.h"
#include "agent/controller_session.h"
#include "agent/core/supervisor.h"
#include "agent/environment_files.h"
#include "agent/error_file.h"
#include "agent/holder/event_loop.h"
#include "agent/holder/holder_protocol.h"
#include "agent/holder/locked_memory.h"
#include "agent/holder/progress_file.h"
#include "agent/holder_link.h"
#include "agent/holder_memory.h"
#include "agent/messages.h"
#include "agent/node_facts.h"
#include "agent/node_place.h"
#include "agent/node_preparation.h"
#include "agent/report_log.h"
#include "agent/second_reader.h"
#include "agent/side_task.h"
#include "agent/standbys.h"
#include "agent/worker_command.h"
#include "agent/worker_pages.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/rng.h"
#include "common/process/process_stat.h"
#include "common/worker/injected_fault.h"

namespace hpctl::agent {
namespace {

constexpr int64_t kGoodbyeTimeoutMs = 2'000;
constexpr int64_t kStillMs = 500;  // without a step or a collective; StillWatch
constexpr size_t kReasonBytes = 1'024;

class Agent {
 public:
  Agent(const AgentOptions& options, LogWriter& logs, PacketSocket holder, HolderMemory memory);
  int run();
  // For a file server, beside the loop.
  bool is_waiting() const {
    return session_.is_waiting() || script_reader_.is_busy() || environment_files_.is_busy();
  }

 private:
  // The holder's side.
  void on_holder();
  void on_worker(const holder::WorkerState& worker, const UniqueFd& page);
  void on_exit(const holder::Exited& exit);
  void perform(const Decisions& decisions);
  void perform(const SpawnRank& decision);
  void answer(Done decision);
  void answer(Failed decision);
  void say_goodbye();

  // The controller's side.
  void on_message(const v1::ControllerMessage& message);
  void on_welcome(const v1::Welcome& welcome);
  void on_start(const v1::StartWorkers& start);
  void on_stand_by(const v1::StartWorkers& like);
  void tell_unfit(const Unfitness& unfit);
  void tell_verdict(const v1::DamageAnswered& answer);
  void on_stop(const v1::StopWorkers& stop);
  void on_end(const v1::EndNode& end);
  void on_fault(const v1::InjectFault& order);
  void prepared(const v1::StartWorkers& start);
  void environment_is_read(const EnvironmentFiles::Read& read);
  void start_workers(const v1::StartWorkers& start);
  void order_start(const v1::StartWorkers& start);
  void plan_standbys(const v1::StartWorkers& start);
  void read_script();
  void script_is_read();
  v1::AgentMessage registration() const;

  // Time.
  void on_time();
  int64_t next_timeout_ms() const;
  void start_standbys();
  void read_pages();
  void heartbeat();
  void end_node(int exit_code, uint32_t grace_ms, const std::string& reason);

  const AgentOptions options_;
  const SystemClock clock_;
  EventLoop loop_;
  UniqueFd wake_;
  const holder::Hello hello_;
  HolderLink holder_;
  const NodePlace place_;
  const v1::AgentMessage envelope_;
  Rng rng_{std::random_device{}()};

  Supervisor supervisor_;
  NodePreparation preparation_;
  SecondReader second_reader_;
  v1::EndNode end_order_;
  WorkerPages pages_;
  Standbys standbys_{[](uint64_t pid) { return proportional_memory(static_cast<pid_t>(pid)); }};
  ReportLog reports_;
  ControllerSession session_;
  std::map<uint64_t, std::vector<holder::Spawn>> spawns_;  // by generation being started
  std::map<uint64_t, std::string> stacks_;  // by generation; for the answer to the order to stop

  EnvironmentFiles environment_files_{wake_.get()};
  SideTask script_reader_{wake_.get()};
  std::shared_ptr<std::optional<Result<holder::Spawn>>> script_order_;  // of the task
  std::optional<v1::StartWorkers> script_standbys_;                     // the next to read for

  BeatTimes beats_;
  int64_t still_limit_ms_ = INT64_MAX;  // then the kernel is asked what the worker does
  int64_t read_pages_at_ms_ = 0;
  std::optional<int64_t> leave_by_ms_;  // the node is done; only acknowledgements are waited for
  bool finished_ = false;
};

Agent::Agent(const AgentOptions& options, LogWriter& logs, PacketSocket holder, HolderMemory memory)
    : options_(options),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      hello_(memory.hello),
      holder_(std::move(holder), hello_.holder_pid, options.alive_limit_ms),
      place_(make_place(options)),
      envelope_(envelope(options.job.value, options.node, hello_.boot_id)),
      supervisor_(hello_.generation_seen, hello_.ended_through),
      preparation_(loop_, logs, place_, hello_.boot_id),
      second_reader_(loop_, options.program,
                     [this](const v1::DamageAnswered& answer) { tell_verdict(answer); }),
      pages_(reported_before(hello_)),
      reports_(
          envelope_, hello_.last_report, reported_before(hello_),
          [this](const holder::ToHolder& message) { holder_.tell(message); },
          [this](const v1::AgentMessage& message) { session_.send_report(message); }),
      session_(options.job, make_controller_access(options.paths, options.job, options.node),
               wake_.get(), clock_,
               {[this] { return registration(); },
                [this](const v1::ControllerMessage& message) {
                  on_message(message);
                  return !finished_;
                }}) {
  HP_CHECK(wake_.valid());
  for (const holder::StoredReport& stored : memory.reports) reports_.restore(stored);
  for (const auto& [worker, page] : memory.workers) on_worker(worker, page);
  for (const holder::Exited& exit : memory.exits) on_exit(exit);
}

int Agent::run() {
  loop_.add(holder_.fd(), EPOLLIN, [this](uint32_t) { on_holder(); });
  loop_.add(wake_.get(), EPOLLIN, [this](uint32_t) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof(count));
    session_.read();
  });
  while (!finished_ && !holder_.broken()) {
    on_time();
    if (!finished_ && !holder_.broken()) loop_.run_once(next_timeout_ms());
  }
  return 0;
}

// ---- the holder's side --------------------------------------------------------------------------

void Agent::on_holder() {
  while (!finished_) {
    const auto incoming = holder_.receive();
    if (!incoming) return;
    const holder::ToAgent& event = incoming->event;
    if (const auto* worker = std::get_if<holder::WorkerState>(&event)) {
      on_worker(*worker, incoming->descriptor);
    } else if (const auto* failed = std::get_if<holder::SpawnFailed>(&event)) {
      if (failed->rank < 0) {
        log_warning("no standby: " + failed->reason);
        continue;
      }
      perform(supervisor_.spawn_failed(failed->generation, failed->rank, failed->reason,
                                       failed->permanent != 0));
    } else if (const auto* exit = std::get_if<holder::Exited>(&event)) {
      on_exit(*exit);
    } else if (const auto* stacks = std::get_if<holder::StacksTaken>(&event)) {
      stacks_[stacks->generation] = printable_line(stacks->told, kReasonBytes);
    } else if (const auto* lines = std::get_if<holder::LogMatches>(&event)) {
      pages_.printed(*lines);
    } else if (const auto* told = std::get_if<holder::ToldToEnd>(&event)) {
      v1::AgentMessage message = envelope_;
      message.mutable_told_to_end()->set_reason(told->reason);
      session_.told_to_end(std::move(message));
    }
  }
}

void Agent::on_worker(const holder::WorkerState& worker, const UniqueFd& page) {
  using enum holder::WorkerPart;
  standbys_.on(worker, clock_.monotonic_ms());
  beats_.soon(clock_.monotonic_ms());
  if (worker.rank < 0) return;
  if (worker.part == kMember) {
    pages_.started(worker, page,
                   progress_file_path(place_.progress_directory(), worker.generation, worker.rank));
    read_pages_at_ms_ = 0;
  }
  perform(supervisor_.spawned(
      {worker.incarnation, worker.rank, worker.generation, worker.pid, worker.origin},
      worker.part == kMember || worker.part == kLeft));
}

void Agent::on_exit(const holder::Exited& exit) {
  v1::WorkerExited exited = to_message(exit);
  if (exited.last_step() == 0) exited.set_last_step(pages_.step_of(exit.incarnation));
  explain_exit(exited, place_);
  // Its progress block still holds the last step and loss, which are newer than the last heartbeat.
  // For a process that stays for the next generation only the step counts, which the report has.
  if (session_.is_open() && (exit.stays == 0 || reports_.is_news(exited))) heartbeat();
  if (const auto commit = pages_.committed(exit.generation, exit.checkpoint_step)) {
    reports_.committed(*commit);
  }
  // Before the exit, which it may explain; also where another rank ends first.
  reports_.bad_step(pages_.read_bad_step());
  reports_.bad_step(pages_.bad_step(exit));
  reports_.exited(std::move(exited), exit.exit_id);
  beats_.soon(clock_.monotonic_ms());
  pages_.ended(exit.incarnation);
  remove_progress_file(place_.progress_directory(), exit.generation, exit.rank);
  if (exit.stays == 0) perform(supervisor_.exited(exit.incarnation));
}

void Agent::perform(const Decisions& decisions) {
  for (const Decision& decision : decisions) {
    if (const auto* accept = std::get_if<AcceptGeneration>(&decision)) {
      holder_.tell(holder::AcceptGeneration{accept->generation});
    } else if (const auto* kill = std::get_if<KillThrough>(&decision)) {
      holder_.tell(holder::Kill{kill->generation, kill->grace_ms, kill->abort_ms,
                                static_cast<uint8_t>(kill->stacks ? 1 : 0)});
    } else if (const auto* spawn = std::get_if<SpawnRank>(&decision)) {
      perform(*spawn);
    } else if (const auto* done = std::get_if<Done>(&decision)) {
      answer(*done);
    } else if (const auto* failed = std::get_if<Failed>(&decision)) {
      answer(*failed);
    } else {
      preparation_.finish(end_order_, supervisor_.generation_seen() > 0, [this] { say_goodbye(); });
    }
  }
}

void Agent::perform(const SpawnRank& decision) {
  holder_.tell(spawns_.at(decision.generation).at(static_cast<size_t>(decision.local_rank)));
}

void Agent::answer(Done decision) {
  if (const auto taken = stacks_.extract(decision.generation)) {
    decision.stacks = std::move(taken.mapped());
  }
  if (spawns_.erase(decision.generation) > 0) standbys_.all_run(clock_.monotonic_ms());
  reports_.answer(decision);
}

void Agent::answer(Failed decision) {
  spawns_.erase(decision.generation);
  decision.reason = printable_line(decision.reason, kReasonBytes);
  reports_.answer(decision);
}

void Agent::say_goodbye() {
  if (const auto removed = remove_tree(place_.local_directory); !removed.ok()) {
    log_warning(removed.error().message);
  }
  leave_by_ms_ = clock_.monotonic_ms() + kGoodbyeTimeoutMs;
  reports_.goodbye();
}

// ---- the controller's side ----------------------------------------------------------------------

v1::AgentMessage Agent::registration() const {
  v1::AgentMessage message = envelope_;
  v1::Register& registration = *message.mutable_register_agent();
  const NodeFacts facts = read_node_facts(options_.node);
  if (!facts.trouble.empty()) log_warning(facts.trouble);
  registration = to_message(facts, hello_, session_.address());
  registration.set_agent_pid(static_cast<uint64_t>(::getpid()));
  registration.set_generation_seen(supervisor_.generation_seen());
  registration.set_version(options_.version);
  for (const StartedWorker& worker : supervisor_.running()) {
    *registration.add_workers() = to_message(worker);
  }
  return message;
}

void Agent::on_message(const v1::ControllerMessage& message) {
  switch (message.kind_case()) {
    case v1::ControllerMessage::kWelcome:
      return on_welcome(message.welcome());
    case v1::ControllerMessage::kRefused:
      if (message.refused().permanent()) {
        return end_node(1, 0, "refused by the controller: " + message.refused().reason());
      }
      return log_warning("refused by the controller for now: " + message.refused().reason());
    case v1::ControllerMessage::kReportAck:
      reports_.acknowledged(message.report_ack());
      return session_.acknowledged(!reports_.waiting().empty());
    case v1::ControllerMessage::kStartWorkers:
      return on_start(message.start_workers());
    case v1::ControllerMessage::kStopWorkers:
      return on_stop(message.stop_workers());
    case v1::ControllerMessage::kEndNode:
      return on_end(message.end_node());
    case v1::ControllerMessage::kInjectFault:
      return on_fault(message.inject_fault());
    case v1::ControllerMessage::kStandBy:
      return on_stand_by(message.stand_by().like());
    case v1::ControllerMessage::kConfirmDamage:
      return second_reader_.read(message.confirm_damage());
    case v1::ControllerMessage::kBeatEvery:
      return beats_.told(message.beat_every().interval_ms(), rng_, clock_.monotonic_ms());
    case v1::ControllerMessage::KIND_NOT_SET:
      return log_warning("the controller sent a message this version does not know");
  }
}

void Agent::on_welcome(const v1::Welcome& welcome) {
  session_.welcomed(welcome);
  beats_.welcomed(welcome.heartbeat_interval_ms(), clock_.monotonic_ms());
  if (welcome.hang_timeout_ms() > 0) {
    still_limit_ms_ = std::min<int64_t>(kStillMs, welcome.hang_timeout_ms() / 2);
  }
  standbys_.forget_told();
  reports_.send_all(welcome.exits_together());
}

void Agent::on_start(const v1::StartWorkers& start) {
  const auto ready = [this](const v1::StartWorkers& held, const Unfitness& bad_step) {
    if (bad_step.reason.empty()) return prepared(held);
    answer(Failed{key_of(held), held.generation(), bad_step.reason, false, true, bad_step.hardware,
                  bad_step.reboot});
  };
  if (preparation_.is_ready(start, ready)) prepared(start);
}

void Agent::prepared(const v1::StartWorkers& start) {
  if (start.env_files().empty()) return start_workers(start);
  if (spawns_.contains(start.generation())) return order_start(start);  // a repetition
  environment_files_.read(start);
}

void Agent::environment_is_read(const EnvironmentFiles::Read& read) {
  const v1::StartWorkers& start = read.start;
  const auto running = supervisor_.running();
  const bool runs = std::any_of(running.begin(), running.end(), [&](const StartedWorker& worker) {
    return worker.generation == start.generation();
  });
  // What runs has been given its files by an earlier process of this agent.
  if (read.outcome.ok() || runs) return start_workers(start);
  const Error& error = read.outcome.error();
  answer(Failed{key_of(start), start.generation(), error.message,
                error.code == ErrorCode::kInvalidArgument});
}

void Agent::on_stand_by(const v1::StartWorkers& like) {
  if (!supervisor_.running().empty()) return;  // it has got ranks
  const auto ready = [this](const v1::StartWorkers& held, const Unfitness& unfit) {
    if (!unfit.reason.empty()) return tell_unfit(unfit);
    plan_standbys(held);
    standbys_.all_run(clock_.monotonic_ms());
    start_standbys();
  };
  if (preparation_.is_ready(like, ready)) ready(like, {});
}

// Without a controller the report is lost: the next controller has the node prepared again.
void Agent::tell_unfit(const Unfitness& unfit) {
  log_warning("this spare is unfit: " + unfit.reason);
  if (!session_.is_open()) return;
  v1::AgentMessage message = envelope_;
  v1::SpareUnfit& told = *message.mutable_spare_unfit();
  told.set_reason(printable_line(unfit.reason, kReasonBytes));
  told.set_hardware(unfit.hardware);
  told.set_reboot(unfit.reboot);
  session_.send(message);
}

// Without a controller it is kept: the order comes again with the next stream.
void Agent::tell_verdict(const v1::DamageAnswered& answer) {
  if (!session_.is_open()) return;
  v1::AgentMessage message = envelope_;
  *message.mutable_damage_answered() = answer;
  session_.send(message);
}

void Agent::on_stop(const v1::StopWorkers& stop) {
  for (const auto& held :
       {preparation_.withdraw(stop.generation()), environment_files_.withdraw(stop.generation())}) {
    if (!held || held->ranks_size() == 0) continue;
    answer(Failed{key_of(*held), held->generation(), "was ended while the node was prepared"});
  }
  perform(supervisor_.stop({{stop.action_seq(), stop.action_index()},
                            stop.generation(),
                            stop.grace_ms(),
                            stop.abort_ms(),
                            stop.stacks()}));
}

void Agent::on_end(const v1::EndNode& end) {
  end_order_ = end;
  environment_files_.withdraw(UINT64_MAX);
  perform(supervisor_.end(end.stacks()));
}

// A fault on purpose. The history has it already; only what could not be done is answered.
void Agent::on_fault(const v1::InjectFault& order) {
  const auto fault = from_word<InjectedFault>(order.fault());
  log_warning("a fault on purpose: " + printable_line(order.fault(), kReasonBytes));
  std::string trouble = "this release does not know it";
  if (fault == InjectedFault::kCutAgent) return session_.cut(kCutMs);
  if (fault == InjectedFault::kDelayMessages) return session_.link().delay_messages();
  if (fault == InjectedFault::kLoseMessages) return session_.link().lose_messages();
  if (fault && is_to_agent(*fault)) {
    ::raise(traits_of(*fault).signal);
    return;  // stopped, and goes on: the holder did not find it
  }
  if (fault && is_to_holder(*fault)) {
    // Our parent, or we would not be.
    ::kill(static_cast<pid_t>(hello_.holder_pid), traits_of(*fault).signal);
    return;
  }
  if (fault && target_of(*fault) == FaultTarget::kRank) {
    for (const StartedWorker& worker : supervisor_.running()) {
      if (worker.rank != order.rank() || worker.generation != order.generation()) continue;
      return holder_.tell(holder::Strike{worker.incarnation, order.fault()});
    }
    trouble = "worker " + std::to_string(order.rank()) + " of generation " +
              std::to_string(order.generation()) + " is not there any more";
  }
  v1::AgentMessage answer = envelope_;
  answer.mutable_fault_not_injected()->set_event_seq(order.event_seq());
  answer.mutable_fault_not_injected()->set_reason(trouble);
  session_.send(answer);
}

void Agent::start_workers(const v1::StartWorkers& start) {
  const ActionKey key = key_of(start);
  std::vector<holder::Spawn> spawns;
  for (int32_t i = 0; i < start.ranks_size(); ++i) {
    auto spawn = make_spawn(start, i, place_);
    if (!spawn.ok()) {
      return answer(Failed{key, start.generation(), spawn.error().message, true});
    }
    spawns.push_back(std::move(spawn).value());
  }
  if (const auto ready = prepare_command(start, place_); !ready.ok()) {
    return answer(Failed{key, start.generation(), ready.error().message, false});
  }
  spawns_[start.generation()] = std::move(spawns);
  plan_standbys(start);
  order_start(start);
}

void Agent::order_start(const v1::StartWorkers& start) {
  perform(supervisor_.start(
      {key_of(start), start.generation(), {start.ranks().begin(), start.ranks().end()}}));
}

void Agent::plan_standbys(const v1::StartWorkers& start) {
  standbys_.plan(start);
  script_standbys_.reset();
  if (!standbys_.awaits_order()) return;
  if (start.command_size() == 0) {
    standbys_.take_order(make_standby(start, place_));
    return;
  }
  script_standbys_ = start;
  read_script();
}

// The command may be a script, whose first line is read from a shared path.
void Agent::read_script() {
  if (!script_standbys_ || script_reader_.is_busy()) return;
  script_order_ = std::make_shared<std::optional<Result<holder::Spawn>>>();
  script_reader_.start([order = script_order_, place = place_,
                        start = *std::exchange(script_standbys_, std::nullopt)] {
    order->emplace(make_standby(start, place));
  });
}

void Agent::script_is_read() {
  if (script_standbys_) return read_script();  // of a later generation
  if (standbys_.take_order(**std::exchange(script_order_, nullptr))) start_standbys();
}

// ---- time ---------------------------------------------------------------------------------------

void Agent::on_time() {
  const int64_t now = clock_.monotonic_ms();
  session_.read_delayed(now);
  if (finished_) return;
  if (script_reader_.take_end()) script_is_read();
  if (const auto read = environment_files_.take()) environment_is_read(*read);
  // Before it is judged whether the node is an orphan: we may have had no turn while it trained.
  if (now >= read_pages_at_ms_) read_pages();
  if (leave_by_ms_ && (reports_.waiting().empty() || now >= *leave_by_ms_)) {
    return end_node(0, 0, "the job has ended");
  }
  if (const auto hopeless = session_.on_time(now, !leave_by_ms_)) {
    return end_node(hopeless->exit_code, hopeless->grace_ms, hopeless->reason);
  }
  if (now >= holder_.alive_at_ms()) holder_.show_life(now);
  preparation_.on_time(now);
  second_reader_.on_time(now);
  if (now >= standbys_.due_ms()) start_standbys();
  if (session_.is_open() && now >= beats_.due_ms()) {
    reports_.send_held();
    heartbeat();
  }
}

int64_t Agent::next_timeout_ms() const {
  int64_t next = std::min({session_.due_ms(), holder_.alive_at_ms(), preparation_.deadline_ms(),
                           second_reader_.deadline_ms(), standbys_.due_ms()});
  if (leave_by_ms_) next = std::min(next, *leave_by_ms_);
  if (session_.is_open()) next = std::min(next, beats_.due_ms());
  if (!pages_.empty()) next = std::min(next, read_pages_at_ms_);
  return std::max<int64_t>(0, next - clock_.monotonic_ms());
}

void Agent::start_standbys() {
  standbys_.replenish([this](const holder::Spawn& standby) { holder_.tell(standby); });
}

void Agent::read_pages() {
  const ProgressWatch::Findings findings = pages_.read();
  if (findings.first_step) {
    beats_.at_once();
    start_standbys();
  }
  if (findings.step) session_.trained(clock_.monotonic_ms());
  if (findings.commit) reports_.committed(*findings.commit);
  if (!reports_.many_wait()) reports_.bad_step(pages_.read_bad_step());
  read_pages_at_ms_ =
      clock_.monotonic_ms() + (pages_.awaits_first_step() ? kFirstStepPollMs : beats_.often_ms());
}

void Agent::heartbeat() {
  v1::AgentMessage message = envelope_;
  const int64_t now = clock_.monotonic_ms();
  pages_.describe(*message.mutable_heartbeat(), now, still_limit_ms_);
  standbys_.tell(*message.mutable_heartbeat(), now);
  session_.send(message);
  beats_.sent(now);
}

void Agent::end_node(int exit_code, uint32_t grace_ms, const std::string& reason) {
  log_info("ending the node: " + reason);
  holder_.tell(holder::End{exit_code, grace_ms, printable_line(reason, kReasonBytes)});
  finished_ = true;
}

}  // namespace

int run_agent(const AgentOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  // Our own stderr is the holder's, and goes through the holder's log writer.
  LogWriter logs;  // forked here, while there is one thread
  if (const auto started = logs.start(); !started.ok()) {
    log_warning(started.error().message + "; hooks have no log");
  }
  [[maybe_unused]] const Outcome locked = holder::lock_memory();  // the holder has said why not
  PacketSocket holder{UniqueFd(holder::kAgentSocketFd)};
  auto memory = read_memory(holder);
  if (!memory.ok()) {
    log_error(memory.error().message);
    return 1;
  }
  Agent agent(options, logs, std::move(holder), std::move(memory).value());
  const int exit_code = agent.run();
  if (agent.is_waiting()) ::_exit(exit_code);  // nothing but that wait is left
  return exit_code;
}

}  // namespace hpctl::agent
