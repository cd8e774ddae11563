// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/agent_memory.h"

#include <algorithm>
#include <utility>

namespace hpctl::holder {

AgentMemory::AgentMemory(std::string boot_id, uint64_t holder_pid) {
  hello_.boot_id = std::move(boot_id);
  hello_.holder_pid = holder_pid;
}

void AgentMemory::saw(uint64_t generation) {
  if (generation <= hello_.generation_seen) return;
  hello_.generation_seen = generation;
  ended_.clear();
}

void AgentMemory::ended_through(uint64_t generation) {
  hello_.ended_through = std::max(hello_.ended_through, generation);
}

const Exited& AgentMemory::keep(Exited exit) {
  exit.exit_id = ++last_exit_;
  return exits_.emplace(exit.exit_id, std::move(exit)).first->second;
}

void AgentMemory::ended(const WorkerState& worker) {
  if (worker.part != WorkerPart::kEnded || worker.rank < 0) return;
  if (worker.generation == hello_.generation_seen) ended_.push_back(worker);
}

void AgentMemory::keep(KeepReport report) {
  exits_.erase(report.covers_exit);
  hello_.last_report = std::max(hello_.last_report, report.seq);
  if (report.committed_step != 0) {
    hello_.committed_generation = report.committed_generation;
    hello_.committed_step = report.committed_step;
  }
  hello_.bad_step_generation = report.bad_step_generation;
  hello_.bad_step_number = report.bad_step_number;
  reports_[report.seq] = std::move(report.bytes);
}

void AgentMemory::tell(const std::function<void(const ToAgent&)>& send,
                       const std::function<void()>& tell_living) const {
  send(hello_);
  for (const WorkerState& worker : ended_) send(worker);
  tell_living();
  for (const auto& [seq, bytes] : reports_) send(StoredReport{seq, bytes});
  for (const auto& [number, exit] : exits_) send(exit);
  send(HelloEnd{});
}

}  // namespace hpctl::holder
