// SPDX-License-Identifier: Apache-2.0
#include "agent/standbys.h"

#include <string>
#include <utility>

#include "agent/worker_command.h"
#include "common/base/log.h"

namespace hpctl::agent {

void Standbys::plan(const v1::StartWorkers& start, const NodePlace& place) {
  planned_ = wanted_ = 0;
  if (start.workload_json().empty() || start.standbys() == 0) return;  // a command has none
  auto order = make_standby(start, place);
  if (!order.ok()) return log_warning("no standbys: " + order.error().message);
  order_ = std::move(*order);
  planned_ = start.standbys();
}

void Standbys::on(const holder::WorkerState& worker) {
  if (worker.rank < 0 && worker.part == holder::WorkerPart::kIdle) {
    waiting_.insert(worker.incarnation);
    return;
  }
  if (waiting_.erase(worker.incarnation) == 0 || worker.part != holder::WorkerPart::kEnded) return;
  log_warning("standby process " + std::to_string(worker.pid) +
              " has ended before it was needed; another is started in the next generation");
}

void Standbys::replenish(const Start& start) {
  for (auto there = waiting_.size(); there < wanted_; ++there) start(order_);
  wanted_ = 0;
}

}  // namespace hpctl::agent
