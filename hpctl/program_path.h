// SPDX-License-Identifier: Apache-2.0
// Finds programs: as a shell does, and hpctl's own beside this one.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// An executable file.
bool is_program(const std::string& path);

// The first program of that name in the directories of `path`, which colons divide; "" = none.
std::string find_program(const std::string& name, const std::string& path);

// The path of one of hpctl's own programs; kFailedPrecondition where it is not there.
Result<std::string> sibling_program(const std::string& name);

// $PATH, "" where it is not set.
std::string inherited_path();

}  // namespace hpctl
