// SPDX-License-Identifier: Apache-2.0
// The client of hpslurm, the only program that links libslurm.
//
// libslurm may end its process (a bad configuration is a fatal error there) and its calls may block
// for as long as slurmctld or munged do not answer. So every call has a deadline, and an hpslurm
// that died, hung or answered nonsense is killed and restarted for the next call. The stderr of
// libslurm becomes part of the error: cause and remedy in one line.
//
// Codes: kUnavailable   slurmctld or munged does not answer, deadline passed: try again later
//        kInternal      this machine has no hpslurm (says how to get it), or no configuration of
//                       Slurm; nothing is known about any job
//        kInvalidArgument  Slurm refuses the request as it is (unknown partition, bad constraint)
//        kPermissionDenied with the command that an operator must run where there is one
//        kNotFound      Slurm says that there is no such job or node
//        kFailedPrecondition  the job is not in the expected state any more
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/slurm/slurm_messages.h"

namespace hpctl {

class HpslurmProcess;

struct SlurmClientOptions {
  std::string program;  // "" = the hpslurm beside the running program
  int64_t call_deadline_ms = 30'000;
  // submit(): attempts while slurmctld does not answer, and the first pause between them (doubles).
  int submit_attempts = 5;
  int64_t submit_pause_ms = 1'000;
};

// Any thread; calls are made one at a time, the others wait for their turn.
class SlurmClient {
 public:
  explicit SlurmClient(SlurmClientOptions options = {});
  ~SlurmClient();  // ends hpslurm
  SlurmClient(const SlurmClient&) = delete;
  SlurmClient& operator=(const SlurmClient&) = delete;

  // Starts hpslurm; asks nobody else.
  Result<SlurmVersion> version();
  // Asks slurmctld for a sign of life.
  Outcome ping();

  // `submission.comment` must be unique. While slurmctld does not answer, the call tries again a
  // bounded number of times. If an answer may have been lost, it looks for the job by its comment
  // before it submits another, so one call never leaves two jobs behind.
  Result<JobId> submit(const SlurmSubmission& submission);

  // Jobs that have been gone for longer than Slurm's MinJobAge are kNotFound.
  Result<SlurmJob> job(JobId id);
  // This user's jobs with exactly this comment, by id; ended ones while Slurm remembers them.
  Result<std::vector<SlurmJob>> jobs_by_comment(const std::string& comment);
  // Every node of the cluster when `names` is empty.
  Result<std::vector<SlurmNode>> nodes(const std::vector<std::string>& names);
  Result<std::vector<SlurmReservation>> reservations();

  // Ok when the job has ended already.
  Outcome cancel(JobId id);
  // Ends a running job as its batch script would by exiting with that code; ok when it has ended.
  Outcome complete(JobId id, int exit_code);
  // To all steps; with `batch_script` to the batch shell only.
  Outcome signal(JobId id, int signal, bool batch_script = false);
  // Same id, output appended. Only if the job's restart count still is `expected_restarts`, else
  // kFailedPrecondition: a completed requeue is not repeated. `exclude` is added to the job's
  // excluded nodes before it can start again.
  Outcome requeue(JobId id, uint32_t expected_restarts, const std::vector<std::string>& exclude);
  // Shrinks a running job to these nodes.
  Outcome keep_nodes(JobId id, const std::vector<std::string>& nodes);
  // Needs an operator's rights: without them kPermissionDenied, and the message is the command that
  // an operator must run. `reason` is written as it is, byte for byte.
  Outcome update_node(const std::string& node, SlurmNodeState state, const std::string& reason);

 private:
  Result<nlohmann::json> call(const std::string& name, const nlohmann::json& arguments);
  Result<std::string> exchange(const std::string& request, int64_t deadline_ms);
  Outcome start();
  Error explain(const Error& problem) const;
  Result<std::optional<JobId>> find_by_comment(const std::string& comment);
  JobId keep_first(const std::string& comment, JobId submitted);

  const SlurmClientOptions options_;
  std::mutex mutex_;
  std::unique_ptr<HpslurmProcess> process_;  // nullptr = not running
  SlurmVersion version_;                     // as of the last start
};

}  // namespace hpctl
