// SPDX-License-Identifier: Apache-2.0
// Orders to record a generation that are no longer wanted. The directory may have the record all
// the same: the order was under way, or its answer was an error of storage. No worker has begun
// with such a record, and no other controller made it. So a search leaves it out, and the next
// record names it (GenerationRecord::withdrawn).
#pragma once

#include "controller/core/transition.h"

namespace hpctl::core {

// The order leaves the outbox, and was not carried out as far as is known.
void remember_withdrawn(Transition& t, const Action& order);
// What a search has left out, or an order to record has met.
void learn_withdrawn(Transition& t, Job& job, const std::vector<WithdrawnRecord>& there);
bool is_withdrawn(const Job& job, Generation generation, const std::string& order);
// Those that a new record names.
std::vector<Generation> withdrawn_generations(const Job& job);

}  // namespace hpctl::core
