// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or a reason, for code that may not use absl (common/base, trainer, holder).
// A reason is one line a person can act on: what failed, on which file, why, and what to do.
// common/rpc converts it to absl::Status at the gRPC edge.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "common/base/check.h"

namespace hpctl {

// The caller's right reaction, in the sense of the absl code of the same name.
enum class ErrorCode {
  kInvalidArgument,     // the input is wrong; a retry cannot help
  kNotFound,            // the named thing is not there
  kAlreadyExists,       // an exclusive creation lost the race
  kPermissionDenied,    // not yours
  kFailedPrecondition,  // the system is not in a state to do this
  kResourceExhausted,   // disk, budget
  kDataLoss,            // stored bytes are damaged
  kUnavailable,         // try again later
  kInternal,            // our bug, or an operating system failure without better class
  kStorage,             // a file system cannot do it now: I/O error, stale handle, server away
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  int os_error = 0;  // errno of the call that failed; 0 = no call failed, or it is not known
};

// Errors of a network file system while its server or its mount is down. They may be transient, and
// say nothing about the stored data.
inline bool is_storage_errno(int err) {
  switch (err) {
    case EIO:
    case ESTALE:
    case EROFS:
    case EFBIG:
    case ETIMEDOUT:
    case ENOTCONN:
    case EREMOTEIO:
    case ESHUTDOWN:
    case EHOSTDOWN:
      return true;
    default:
      return false;
  }
}

// "cannot WHAT PATH: strerror"; ENOSPC, EACCES, ENOENT, EEXIST and the storage's errors map to
// their codes.
inline Error errno_error(const std::string& what, int err = errno) {
  ErrorCode code = ErrorCode::kInternal;
  // Not memory or descriptors: where this means a full disk, older checkpoints are given up for it.
  if (err == ENOSPC || err == EDQUOT) code = ErrorCode::kResourceExhausted;
  if (is_storage_errno(err)) code = ErrorCode::kStorage;
  if (err == EACCES || err == EPERM) code = ErrorCode::kPermissionDenied;
  if (err == ENOENT) code = ErrorCode::kNotFound;
  if (err == EEXIST) code = ErrorCode::kAlreadyExists;
  return Error{code, what + ": " + std::strerror(err), err};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  // Precondition for value(): ok(); for error(): !ok().
  T& value() & {
    HP_CHECK(ok());
    return std::get<T>(state_);
  }
  const T& value() const& {
    HP_CHECK(ok());
    return std::get<T>(state_);
  }
  // By value, so that `for (x : f().value())` does not iterate over a dead temporary.
  T value() && {
    HP_CHECK(ok());
    return std::get<T>(std::move(state_));
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  const Error& error() const {
    HP_CHECK(!ok());
    return std::get<Error>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

struct Ok {};
using Outcome = Result<Ok>;

}  // namespace hpctl

// Evaluates an expression of type Result<T>; returns its error from the calling function.
#define HP_TRY(expression)                                        \
  do {                                                            \
    if (auto hp_try_result = (expression); !hp_try_result.ok()) { \
      return hp_try_result.error();                               \
    }                                                             \
  } while (false)

#define HP_CONCAT_INNER(a, b) a##b
#define HP_CONCAT(a, b) HP_CONCAT_INNER(a, b)
#define HP_TRY_ASSIGN_IMPL(tmp, lhs, expression) \
  auto tmp = (expression);                       \
  if (!tmp.ok()) return tmp.error();             \
  lhs = std::move(tmp).value()
// HP_TRY_ASSIGN(auto x, f()); binds the value, or returns the error.
#define HP_TRY_ASSIGN(lhs, expression) \
  HP_TRY_ASSIGN_IMPL(HP_CONCAT(hp_try_, __LINE__), lhs, expression)
