// SPDX-License-Identifier: Apache-2.0
#include "agent/core/supervisor.h"

#include <algorithm>

namespace hpctl::agent {
namespace {

std::string generation_name(uint64_t generation) {
  return "generation " + std::to_string(generation);
}

}  // namespace

bool Supervisor::occupied(uint64_t first_generation, uint64_t last_generation) const {
  for (const auto& [key, slot] : slots_) {
    if (slot.alive && key.first >= first_generation && key.first <= last_generation) return true;
  }
  return false;
}

std::vector<StartedWorker> Supervisor::running() const {
  std::vector<StartedWorker> workers;
  for (const auto& [key, slot] : slots_) {
    if (!slot.alive || slot.incarnation == 0) continue;
    workers.push_back({slot.incarnation, key.second, key.first, slot.pid, slot.origin});
  }
  return workers;
}

std::string Supervisor::refusal_of(const StartRequest& request) const {
  if (ending_) return "the node is ending";
  if (request.generation < generation_seen_) {
    return generation_name(request.generation) + " is stale: this node has seen " +
           generation_name(generation_seen_);
  }
  if (request.generation <= ended_through_) {
    return generation_name(request.generation) + " was ended on this node";
  }
  return "";
}

Decisions Supervisor::start(const StartRequest& request) {
  Decisions decisions;
  if (starting_ && starting_->generation == request.generation) {
    starting_->key = request.key;  // a repetition: the answer comes when it is true
    return decisions;
  }
  if (const std::string refusal = refusal_of(request); !refusal.empty()) {
    decisions.emplace_back(Failed{request.key, request.generation, refusal, false});
    return decisions;
  }
  if (starting_) {
    give_up_start("superseded by " + generation_name(request.generation), false, decisions);
  }
  if (request.generation > generation_seen_) {
    generation_seen_ = request.generation;
    decisions.emplace_back(AcceptGeneration{request.generation});
    std::erase_if(slots_, [](const auto& entry) { return !entry.second.alive; });
  }
  if (occupied(0, request.generation - 1)) {
    decisions.emplace_back(KillThrough{request.generation - 1, 0});
  }
  starting_ = request;
  advance(decisions);
  return decisions;
}

Decisions Supervisor::stop(const StopRequest& request) {
  Decisions decisions;
  for (const StopRequest& pending : stopping_) {
    if (pending.key == request.key) return decisions;
  }
  ended_through_ = std::max(ended_through_, request.generation);
  // Also when nothing runs: the holder remembers that these generations are over.
  decisions.emplace_back(
      KillThrough{request.generation, request.grace_ms, request.abort_ms, request.stacks});
  if (starting_ && starting_->generation <= request.generation) {
    give_up_start(generation_name(starting_->generation) + " was ended while it started", false,
                  decisions);
  }
  stopping_.push_back(request);
  advance(decisions);
  return decisions;
}

Decisions Supervisor::end(bool stacks) {
  Decisions decisions;
  if (ending_) return decisions;
  if (starting_) give_up_start("the job has ended", false, decisions);
  ending_ = true;
  ended_through_ = UINT64_MAX;
  decisions.emplace_back(KillThrough{UINT64_MAX, kEndNodeGraceMs, 0, stacks});
  advance(decisions);
  return decisions;
}

Decisions Supervisor::spawned(const StartedWorker& worker, bool alive) {
  Decisions decisions;
  const SlotKey key{worker.generation, worker.rank};
  if (alive || worker.generation == generation_seen_) {
    slots_[key] = Slot{worker.incarnation, worker.pid, alive, worker.origin};
  } else {
    slots_.erase(key);
  }
  advance(decisions);
  return decisions;
}

Decisions Supervisor::spawn_failed(uint64_t generation, int32_t rank, const std::string& reason,
                                   bool permanent) {
  Decisions decisions;
  slots_.erase({generation, rank});
  if (starting_ && starting_->generation == generation) {
    give_up_start("rank " + std::to_string(rank) + ": " + reason, permanent, decisions);
    ended_through_ = std::max(ended_through_, generation);
    decisions.emplace_back(KillThrough{generation, 0});
  }
  advance(decisions);
  return decisions;
}

Decisions Supervisor::exited(uint64_t incarnation) {
  Decisions decisions;
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const auto& entry) {
    return entry.second.incarnation == incarnation;
  });
  if (found != slots_.end()) {
    found->second.alive = false;
    if (found->first.first != generation_seen_) slots_.erase(found);
  }
  advance(decisions);
  return decisions;
}

void Supervisor::give_up_start(const std::string& reason, bool permanent, Decisions& decisions) {
  decisions.emplace_back(Failed{starting_->key, starting_->generation, reason, permanent});
  starting_.reset();
}

void Supervisor::advance(Decisions& decisions) {
  std::erase_if(stopping_, [&](const StopRequest& stop) {
    if (occupied(0, stop.generation)) return false;
    decisions.emplace_back(Done{stop.key, stop.generation, {}});
    return true;
  });
  if (starting_) advance_start(decisions);
  if (ending_ && !occupied(0, UINT64_MAX)) {
    decisions.emplace_back(NodeIsDone{});
    ending_ = false;  // said once; ended_through_ keeps every later start out
  }
}

void Supervisor::advance_start(Decisions& decisions) {
  const uint64_t generation = starting_->generation;
  if (occupied(0, generation - 1)) return;
  Done done{starting_->key, generation, {}};
  bool waiting = false;
  for (size_t i = 0; i < starting_->ranks.size(); ++i) {
    const int32_t rank = starting_->ranks[i];
    const auto [slot, is_new] = slots_.try_emplace({generation, rank});
    if (is_new) decisions.emplace_back(SpawnRank{generation, rank, static_cast<int32_t>(i)});
    waiting = waiting || slot->second.incarnation == 0;
    done.workers.push_back(
        {slot->second.incarnation, rank, generation, slot->second.pid, slot->second.origin});
  }
  if (waiting) return;
  decisions.emplace_back(std::move(done));
  starting_.reset();
}

}  // namespace hpctl::agent
