// SPDX-License-Identifier: Apache-2.0
#include "agent/standbys.h"

#include <string>
#include <utility>

#include "agent/holder/standby_times.h"
#include "common/base/log.h"

namespace hpctl::agent {
namespace {

constexpr StandbyTimes kTimes;
constexpr int64_t kLoadsForMs = 60'000;

}  // namespace

void Standbys::plan(const v1::StartWorkers& start) {
  order_.reset();
  are_due_ = false;
  wanted_ = 0;
  replaced_ = 0;
  settled_by_ms_ = INT64_MAX;
  told_.reset();
  // All ranks of a command are started again, whichever of them died. A spare has none yet.
  const bool is_command = start.command_size() > 0 && start.ranks_size() > 0;
  const auto ranks = static_cast<uint32_t>(start.ranks_size());
  planned_ = !is_command ? start.standbys() : start.standby_imports_size() > 0 ? ranks : 0;
}

bool Standbys::take_order(Result<holder::Spawn> order) {
  if (!awaits_order()) return false;
  if (!order.ok()) {
    planned_ = wanted_ = 0;
    log_warning("no standbys: " + order.error().message);
    return false;
  }
  order_ = std::move(*order);
  return std::exchange(are_due_, false);
}

void Standbys::all_run(int64_t now_ms) {
  wanted_ = planned_;
  due_ms_ = now_ms + kTimes.without_steps_ms;
  settled_by_ms_ = now_ms + kLoadsForMs;
}

void Standbys::on(const holder::WorkerState& worker, int64_t now_ms) {
  if (worker.rank < 0 && worker.part == holder::WorkerPart::kIdle) {
    Waiting& waits = waiting_[worker.incarnation];
    if (worker.is_ready != 0 && !std::exchange(waits.is_ready, true)) {
      waits.memory_bytes = memory_(worker.pid);
    }
    return;
  }
  if (waiting_.erase(worker.incarnation) == 0 || worker.part != holder::WorkerPart::kEnded) return;
  const bool is_replaced = planned_ > 0 && replaced_ < kTimes.most_replaced;
  log_warning("standby process " + std::to_string(worker.pid) +
              " has ended before it was needed; another is started " +
              (is_replaced ? "soon" : "in the next generation"));
  if (!is_replaced) return;
  ++replaced_;
  wanted_ = planned_;
  due_ms_ = now_ms + kTimes.replace_after_ms;
}

void Standbys::replenish(const Start& start) {
  if (awaits_order()) {
    are_due_ = wanted_ > 0;
    return;
  }
  for (auto there = waiting_.size(); there < wanted_; ++there) start(*order_);
  wanted_ = 0;
}

// Those that were given up leave fewer than planned, and are not replaced.
bool Standbys::is_settled(uint32_t ready, int64_t now_ms) const {
  if (settled_by_ms_ == INT64_MAX) return false;  // they do not run yet
  if (now_ms >= settled_by_ms_ || ready >= planned_) return true;
  return wanted_ == 0 && replaced_ == kTimes.most_replaced && ready == waiting_.size();
}

void Standbys::tell(v1::Heartbeat& heartbeat, int64_t now_ms) {
  Count count;
  for (const auto& [incarnation, waits] : waiting_) {
    (waits.is_ready ? count.ready : count.loading) += 1;
    count.memory_bytes += waits.memory_bytes;
  }
  count.settled = is_settled(count.ready, now_ms);
  if (told_ == count) return;
  told_ = count;
  v1::Standbys& standbys = *heartbeat.mutable_standbys();
  standbys.set_ready(count.ready);
  standbys.set_loading(count.loading);
  standbys.set_memory_bytes(count.memory_bytes);
  standbys.set_settled(count.settled);
}

}  // namespace hpctl::agent
