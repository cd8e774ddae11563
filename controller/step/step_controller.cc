// SPDX-License-Identifier: Apache-2.0
#include "controller/step/step_controller.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "common/base/plausible.h"
#include "common/job/duration_text.h"
#include "common/job/time_account.h"
#include "common/worker/worker_abi.h"

namespace hpctl::step {
namespace {

constexpr uint32_t kUid = 0;  // of the only job here; nobody else can ask for anything
constexpr char kNoReplay[] = "; standard input that was read is not given again";

int32_t task_of(const std::string& node) { return std::stoi(node.substr(1)); }

core::Backend backend() {
  core::Backend backend;
  backend.limits.stop_ms = kStopPatienceMs - kStopGraceMs;
  return backend;
}

// Names a life of a task to the core.
std::string life(const Hello& hello) { return std::to_string(hello.pid); }

}  // namespace

std::string StepController::task_name(int32_t task) const {
  return "task " + std::to_string(task) + " on " + tasks_.at(task).hello.node;
}

// ---- tasks come and go --------------------------------------------------------------------------

std::string StepController::hello(const Hello& hello, int64_t now_ms) {
  if (hello.version != kProtocolVersion) {
    return "the shim of task " + std::to_string(hello.task) + " speaks version " +
           std::to_string(hello.version) + ", this controller " + std::to_string(kProtocolVersion) +
           "; install one version on all nodes";
  }
  const int32_t tasks = tasks_.empty() ? hello.tasks : tasks_.begin()->second.hello.tasks;
  if (hello.task < 0 || hello.task >= hello.tasks || hello.tasks != tasks) {
    return "task " + std::to_string(hello.task) + " of " + std::to_string(hello.tasks) +
           " does not belong to a step of " + std::to_string(tasks) + " tasks";
  }
  if (tasks_.contains(hello.task)) return "task " + std::to_string(hello.task) + " is here already";
  if (tasks_.empty()) assembly_deadline_ms_ = now_ms + kAssemblyTimeoutMs;
  Task task;
  task.hello = hello;
  task.free_port = hello.free_port;
  tasks_.emplace(hello.task, std::move(task));
  ++connected_;
  outlet_.send(hello.task, Welcome{});
  if (released_) {
    outlet_.send(hello.task, Release{"the other tasks run without supervision"});
  } else if (static_cast<int32_t>(tasks_.size()) == hello.tasks) {
    begin(now_ms);
  }
  return "";
}

void StepController::gave_up(const Hello& hello) {
  if (begun_ || released_) return;
  const std::string who = "task " + std::to_string(hello.task) + " on " + hello.node;
  outlet_.say(who + " was not answered in time; the step runs without restarts");
  release(who + " runs without supervision");
}

void StepController::begin(int64_t now_ms) {
  begun_ = true;
  JobSpec spec;
  spec.name = "step-" + settings_.run_id;
  spec.nodes = static_cast<int32_t>(tasks_.size());
  spec.command = {"program"};  // each shim knows its own
  spec.checkpoint.dir = "/";   // unused: a step's programs load what they saved
  spec.recovery.max_restarts = settings_.max_restarts;
  // Slurm also accepts tasks that end at different times (srun --wait sets a limit): only a user
  // with a limit wants them ended.
  const bool is_set = settings_.hang_timeout_ms > 0;
  spec.recovery.hang_timeout_ms = is_set ? settings_.hang_timeout_ms : kNoHangTimeoutMs;
  spec.recovery.grace_ms = kStopGraceMs;
  feed(core::JobSubmitted{spec, kUid, "", {}, {}, backend()}, now_ms);
}

void StepController::release(const std::string& reason) {
  if (released_) return;
  released_ = true;
  for (const auto& [task, state] : tasks_) {
    if (state.connected) outlet_.send(task, Release{reason});
  }
}

void StepController::lost(int32_t task, int64_t now_ms) {
  Task& state = tasks_.at(task);
  if (!state.connected) return;
  state.connected = false;
  --connected_;
  if (released_) return;
  if (!begun_) {
    release(task_name(task) + " went away before the step was complete");
    outlet_.say(task_name(task) + " went away before the step was complete; no restarts");
    return;
  }
  const std::string node = core::local_node_name(task);
  if (core::has_ended(job().state)) {
    feed(core::NodeEnded{job_id_, node, life(state.hello)}, now_ms);
    return;
  }
  learn_steps(now_ms);
  reported_ = {task_name(task) + " was lost with its shim or its node", 1};
  feed(core::NodeLost{job_id_, node, life(state.hello), "its shim or its node is gone"}, now_ms);
}

// ---- what tasks report --------------------------------------------------------------------------

void StepController::message(int32_t task, const ToController& message, int64_t now_ms) {
  if (!begun_ || released_) {
    if (std::holds_alternative<Ending>(message)) release("Slurm is ending the step");
    return;
  }
  Task& state = tasks_.at(task);
  const std::string node = core::local_node_name(task);
  if (const auto* started = std::get_if<Started>(&message)) {
    if (!state.start) return;
    const ActionId action = *std::exchange(state.start, std::nullopt);
    const Generation generation{started->generation};
    feed(
        core::WorkersStarted{
            action, job_id_, node, generation, {{Rank{task}, generation, started->pid}}},
        now_ms);
  } else if (const auto* failed = std::get_if<StartFailed>(&message)) {
    if (!state.start) return;
    const ActionId action = *std::exchange(state.start, std::nullopt);
    reported_ = {task_name(task) + ": " + failed->reason, 1};
    feed(core::ActionFailed{action, job_id_, node, failed->reason, true}, now_ms);
  } else if (const auto* progress = std::get_if<Progress>(&message)) {
    report(*progress, task, now_ms);
  } else if (const auto* exited = std::get_if<Exited>(&message)) {
    learn_steps(now_ms);
    report(*exited, task, now_ms);
  } else if (const auto* stopped = std::get_if<Stopped>(&message)) {
    state.free_port = stopped->free_port;
    keep_stacks(*stopped, task);
    if (!state.stop) return;
    const ActionId action = *std::exchange(state.stop, std::nullopt);
    feed(core::WorkersStopped{action, job_id_, node, Generation{stopped->generation}, {}}, now_ms);
  } else if (std::holds_alternative<Ending>(message)) {
    release("Slurm is ending the step");
  }
}

// Each task writes its own; one line is enough to begin with.
void StepController::keep_stacks(const Stopped& stopped, int32_t task) {
  if (stopped.stacks.empty() || job().recent_faults.empty()) return;
  const int32_t blamed = job().recent_faults.back().rank;
  if (task != std::max(0, blamed)) return;
  stacks_ = stopped.stacks;
  if (core::has_ended(job().state)) tell_stacks();  // otherwise with the restart
}

void StepController::tell_stacks() {
  if (!stacks_.empty()) outlet_.say("where they stood: " + std::exchange(stacks_, ""));
}

void StepController::report(const Exited& exited, int32_t task, int64_t now_ms) {
  if (exited.signal != 0) {
    reported_ = {task_name(task) + " died of " + core::signal_name(exited.signal),
                 128 + exited.signal};
  } else if (exited.exit_code != 0) {
    reported_ = {task_name(task) + " exited with code " + std::to_string(exited.exit_code),
                 exited.exit_code};
  }
  core::WorkerExited event;
  event.job = job_id_;
  event.node = core::local_node_name(task);
  event.boot_id = life(tasks_.at(task).hello);
  event.rank = Rank{task};
  event.generation = Generation{exited.generation};
  event.pid = exited.pid;
  event.exit_code = exited.exit_code;
  event.signal = exited.signal;
  if (const auto told = told_steps_.find(task); told != told_steps_.end()) {
    event.last_step = told->second;
  }
  // A program that exits may do so because a peer died, whose shim has yet to say it.
  event.peer_lost = exited.exit_code != 0;
  feed(std::move(event), now_ms);
}

void StepController::tick(int64_t now_ms) {
  if (!begun_ && !released_ && !tasks_.empty() && now_ms >= assembly_deadline_ms_) {
    const std::string missing = std::to_string(tasks_.begin()->second.hello.tasks - tasks_.size());
    release(missing + " tasks of the step did not report");
    outlet_.say(missing + " tasks of the step did not report within " +
                std::to_string(kAssemblyTimeoutMs / 1000) + " s; the step runs without restarts");
  }
  const auto due = begun_ ? core::next_deadline(state_) : std::nullopt;
  if (due && now_ms >= *due) feed(core::Tick{}, now_ms);
  if (begun_ && !released_) look_for_hangs(now_ms);
}

void StepController::report(const Progress& told, int32_t task, int64_t now_ms) {
  if (Generation{told.generation} != job().generation || told.step > kMaxStep ||
      told.tokens > kMaxStep || !is_believable(duration_of(told.step_ns))) {
    return;
  }
  if (told_ms_ == 0) look_at_ms_ = now_ms + kHangLookMs;
  if (now_ms - told_ms_ > kAllSilentMs) progress_.rearm(now_ms);
  told_ms_ = now_ms;
  told_steps_[task] = told.step;
  RankReport report;
  report.rank = task;
  report.generation = told.generation;
  report.pid = told.pid;
  report.phase = static_cast<uint32_t>(WorkerPhase::kTraining);
  report.step = told.step;
  report.loss = NAN;
  report.tokens = told.tokens;
  report.step_ns = told.step_ns;
  report.process_state = told.process_state;
  const auto news = progress_.report(job_id_, core::local_node_name(task), {report}, now_ms);
  if (news) feed(*news, now_ms);
}

// Before a fault is judged: which step was the last, and when.
void StepController::learn_steps(int64_t now_ms) {
  if (const auto news = progress_.news(job_id_)) feed(*news, now_ms);
}

// Silence of all tasks proves nothing: a step that is suspended, with or without its controller.
void StepController::look_for_hangs(int64_t now_ms) {
  if (told_ms_ == 0 || now_ms < look_at_ms_) return;
  look_at_ms_ = now_ms + kHangLookMs;
  if (now_ms - told_ms_ > kAllSilentMs) return;
  for (core::HangDetected& hang : progress_.take_hangs(now_ms)) {
    const std::string who = hang.rank.value < 0 ? "the step" : task_name(hang.rank.value);
    learn_steps(now_ms);
    reported_ = {who + " hangs: " + hang.evidence, 1};
    feed(std::move(hang), now_ms);
  }
}

std::optional<int64_t> StepController::next_deadline() const {
  if (tasks_.empty() || released_) return std::nullopt;
  if (!begun_) return assembly_deadline_ms_;
  const auto due = core::next_deadline(state_);
  if (told_ms_ == 0 || core::has_ended(job().state)) return due;
  return std::min(due.value_or(INT64_MAX), look_at_ms_);
}

// ---- the core -----------------------------------------------------------------------------------

void StepController::feed(core::EventBody body, int64_t now_ms) {
  queue_.push_back(std::move(body));
  if (feeding_) return;
  feeding_ = true;
  while (!queue_.empty() && !released_) {
    core::EventBody next = std::move(queue_.front());
    queue_.pop_front();
    step(std::move(next), now_ms);
  }
  feeding_ = false;
}

void StepController::step(core::EventBody body, int64_t now_ms) {
  const auto before = state_.jobs.find(job_id_);
  const bool known = before != state_.jobs.end();
  const core::JobState state_before = known ? before->second.state : core::JobState::kPending;
  const Seq fault_before = known ? before->second.fault_seq : Seq{};
  core::Event event;
  event.seq = Seq{state_.last_seq.value + 1};
  event.now_ms = std::max(now_ms, state_.now_ms);
  event.wall_ms = event.now_ms;
  event.body = std::move(body);
  const bool is_tick = std::holds_alternative<core::Tick>(event.body);
  const core::StepResult result = core::step(state_, event);
  if (result.submitted) job_id_ = *result.submitted;
  if (!known && !result.submitted) {
    outlet_.say("the step cannot be supervised: " + result.refusal);
    release(result.refusal);
    return;
  }
  const bool failed = job().state != state_before && job().state == core::JobState::kFailed;
  if (is_tick && job().fault_seq != fault_before) reported_ = {late_text(), 1};
  if (failed || job().fault_seq != fault_before) decisive_ = reported_;
  if (failed) tell_end();
  if (!core::has_ended(state_before) && core::has_ended(job().state)) tell_goodput();
  for (const core::Action& action : result.actions) perform(action);
  core::Job watched = job();  // its limit for hangs is not the one for the last tasks: begin()
  watched.spec.recovery.hang_timeout_ms = settings_.hang_timeout_ms;
  progress_.observe(watched, now_ms);
}

// The only fault that time alone brings about.
std::string StepController::late_text() const {
  const core::Fault& fault = job().recent_faults.back();
  const std::string who = fault.rank < 0 ? "several tasks have" : task_name(fault.rank) + " has";
  return who + " not ended " + duration_text(settings_.hang_timeout_ms) +
         " after the last of the others exited with code 0 (HPCTL_HANG_TIMEOUT)";
}

// Not before the former generation's tasks have stopped: a cause may be reported after its
// consequence.
void StepController::tell_restart() {
  told_restarts_ = job().restarts;
  const std::string who = tasks_.size() == 1
                              ? "; it starts again"
                              : "; all " + std::to_string(tasks_.size()) + " tasks start again";
  outlet_.say(decisive_.text + who + " (restart " + std::to_string(told_restarts_) +
              " of at most " + std::to_string(settings_.max_restarts) + ")" +
              (told_restarts_ == 1 && settings_.has_input ? kNoReplay : ""));
  tell_stacks();
}

void StepController::tell_end() {
  const core::Job& now = job();
  if (decisive_.exit_code == kExitDoNotRestart) {
    outlet_.say(decisive_.text + ", which says that a restart cannot help");
  } else if (now.restarts_without_progress > core::kMaxRestartsWithoutProgress) {
    outlet_.say(decisive_.text + "; giving up: " + std::to_string(now.restarts_without_progress) +
                " times in a row the program did not " +
                (core::shows_steps(now) ? "get past step " + std::to_string(now.furthest_step)
                                        : std::string("last a minute")));
  } else if (static_cast<int64_t>(now.restart_times_ms.size()) >= settings_.max_restarts) {
    outlet_.say(decisive_.text + "; giving up: all " + std::to_string(settings_.max_restarts) +
                " restarts within an hour are spent (HPCTL_MAX_RESTARTS)");
  } else {
    outlet_.say(decisive_.text + "; the step cannot go on");
  }
}

// A step that was never restarted has nothing to report; and without known steps the loss is
// unknown.
void StepController::tell_goodput() {
  const core::Job& now = job();
  if (now.restarts == 0 || !core::shows_steps(now)) return;
  const TimeAccount account =
      account_of(core::time_spent(now, state_.now_ms), now.ended_wall_ms - now.submitted_wall_ms,
                 /*tells_steps=*/true);
  if (account.since_first_step_ms() <= 0) return;
  const auto percent = static_cast<double>(account.training_ms) * 100 /
                       static_cast<double>(account.since_first_step_ms());
  std::array<char, 16> goodput{};
  std::snprintf(goodput.data(), goodput.size(), "%.2f", percent);
  outlet_.say("step " + std::to_string(now.furthest_step) + "; " + std::to_string(now.restarts) +
              (now.restarts == 1 ? " restart" : " restarts") + " cost " +
              std::to_string((account.spent.lost_ms() + 500) / 1000) + " s; goodput " +
              goodput.data() + " % of " +
              std::to_string((account.since_first_step_ms() + 500) / 1000) +
              " s since the first step");
}

void StepController::perform(const core::Action& action) {
  if (const auto* launch_order = std::get_if<core::LaunchNode>(&action.body)) {
    launch(action, launch_order->node);
  } else if (std::holds_alternative<core::FindCheckpoint>(action.body)) {
    queue_.emplace_back(core::CheckpointChosen{action.id, job_id_, "", 0, job().generation});
  } else if (const auto* record = std::get_if<core::RecordGeneration>(&action.body)) {
    queue_.emplace_back(core::GenerationRecorded{action.id, job_id_, record->generation});
  } else if (const auto* start_order = std::get_if<core::StartWorkers>(&action.body)) {
    start(action, *start_order);
  } else if (const auto* stop_order = std::get_if<core::StopWorkers>(&action.body)) {
    stop(action, *stop_order);
  } else if (const auto* end = std::get_if<core::EndNode>(&action.body)) {
    const int32_t code = job().state == core::JobState::kFinished ? 0 : decisive_.exit_code;
    outlet_.send(task_of(end->node), Finish{code, static_cast<uint8_t>(end->stacks ? 1 : 0)});
  }
}

void StepController::launch(const core::Action& action, const std::string& node) {
  Task& task = tasks_.at(task_of(node));
  if (task.launched || !task.connected) {
    queue_.emplace_back(core::ActionFailed{action.id, job_id_, node,
                                           "Slurm starts the tasks of a step only once", true});
    return;
  }
  task.launched = true;
  queue_.emplace_back(core::NodeLaunched{action.id, job_id_, node, task.hello.pid});
  queue_.emplace_back(core::AgentRegistered{job_id_,
                                            node,
                                            task.hello.node,
                                            life(task.hello),
                                            task.hello.pid,
                                            task.hello.pid,
                                            Generation{},
                                            {}});
}

void StepController::start(const core::Action& action, const core::StartWorkers& order) {
  if (job().restarts > told_restarts_) tell_restart();
  const int32_t task = order.ranks.front().value;
  const Task& first = tasks_.at(0);
  tasks_.at(task).start = action.id;
  told_steps_.erase(task);
  outlet_.send(task, Start{order.generation.value, job().restarts, settings_.max_restarts,
                           settings_.run_id, first.hello.address, first.free_port});
}

void StepController::stop(const core::Action& action, const core::StopWorkers& order) {
  const int32_t task = task_of(order.node);
  tasks_.at(task).stop = action.id;
  outlet_.send(task,
               Stop{order.generation.value, kStopGraceMs, order.stacks ? uint8_t{1} : uint8_t{0}});
}

}  // namespace hpctl::step
