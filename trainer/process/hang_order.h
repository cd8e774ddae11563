// SPDX-License-Identifier: Apache-2.0
// A hang on purpose (`hpctl chaos`, hang-worker): the training thread turns in a loop, as a program
// does that waits for what will not come, and its peers wait for it.
#pragma once

#include <cstdint>

namespace hpctl {

// Any thread.
void order_hang(uint64_t generation);

// Does not return where a hang of this generation was ordered.
void hang_if_ordered(uint64_t generation);

}  // namespace hpctl
