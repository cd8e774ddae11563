// SPDX-License-Identifier: Apache-2.0
#include "agent/node_preparation.h"

#include <unistd.h>

#include <utility>

#include "agent/nodecheck/probes/exit_codes.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/job_spec.h"

namespace hpctl::agent {
namespace {

Step shell_step(const std::string& name, const std::string& line, uint32_t timeout_ms) {
  return {name, {"/bin/sh", "-c", line}, timeout_ms};
}

}  // namespace

NodePreparation::NodePreparation(EventLoop& loop, LogWriter& logs, const NodePlace& place,
                                 std::string boot_id)
    : place_(place), boot_id_(std::move(boot_id)), runner_(loop, logs) {}

std::string NodePreparation::mark_path() const { return place_.local_directory + "/prepared"; }

Outcome NodePreparation::mark() const {
  HP_TRY(make_directories(place_.local_directory, 0700));
  return write_file_atomic(mark_path(), boot_id_);
}

bool NodePreparation::is_marked() const {
  const auto text = read_file(mark_path(), 256);
  return text.ok() && *text == boot_id_;
}

StepPlace NodePreparation::step_place(const std::map<std::string, std::string>& env) const {
  StepPlace place{place_.job_directory,
                  place_.job_directory + "/nodes/" + place_.node + "/hooks.log",
                  {"HPCTL_JOB_ID=" + std::to_string(place_.job), "HPCTL_NODE=" + place_.node}};
  for (const auto& [name, value] : env) place.env.push_back(name + "=" + value);
  return place;
}

bool NodePreparation::is_ready(const v1::StartWorkers& start, Ready ready) {
  const v1::Preparation& wanted = start.preparation();
  if (wanted.preflight().empty() && wanted.hooks().empty()) return true;
  const bool marked = is_marked();
  const bool again =
      wanted.suspect() && !wanted.preflight().empty() && checked_for_ < start.generation();
  if (!runner_.running() && marked && !again) return true;
  waiting_ = start;
  ready_ = std::move(ready);
  if (runner_.running()) return false;
  std::vector<Step> steps;
  checks_.assign(wanted.preflight().begin(), wanted.preflight().end());
  checked_for_ = start.generation();
  for (const std::string& check : wanted.preflight()) {
    steps.push_back({"preflight " + check,
                     {place_.program_directory + "/hpagent", "check", check},
                     kPreflightTimeoutMs});
  }
  for (int i = 0; i < wanted.hooks_size() && !marked; ++i) {
    steps.push_back(shell_step("hooks.pre " + std::to_string(i + 1), wanted.hooks(i),
                               wanted.hook_timeout_ms()));
  }
  runner_.start(std::move(steps), step_place({start.env().begin(), start.env().end()}), false,
                [this](const std::vector<StepFailure>& failures) { prepared(failures); });
  return false;
}

Unfitness NodePreparation::judge(const std::vector<StepFailure>& failures) const {
  if (failures.empty()) return {};
  const StepFailure& first = failures.front();
  const bool reboot = first.exit_code == kExitNeedsReboot;
  const bool is_verdict =
      first.step < checks_.size() && (reboot || first.exit_code == kExitUnhealthy);
  // The network between machines, and a file system that others serve, is not the machine's own.
  const bool hardware = is_verdict && checks_[first.step] != "net" && checks_[first.step] != "fs";
  return {first.text, hardware, hardware && reboot};
}

void NodePreparation::prepared(const std::vector<StepFailure>& failures) {
  Unfitness unfit = judge(failures);
  if (!unfit.reason.empty()) {
    checked_for_ = 0;
    ::unlink(mark_path().c_str());  // the next order tries anew
  } else if (const auto marked = mark(); !marked.ok()) {
    unfit.reason = marked.error().message;
  }
  if (!waiting_) return;
  const v1::StartWorkers start = *std::exchange(waiting_, std::nullopt);
  ready_(start, unfit);
}

std::optional<v1::StartWorkers> NodePreparation::withdraw(uint64_t through) {
  if (!waiting_ || waiting_->generation() > through) return std::nullopt;
  return std::exchange(waiting_, std::nullopt);
}

void NodePreparation::finish(const v1::EndNode& end, bool had_workers,
                             const std::function<void()>& done) {
  if (ending_ == Ending::kRuns) return;  // a repeated order; the answer comes when it is true
  if (ending_ == Ending::kDone) return done();
  runner_.stop();
  waiting_.reset();
  ending_ = Ending::kDone;
  if (end.hooks().empty() || (!had_workers && !is_marked())) return done();
  ending_ = Ending::kRuns;
  std::vector<Step> steps;
  for (int i = 0; i < end.hooks_size(); ++i) {
    steps.push_back(
        shell_step("hooks.post " + std::to_string(i + 1), end.hooks(i), end.hook_timeout_ms()));
  }
  runner_.start(std::move(steps), step_place({}), true,
                [this, done](const std::vector<StepFailure>& failures) {
                  ending_ = Ending::kDone;
                  for (const StepFailure& failure : failures) log_warning(failure.text);
                  done();
                });
}

}  // namespace hpctl::agent
