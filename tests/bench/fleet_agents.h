// SPDX-License-Identifier: Apache-2.0
// Agents without nodes, for the load that they are to their controller: each has a TCP connection
// of its own with TLS and the job's token, as real agents have (common/rpc/job_channel.h),
// registers, does at once what it is ordered, and tells in its heartbeats, as often as it is told,
// of eight workers that train, and begin 64 collectives in a step.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/job/ids.h"

namespace hpctl::bench {

inline constexpr int kWorkersPerNode = 8;

struct FleetManners {
  bool one_by_one = false;  // each exit is a report, as agents of older releases tell it
};

class FleetAgents {
 public:
  using Clock = std::chrono::steady_clock;

  // Of the nodes "n0", "n1", ... of the job.
  FleetAgents(std::string job_dir, JobId job, int count, std::chrono::milliseconds step,
              const FleetManners& manners);
  ~FleetAgents();  // the connections break
  FleetAgents(const FleetAgents&) = delete;
  FleetAgents& operator=(const FleetAgents&) = delete;

  // From now on agents without a connection dial the job's newest controller, all at once; each
  // waits for half a second after its connection broke.
  void connect() { dials_ = true; }
  // Rank 0 of that agent's node dies of SIGKILL.
  void kill_worker(int agent);
  // The connections of the first `count` agents break.
  void cut(int count);

  // Agents that are welcome, and those that have got the newest order to start and to stop workers.
  int welcomed() const;
  int started(uint64_t generation) const;
  int stopped(uint64_t generation) const;
  uint64_t heartbeats() const { return heartbeats_; }
  uint64_t dialled() const { return dialled_; }  // attempts
  uint64_t lost() const { return lost_; }        // agents that were welcome, each time
  // Why attempts failed and connections broke since the last call, and how often.
  std::map<std::string, int> take_failures();
  // Agents that were told to beat less often than Welcome said.
  int seldom() const;

 private:
  class Agent;
  friend class Agent;
  void beat();
  void dial();
  void failed(const std::string& why);

  const std::string job_dir_;
  const JobId job_;
  const std::chrono::milliseconds step_;
  const bool one_by_one_;
  const Clock::time_point begun_ = Clock::now();
  std::atomic<uint64_t> heartbeats_{0};
  std::atomic<uint64_t> dialled_{0};
  std::atomic<uint64_t> lost_{0};
  std::atomic<bool> dials_{false};
  std::atomic<bool> ends_{false};
  std::mutex failures_mutex_;
  std::map<std::string, int> failures_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::thread beats_of_all_;
  std::thread dialler_;  // apart: who is connected beats while others dial
};

}  // namespace hpctl::bench
