// SPDX-License-Identifier: Apache-2.0
#include "agent/node_facts.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace hpctl::agent {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

std::string instance_id(const std::string& node) {
  const char* id = std::getenv("HPCTL_INSTANCE_ID");
  return id != nullptr && *id != '\0' ? id : host_name() + "/" + node;
}

std::map<std::string, std::string> node_capabilities() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  return {{"cpus", std::to_string(::sysconf(_SC_NPROCESSORS_ONLN))},
          {"memory_bytes", std::to_string(pages * ::sysconf(_SC_PAGESIZE))},
          {"hostname", host_name()}};
}

}  // namespace hpctl::agent
