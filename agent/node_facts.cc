// SPDX-License-Identifier: Apache-2.0
#include "agent/node_facts.h"

#include <unistd.h>

#include "common/base/host.h"
#include "common/slurm/hyperpod.h"

namespace hpctl::agent {
NodeFacts read_node_facts(const std::string& node) {
  const MachineIdentity machine = identify_machine();
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  NodeFacts facts;
  // Virtual nodes share a machine: its name alone would make them one instance.
  facts.instance_id = machine.instance_id.empty() ? host_name() + "/" + node : machine.instance_id;
  facts.trouble = machine.trouble;
  facts.capabilities = {{"cpus", std::to_string(::sysconf(_SC_NPROCESSORS_ONLN))},
                        {"memory_bytes", std::to_string(pages * ::sysconf(_SC_PAGESIZE))},
                        {"hostname", host_name()}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.capabilities[name] = value;
  };
  add("instance_type", machine.type);
  add("instance_group", machine.group);
  add("machine_boot_id", machine.boot_id);
  return facts;
}

}  // namespace hpctl::agent
