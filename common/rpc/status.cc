// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include <algorithm>
#include <string_view>

#include "common/base/printable.h"

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
    case ErrorCode::kStorage:
      return absl::StatusCode::kUnavailable;
    case ErrorCode::kInternal:
      return absl::StatusCode::kInternal;
  }
  return absl::StatusCode::kUnknown;
}

// gRPC sends a message as a header, whose size is limited.
constexpr size_t kMostMessageBytes = 4'096;

std::string printable_lines(std::string_view message) {
  std::string text;
  for (size_t begin = 0; begin < message.size() && text.size() < kMostMessageBytes;) {
    const size_t end = std::min(message.find('\n', begin), message.size());
    if (begin > 0) text += '\n';
    text += printable_line(message.substr(begin, end - begin), kMostMessageBytes - text.size());
    begin = end + 1;
  }
  return text;
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

// absl and gRPC number the canonical codes alike. The text may quote a caller's input, and others
// read it, on terminals and in the audit log.
grpc::Status to_grpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      printable_lines(message_of(status)));
}

absl::Status from_grpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace hpctl
