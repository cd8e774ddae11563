// SPDX-License-Identifier: Apache-2.0
#include "controller/access/rules.h"

namespace hpctl {
namespace {

template <typename... Roles>
constexpr uint32_t roles(Roles... of) {
  return ((1U << static_cast<unsigned>(of)) | ...);
}

constexpr uint32_t kLook = roles(Role::kReader, Role::kOperator, Role::kOwner, Role::kLocal);
constexpr uint32_t kOrderNodes = roles(Role::kOperator, Role::kOwner, Role::kLocal);
constexpr uint32_t kOwn = roles(Role::kOwner, Role::kLocal);
constexpr uint32_t kEverybody =
    roles(Role::kUser, Role::kAppointedReader, Role::kAppointedOperator, Role::kAdministrator);
constexpr uint32_t kAppointed =
    roles(Role::kAppointedReader, Role::kAppointedOperator, Role::kAdministrator);

constexpr std::array<AccessRule, kRpcs> kRules = {{
    {Rpc::kSubmit, "Controller.Submit", kOwn, true},
    {Rpc::kGetJob, "Controller.GetJob", kLook, false},
    {Rpc::kListJobs, "Controller.ListJobs", kLook, false},
    {Rpc::kCancel, "Controller.Cancel", kOwn, true},
    {Rpc::kWatchEvents, "Controller.WatchEvents", kLook, false},
    {Rpc::kWhy, "Controller.Why", kLook, false},
    {Rpc::kListNodes, "Controller.ListNodes", kLook, false},
    {Rpc::kGetVersion, "Controller.GetVersion", kLook, false},
    {Rpc::kQuarantineNode, "Controller.QuarantineNode", kOrderNodes, true},
    {Rpc::kReleaseNode, "Controller.ReleaseNode", kOrderNodes, true},
    {Rpc::kRecoverNode, "Controller.RecoverNode", kOrderNodes, true},
    {Rpc::kInject, "Controller.Inject", kOwn, true},
    {Rpc::kOpenPage, "Controller.OpenPage", kOwn, true},
    {Rpc::kRemoveJob, "Controller.RemoveJob", kOwn, true},
    // The reports of agents are in the history of the job.
    {Rpc::kConnect, "AgentLink.Connect", roles(Role::kAgent, Role::kLocal), false},
    // Whose job it is, is looked at there as well (service.h).
    {Rpc::kClusterAdmit, "Cluster.Admit", kEverybody, true},
    {Rpc::kClusterListJobs, "Cluster.ListJobs", kEverybody, false},
    {Rpc::kClusterOpenJob, "Cluster.OpenJob", kAppointed, true},
    {Rpc::kClusterJudgeNode, "Cluster.JudgeNode",
     roles(Role::kAppointedOperator, Role::kAdministrator), true},
    // The owner of the session decides its content (fleet_answers.h).
    {Rpc::kClusterOpenPage, "Cluster.OpenPage", kEverybody, true},
}};

constexpr bool in_order() {
  for (size_t i = 0; i < kRpcs; ++i) {
    if (static_cast<size_t>(kRules[i].rpc) != i || kRules[i].roles == 0) return false;
  }
  return true;
}
static_assert(in_order(), "each Rpc has its row, in the order of the enumeration");

}  // namespace

const AccessRule& rule_of(Rpc rpc) { return kRules.at(static_cast<size_t>(rpc)); }

bool may_call(Role role, Rpc rpc, bool older_agents) {
  if (rpc == Rpc::kConnect && role == Role::kOwner && older_agents) return true;
  return (rule_of(rpc).roles & (1U << static_cast<unsigned>(role))) != 0;
}

}  // namespace hpctl
