// SPDX-License-Identifier: Apache-2.0
// What Slurm says about a job, for verbs that only read. People wait for it, and records can take
// its place, so Slurm gets two seconds. A Slurm that did not answer is not asked again for ten
// seconds, by no object of this process: a verb that looks at thirty jobs waits once.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/rpc/hpslurm.h"

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
  // Why Slurm is not asked now; "" = it answers, or was never asked.
  std::string silence() const;

 private:
  const Clock& clock_;
  SlurmClient slurm_;
  mutable std::mutex mutex_;
  std::string silent_;
  int64_t silent_until_ms_ = 0;
};

}  // namespace hpctl
