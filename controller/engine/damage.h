// SPDX-License-Identifier: Apache-2.0
// A fault on purpose (`hpctl chaos`, corrupt-checkpoint): what a disk does that forgets a bit.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// Inverts a byte in the middle of the first shard of the checkpoint in that directory. File I/O
// that may block: never on the owner thread.
Outcome damage_checkpoint(const std::string& step_dir);

}  // namespace hpctl
