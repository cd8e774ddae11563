// SPDX-License-Identifier: Apache-2.0
// Actions that an agent performs, as messages. A message is a function of the stored action, the
// rows and the generation's port alone, so a repetition after a restart of the controller is equal.
// It is made on the owner thread, so making it reads nothing.
//
// The orders for the nodes of a generation differ in very little. The rest, with the workload as
// JSON, is kept from one order to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/job/paths.h"
#include "controller/agents/rendezvous_ports.h"
#include "controller/core/core.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {

// The node whose agent performs the action; nullopt for what the controller itself performs.
std::optional<core::NodeKey> agent_of(const core::Action& action);

// One thread at a time.
class OrderMaker {
 public:
  // `ports` outlives it.
  OrderMaker(const HomePaths& paths, const RendezvousPorts& ports) : paths_(paths), ports_(ports) {}

  // Precondition: agent_of(action). The spec of a job does not change.
  v1::ControllerMessage make(const core::Action& action, const core::State& state);

 private:
  // All that the common part is made of, but the spec: the plan of the generation, then rows.
  using Basis = std::tuple<JobId, Generation, std::string, uint64_t, Generation, std::vector<Rank>,
                           int32_t, bool, bool, uint64_t, int64_t, int32_t, std::string, uint16_t>;

  void fill(v1::StartWorkers& order, const core::StartWorkers& action, const core::State& state);
  void make_common_part(const core::StartWorkers& action, const core::Job& job,
                        const std::string& master, uint16_t port);

  const HomePaths paths_;
  const RendezvousPorts& ports_;
  Basis basis_;
  v1::StartWorkers common_;
  // The workload of the built-in trainer around the address that it binds; "" = a command.
  std::string workload_before_;
  std::string workload_after_;
};

// Returns whether the node has no ranks and should be ready to get some: a spare of a job that
// trains.
bool stands_by(const core::State& state, const core::NodeKey& node);
// Precondition: stands_by(). With a standby for each rank that a node has, where workers have any.
v1::ControllerMessage make_stand_by(const core::NodeKey& node, const core::State& state,
                                    const HomePaths& paths);

}  // namespace hpctl
