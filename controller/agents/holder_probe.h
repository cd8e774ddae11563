// SPDX-License-Identifier: Apache-2.0
// Whether holders can be reached directly, without the agent proper: a TCP connection to the probe
// port of each (agent/holder/probe_port.h) that carries no data.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "controller/core/failure_detector.h"

namespace hpctl {

// Side by side, within `patience` for all. addresses: "IP:PORT". The answers in the same order:
// kAnswered, kUnanswered, kRefused, or kNotAsked where this process cannot ask.
std::vector<core::HolderProbe> probe_holders(const std::vector<std::string>& addresses,
                                             std::chrono::milliseconds patience);

}  // namespace hpctl
