// SPDX-License-Identifier: Apache-2.0
// The one place that admits a call. Every handler begins with enter(), which finds the caller
// (authenticator.h), checks the table for its role (rules.h), and records refused callers.
// access_rules_test calls every method of the contract as every role.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "controller/access/audit_entry.h"
#include "controller/access/authenticator.h"
#include "controller/access/rules.h"

namespace hpctl {

// The admitted caller, or the reason for the refusal.
struct Entry {
  std::optional<Caller> caller;
  grpc::Status refusal;

  explicit operator bool() const { return caller.has_value(); }
  const Caller* operator->() const { return &*caller; }
  const Caller& operator*() const { return *caller; }
};

class Gate {
 public:
  // `authenticator` outlives the gate. Without `audit` nothing is written down.
  explicit Gate(const Authenticator& authenticator, Audit audit = {})
      : authenticator_(authenticator), audit_(std::move(audit)) {}

  // Any thread, once for each call.
  Entry enter(const grpc::ServerContextBase& context, Rpc rpc) const;
  // Another user's process at the local socket, which heard nothing. Any thread.
  void refused_connection(uid_t uid, pid_t pid) const;
  // An admitted stream is closed because of a message on it. Any thread.
  void refused_stream(const Caller& caller, Rpc rpc, uint64_t job,
                      const grpc::Status& status) const;
  // The end of an admitted call. It is recorded if the table says so, and if the call was about an
  // object of another user. Any thread.
  void ended(const Caller& caller, Rpc rpc, uint64_t job, std::string arguments,
             const grpc::Status& status) const;

 private:
  const Authenticator& authenticator_;
  const Audit audit_;
};

// "Cancel" of "Controller.Cancel".
std::string call_name(Rpc rpc);
// "PERMISSION_DENIED"
std::string outcome_name(const grpc::Status& status);
// Why `role` may not call that.
grpc::Status not_for(Role role, Rpc rpc);

}  // namespace hpctl
