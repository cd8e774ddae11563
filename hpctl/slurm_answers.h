// SPDX-License-Identifier: Apache-2.0
// Slurm's answers about a job, for verbs that only read. Users wait for it, and records can replace
// it, so Slurm gets two seconds. After a failure, no object of this process asks Slurm again for
// ten seconds: a verb that looks at thirty jobs waits once.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/job/ids.h"
#include "common/slurm/hpslurm.h"

namespace hpctl {

// Any thread.
class SlurmAnswers {
 public:
  static constexpr int64_t kPatienceMs = 2'000;
  static constexpr int64_t kSilenceMs = 10'000;

  SlurmAnswers(const Clock& clock, SlurmClientOptions options);
  static SlurmAnswers& of_process();

  // As SlurmClient::job().
  Result<SlurmJob> job(JobId id);
  // Why Slurm is skipped now; "" = it answers, or was never called.
  std::string silence() const;

 private:
  const Clock& clock_;
  SlurmClient slurm_;
  mutable std::mutex mutex_;
  std::string silent_;
  int64_t silent_until_ms_ = 0;
};

}  // namespace hpctl
