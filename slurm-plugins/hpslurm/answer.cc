// SPDX-License-Identifier: Apache-2.0
#include "slurm-plugins/hpslurm/answer.h"

#include "slurm-plugins/hpslurm/slurm_compat.h"

namespace hpctl::slurm {
namespace {

// Errors between Slurm's processes, as opposed to those that slurmctld answers with.
bool is_communication(int code) {
  return (code >= SLURM_UNEXPECTED_MSG_ERROR && code < SLURM_NO_CHANGE_IN_DATA &&
          code != SLURM_PROTOCOL_VERSION_ERROR) ||
         (code >= 5000 && code < 7000) || code < 1000;
}

ErrorCode classify(int code) {
  switch (code) {
    case ESLURM_ACCESS_DENIED:
    case ESLURM_USER_ID_MISSING:
      return ErrorCode::kPermissionDenied;
    case ESLURM_INVALID_JOB_ID:
    case ESLURM_INVALID_NODE_NAME:
      return ErrorCode::kNotFound;
    case ESLURM_ALREADY_DONE:
    case ESLURM_JOB_PENDING:
    case ESLURM_JOB_FINISHED:
    case ESLURM_JOB_NOT_RUNNING:
    case ESLURM_JOB_NOT_PENDING:
    case kAwaitsAccountingIndex:
    case ESLURM_TRANSITION_STATE_NO_UPDATE:
    case ESLURM_DISABLED:
    case SLURM_PROTOCOL_VERSION_ERROR:
      return ErrorCode::kFailedPrecondition;
    case ESLURM_IN_STANDBY_MODE:
      return ErrorCode::kUnavailable;
    default:
      return is_communication(code) ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument;
  }
}

}  // namespace

Error last_error(const std::string& what) {
  const int code = errno;
  return Error{classify(code), what + ": " + ::slurm_strerror(code)};
}

Error error_in_words(const std::string& what, const std::string& words) {
  // Between Slurm's first number and the end of those that any release has.
  for (int code = SLURM_UNEXPECTED_MSG_ERROR; code < 10'000; ++code) {
    const std::string known = ::slurm_strerror(code);
    if (known.empty() || known.starts_with("Unknown error")) continue;
    if (words.find(known) != std::string::npos) {
      return Error{classify(code), what + ": " + words};
    }
  }
  return Error{ErrorCode::kInvalidArgument, what + ": " + words};
}

}  // namespace hpctl::slurm
