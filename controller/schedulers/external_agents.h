// SPDX-License-Identifier: Apache-2.0
// The backend that starts nothing (`--scheduler none`): the starter of the job brings the agents,
// which register by themselves. A node whose agent does not come in time is lost, and awaited
// again.
#pragma once

#include "controller/schedulers/scheduler.h"

namespace hpctl {

class ExternalAgents final : public Scheduler {
 public:
  void resume(const core::State&) override {}
  core::EventBody launch(ActionId id, const core::LaunchNode& action) override {
    return core::NodeLaunched{id, action.job, action.node, 0};
  }
  void registered(const core::NodeKey&, uint64_t) override {}
  void stop() override {}
};

}  // namespace hpctl
