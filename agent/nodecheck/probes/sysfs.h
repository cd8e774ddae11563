// SPDX-License-Identifier: Apache-2.0
// Small files of the kernel, and counters that are read twice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "agent/nodecheck/core/host_health.h"

namespace hpctl::agent {

// HPCTL_SYSROOT is not set: what system calls say is of the machine whose files are read.
bool is_this_machine();

// Without its end; "" = there is none.
std::string first_line(const std::string& path);
// nullopt: no such file, or no number in it.
std::optional<uint64_t> read_number(const std::string& path);

using Counters = std::map<std::string, uint64_t>;
// `read` twice, kSamplesApart in between.
CounterSamples sample_twice(const std::function<Counters()>& read);

}  // namespace hpctl::agent
