// SPDX-License-Identifier: Apache-2.0
#include "agent/node_place.h"

#include <utility>

#include "agent/agent.h"
#include "agent/nodecheck/machine_environment.h"
#include "agent/nodecheck/probes/own_name.h"
#include "common/base/log.h"

namespace hpctl::agent {

NodePlace make_place(const AgentOptions& options) {
  MachineEnvironment machine = machine_environment(options.data_directory);
  // Virtual nodes share a machine, where any address does.
  const std::string interface = options.paths.is_one_job() ? meeting_interface() : "";
  if (!interface.empty()) {
    machine.variables.try_emplace("GLOO_SOCKET_IFNAME", interface);
    machine.story += (machine.story.empty() ? "" : "; ") +
                     std::string("/etc/hosts gives this host's name a loopback address");
  }
  if (!machine.story.empty()) {
    std::string told;
    for (const auto& [name, value] : machine.variables) told += " " + name + "=" + value;
    log_info("workers get, where the user set none," + (told.empty() ? " nothing" : told) + ": " +
             machine.story);
  }
  return {options.job.value,
          options.node,
          options.paths.job(options.job),
          options.program_directory,
          options.paths.socket_directory() + "/node-" + to_string(options.job) + "-" + options.node,
          std::move(machine.variables)};
}

}  // namespace hpctl::agent
