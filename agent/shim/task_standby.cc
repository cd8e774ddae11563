// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/task_standby.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "agent/holder/python_standby_order.h"
#include "agent/holder/worker_mark.h"
#include "common/base/clock.h"
#include "common/process/memory_file.h"
#include "common/worker/worker_control.h"

namespace hpctl::shim {
namespace {

constexpr size_t kPrintedBytes = 4096;
constexpr int64_t kDiscardTimeoutMs = 1'000;

std::vector<std::string> words_of_command(const ProgramPlan& plan) {
  std::vector<std::string> words = {plan.program};
  for (char** word = plan.argv + 1; *word != nullptr; ++word) words.emplace_back(*word);
  return words;
}

// The signals that Slurm, a terminal or `kill 0` sends to every process of a task, for the program.
// Signals that Slurm ignores stay ignored.
std::vector<int> signals_to_ignore() {
  std::vector<int> signals;
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2}) {
    struct sigaction found {};
    if (::sigaction(signal, nullptr, &found) == 0 && found.sa_handler == SIG_DFL) {
      signals.push_back(signal);
    }
  }
  return signals;
}

bool are_modules(const std::string& modules) {
  size_t count = 0;
  for (size_t begin = 0; begin <= modules.size(); ++count) {
    const size_t end = std::min(modules.find(',', begin), modules.size());
    if (!is_module_name(modules.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return count <= kMostStandbyImports;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
}

// Besides what it was started with.
std::vector<std::string> changes_for(const ProgramPlan& plan) {
  std::vector<std::string> changes;
  for (const auto& [name, value] : plan.defaults) {
    if (std::getenv(name.c_str()) == nullptr) changes.push_back(name + "=" + value);
  }
  for (const auto& [name, value] : plan.variables) changes.push_back(name + "=" + value);
  return changes;
}

}  // namespace

TaskStandby::TaskStandby(const TaskSettings& settings, const ProgramPlan& plan, Say say)
    : times_(settings.standby_times),
      ping_times_(settings.ping_times),
      signals_(plan.signals),
      command_(words_of_command(plan)),
      say_(std::move(say)),
      ignored_(signals_to_ignore()),
      modules_(settings.standby_imports) {
  if (modules_.empty()) return;
  const std::string none = "no standby: " + std::string(kStandbyImportsName) + "=" + modules_;
  if (!are_modules(modules_)) {
    say_(none + " is not a list of at most " + std::to_string(kMostStandbyImports) +
         " modules with commas between, such as torch,numpy");
    return;
  }
  python_ = python_command_in(".", command_);
  if (!python_) {
    say_(none + " is for a program that is started with python, as in srun python train.py, or " +
         "that names it in its first line; " + command_.front() + " does not");
  }
}

// ---- when ---------------------------------------------------------------------------------------

void TaskStandby::begin_generation(const std::string& boot_id, int64_t now_ms) {
  boot_id_ = boot_id;
  replaced_ = 0;
  is_running_ = true;
  has_told_ = false;
  start_at_ms_ = now_ms + times_.without_steps_ms;
}

void TaskStandby::told_step(int64_t now_ms) {
  if (!is_running_ || std::exchange(has_told_, true)) return;
  start_at_ms_ = std::min(start_at_ms_, now_ms);
}

void TaskStandby::end_generation(int64_t now_ms) {
  start_at_ms_ = INT64_MAX;
  is_running_ = false;
  if (waiting_ && waiting_->is_ready && waiting_->asked == 0) ask(now_ms);
}

int64_t TaskStandby::due_ms() const {
  if (!python_) return INT64_MAX;
  if (!waiting_) return start_at_ms_;
  return waiting_->is_ready ? waiting_->ask_at_ms : INT64_MAX;
}

void TaskStandby::look(int64_t now_ms) {
  if (now_ms < due_ms()) return;
  if (!waiting_) return start_or_say(now_ms);
  if (waiting_->asked == 0) return ask(now_ms);
  lost("did not answer for " + std::to_string(ping_times_.limit_ms) + " ms", now_ms);
}

void TaskStandby::ask(int64_t now_ms) {
  waiting_->asked = ++last_question_;
  waiting_->ask_at_ms = now_ms + ping_times_.limit_ms;
  // One that is gone is reaped, and one that does not read is late with its answer.
  [[maybe_unused]] const Outcome asked =
      waiting_->control.send_or_queue(control::encode(control::Ping{last_question_}));
}

// ---- the process --------------------------------------------------------------------------------

void TaskStandby::start_or_say(int64_t now_ms) {
  start_at_ms_ = INT64_MAX;
  auto started = start();
  if (started.ok()) {
    waiting_.emplace(std::move(started).value());
    return;
  }
  lost("cannot be started: " + started.error().message, now_ms);
}

Result<TaskStandby::Waiting> TaskStandby::start() {
  HP_TRY_ASSIGN(const UniqueFd text, make_memory_file("standby", python_standby_text()));
  HP_TRY_ASSIGN(auto control, PacketSocket::make_pair());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot create a pipe");
  UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  if (::fcntl(read_end.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error("cannot set up a pipe");

  std::vector<std::string> words = python_standby_command(
      *python_, modules_, {text.get(), control.second.get(), write_end.get()});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string mark = worker_mark(boot_id_ + "-standby" + std::to_string(++started_), 0);
  ProgramPlan plan;
  plan.program = words.front();
  plan.argv = argv.data();
  plan.variables = {{kWorkerMarkName, mark}};
  plan.signals = signals_;
  plan.ignored = ignored_;
  plan.descriptors = {text.get(), control.second.get(), write_end.get()};
  StartFailure failure;
  HP_TRY_ASSIGN(const pid_t pid, start_program(plan, failure));
  printed_.clear();
  return Waiting{pid, PacketSocket(std::move(control.first)), std::move(read_end), mark};
}

void TaskStandby::read(int64_t now_ms) {
  if (waiting_) read_output();
  if (waiting_) read_control(now_ms);
}

void TaskStandby::read_control(int64_t now_ms) {
  for (;;) {
    const auto packet = waiting_->control.receive();
    if (packet.ok() && !packet->has_value()) return;
    const auto message = packet.ok() ? control::decode_from_worker((*packet)->bytes)
                                     : Result<control::FromWorker>(packet.error());
    if (!message.ok()) {
      // It has ended, or is of no use; its output is logged with its end.
      ::kill(waiting_->pid, SIGKILL);
      ::waitpid(waiting_->pid, nullptr, 0);
      read_output();
      return lost("has ended", now_ms);
    }
    const auto* pong = std::get_if<control::Pong>(&*message);
    if (pong != nullptr && pong->number == waiting_->asked) waiting_->asked = 0;
    if (std::holds_alternative<control::Ready>(*message)) waiting_->is_ready = true;
    if (waiting_->asked == 0) waiting_->ask_at_ms = now_ms + ping_times_.every_ms;
  }
}

// Only the end is kept. Later output is read the next time.
void TaskStandby::read_output() {
  std::array<char, kPrintedBytes> buffer{};
  const ssize_t n = ::read(waiting_->output.get(), buffer.data(), buffer.size());
  if (n == 0) waiting_->output.reset();
  if (n <= 0) return;
  printed_.append(buffer.data(), static_cast<size_t>(n));
  if (printed_.size() > kPrintedBytes) printed_.erase(0, printed_.size() - kPrintedBytes);
}

void TaskStandby::reap(int64_t now_ms) {
  if (!waiting_ || ::waitpid(waiting_->pid, nullptr, WNOHANG) != waiting_->pid) return;
  read_output();
  lost("has ended", now_ms);
}

void TaskStandby::lost(const std::string& why, int64_t now_ms) {
  discard();
  const std::string line = last_line(printed_);
  say_once("the Python that stood by for a task " + why + (line.empty() ? "" : " (" + line + ")") +
           "; " + std::to_string(times_.most_replaced) +
           " times in a generation it is replaced; without one the program starts as ever");
  if (!is_running_ || replaced_ == times_.most_replaced) return;
  ++replaced_;
  start_at_ms_ = now_ms + times_.replace_after_ms;
}

void TaskStandby::discard() {
  if (!waiting_) return;
  ::kill(waiting_->pid, SIGKILL);
  ::waitpid(waiting_->pid, nullptr, 0);
  kill_marked(waiting_->mark, kDiscardTimeoutMs);
  waiting_.reset();
}

void TaskStandby::end() {
  python_.reset();
  discard();
}

void TaskStandby::say_once(const std::string& line) {
  if (!std::exchange(has_said_, true)) say_(line);
}

// ---- its part -----------------------------------------------------------------------------------

std::optional<TaskStandby::Taken> TaskStandby::take_part(const ProgramPlan& plan,
                                                         uint64_t generation) {
  if (!waiting_) return std::nullopt;
  if (!answers()) {
    discard();
    return std::nullopt;
  }
  if (const Outcome told = tell_part(plan, generation); !told.ok()) {
    discard();
    say_once("a Python that stood by cannot take part: " + told.error().message +
             "; the program starts as ever");
    return std::nullopt;
  }
  Taken taken{waiting_->pid, waiting_->mark};
  waiting_.reset();
  return taken;
}

// The check was sent when the generation ended.
bool TaskStandby::answers() {
  if (!waiting_->is_ready) return false;
  const SystemClock clock;
  const int64_t until_ms = clock.monotonic_ms() + times_.answer_ms;
  for (int64_t now_ms = clock.monotonic_ms(); waiting_ && waiting_->asked != 0;
       now_ms = clock.monotonic_ms()) {
    if (now_ms >= until_ms) return false;
    pollfd readable{waiting_->control.fd(), POLLIN, 0};
    ::poll(&readable, 1, static_cast<int>(until_ms - now_ms));
    if (readable.revents != 0) read_control(now_ms);
  }
  return waiting_.has_value();
}

Outcome TaskStandby::tell_part(const ProgramPlan& plan, uint64_t generation) {
  PacketSocket& control = waiting_->control;
  for (const int place : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    HP_TRY(control.send_or_queue(control::encode(control::Take{place}), place));
  }
  HP_TRY_ASSIGN(
      const UniqueFd part,
      make_memory_file("part", python_standby_document({command_, changes_for(plan), ignored_})));
  HP_TRY(control.send_or_queue(control::encode(control::Join{generation}), part.get()));
  if (!control.has_queued()) return Ok{};
  return Error{ErrorCode::kUnavailable, "it does not read its control socket"};
}

}  // namespace hpctl::shim
