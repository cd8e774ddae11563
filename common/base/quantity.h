// SPDX-License-Identifier: Apache-2.0
// The notation of durations, time limits and sizes in job files, arguments and variables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace hpctl {

// "500ms", "2s", "30m", "1h", "7d", "7-00:00:00", "00:30:00" -> milliseconds, up to 365 days.
Result<int64_t> parse_duration_ms(std::string_view text);
// The shortest of the forms with one unit that is exact: 3'600'000 -> "1h".
std::string format_duration_ms(int64_t ms);

// The forms of sbatch --time, and durations: "90" (minutes), "30:00" (MM:SS), "1-12" (D-HH),
// "7-00:00:00", "2h" -> minutes, rounded up.
Result<int64_t> parse_time_limit_minutes(std::string_view text);
// As Slurm prints it: "7-00:00:00".
std::string format_time_limit(int64_t minutes);

// The forms of sbatch --mem: "512" (MiB), "64G" -> MiB, rounded up.
Result<int64_t> parse_memory_mib(std::string_view text);

}  // namespace hpctl
