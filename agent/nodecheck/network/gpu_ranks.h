// SPDX-License-Identifier: Apache-2.0
// A node's GPUs in the network check: a process for each (gpu_rank.h), and their part in a pair's
// all-reduce over NCCL. A process that did not answer in time is killed, and started again for the
// next pair.
//
// Two nodes agree over their connection (exchange.h), in frames of JSON; the one that dialled
// begins:
//
//   {"gpus"}  →        how many ranks each has; the dialling node's ranks come first
//           ←  {"gpus"}
//   {"id"}    →        NCCL's unique id; without it, and with "error", the round fails
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/holder/spawn.h"
#include "agent/nodecheck/core/network_way.h"
#include "agent/nodecheck/network/exchange.h"
#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl::agent {

// Both ends of a pair know within these: the first communicator of a process loads the kernels.
inline constexpr auto kNcclInitLimit = std::chrono::milliseconds(30'000);
inline constexpr auto kNcclTransferLimit = std::chrono::milliseconds(10'000);
inline constexpr auto kNcclStartLimit = std::chrono::milliseconds(30'000);
inline constexpr auto kNcclRoundPatience =
    kMeetPatience + kNcclInitLimit + kNcclTransferLimit + std::chrono::seconds(5);

class GpuRanks {
 public:
  // `program`: hpagent. Nothing is started yet.
  explicit GpuRanks(std::string program) : program_(std::move(program)) {}
  ~GpuRanks();
  GpuRanks(const GpuRanks&) = delete;
  GpuRanks& operator=(const GpuRanks&) = delete;

  // Starts the process of the first GPU, which says how many there are, and the others; what is
  // wrong is in the answer. From the thread that uses this, which must live as long.
  NodeMeans open();
  // The pair's all-reduce. `dialled`: the connection is ours.
  Transfer reduce_with_peer(int connection, bool dialled);
  // By the log of the first GPU's NCCL so far.
  UsedNetwork network() const;

 private:
  struct Rank {
    SpawnedProcess process;
    UniqueFd socket;
    UniqueFd log;
  };

  Result<Rank> start(int device) const;
  Outcome restart_missing();
  Result<Transfer> try_to_reduce(int connection, bool dialled);
  Result<std::string> agree_on_id(int connection, bool dialled, int& peer_gpus);
  static void end(Rank& rank);

  const std::string program_;
  std::vector<Rank> ranks_;  // by device; one without a socket has been killed
  int gpus_ = 0;
};

}  // namespace hpctl::agent
