// SPDX-License-Identifier: Apache-2.0
// Which node of which job this is, and where its files are.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hpctl::agent {

struct AgentOptions;

struct NodePlace {
  uint64_t job = 0;
  std::string node;
  std::string job_directory;      // working directory of the workers
  std::string program_directory;  // where hptrain is
  // Of this job on this node, on a local disk: what the agent itself reads and writes. The agent
  // has a liveness deadline, so it touches no path of the job's directory. Removed when the node
  // ends.
  std::string local_directory;
  // What the machine calls for, set where the user set none (agent/machine_environment.h).
  std::map<std::string, std::string> machine_variables = {};

  std::string progress_directory() const { return local_directory + "/progress"; }
  std::string error_directory() const { return local_directory + "/errors"; }
};

// Looks at the machine, and logs what it calls for.
NodePlace make_place(const AgentOptions& options);

}  // namespace hpctl::agent
