// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/agent_report.h"

#include <algorithm>
#include <chrono>

#include "common/base/plausible.h"
#include "common/job/hang_rule.h"
#include "controller/agents/worker_order.h"

namespace hpctl {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kMaxStacksBytes = 1024;
constexpr int kMaxWorkers = 4096;  // of one node, with those of generations that are over
constexpr int64_t kMaxAgeMs =
    std::chrono::duration_cast<std::chrono::milliseconds>(kMaxDuration).count();
constexpr int kMaxGroups = 64;  // of one rank; a later release may have more than this one

// Text from an agent ends up in the log of every reader: bounded, and cut between characters,
// because what is not UTF-8 cannot be sent on.
std::string bounded(const std::string& text, size_t most = kMaxTextBytes) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

std::string beyond(const char* what, uint64_t value) {
  return "no job has " + std::string(what) + " " + std::to_string(value);
}

std::string find_generation_problem(uint64_t generation) {
  return generation > kMaxGeneration ? beyond("a generation", generation) : "";
}

std::string find_step_problem(uint64_t generation, uint64_t step) {
  if (step > kMaxStep) return beyond("a step", step);
  return find_generation_problem(generation);
}

template <typename Workers>
std::string find_workers_problem(const Workers& workers) {
  if (workers.size() > kMaxWorkers) return "too many workers for one node";
  for (const auto& worker : workers) {
    if (worker.rank() < 0) return "rank " + std::to_string(worker.rank());
    std::string problem = find_generation_problem(worker.generation());
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string find_groups_problem(const v1::WorkerProgress& worker) {
  if (worker.groups_size() > kMaxGroups) return "too many groups of one rank";
  for (const v1::GroupProgress& group : worker.groups()) {
    for (const uint64_t number : {group.begun(), group.completed()}) {
      if (number > kMaxStep) return beyond("a collective", number);
    }
  }
  return "";
}

std::string find_heartbeat_problem(const v1::Heartbeat& heartbeat) {
  const v1::Standbys& standbys = heartbeat.standbys();
  if (standbys.ready() > kMaxWorkers || standbys.loading() > kMaxWorkers) {
    return "too many standbys for one node";
  }
  for (const v1::WorkerProgress& worker : heartbeat.workers()) {
    const v1::StepFigures& figures = worker.figures();
    for (const uint64_t step : {worker.step(), figures.snapshot_step()}) {
      if (step > kMaxStep) return beyond("a step", step);
    }
    for (const uint64_t ns : {worker.step_ns(), figures.data_waits_ns(), figures.save_waits_ns()}) {
      if (!is_believable(duration_of(ns))) return beyond("a step of ns", ns);
    }
    const std::string problem = find_groups_problem(worker);
    if (!problem.empty()) return problem;
    if (worker.log_match_age_ms_size() > static_cast<int>(kMostHangRules)) {
      return "ages of more lines than there are rules";
    }
    for (const int64_t age_ms : worker.log_match_age_ms()) {
      if (age_ms > kMaxAgeMs) return "a line of " + std::to_string(age_ms) + " ms ago";
    }
  }
  return find_workers_problem(heartbeat.workers());
}

std::string find_bad_step_problem(const v1::BadStep& step) {
  for (const uint64_t count : {step.number(), step.resumed_step(), step.samples(), step.missed()}) {
    if (count > kMaxStep) return beyond("bad steps with", count);
  }
  return find_step_problem(step.generation(), step.step());
}

std::string find_exit_problem(const v1::WorkerExited& exited) {
  for (const auto* seals : {&exited.seals(), &exited.copies()}) {
    if (static_cast<size_t>(seals->size()) > kArenaSlots) return "more seals than slots";
    for (const v1::Seal& seal : *seals) {
      const std::string problem = find_step_problem(seal.generation(), seal.step());
      if (!problem.empty()) return problem;
    }
  }
  const int32_t parts = std::max(1, exited.parts());  // of no arena it is 0, and so are the others
  if (exited.parts() < 0 || exited.part() < 0 || exited.part() >= parts ||
      exited.copied_part() < -1 || exited.copied_part() >= parts) {
    return "parts of a state that it does not have";
  }
  return find_step_problem(exited.generation(), exited.last_step());
}

std::string find_exits_problem(const v1::AgentMessage& message) {
  const v1::WorkersExited& exited = message.workers_exited();
  const auto count = static_cast<uint64_t>(exited.exits_size());
  if (count == 0 || count > kMaxWorkers) return "exits of " + std::to_string(count) + " workers";
  if (exited.first_report_seq() == 0 ||
      exited.first_report_seq() + count - 1 != message.report_seq()) {
    return "reports " + std::to_string(exited.first_report_seq()) + " to " +
           std::to_string(message.report_seq()) + " with " + std::to_string(count) + " exits";
  }
  for (const v1::WorkerExited& exit : exited.exits()) {
    std::string problem = find_exit_problem(exit);
    if (!problem.empty()) return problem;
  }
  return "";
}

std::vector<GroupReport> make_groups(const v1::WorkerProgress& worker) {
  std::vector<GroupReport> groups;
  for (const v1::GroupProgress& group : worker.groups()) {
    groups.push_back({static_cast<GroupKind>(group.kind()), group.first(), group.last(),
                      group.begun(), group.completed(), group.waits()});
  }
  return groups;
}

template <typename Workers>
std::vector<core::LiveWorker> make_workers(const Workers& running) {
  std::vector<core::LiveWorker> workers;
  for (const v1::RunningWorker& worker : running) {
    workers.push_back({Rank{worker.rank()}, Generation{worker.generation()}, worker.pid(),
                       known_origin(worker.origin())});
  }
  return workers;
}

std::vector<Seal> make_seals(const google::protobuf::RepeatedPtrField<v1::Seal>& seals) {
  std::vector<Seal> made;
  for (const v1::Seal& seal : seals) {
    made.push_back({seal.step(), seal.digest(), seal.generation()});
  }
  return made;
}

core::WorkerExited make_exit(const v1::AgentMessage& message, const v1::WorkerExited& exited) {
  return {JobId{message.job()},
          message.node(),
          message.boot_id(),
          Rank{exited.rank()},
          Generation{exited.generation()},
          exited.pid(),
          exited.exit_code(),
          exited.signal(),
          exited.last_step(),
          bounded(exited.message()),
          exited.by_request(),
          exited.peer_lost(),
          {make_seals(exited.seals()), make_seals(exited.copies()), exited.part(), exited.parts(),
           exited.copied_part()},
          {bounded(exited.fault().file()), exited.fault().offset(), exited.fault().bytes(),
           exited.fault().error()}};
}

core::WorkersExited make_exits(const v1::AgentMessage& message) {
  core::WorkersExited event{JobId{message.job()}, message.node(), message.boot_id(), {}};
  for (const v1::WorkerExited& exited : message.workers_exited().exits()) {
    event.exits.push_back(make_exit(message, exited));
  }
  return event;
}

// Numbers of another release, or of a damaged page, become the nearest thing that is known.
template <typename Enum>
Enum known(uint32_t value, Enum first, Enum last) {
  return static_cast<Enum>(
      std::clamp(value, static_cast<uint32_t>(first), static_cast<uint32_t>(last)));
}

core::BadStepFound make_bad_step(const v1::AgentMessage& message) {
  const v1::BadStep& step = message.bad_step();
  return {JobId{message.job()},
          message.node(),
          Generation{step.generation()},
          step.number(),
          step.step(),
          step.resumed_step(),
          step.samples(),
          known(step.finding(), BadStepFinding::kNotFinite, BadStepFinding::kGradientSpike),
          known(step.verdict(), BadStepVerdict::kNotRepeated, BadStepVerdict::kOtherResult),
          known(step.outcome(), BadStepOutcome::kSkipped, BadStepOutcome::kGaveUp),
          step.blamed_rank(),
          bounded(step.reason()),
          step.missed()};
}

std::optional<StepFigures> make_figures(const v1::WorkerProgress& worker) {
  if (!worker.has_figures()) return std::nullopt;
  const v1::StepFigures& from = worker.figures();
  StepFigures figures;
  figures.learning_rate = from.learning_rate();
  figures.flops = from.flops();
  figures.flops_causal = from.flops_causal();
  figures.mfu = from.mfu();
  figures.mfu_causal = from.mfu_causal();
  figures.peak_memory_bytes = from.peak_memory_bytes();
  figures.compute_ns = from.compute_ns();
  figures.data_wait_ns = from.data_wait_ns();
  figures.communication_ns = from.communication_ns();
  figures.communication_wait_ns = from.communication_wait_ns();
  figures.saves_without_room = from.saves_without_room();
  figures.data_waits_ns = from.data_waits_ns();
  figures.save_waits_ns = from.save_waits_ns();
  figures.snapshot_step = from.snapshot_step();
  figures.saves_out_of_space = from.saves_out_of_space();
  figures.storage_failures = from.storage_failures();
  return figures;
}

// Text by that name, or "".
std::string capability(const v1::Register& agent, const std::string& name) {
  const auto it = agent.capabilities().find(name);
  return it == agent.capabilities().end() ? "" : bounded(it->second, kMaxNameBytes);
}

// The open action that this message's agent was ordered to perform.
template <typename Answer>
const core::Action* find_action(const Answer& answer, const v1::AgentMessage& message,
                                const core::State& state) {
  const auto it = state.outbox.find(ActionId{Seq{answer.action_seq()}, answer.action_index()});
  if (it == state.outbox.end()) return nullptr;
  const auto agent = agent_of(it->second);
  return agent == core::NodeKey{JobId{message.job()}, message.node()} ? &it->second : nullptr;
}

std::optional<core::EventBody> make_done(const v1::AgentMessage& message,
                                         const core::State& state) {
  const v1::ActionDone& done = message.action_done();
  const core::Action* action = find_action(done, message, state);
  if (action == nullptr) return std::nullopt;
  const JobId job{message.job()};
  if (std::holds_alternative<core::StartWorkers>(action->body)) {
    return core::WorkersStarted{action->id, job, message.node(), Generation{done.generation()},
                                make_workers(done.workers())};
  }
  if (std::holds_alternative<core::StopWorkers>(action->body)) {
    return core::WorkersStopped{action->id, job, message.node(), Generation{done.generation()},
                                bounded(done.stacks(), kMaxStacksBytes)};
  }
  // It has an answer of its own.
  if (std::holds_alternative<core::ConfirmDamage>(action->body)) return std::nullopt;
  return core::NodeEnded{job, message.node(), message.boot_id()};
}

core::DamageVerdict known_verdict(uint32_t verdict) {
  if (verdict == 1) return core::DamageVerdict::kSound;
  return verdict == 2 ? core::DamageVerdict::kDamaged : core::DamageVerdict::kUnreadable;
}

std::optional<core::EventBody> make_answer(const v1::AgentMessage& message,
                                           const core::State& state) {
  const v1::DamageAnswered& answer = message.damage_answered();
  const core::Action* action = find_action(answer, message, state);
  if (action == nullptr || !std::holds_alternative<core::ConfirmDamage>(action->body)) {
    return std::nullopt;
  }
  return core::DamageAnswered{action->id, JobId{message.job()}, message.node(),
                              known_verdict(answer.verdict()), bounded(answer.what())};
}

}  // namespace

std::string find_registration_problem(const v1::AgentMessage& message) {
  if (!message.has_register_agent()) return "the first message must be Register";
  if (message.job() == 0) return "Register names no job";
  if (message.node().empty() || message.node().size() > kMaxNameBytes) return "bad node name";
  if (message.boot_id().empty() || message.boot_id().size() > kMaxNameBytes) return "bad boot id";
  const v1::Register& agent = message.register_agent();
  std::string problem = find_generation_problem(agent.generation_seen());
  return problem.empty() ? find_workers_problem(agent.workers()) : problem;
}

std::string find_report_problem(const v1::AgentMessage& message) {
  switch (message.kind_case()) {
    case v1::AgentMessage::kHeartbeat:
      return find_heartbeat_problem(message.heartbeat());
    case v1::AgentMessage::kWorkerExited:
      return find_exit_problem(message.worker_exited());
    case v1::AgentMessage::kWorkersExited:
      return find_exits_problem(message);
    case v1::AgentMessage::kCheckpointCommitted:
      return find_step_problem(message.checkpoint_committed().generation(),
                               message.checkpoint_committed().step());
    case v1::AgentMessage::kBadStep:
      return find_bad_step_problem(message.bad_step());
    case v1::AgentMessage::kActionDone:
      return find_workers_problem(message.action_done().workers());
    case v1::AgentMessage::kActionFailed:
    case v1::AgentMessage::kGoodbye:
    case v1::AgentMessage::kFaultNotInjected:
    case v1::AgentMessage::kSpareUnfit:
    case v1::AgentMessage::kDamageAnswered:
    case v1::AgentMessage::kToldToEnd:
    case v1::AgentMessage::kRegisterAgent:
    case v1::AgentMessage::KIND_NOT_SET:
      return "";
  }
  return "";
}

core::AgentRegistered make_registration(const v1::AgentMessage& message) {
  const v1::Register& agent = message.register_agent();
  return {JobId{message.job()},
          message.node(),
          bounded(agent.instance_id(), kMaxNameBytes),
          message.boot_id(),
          agent.holder_pid(),
          agent.agent_pid(),
          Generation{agent.generation_seen()},
          make_workers(agent.workers()),
          capability(agent, "address"),
          !capability(agent, "tells_standbys").empty(),
          false,
          !capability(agent, "confirms_damage").empty()};
}

std::optional<core::EventBody> make_event(const v1::AgentMessage& message,
                                          const core::State& state) {
  const JobId job{message.job()};
  switch (message.kind_case()) {
    case v1::AgentMessage::kWorkerExited:
      return make_exit(message, message.worker_exited());
    case v1::AgentMessage::kWorkersExited:
      return make_exits(message);
    case v1::AgentMessage::kCheckpointCommitted:
      return core::CheckpointCommitted{job, Generation{message.checkpoint_committed().generation()},
                                       message.checkpoint_committed().step()};
    case v1::AgentMessage::kActionDone:
      return make_done(message, state);
    case v1::AgentMessage::kActionFailed: {
      const v1::ActionFailed& failed = message.action_failed();
      const core::Action* action = find_action(failed, message, state);
      if (action == nullptr) return std::nullopt;
      return core::ActionFailed{action->id,         job,
                                message.node(),     bounded(failed.reason()),
                                failed.permanent(), failed.node_fault(),
                                failed.hardware(),  failed.reboot()};
    }
    case v1::AgentMessage::kBadStep:
      return make_bad_step(message);
    case v1::AgentMessage::kFaultNotInjected:
      return core::FaultNotInjected{job, message.node(),
                                    Seq{message.fault_not_injected().event_seq()},
                                    bounded(message.fault_not_injected().reason())};
    case v1::AgentMessage::kSpareUnfit: {
      const v1::SpareUnfit& unfit = message.spare_unfit();
      return core::SpareFoundUnfit{job,
                                   message.node(),
                                   message.boot_id(),
                                   bounded(unfit.reason()),
                                   unfit.hardware(),
                                   unfit.reboot()};
    }
    case v1::AgentMessage::kDamageAnswered:
      return make_answer(message, state);
    case v1::AgentMessage::kGoodbye:
      return core::NodeEnded{job, message.node(), message.boot_id()};
    case v1::AgentMessage::kRegisterAgent:
    case v1::AgentMessage::kHeartbeat:
    case v1::AgentMessage::kToldToEnd:  // judged together with the other nodes (told_nodes.h)
    case v1::AgentMessage::KIND_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

bool beats_as_told(const v1::Register& agent) {
  return !capability(agent, "beats_as_told").empty();
}

std::string probe_address(const v1::Register& agent) {
  const std::string port = capability(agent, "probe_port");
  const std::string address = capability(agent, "address");
  if (port.empty()) return "";
  return (address.empty() ? "127.0.0.1" : address) + ":" + port;
}

std::vector<RankReport> make_rank_reports(const v1::Heartbeat& heartbeat) {
  std::vector<RankReport> reports;
  for (const v1::WorkerProgress& worker : heartbeat.workers()) {
    reports.push_back({worker.rank(),
                       worker.generation(),
                       worker.pid(),
                       worker.phase(),
                       worker.step(),
                       worker.collective(),
                       worker.loss(),
                       worker.tokens(),
                       worker.step_ns(),
                       worker.first_step_unix_ns(),
                       worker.process_state().substr(0, 1),
                       worker.grad_norm(),
                       make_figures(worker),
                       worker.open_collectives(),
                       worker.computing(),
                       make_groups(worker),
                       {worker.log_match_age_ms().begin(), worker.log_match_age_ms().end()}});
  }
  return reports;
}

}  // namespace hpctl
