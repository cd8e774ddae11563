// SPDX-License-Identifier: Apache-2.0
// Identifies the node and its job, and the places of its files.
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
  // A directory of this job on this node, on a local disk, with the files that the agent itself
  // reads and writes. The agent has a liveness deadline, so it touches no path of the job's
  // directory. Removed when the node ends.
  std::string local_directory;
  // Variables that the machine needs, set if the user set none
  // (agent/nodecheck/machine_environment.h).
  std::map<std::string, std::string> machine_variables = {};

  std::string progress_directory() const { return local_directory + "/progress"; }
  std::string error_directory() const { return local_directory + "/errors"; }
};

// Looks at the machine, and logs what it calls for.
NodePlace make_place(const AgentOptions& options);

}  // namespace hpctl::agent
