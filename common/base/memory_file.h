// SPDX-License-Identifier: Apache-2.0
// Text as a file in memory, for whoever takes a descriptor and no pipe: it may be read again, at
// any pace or not at all, and holds nobody up.
#pragma once

#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// At its beginning, closed on exec, may be sealed. `name` is for messages and /proc.
Result<UniqueFd> make_memory_file(const std::string& name, std::string_view text);

}  // namespace hpctl
