// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/mutant.h"

#include <algorithm>
#include <array>

namespace hpctl::sim {

namespace {

// In the order of Mutant.
constexpr std::array kNames = {"none",       "error-is-absence",  "one-reader",
                               "any-owner",  "any-history",       "ranks-delete",
                               "unverified", "mirror-unverified", "withdrawn-counts"};

}  // namespace

const char* to_string(Mutant mutant) { return kNames.at(static_cast<size_t>(mutant)); }

std::optional<Mutant> parse_mutant(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Mutant>(found - kNames.begin());
}

core::PruneCheckpoints unverified(core::PruneCheckpoints order, const Directory& directory) {
  order.asks = false;
  order.verified = directory.find({}).name;
  return order;
}

}  // namespace hpctl::sim
