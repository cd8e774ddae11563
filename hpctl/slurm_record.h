// SPDX-License-Identifier: Apache-2.0
// A Slurm job while its controller does not answer: it waits in the queue, starts, has been
// requeued, or is over. The last controller's record is corrected by Slurm's present answer: a job
// whose record says RUNNING and that Slurm has ended did not end by its controller, and one whose
// controller is silent may be without its nodes. Of a job whose directory is gone only Slurm tells.
#pragma once

#include <memory>

#include "hpctl/job_source.h"
#include "hpctl/slurm_answers.h"

namespace hpctl {

class SlurmRecord final : public JobSource {
 public:
  // Slurm is called at most once per job and call. `why`: for people, why the record is used and
  // not the controller.
  explicit SlurmRecord(const HomePaths& paths,
                       std::string why = "the job's controller does not answer",
                       SlurmAnswers& slurm = SlurmAnswers::of_process())
      : paths_(paths), why_(std::move(why)), slurm_(slurm) {}

  // The Slurm jobs of this home.
  Result<std::vector<JobSummary>> list_jobs() override;
  // While Slurm does not answer, what was recorded last: of a job without a controller's record,
  // that it was submitted.
  Result<JobView> get_job(JobId job) override;
  Result<std::vector<EventView>> events(JobId job, uint64_t after_seq) override;
  Result<Explanation> why(JobId job) override;
  bool is_live() const override { return false; }
  std::string notice(const JobView& job) const override;

 private:
  Result<JobView> last_known(JobId job);
  Result<JobView> known_without_directory(JobId job, const std::string& lost,
                                          const Result<SlurmJob>& slurm) const;
  std::string start_failure(const JobView& view) const;

  HomePaths paths_;
  const std::string why_;
  SlurmAnswers& slurm_;
};

// `view` is what is recorded; Slurm's word about the job is applied to it. Pure.
JobView with_slurm_state(JobView view, const SlurmJob& job);

}  // namespace hpctl
