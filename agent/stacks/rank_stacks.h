// SPDX-License-Identifier: Apache-2.0
// The text for one rank: its process and its children, each thread with its name, its state in the
// kernel, and its frames. Threads with the same frames, for example of a pool, are listed together.
// Pure text; main.cc decides which ranks to read, and when.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "agent/stacks/tracer.h"
#include "agent/stacks/unwinder.h"

namespace hpctl::stacks {

inline constexpr size_t kMostFileBytes = 1U << 20;
inline constexpr size_t kHangsKept = 4;  // the newest ones, by generation

struct ThreadStack {
  Thread thread;
  std::vector<Frame> frames;  // innermost first
  std::string remark;         // why there are none
};

struct ProcessStacks {
  pid_t pid = 0;
  std::vector<std::string> troubles;
  std::vector<ThreadStack> threads;  // the main thread is the first
};

struct RankStacks {
  int32_t rank = 0;
  uint64_t generation = 0;
  std::vector<ProcessStacks> processes;  // the worker is the first
};

std::string to_text(const RankStacks& rank, int64_t wall_ms);

// For the worker's main thread: the innermost frame that has a name and, if that is in the C
// library, the innermost frame outside it: "poll (libc.so.6) < wait (libx.so)". Else the kernel's
// state of that thread, or the reason why nothing is known.
std::string telling_frame(const RankStacks& rank);

// Names that belong to older hangs than the kept ones.
std::vector<std::string> outdated(const std::vector<std::string>& names);

}  // namespace hpctl::stacks
