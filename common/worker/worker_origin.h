// SPDX-License-Identifier: Apache-2.0
// How a process got its rank in a generation. Sent and stored; never renumber.
#pragma once

#include <cstdint>

namespace hpctl {

enum class WorkerOrigin : uint8_t {
  kUnknown = 0,  // an agent of a release that did not tell
  kStarted = 1,  // it was started for it
  kStayed = 2,   // it had part in the generation before
  kStandby = 3,  // it had waited for one
};

// A number of another release becomes kUnknown.
constexpr WorkerOrigin known_origin(uint32_t number) {
  constexpr auto kLast = static_cast<uint32_t>(WorkerOrigin::kStandby);
  return number <= kLast ? static_cast<WorkerOrigin>(number) : WorkerOrigin::kUnknown;
}

}  // namespace hpctl
