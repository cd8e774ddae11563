// SPDX-License-Identifier: Apache-2.0
#include "hpctl/slurm_answers.h"

#include <utility>

namespace hpctl {

SlurmAnswers::SlurmAnswers(const Clock& clock, SlurmClientOptions options)
    : clock_(clock), slurm_(std::move(options)) {}

SlurmAnswers& SlurmAnswers::of_process() {
  static const SystemClock clock;
  static SlurmAnswers answers(clock, [] {
    SlurmClientOptions options;
    options.call_deadline_ms = kPatienceMs;
    return options;
  }());
  return answers;
}

Result<SlurmJob> SlurmAnswers::job(JobId id) {
  if (const std::string silent = silence(); !silent.empty()) {
    return Error{ErrorCode::kUnavailable, silent};
  }
  auto answer = slurm_.job(id);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!answer.ok() && answer.error().code == ErrorCode::kUnavailable) {
    silent_ = answer.error().message;
    silent_until_ms_ = clock_.monotonic_ms() + kSilenceMs;
  } else {
    silent_.clear();
  }
  return answer;
}

std::string SlurmAnswers::silence() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return clock_.monotonic_ms() < silent_until_ms_ ? silent_ : "";
}

}  // namespace hpctl
