// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/home_mode.h"

#include "common/base/host.h"
#include "common/job/submitted_environment.h"
#include "controller/leadership/ask_owner.h"
#include "controller/schedulers/local/local_scheduler.h"

namespace hpctl {
HomeMode::HomeMode(const HomePaths& paths, std::string agent_program)
    : paths_(paths), agent_program_(std::move(agent_program)), host_(host_name()) {}

std::unique_ptr<Scheduler> HomeMode::make_scheduler(Scheduler::Post post) {
  return std::make_unique<LocalScheduler>(paths_, agent_program_, std::move(post));
}

JobIdentity HomeMode::identify(const core::Job& job) const {
  return identify_local_job(paths_, {job.submit_key, job.spec.name, job.owner_uid});
}

Outcome HomeMode::before_launch(JobId job, const std::string& submit_key) {
  return adopt_submitted_environment(paths_, job, submit_key);
}

}  // namespace hpctl
