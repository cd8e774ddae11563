// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/launcher_environment.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hpctl::shim {
namespace {

constexpr std::array<std::string_view, 8> kLaunchers = {"torchrun",  "torchpippy", "accelerate",
                                                        "deepspeed", "mpirun",     "mpiexec",
                                                        "orterun",   "horovodrun"};
constexpr std::array<std::string_view, 4> kLauncherModules = {
    "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
    "deepspeed.launcher.runner"};

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

template <typename Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool brings_launcher(const std::string& program, const std::vector<std::string>& arguments) {
  if (is_among(kLaunchers, base_name(program))) return true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_among(kLaunchers, base_name(arguments[i])) && i == 0) return true;  // python …/torchrun
    if (arguments[i] == "-m") {
      return i + 1 < arguments.size() && is_among(kLauncherModules, arguments[i + 1]);
    }
    if (!arguments[i].starts_with("-")) return false;  // the script: what follows is its own
  }
  return false;
}

Variables launcher_environment(const TaskSettings& settings, const step::Start& start) {
  Variables variables = {{"RANK", std::to_string(settings.rank)},
                         {"LOCAL_RANK", std::to_string(settings.local_rank)},
                         {"WORLD_SIZE", std::to_string(settings.tasks)},
                         {"LOCAL_WORLD_SIZE", std::to_string(settings.local_tasks)},
                         {"GROUP_RANK", std::to_string(settings.node_rank)},
                         {"GROUP_WORLD_SIZE", std::to_string(settings.nodes)},
                         {"ROLE_RANK", std::to_string(settings.rank)},
                         {"ROLE_WORLD_SIZE", std::to_string(settings.tasks)},
                         {"ROLE_NAME", "default"},
                         {"TORCHELASTIC_RESTART_COUNT", std::to_string(start.restart_count)},
                         {"TORCHELASTIC_MAX_RESTARTS", std::to_string(start.max_restarts)},
                         {"TORCHELASTIC_RUN_ID", start.run_id}};
  if (start.master_port != 0) {
    variables.emplace_back("MASTER_ADDR", start.master_address);
    variables.emplace_back("MASTER_PORT", std::to_string(start.master_port));
  }
  return variables;
}

}  // namespace hpctl::shim
