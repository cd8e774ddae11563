// SPDX-License-Identifier: Apache-2.0
// Text as a file in memory, for a reader that takes a descriptor and no pipe. The reader may read
// it again, at any pace or not at all, and blocks no writer.
#pragma once

#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// At its beginning, closed on exec, may be sealed. `name` is for messages and /proc.
Result<UniqueFd> make_memory_file(const std::string& name, std::string_view text);

}  // namespace hpctl
