// SPDX-License-Identifier: Apache-2.0
// Values of ours that follow from several numbers of theirs: batches, steps, the schedule.
//
//   workers         nodes x workers_per_node
//   batch.global    given, or micro batch x accumulation x workers
//   steps           given, or samples / batch.global, rounded down, after the steps of a ramp
//   min_lr_ratio    given, or lowest rate / highest rate
//   warmup_steps    given, or a part of the steps, rounded up
//   decay_steps     where the decay ends - warm-up; or its own length
//
// A number that no file says is not guessed: the report names the --set that gives it.
#pragma once

#include "hpctl/migrate/draft.h"

namespace hpctl::migrate {

void compute_values(Draft& draft);

}  // namespace hpctl::migrate
