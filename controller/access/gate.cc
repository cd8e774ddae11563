// SPDX-License-Identifier: Apache-2.0
#include "controller/access/gate.h"

#include <unistd.h>

#include "absl/status/status.h"

namespace hpctl {
namespace {

std::string with_article(const std::string& role) {
  return (std::string("aeiou").find(role.front()) == std::string::npos ? "a " : "an ") + role;
}

AuditEntry describe(const Caller& caller, Rpc rpc, uint64_t job, const grpc::Status& status) {
  AuditEntry entry;
  entry.call = call_name(rpc);
  entry.uid = caller.uid;
  entry.role = to_word(caller.role);
  entry.from = caller.from;
  entry.job = job;
  entry.outcome = outcome_name(status);
  entry.why = status.error_message();
  return entry;
}

}  // namespace

std::string call_name(Rpc rpc) {
  const std::string method = rule_of(rpc).method;
  return method.substr(method.find('.') + 1);
}

std::string outcome_name(const grpc::Status& status) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code()));
}

grpc::Status not_for(Role role, Rpc rpc) {
  return {grpc::StatusCode::PERMISSION_DENIED,
          "the call comes as " + with_article(to_word(role)) + ", who may not " + call_name(rpc) +
              "; docs/security.md has the table of who may do what"};
}

Entry Gate::enter(const grpc::ServerContextBase& context, Rpc rpc) const {
  auto caller = authenticator_.of(context);
  if (caller && may_call(caller->role, rpc, authenticator_.older_agents())) {
    return {std::move(caller), grpc::Status::OK};
  }
  const grpc::Status refusal =
      caller ? not_for(caller->role, rpc)
             : grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                            "the call carries no token of this job, or one whose time is over; "
                            "see JOBDIR/token");
  if (audit_) {
    AuditEntry entry;
    entry.call = call_name(rpc);
    if (caller) entry.uid = caller->uid;
    if (caller) entry.role = to_word(caller->role);
    entry.from = caller ? caller->from : context.peer();
    entry.outcome = outcome_name(refusal);
    entry.why = refusal.error_message();
    entry.is_refused_call = true;
    audit_(std::move(entry));
  }
  return {std::nullopt, refusal};
}

void Gate::refused_connection(uid_t uid, pid_t pid) const {
  if (!audit_) return;
  AuditEntry entry;
  entry.call = "a connection";
  entry.uid = uid;
  entry.from = "local socket";
  entry.arguments = "pid=" + std::to_string(pid);
  entry.outcome = "PERMISSION_DENIED";
  entry.why = "this controller serves uid " + std::to_string(::geteuid());
  entry.is_refused_call = true;
  audit_(std::move(entry));
}

void Gate::refused_stream(const Caller& caller, Rpc rpc, uint64_t job,
                          const grpc::Status& status) const {
  if (!audit_) return;
  AuditEntry entry = describe(caller, rpc, job, status);
  entry.is_refused_call = true;
  audit_(std::move(entry));
}

void Gate::ended(const Caller& caller, Rpc rpc, uint64_t job, std::string arguments,
                 const grpc::Status& status) const {
  const bool is_refused = status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
  if (!audit_ || !(rule_of(rpc).is_audited || is_refused)) return;
  AuditEntry entry = describe(caller, rpc, job, status);
  entry.arguments = std::move(arguments);
  entry.is_refused_call = is_refused && !rule_of(rpc).is_audited;
  audit_(std::move(entry));
}

}  // namespace hpctl
