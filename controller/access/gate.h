// SPDX-License-Identifier: Apache-2.0
// The one place where a call is let in: every handler begins with enter(), which asks who calls
// (authenticator.h) and whether the table lets such a one call this (rules.h), and writes down who
// was refused. access_rules_test calls every method of the contract as every role.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "controller/access/audit_entry.h"
#include "controller/access/authenticator.h"
#include "controller/access/rules.h"

namespace hpctl {

// Whoever is let in, or why nobody is.
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
  // A stream that was let in is closed for what was said on it. Any thread.
  void refused_stream(const Caller& caller, Rpc rpc, uint64_t job,
                      const grpc::Status& status) const;
  // How a call that was let in has ended: written down where the table says so, and where it was
  // about what is not the caller's. Any thread.
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
