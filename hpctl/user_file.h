// SPDX-License-Identifier: Apache-2.0
// A file that a verb writes under a name that the user gave.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace hpctl {

// As write_file_atomic(), which renames: a device or pipe of that name would be lost to the system.
// kInvalidArgument where there is one, or a directory.
Outcome write_user_file(const std::string& path, std::string_view data);

}  // namespace hpctl
