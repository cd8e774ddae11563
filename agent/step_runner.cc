// SPDX-License-Identifier: Apache-2.0
#include "agent/step_runner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <utility>

#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/job/duration_text.h"

namespace hpctl::agent {
namespace {

constexpr size_t kLastLineBytes = 512;

// "" when it exited with 0.
std::string verdict_of(const siginfo_t& status) {
  if (status.si_code == CLD_EXITED) {
    return status.si_status == 0 ? "" : "exit code " + std::to_string(status.si_status);
  }
  return "signal " + std::to_string(status.si_status);
}

}  // namespace

void StepRunner::start(std::vector<Step> steps, const StepPlace& place, bool go_on_after_failure,
                       Finished finished) {
  steps_ = std::move(steps);
  place_ = place;
  current_ = 0;
  go_on_after_failure_ = go_on_after_failure;
  failures_.clear();
  finished_ = std::move(finished);
  log_ = std::make_unique<RankLog>(logs_, place_.log_path);
  start_next();
}

void StepRunner::start_next() {
  const bool has_failed = !failures_.empty() && !go_on_after_failure_;
  if (current_ == steps_.size() || has_failed) return end();
  const Step& step = steps_[current_];
  log_->line("---- " + format_wall_ms(clock_.wall_ms()) + " " + step.name + " ----");
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto out = log_->make_pipe();
  if (!null.valid() || !out.ok()) return fail("cannot set up its descriptors");
  SpawnPlan plan;
  plan.argv = step.argv;
  plan.env = environment_with(place_.env);
  plan.directory = place_.directory;
  plan.descriptors = {null.get(), out->get(), out->get()};
  plan.program = step.argv.front();
  auto spawned = start_process(plan);
  if (!spawned.ok()) return fail(spawned.error().message);
  process_ = std::move(spawned).value();
  timed_out_ = false;
  deadline_ms_ = clock_.monotonic_ms() + step.timeout_ms;
  loop_.add(log_->read_end(), EPOLLIN, [this](uint32_t) {
    if (log_->drain()) return;
    loop_.remove(log_->read_end());
    log_->close_pipe();
  });
  loop_.add(process_->pidfd.get(), EPOLLIN, [this](uint32_t) { on_exit(); });
}

void StepRunner::on_exit() {
  siginfo_t status{};
  if (::waitid(P_PIDFD, static_cast<id_t>(process_->pidfd.get()), &status,
               WEXITED | WNOWAIT | WNOHANG) != 0 ||
      status.si_pid == 0) {
    return;
  }
  log_->drain();
  const std::optional<Outcome> executed = process_->exec_outcome();
  const std::string verdict = executed && !executed->ok() ? executed->error().message
                              : timed_out_
                                  ? "no end within " + duration_text(steps_[current_].timeout_ms)
                                  : verdict_of(status);
  const std::string last =
      printable_line(verdict.empty() ? log_->last_line() : log_->last_words(), kLastLineBytes);
  const int exit_code = status.si_code == CLD_EXITED && !timed_out_ ? status.si_status : -1;
  forget_process();
  if (!verdict.empty()) return fail(verdict + (last.empty() ? "" : ": " + last), exit_code);
  log_info(steps_[current_].name + " is done" + (last.empty() ? "" : ": " + last));
  ++current_;
  start_next();
}

void StepRunner::fail(const std::string& reason, int exit_code) {
  failures_.push_back({steps_[current_].name + ": " + reason, current_, exit_code});
  ++current_;
  start_next();
}

void StepRunner::on_time(int64_t now_ms) {
  if (!process_ || now_ms < deadline_ms_) return;
  timed_out_ = true;
  deadline_ms_ = INT64_MAX;
  ::kill(-process_->pid, SIGKILL);  // its exit is seen by the loop
}

void StepRunner::forget_process() {
  if (!process_) return;
  ::kill(-process_->pid, SIGKILL);  // the group: also what it left behind
  if (log_->read_end() >= 0) {
    loop_.remove(log_->read_end());
    log_->close_pipe();
  }
  loop_.remove(process_->pidfd.get());
  ::waitpid(process_->pid, nullptr, 0);
  process_.reset();
}

void StepRunner::stop() {
  forget_process();
  finished_ = nullptr;
}

void StepRunner::end() {
  const Finished finished = std::exchange(finished_, nullptr);
  finished(failures_);
}

}  // namespace hpctl::agent
