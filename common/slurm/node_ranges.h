// SPDX-License-Identifier: Apache-2.0
// Names of nodes in one line, as Slurm writes them: "p5-[1-64,70],head". A name is split before its
// last digits, at most nine; numbers of different length are different ranges, so that leading
// zeros come back. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

// At most `max_bytes`: what does not fit is left out, whole ranges at a time. A name with a comma
// or a bracket is left out, too.
std::string to_node_ranges(const std::vector<std::string>& names, size_t max_bytes);

// At most `max_names` of them. kInvalidArgument: not such a line.
Result<std::vector<std::string>> from_node_ranges(std::string_view text, size_t max_names);

}  // namespace hpctl
