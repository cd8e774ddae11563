// SPDX-License-Identifier: Apache-2.0
// env.files: variables of a job that are in files, such as keys of a service, so that they are in
// no record of the job.
//
//   # a comment; empty lines are skipped
//   NAME=VALUE
//   export NAME="VALUE"     the quotes are no part of the value; nothing in it is expanded
//
// Messages name file and line, and never a value.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

inline constexpr size_t kMostEnvironmentFiles = 16;
inline constexpr size_t kMostEnvironmentFileBytes = 64U << 10;

// kInvalidArgument with `path` and the line of the first mistake.
Result<std::map<std::string, std::string>> parse_environment_file(std::string_view text,
                                                                  const std::string& path);

// Of several files the later ones count. May block as long as a file server does.
Result<std::map<std::string, std::string>> read_environment_files(
    const std::vector<std::string>& paths);

}  // namespace hpctl
