// SPDX-License-Identifier: Apache-2.0
// Where programs are, as a shell finds them.
#pragma once

#include <string>

namespace hpctl {

// An executable file.
bool is_program(const std::string& path);

// The first program of that name in the directories of `path`, which colons divide; "" = none.
std::string find_program(const std::string& name, const std::string& path);

// $PATH, "" where it is not set.
std::string inherited_path();

}  // namespace hpctl
