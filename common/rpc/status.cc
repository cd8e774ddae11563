// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

namespace hpctl {
namespace {

absl::StatusCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case ErrorCode::kNotFound:
      return absl::StatusCode::kNotFound;
    case ErrorCode::kAlreadyExists:
      return absl::StatusCode::kAlreadyExists;
    case ErrorCode::kPermissionDenied:
      return absl::StatusCode::kPermissionDenied;
    case ErrorCode::kFailedPrecondition:
      return absl::StatusCode::kFailedPrecondition;
    case ErrorCode::kResourceExhausted:
      return absl::StatusCode::kResourceExhausted;
    case ErrorCode::kDataLoss:
      return absl::StatusCode::kDataLoss;
    case ErrorCode::kUnavailable:
      return absl::StatusCode::kUnavailable;
    case ErrorCode::kInternal:
      return absl::StatusCode::kInternal;
  }
  return absl::StatusCode::kUnknown;
}

}  // namespace

absl::Status to_absl(const Error& error) {
  return absl::Status(code_of(error.code), error.message);
}

ErrorCode error_code(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return ErrorCode::kInvalidArgument;
    case absl::StatusCode::kNotFound:
      return ErrorCode::kNotFound;
    case absl::StatusCode::kAlreadyExists:
      return ErrorCode::kAlreadyExists;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return ErrorCode::kPermissionDenied;
    case absl::StatusCode::kFailedPrecondition:
      return ErrorCode::kFailedPrecondition;
    case absl::StatusCode::kResourceExhausted:
      return ErrorCode::kResourceExhausted;
    case absl::StatusCode::kDataLoss:
      return ErrorCode::kDataLoss;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kInternal;
  }
}

// absl and gRPC number the canonical codes alike.
grpc::Status to_grpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), message_of(status));
}

absl::Status from_grpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace hpctl
