// SPDX-License-Identifier: Apache-2.0
// The lock by which one holder at a time is the node.
#pragma once

#include <optional>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl::holder {

// Takes the lock and writes our process id into the file. nullopt when a living holder has it. A
// dead holder's guardian may have it for another moment; that is waited for.
Result<std::optional<UniqueFd>> take_node_lock(const std::string& path);

}  // namespace hpctl::holder
