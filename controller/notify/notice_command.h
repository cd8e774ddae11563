// SPDX-License-Identifier: Apache-2.0
// Runs the program of notify.command once: JSON on its standard input, its output appended to a
// file, in a separate session, which gets SIGKILL when it takes too long. Blocks at most that long;
// any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "controller/notify/webhook.h"

namespace hpctl {

// A program that exits with anything but 0 has not taken it, and is not run again for it: its
// effects are unknown.
Sent run_notice_command(const std::vector<std::string>& argv, const std::string& json,
                        const std::string& log_path, std::chrono::milliseconds patience);

}  // namespace hpctl
