// SPDX-License-Identifier: Apache-2.0
// The environment variables that this machine's type and installed stack call for.
#pragma once

#include <map>
#include <string>

#include "agent/nodecheck/core/environment_rules.h"

namespace hpctl::agent {

struct MachineEnvironment {
  std::map<std::string, std::string> variables;  // to set where the user set none
  std::string story;  // one line for the log: for what machine, or what is wrong; "" = nothing
};

// From environment.json beside the programs, or in ../share/hpctl.
MachineEnvironment machine_environment(const std::string& program_directory);

// By the list of packages that the EFA installer leaves: "libfabric-aws_1.22.0amzn1.0_amd64".
InstalledStack stack_of(const std::string& installed_packages);

// The data file `name` beside the programs or in ../share/hpctl; kNotFound says where it was
// sought.
Result<std::string> find_data_file(const std::string& program_directory, const std::string& name);

}  // namespace hpctl::agent
