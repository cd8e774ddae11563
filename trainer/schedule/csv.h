// SPDX-License-Identifier: Apache-2.0
// Schedule tables as CSV, in the format of PyTorch's _dump_csv and _load_csv: one line per rank,
// one cell per action, "2F0" or "1UNSHARD" in a cell, and empty cells where a rank is idle. Both
// functions are pure.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "trainer/schedule/action.h"

namespace hpctl {

// Lines end in LF or CR LF; spaces around a cell are ignored. kInvalidArgument names row and
// column, both counted from 1. Reads the cells only: validate_schedule() judges the table.
Result<ScheduleTable> parse_schedule_csv(std::string_view text);

// Lines end in CR LF, as Python writes them.
std::string schedule_csv(const ScheduleTable& table);

}  // namespace hpctl
