// SPDX-License-Identifier: Apache-2.0
// An agent's description of its machine.
#pragma once

#include <map>
#include <string>

namespace hpctl::agent {

struct NodeFacts {
  // Names the machine, so that a replacement is recognised (common/slurm/hyperpod.h); "HOST/NODE"
  // where nothing better is known.
  std::string instance_id;
  // cpus, memory_bytes, hostname; instance_type, instance_group, machine_boot_id where known.
  std::map<std::string, std::string> capabilities;
  std::string trouble;  // one line to log; "" = none
};

NodeFacts read_node_facts(const std::string& node);

}  // namespace hpctl::agent
