// SPDX-License-Identifier: Apache-2.0
// The lock by which one holder at a time is the node.
//
// A holder whose node ends keeps the lock until all processes of the node are gone, and writes that
// into the file: its workers may take minutes to die. The next holder of the node waits for that,
// because a holder that does not come up would be taken for a broken node.
#pragma once

#include <optional>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl::holder {

// Takes the lock and writes our process id into the file. Waits while the holder that has it ends,
// or is dead and its reaper still cleans up. nullopt: a holder has it that goes on living, or
// `stop` became readable meanwhile.
Result<std::optional<UniqueFd>> take_node_lock(const std::string& path, const UniqueFd& stop);
// For those who wait.
Outcome say_that_we_end(const UniqueFd& lock, const std::string& path);

}  // namespace hpctl::holder
