// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/fit.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>

namespace hpctl {
namespace {

std::string gib(double bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB", bytes / (1024.0 * 1024 * 1024));
  return text.data();
}

// The remedy for the largest part. More machines share the state, not the activations.
const char* remedy_for(std::string_view part) {
  if (part == "activations" || part == "logits" || part == "one layer's backward") {
    return "lower workload.train.batch.micro or data.seq_len, or set "
           "workload.train.memory.activation_checkpointing: full and loss.chunk_tokens";
  }
  if (part == kPeerSnapshotsPart) return "set recovery.snapshot.replicas: 0";
  return "use a smaller workload.train.model, or more machines with parallelism.strategy full";
}

}  // namespace

double machine_memory_bytes() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return std::numeric_limits<double>::infinity();
  return (static_cast<double>(info.totalram) + static_cast<double>(info.totalswap)) * info.mem_unit;
}

std::string describe_largest(const MemoryPlan& plan) {
  const auto largest =
      std::max_element(plan.parts.begin(), plan.parts.end(),
                       [](const MemoryPart& a, const MemoryPart& b) { return a.bytes < b.bytes; });
  return std::string("most of it is ") + largest->name + ", " + gib(largest->bytes) + " of each; " +
         remedy_for(largest->name);
}

Outcome check_fit(const MemoryPlan& plan, int64_t workers, double memory_bytes) {
  const double needed = plan.total() * static_cast<double>(workers);
  if (needed <= memory_bytes) return Ok{};
  return Error{ErrorCode::kResourceExhausted,
               "out of memory: " + std::to_string(workers) +
                   (workers == 1 ? " worker needs " : " workers need ") + gib(needed) +
                   " and this machine has " + gib(memory_bytes) + "; " + describe_largest(plan) +
                   "; hpctl plan shows the rest"};
}

Outcome check_host_fit(const MemoryPlan& plan, int64_t workers, double memory_bytes) {
  // The rest is for data that are read ahead, the page cache, and other programs.
  constexpr double kMostOfMemory = 0.8;
  double needed = 0;
  for (const MemoryPart& part : plan.host) needed += part.bytes * static_cast<double>(workers);
  if (needed <= kMostOfMemory * memory_bytes) return Ok{};
  return Error{ErrorCode::kFailedPrecondition,
               "no copies of the GPUs' state are kept in host memory, so a fault goes back to the "
               "newest checkpoint: " +
                   std::to_string(workers) + (workers == 1 ? " worker needs " : " workers need ") +
                   gib(needed) + " and this machine has " + gib(memory_bytes)};
}

}  // namespace hpctl
