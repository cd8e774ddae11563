// SPDX-License-Identifier: Apache-2.0
// The one place where our error kinds meet: Result (no absl), absl::Status (inside the control
// plane) and grpc::Status (on the wire). Codes keep their meaning across all three.
#pragma once

#include <grpcpp/support/status.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/result.h"

namespace hpctl {

absl::Status to_absl(const Error& error);
inline absl::Status to_absl(const Outcome& outcome) {
  return outcome.ok() ? absl::OkStatus() : to_absl(outcome.error());
}
template <typename T>
absl::StatusOr<T> to_absl(Result<T> result) {
  if (!result.ok()) return to_absl(result.error());
  return std::move(result).value();
}

// The kind of an error that came over the wire. A peer that was not reached in time, or gave up, is
// unavailable; a code that we never send is internal.
ErrorCode error_code(const absl::Status& status);

// Its message is lines of printable text of at most 4 KiB.
grpc::Status to_grpc(const absl::Status& status);
absl::Status from_grpc(const grpc::Status& status);

// absl::string_view is not std::string_view in Debian's build; everybody wants a string anyway.
inline std::string message_of(const absl::Status& status) { return std::string(status.message()); }

}  // namespace hpctl

// Evaluates an absl::Status; returns it from the calling function unless it is OK.
#define HP_RETURN_IF_ERROR(expression)                            \
  do {                                                            \
    if (absl::Status hp_status = (expression); !hp_status.ok()) { \
      return hp_status;                                           \
    }                                                             \
  } while (false)

#define HP_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expression) \
  auto tmp = (expression);                             \
  if (!tmp.ok()) return tmp.status();                  \
  lhs = std::move(tmp).value()
// HP_ASSIGN_OR_RETURN(auto x, f()); binds the value of an absl::StatusOr, or returns its status.
#define HP_ASSIGN_OR_RETURN(lhs, expression) \
  HP_ASSIGN_OR_RETURN_IMPL(HP_CONCAT(hp_status_or_, __LINE__), lhs, expression)
