// SPDX-License-Identifier: Apache-2.0
// Files in the directory of a job on a cluster, for its controller and agents, besides the
// controllers' records (common/job/endpoint.h) and the status files (docs/formats.md). All nodes
// of the job see it. `hpctl submit` writes the first three.
//
//   JOBDIR/job.json   the job's spec with "uid" and "submit_key"
//   JOBDIR/cluster    ClusterName of the Slurm that the job was submitted to, and a newline
//   JOBDIR/token      64 hexadecimal digits and a newline, mode 0600
//   JOBDIR/verdict    exit code of the job and its restart count; durable before any node gets the
//                     order to end
//   JOBDIR/environment  of the batch script, NAME=VALUE each followed by a NUL; only if the
//                     controller runs outside of the job
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/job/fenced_file.h"
#include "common/job/job_spec.h"

namespace hpctl {

struct JobDocument {
  JobSpec spec;
  uint32_t uid = 0;
  std::string submit_key;
};
Result<JobDocument> read_job_document(const std::string& job_dir);

// kPermissionDenied when others may read the file or it is not ours; kDataLoss when it is no token.
// For root, the token of the owner of `job_dir` is ours too.
Result<std::string> read_token(const std::string& job_dir);
// In a time that does not depend on where they differ.
bool same_token(const std::string& a, const std::string& b);

// Exit codes of a job.
inline constexpr int kVerdictFinished = 0;
inline constexpr int kVerdictFailed = 1;
inline constexpr int kVerdictFailedForGood = 93;  // a requeue would fail in the same way

// How often the Slurm job has been requeued: SLURM_RESTART_COUNT; 0 without Slurm.
uint64_t restart_count();

// Our environment, for nodes of the job that are started from outside: these have the variable
// below, and take it.
inline constexpr char kTakeEnvironment[] = "HPCTL_TAKE_ENVIRONMENT";  // its value: JOBDIR
Outcome write_job_environment(const std::string& job_dir);
// Sets what we do not have of it, and PATH; nothing of Slurm's, which knows this step better.
// Precondition: one thread.
Outcome take_job_environment(const std::string& job_dir);

// False: a newer controller has the job (common/job/fenced_file.h).
Result<bool> write_verdict(
    const std::string& job_dir, int verdict, uint64_t restart_count,
    const IsOurs& is_ours = [] { return true; });
std::string verdict_path(const std::string& job_dir);
// The verdict of a job that needs no controller any more: it ended in this session, or a requeue
// must not run it again. nullopt = it goes on: a failure before a requeue no longer counts.
Result<std::optional<int>> standing_verdict(const std::string& job_dir, uint64_t restart_count);

}  // namespace hpctl
