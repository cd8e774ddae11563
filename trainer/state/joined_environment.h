// SPDX-License-Identifier: Apache-2.0
// The labels of bit-exactness for a whole job. A rank knows only its own processor, libraries and
// limits, and a checkpoint covers all ranks. If ranks have unlike values, a label tells which rank
// has which. A job on unlike processors is bit-exact as long as every rank finds its kind of
// processor again, and reports when one does not. All ranks have the same labels, hence the same
// reason, whichever rank it comes from.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/exactness.h"

namespace hpctl {

// The labels of a job whose ranks have `by_rank`, at least one. A label with equal values stays as
// it is; any other becomes "avx512 on ranks 0-3,6; avx2 on ranks 4-5", in the order of first ranks.
// It stays short for any number of ranks: many runs of ranks are counted, "avx512 on 4000 ranks;
// avx2 on 4000 ranks; placed as 0123456789abcdef".
Environment joined(const std::vector<Environment>& by_rank);

// The same on every rank of `world`, each of which gives its own and the name of its node.
// Collective: one gathering of 16 bytes a rank where all are alike, otherwise a second one of the
// labels, and rank 0 logs whose differ.
Result<Environment> join_environments(const Environment& own, const std::string& node,
                                      Communicator& world);

}  // namespace hpctl
