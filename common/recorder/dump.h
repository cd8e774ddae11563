// SPDX-License-Identifier: Apache-2.0
// The content of one rank's flight recorder: the process groups it belongs to, and its newest
// operations in the order in which it called them.
//
// The document comes from FlightRecorder::dump() (pickle) and dump_json() in PyTorch's
// torch/csrc/distributed/c10d, formats 2.0 (TraceUtils.h of commit 009798f), 2.4
// (FlightRecorder.cpp of 00f0e2f) and 2.10 (FlightRecorderDetail.hpp of 1189309): "version",
// "pg_config" {name: {"name", "desc", "ranks": "[0, 1]"}}, "entries" [{"record_id",
// "process_group": [name, desc], "collective_seq_id", "profiling_name": "nccl:all_reduce",
// "input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "state", "is_p2p", "frames"}].
// Which collectives count how is in torch/distributed/flight_recorder/components/types.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace hpctl::recorder {

struct Group {
  std::string name;
  std::string description;
  std::vector<int32_t> ranks;  // of the job, ascending

  friend auto operator<=>(const Group&, const Group&) = default;
};

struct Operation {
  size_t group = 0;      // in RankDump::groups
  int64_t sequence = 0;  // of the group's collectives, from 1; several operations may share one
  bool is_p2p = false;   // then the sequence says nothing
  bool completed = false;
  std::string name;                     // "all_reduce", or "recv 1<-0" with places in the group
  std::vector<int64_t> input_elements;  // of each tensor
  std::vector<int64_t> output_elements;
  std::vector<std::string> types;  // of the inputs, then the outputs
  std::string inputs;              // "[1024, 8] Float", for people
  std::string caller;              // "train.py:44 in step", "" = not recorded
};

// Of completed operations the newest are enough; a job may have thousands of ranks.
inline constexpr size_t kMostCompleted = 500;

struct RankDump {
  std::vector<Group> groups;
  std::vector<Operation> operations;  // the oldest first
};

// A dump's whole text, a pickle or JSON. kInvalidArgument says what is wrong with it.
Result<RankDump> read_dump(std::string_view text);

}  // namespace hpctl::recorder
