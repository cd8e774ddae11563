// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/task_settings.h"

#include <cstdio>
#include <cstdlib>

namespace hpctl::shim {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Error missing(const char* name) {
  return Error{ErrorCode::kFailedPrecondition,
               std::string(name) + " is missing or damaged in the task's environment"};
}

}  // namespace

Outcome read_task_settings(TaskSettings& settings) {
  settings.program = variable(step::kProgramName);
  if (settings.program.empty()) return Error{ErrorCode::kNotFound, "no program"};
  settings.stacks = variable(step::kStacksName);
  settings.standby_imports = variable(kStandbyImportsName);
  settings.node = variable("SLURMD_NODENAME");
  const std::string task = variable(step::kTaskName);
  if (std::sscanf(task.c_str(), "%d %d %d %d %d %d %d", &settings.rank, &settings.tasks,
                  &settings.local_rank, &settings.local_tasks, &settings.node_rank, &settings.nodes,
                  &settings.signals_all) != 7) {
    return missing(step::kTaskName);
  }
  settings.token = variable(step::kTokenName);
  if (settings.token.empty()) return missing(step::kTokenName);
  settings.host = variable("SLURM_LAUNCH_NODE_IPADDR");
  if (settings.host.empty()) return missing("SLURM_LAUNCH_NODE_IPADDR");
  const long port = std::strtol(variable(step::kPortName).c_str(), nullptr, 10);
  if (port <= 0 || port > UINT16_MAX) return missing(step::kPortName);
  settings.port = static_cast<uint16_t>(port);
  return Ok{};
}

void hide_step_environment() {
  for (const char* name : {step::kPortName, step::kTokenName, step::kTaskName, step::kProgramName,
                           step::kStacksName}) {
    ::unsetenv(name);
  }
}

}  // namespace hpctl::shim
