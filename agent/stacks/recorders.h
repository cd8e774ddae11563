// SPDX-License-Identifier: Apache-2.0
// Makes the flight recorders of ranks that hang write their dumps, if PyTorch's environment
// variables enable it, and takes the dumps.
//
// PyTorch's contract (torch/csrc/distributed/c10d: DumpPipe in ProcessGroupNCCL.hpp,
// HeartbeatMonitor in ProcessGroupNCCL.cpp, DebugInfoWriter in FlightRecorder.cpp and before 2.5 in
// NCCLUtils.cpp):
//   - a process whose default group is NCCL's and whose TORCH_NCCL_DEBUG_INFO_PIPE_FILE is PREFIX
//     opens a named pipe PREFIX RANK ".pipe" and dumps when something is written to it. It looks
//     every TORCH_NCCL_COORD_CHECK_MILSEC (1000), in a thread that needs no interpreter;
//   - it dumps also when a collective times out (TORCH_NCCL_DUMP_ON_TIMEOUT);
//   - the dump goes to PREFIX RANK: of TORCH_FR_DUMP_TEMP_FILE (newer versions), or
//     TORCH_NCCL_DEBUG_INFO_TEMP_FILE, or else ~/.cache/torch/comm_lib_trace_rank_ (newer) or
//     /tmp/nccl_trace_rank_. It is written in place, so only one that reads as a whole is taken.
//
// A dump that the pipe triggered must be newer than the trigger. Without a pipe, a dump that one of
// the variables names is taken if the process itself can have written it. Variables that a program
// sets for itself are invisible: /proc/PID/environ has those that it was started with.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/stacks/rank_stacks.h"

namespace hpctl::stacks {

class Recorders {
 public:
  // Asks, where there is a pipe, and returns at once. The ranks' processes are known.
  explicit Recorders(const std::vector<RankStacks>& ranks);

  bool are_asked() const;
  // Waits until every dump is taken, or until the time (CLOCK_MONOTONIC) has come: no later than
  // the limit of common/job/stack_files.h after the trigger. Returns the ranks with a dump in
  // `directory`.
  std::vector<int32_t> take(const std::string& directory);

 private:
  struct Recorder {
    int32_t rank = 0;
    uint64_t generation = 0;
    bool is_asked = false;
    std::vector<std::string> paths;           // where its dump may be
    std::vector<struct timespec> not_before;  // of each: of older ones nothing is wanted
    bool is_taken = false;
  };
  static std::optional<Recorder> find(const RankStacks& rank);
  static void ask(Recorder& recorder, const std::string& pipe);
  // Writes the copy if there is a whole one.
  static bool take_one(Recorder& recorder, const std::string& directory);

  std::vector<Recorder> recorders_;
  int64_t until_ms_ = 0;
};

}  // namespace hpctl::stacks
