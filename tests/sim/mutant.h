// SPDX-License-Identifier: Apache-2.0
// Mends that are taken out, one at a time, so that the checkers must notice what they are for. The
// product has no switch for any of them: the simulated cluster carries out the core's orders as
// releases before did, or as one would that forgets the rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "controller/core/core.h"
#include "tests/sim/directory.h"

namespace hpctl::sim {

enum class Mutant : uint8_t {
  kNone,
  kErrorIsAbsence,    // a search that fails has found nothing
  kOneReader,         // what one worker calls damaged is damaged
  kAnyOwner,          // orders are carried out in another job's directory
  kAnyHistory,        // the newest checkpoint counts, whatever the lineage says
  kRanksDelete,       // a save deletes what is older
  kUnverified,        // older checkpoints go before a newer one was read again
  kMirrorUnverified,  // likewise copies in a mirror
  kWithdrawnCounts,   // the record of a withdrawn order counts like another controller's
};
const char* to_string(Mutant mutant);
std::optional<Mutant> parse_mutant(const std::string& name);

// The order without its question and its answer: the newest checkpoint is taken for sound.
core::PruneCheckpoints unverified(core::PruneCheckpoints order, const Directory& directory);

}  // namespace hpctl::sim
