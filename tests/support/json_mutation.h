// SPDX-License-Identifier: Apache-2.0
// Strange but well-formed documents for fuzz tests of readers of JSON.
#pragma once

#include <vector>

#include "common/base/json.h"
#include "common/base/rng.h"

namespace hpctl {

inline nlohmann::json strange_value(Rng& rng) {
  static const std::vector<nlohmann::json> kValues = {nullptr,
                                                      true,
                                                      -1,
                                                      0,
                                                      1,
                                                      16,
                                                      3.5,
                                                      1e300,
                                                      "",
                                                      "../../etc/passwd",
                                                      nlohmann::json::array(),
                                                      nlohmann::json::object(),
                                                      ~uint64_t{0},
                                                      uint64_t{1} << 63,
                                                      (uint64_t{1} << 62) - 16,
                                                      uint64_t{1} << 48,
                                                      uint64_t{1} << 32};
  return kValues[rng.below(kValues.size())];
}

// Replaces, removes or duplicates one place somewhere in the document.
inline void mutate(nlohmann::json& value, Rng& rng) {
  if (value.is_structured() && !value.empty() && !rng.chance(0.08)) {
    auto child = value.begin();
    std::advance(child, static_cast<int64_t>(rng.below(value.size())));
    if (rng.chance(0.1)) {
      value.erase(child);
    } else if (value.is_array() && rng.chance(0.1)) {
      value.push_back(nlohmann::json(*child));
    } else {
      mutate(*child, rng);
    }
    return;
  }
  value = strange_value(rng);
}

}  // namespace hpctl
