// SPDX-License-Identifier: Apache-2.0
#include "agent/node_preparation.h"

#include <utility>

#include "common/base/file.h"
#include "common/base/job_spec.h"
#include "common/base/log.h"

namespace hpctl::agent {
namespace {

Step shell_step(const std::string& name, const std::string& line, uint32_t timeout_ms) {
  return {name, {"/bin/sh", "-c", line}, timeout_ms};
}

}  // namespace

NodePreparation::NodePreparation(EventLoop& loop, const NodePlace& place, std::string boot_id)
    : place_(place), boot_id_(std::move(boot_id)), runner_(loop) {}

std::string NodePreparation::mark_path() const {
  return place_.job_directory + "/nodes/" + place_.node + "/prepared";
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
  if (!runner_.running() && is_marked()) return true;
  waiting_ = start;
  ready_ = std::move(ready);
  if (runner_.running()) return false;
  std::vector<Step> steps;
  for (const std::string& check : wanted.preflight()) {
    steps.push_back({"preflight " + check,
                     {place_.program_directory + "/hpagent", "check", check},
                     kPreflightTimeoutMs});
  }
  for (int i = 0; i < wanted.hooks_size(); ++i) {
    steps.push_back(shell_step("hooks.pre " + std::to_string(i + 1), wanted.hooks(i),
                               wanted.hook_timeout_ms()));
  }
  runner_.start(std::move(steps), step_place({start.env().begin(), start.env().end()}), false,
                [this](const std::vector<std::string>& failures) { prepared(failures); });
  return false;
}

void NodePreparation::prepared(const std::vector<std::string>& failures) {
  std::string failure = failures.empty() ? "" : failures.front();
  if (failure.empty()) {
    if (const auto marked = write_file_atomic(mark_path(), boot_id_); !marked.ok()) {
      failure = marked.error().message;
    }
  }
  if (!waiting_) return;
  const v1::StartWorkers start = *std::exchange(waiting_, std::nullopt);
  ready_(start, failure);
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
  if (end.hooks().empty() || !had_workers) return done();
  ending_ = Ending::kRuns;
  std::vector<Step> steps;
  for (int i = 0; i < end.hooks_size(); ++i) {
    steps.push_back(
        shell_step("hooks.post " + std::to_string(i + 1), end.hooks(i), end.hook_timeout_ms()));
  }
  runner_.start(std::move(steps), step_place({}), true,
                [this, done](const std::vector<std::string>& failures) {
                  ending_ = Ending::kDone;
                  for (const std::string& failure : failures) log_warning(failure);
                  done();
                });
}

}  // namespace hpctl::agent
