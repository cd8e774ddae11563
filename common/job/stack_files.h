// SPDX-License-Identifier: Apache-2.0
// The names of the files that hpstacks writes for ranks that hang: "g3-rank0007.txt", the stacks,
// and "g3-recorder-0007", the dump of PyTorch's flight recorder. Also the contract between hpstacks
// and the process that starts it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace hpctl {

// rank: a number, or "*" for several ranks.
inline std::string padded_rank(const std::string& rank) {
  return (rank == "*" ? "" : std::string(4 - std::min<size_t>(4, rank.size()), '0')) + rank;
}
inline std::string stack_file(uint64_t generation, const std::string& rank) {
  return "g" + std::to_string(generation) + "-rank" + padded_rank(rank) + ".txt";
}
// It ends with the rank, as PyTorch's own `torchfrtrace --prefix g3-recorder-` wants it.
inline std::string recorder_file(uint64_t generation, const std::string& rank) {
  return "g" + std::to_string(generation) + "-recorder-" + padded_rank(rank);
}

// Stacks are written within this time. hpstacks itself gives up reading sooner; this is for a file
// system that does not answer.
inline constexpr int64_t kStacksLimitMs = 2'000;
// hpstacks prints this line first if it triggers flight recorders: it then has this time more.
// PyTorch checks for a trigger once a second, and symbolizes frames before it writes.
inline constexpr std::string_view kRecordersAreAsked = "flight recorders are asked\n";
inline constexpr int64_t kRecordersLimitMs = 3'000;
// HPCTL_STACKS_LIMIT in the environment: so many ms in place of each of the two, where a machine is
// too busy for them.
inline int64_t stacks_limit_or(int64_t usual_ms) {
  const char* told = std::getenv("HPCTL_STACKS_LIMIT");
  const int64_t limit_ms = told == nullptr ? 0 : std::strtoll(told, nullptr, 10);
  return limit_ms > 0 ? limit_ms : usual_ms;
}

}  // namespace hpctl
