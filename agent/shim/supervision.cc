// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/supervision.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "agent/holder/worker_mark.h"
#include "agent/shim/controller_connection.h"
#include "agent/shim/launcher_environment.h"
#include "common/base/file.h"
#include "common/process/process_stat.h"

namespace hpctl::shim {
namespace {

constexpr int64_t kFinishGraceMs = 1'000;
constexpr int64_t kSweepTimeoutMs = 3'000;
constexpr int64_t kSweepAgainMs = 100;
// The controller of a step hears so often of a task that tells its steps; of very many tasks
// less often, so that it hears of no more than two a millisecond.
constexpr int64_t kProgressMs = 500;
constexpr int64_t kLongestProgressMs = 2'000;  // below its kAllSilentMs
constexpr int64_t kTasksPerMs = 2;

bool from_slurm(const signalfd_siginfo& info) {
  return static_cast<pid_t>(info.ssi_pid) == ::getppid();
}
bool from_terminal(const signalfd_siginfo& info) { return info.ssi_code == SI_KERNEL; }

bool ends_step(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT || signal == SIGHUP;
}

// A signal of Slurm's may have been the cause.
bool may_be_slurms(const step::Exited& exited) {
  return exited.signal != 0 ? ends_step(exited.signal) : exited.exit_code != 0;
}

// An interactive program may have taken the terminal for a process group that has gone.
void retake_terminal() {
  if (::isatty(STDIN_FILENO) == 1) ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
}

std::vector<std::string> arguments_of(char** argv) {
  std::vector<std::string> arguments;
  for (char** argument = argv + 1; *argument != nullptr; ++argument)
    arguments.emplace_back(*argument);
  return arguments;
}

}  // namespace

Supervision::Supervision(TaskSettings settings, ProgramPlan plan, FrameStream controller,
                         UniqueFd signals)
    : settings_(std::move(settings)),
      plan_(std::move(plan)),
      controller_(std::move(controller)),
      signals_(std::move(signals)),
      standby_(settings_, plan_, [this](const std::string& line) { say(line); }) {}

void Supervision::run() {
  for (;;) {
    read_controller();
    wait();
    read_signals();
    kill_overdue();
    report_overdue_exit();
    report_progress();
    standby_.look(clock_.monotonic_ms());
    if (has_unconfirmed_stop()) confirm_stop();
  }
}

void Supervision::wait() {
  int64_t timeout = -1;
  const int64_t report_at_ms = unreported_ ? report_at_ms_ : 0;
  const int64_t progress_at_ms = progress_ ? progress_at_ms_ : 0;
  const int64_t stacks_at_ms = stacks_ ? stacks_->deadline_ms() : 0;
  const int64_t standby_at_ms = standby_.due_ms() == INT64_MAX ? 0 : standby_.due_ms();
  for (const int64_t due_ms :
       {kill_at_ms_, report_at_ms, progress_at_ms, stacks_at_ms, standby_at_ms}) {
    if (due_ms == 0) continue;
    const int64_t left = std::max<int64_t>(0, due_ms - clock_.monotonic_ms());
    timeout = timeout < 0 ? left : std::min(timeout, left);
  }
  if (has_unconfirmed_stop()) timeout = kSweepAgainMs;
  pollfd waits[5] = {{signals_.get(), POLLIN, 0},
                     {-1, POLLIN, 0},
                     {-1, POLLIN, 0},
                     {standby_.control_fd(), POLLIN, 0},
                     {standby_.output_fd(), POLLIN, 0}};
  if (controller_) {
    waits[1].fd = controller_->fd();
    if (controller_->has_unsent()) waits[1].events = POLLIN | POLLOUT;
  }
  if (stacks_) waits[2].fd = stacks_->fd();
  ::poll(waits, 5, static_cast<int>(timeout));
  if (stacks_ && (waits[2].revents != 0 || stacks_->is_over(clock_.monotonic_ms()))) {
    finish_stacks();
  }
  if (waits[3].revents != 0 || waits[4].revents != 0) standby_.read(clock_.monotonic_ms());
}

// ---- the controller's orders --------------------------------------------------------------------

void Supervision::read_controller() {
  while (controller_) {
    if (!controller_->flush().ok()) return lose_controller();
    auto packet = controller_->receive();
    if (!packet.ok()) return lose_controller();
    if (!packet->has_value()) return;
    const auto order = step::decode_to_shim(**packet);
    if (!order.ok()) return lose_controller();
    std::visit([this](const auto& message) { on(message); }, *order);
  }
}

void Supervision::lose_controller() {
  controller_.reset();
  if (!released_) say("the step's controller is gone; no restarts from here on");
  release();
}

void Supervision::report(const step::ToController& message) {
  if (controller_ && !controller_->send(step::encode(message)).ok()) lose_controller();
}

void Supervision::on(const step::Start& order) {
  if (released_ || pid_ > 0) return;
  generation_ = order.generation;
  ++incarnation_;
  run_id_ = order.run_id;
  status_.reset();
  by_request_ = was_dying_ = false;
  ProgramPlan plan = plan_;
  if (!brings_launcher(plan.program, arguments_of(plan.argv))) {
    plan.defaults = launcher_environment(settings_, order);
  }
  plan.variables = {{kWorkerMarkName, mark()},
                    {"HPCTL_GENERATION", std::to_string(order.generation)}};
  begin_progress(plan);
  if (order.restart_count > 0) retake_terminal();
  StartFailure failure;
  const auto started = begin_program(plan, failure);
  if (started.ok()) {
    pid_ = *started;
    standby_.begin_generation(boot_id(), clock_.monotonic_ms());
    report(step::Started{generation_, static_cast<uint64_t>(pid_)});
    return;
  }
  const std::string text = exec_message(plan.program, failure.error);
  [[maybe_unused]] const auto written = write_all(STDERR_FILENO, text, "stderr");
  status_ = W_EXITCODE(failure.error, 0);
  progress_.reset();
  report(step::StartFailed{generation_, started.error().message});
}

Result<pid_t> Supervision::begin_program(const ProgramPlan& plan, StartFailure& failure) {
  standby_mark_.clear();
  auto taken = standby_.take_part(plan, generation_);
  if (!taken) return start_program(plan, failure);
  standby_mark_ = std::move(taken->mark);
  return taken->pid;
}

void Supervision::on(const step::Stop& order) {
  reap();  // what had ended by itself is told: it may be the cause of what this order is about
  standby_.end_generation(clock_.monotonic_ms());
  stopping_ = order.generation;
  unreported_.reset();  // the generation ends anyway
  if (pid_ > 0) {
    was_dying_ = is_exiting(pid_);
    if (order.stacks == 0 || !start_stacks(order.grace_ms)) end_program(order.grace_ms);
  } else {
    confirm_stop();
  }
}

void Supervision::on(const step::Finish& order) {
  finish_code_ = order.exit_code;
  standby_.end();
  if (pid_ <= 0) finish();
  if (order.stacks == 0 || !start_stacks(kFinishGraceMs)) end_program(kFinishGraceMs);
}

void Supervision::on(const step::Release& order) {
  if (!released_) say("no restarts from here on: " + order.reason);
  release();
}

// Processes that do not die at once are checked again, up to the controller's own deadline.
void Supervision::confirm_stop() {
  if (!sweep()) return;
  const uint64_t generation = *std::exchange(stopping_, std::nullopt);
  const uint16_t port = settings_.rank == 0 ? find_free_port() : 0;
  report(step::Stopped{generation, port, std::exchange(told_stacks_, "")});
}

void Supervision::finish() {
  if (status_ && !by_request_) end_like(*status_);
  ::_exit(*finish_code_);
}

// As without the plugin from here on.
void Supervision::release() {
  if (std::exchange(released_, true)) return;
  standby_.end();
  if (pid_ > 0) return;
  if (status_) end_like(*status_);
  const int error = become_program(plan_);
  const std::string text = exec_message(plan_.program, error);
  [[maybe_unused]] const auto written = write_all(STDERR_FILENO, text, "stderr");
  ::_exit(error);
}

// ---- the program --------------------------------------------------------------------------------

std::string Supervision::boot_id() const { return run_id_ + "-" + std::to_string(::getpid()); }

std::string Supervision::mark() const { return worker_mark(boot_id(), incarnation_); }

bool Supervision::sweep() const {
  const bool is_gone = kill_marked(mark(), kSweepTimeoutMs);
  return (standby_mark_.empty() || kill_marked(standby_mark_, kSweepTimeoutMs)) && is_gone;
}

bool Supervision::start_stacks(int64_t grace_ms) {
  if (settings_.stacks.empty() || stacks_) return stacks_.has_value();
  std::error_code error;
  const std::string directory =
      (std::filesystem::current_path(error) / ("hpctl-stacks-" + run_id_)).string();
  auto stacks = TaskStacks::start(settings_.stacks, directory, generation_, settings_.rank, pid_,
                                  clock_.monotonic_ms() + settings_.stacks_limit_ms);
  if (!stacks.ok()) {
    say("no stacks are written: " + stacks.error().message);
    return false;
  }
  stacks_.emplace(std::move(stacks).value());
  grace_ms_ = grace_ms;
  return true;
}

void Supervision::finish_stacks() {
  told_stacks_ = stacks_->finish();
  stacks_.reset();
  if (pid_ > 0) end_program(grace_ms_);
}

void Supervision::end_program(int64_t grace_ms) {
  by_request_ = true;
  if (kill_at_ms_ == 0) kill_at_ms_ = clock_.monotonic_ms() + grace_ms;
  ::kill(pid_, SIGTERM);
  ::kill(pid_, SIGCONT);
}

void Supervision::kill_overdue() {
  if (kill_at_ms_ == 0 || clock_.monotonic_ms() < kill_at_ms_) return;
  kill_at_ms_ = 0;
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void Supervision::reap() {
  int status = 0;
  if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) program_ended(status);
  standby_.reap(clock_.monotonic_ms());
}

void Supervision::program_ended(int status) {
  end_progress();  // what it told last comes before its end
  const auto pid = static_cast<uint64_t>(std::exchange(pid_, -1));
  status_ = status;
  kill_at_ms_ = 0;
  if (finish_code_) {
    sweep();
    if (stacks_) finish_stacks();  // it ended meanwhile
    if (!told_stacks_.empty()) report(step::Stopped{generation_, 0, told_stacks_});
    finish();
  }
  if (released_) end_like(status);
  step::Exited exited{generation_, pid, 0, 0};
  (WIFSIGNALED(status) ? exited.signal : exited.exit_code) =
      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  if (stopping_) {
    if (was_dying_) report(exited);
    if (has_unconfirmed_stop()) confirm_stop();
    return;
  }
  unreported_ = exited;
  report_at_ms_ = clock_.monotonic_ms();
  if (settings_.signals_all != 0 && may_be_slurms(exited)) {
    report_at_ms_ += settings_.own_signal_ms;
  }
  report_overdue_exit();
}

// Slurm's own signal, should it come first, ends the task instead.
void Supervision::report_overdue_exit() {
  if (!unreported_ || clock_.monotonic_ms() < report_at_ms_) return;
  report(*std::exchange(unreported_, std::nullopt));
}

// ---- its progress -------------------------------------------------------------------------------

// Without it the task runs all the same; only hangs are not found.
void Supervision::begin_progress(ProgramPlan& plan) {
  auto progress = TaskProgress::begin(generation_, settings_.rank);
  if (!progress.ok()) {
    if (generation_ == 1) say("HPCTL_PROGRESS_FILE is not set: " + progress.error().message);
    return;
  }
  progress_.emplace(std::move(progress).value());
  plan.variables.emplace_back("HPCTL_PROGRESS_FILE", progress_->path());
  progress_at_ms_ = clock_.monotonic_ms() + kProgressMs;
}

void Supervision::report_progress() {
  if (!progress_ || clock_.monotonic_ms() < progress_at_ms_) return;
  progress_at_ms_ = clock_.monotonic_ms() + std::clamp<int64_t>(settings_.tasks / kTasksPerMs,
                                                                kProgressMs, kLongestProgressMs);
  if (const auto told = progress_->look(pid_)) {
    report(*told);
    standby_.told_step(clock_.monotonic_ms());
  }
  if (!progress_->take_damage()) return;
  say("HPCTL_PROGRESS_FILE of task " + std::to_string(settings_.rank) +
      " does not end with a line STEP [TOKENS], which is left out");
}

void Supervision::end_progress() {
  progress_at_ms_ = 0;
  report_progress();
  progress_.reset();
}

// ---- signals ------------------------------------------------------------------------------------

void Supervision::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) on_signal(info);
}

void Supervision::on_signal(const signalfd_siginfo& info) {
  const auto signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGCHLD) return reap();
  if (pid_ > 0 && !has_reached_program(info)) ::kill(pid_, signal);
  if (!ends_step(signal) || released_) return;
  if (!from_slurm(info) && !from_terminal(info)) return;
  report(step::Ending{signal});
  if (pid_ <= 0 && !status_) end_like(signal);  // nothing was started yet
  release();
}

bool Supervision::has_reached_program(const signalfd_siginfo& info) const {
  if (from_slurm(info)) return settings_.signals_all != 0;
  if (from_terminal(info)) return true;
  return ::getpgid(static_cast<pid_t>(info.ssi_pid)) == ::getpgrp();  // `kill 0` of the program
}

void Supervision::say(const std::string& line) const {
  if (!settings_.is_speaker()) return;
  const std::string text = "hpctl: " + settings_.node + ": " + line + "\n";
  [[maybe_unused]] const auto written = write_all(STDERR_FILENO, text, "stderr");
}

}  // namespace hpctl::shim
