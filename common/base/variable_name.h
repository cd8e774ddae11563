// SPDX-License-Identifier: Apache-2.0
// Names of environment variables that a job may give its workers.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace hpctl {

// As in C.
inline bool is_variable_name(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
}

// Set by hpctl for every worker (common/worker/worker_abi.h); a job may not change them.
inline bool is_reserved_variable(std::string_view name) {
  constexpr std::array<std::string_view, 11> kNames = {"RANK",
                                                       "LOCAL_RANK",
                                                       "WORLD_SIZE",
                                                       "LOCAL_WORLD_SIZE",
                                                       "GROUP_RANK",
                                                       "GROUP_WORLD_SIZE",
                                                       "ROLE_RANK",
                                                       "ROLE_NAME",
                                                       "ROLE_WORLD_SIZE",
                                                       "MASTER_ADDR",
                                                       "MASTER_PORT"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         name.starts_with("HPCTL_") || name.starts_with("TORCHELASTIC_");
}

}  // namespace hpctl
