// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/manifest.h"

#include <cstdio>

namespace hpctl {

const char* to_string(StateKind kind) {
  switch (kind) {
    case StateKind::kParam:
      return "param";
    case StateKind::kExpAvg:
      return "exp_avg";
    case StateKind::kExpAvgSq:
      return "exp_avg_sq";
  }
  return "unknown";
}

std::string shard_file_name(int32_t rank) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "shard-%05d.safetensors", rank);
  return name.data();
}

}  // namespace hpctl
