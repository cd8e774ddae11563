// SPDX-License-Identifier: Apache-2.0
// The permissions: one table with a row for every call of the wire contract, which gate.h enforces
// for all of them. A call without a row does not build, or fails access_rules_test.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/base/word_enum.h"

namespace hpctl {

enum class Role : uint8_t {
  // At the controller of one job, by token (common/net/role_token.h):
  kAgent,
  kReader,
  kOperator,  // of nodes, appointed at the cluster controller
  kOwner,
  // At its Unix socket, by uid: its own user or root, and the agents of a home.
  kLocal,
  // At the cluster controller, by MUNGE:
  kUser,
  kAppointedReader,
  kAppointedOperator,
  kAdministrator,  // root, and the uid that it runs as
};
constexpr std::array<const char*, 9> words_of(Role) {
  return {"agent", "reader", "operator", "owner",        "local user",
          "user",  "reader", "operator", "administrator"};
}

enum class Rpc : uint8_t {
  kSubmit,
  kGetJob,
  kListJobs,
  kCancel,
  kWatchEvents,
  kWhy,
  kListNodes,
  kGetVersion,
  kQuarantineNode,
  kReleaseNode,
  kRecoverNode,
  kInject,
  kOpenPage,
  kRemoveJob,
  kConnect,
  kClusterAdmit,
  kClusterListJobs,
  kClusterOpenJob,
  kClusterJudgeNode,
  kClusterOpenPage,
};
inline constexpr size_t kRpcs = 20;

struct AccessRule {
  Rpc rpc;
  const char* method;  // in the wire contract, without "hpctl.v1."
  uint32_t roles;      // bits, by Role
  // It changes something, or opens a connection: every caller is recorded (AuditEntry). For other
  // calls, only refused callers are.
  bool is_audited;
};

const AccessRule& rule_of(Rpc rpc);

// `older_agents`: agents of a release that knew no agents' tokens may come, with the owner's.
bool may_call(Role role, Rpc rpc, bool older_agents);

}  // namespace hpctl
