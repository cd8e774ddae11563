// SPDX-License-Identifier: Apache-2.0
// The local backend: one controller per home, for as many jobs as its user submits; nodes are
// processes of this machine.
#pragma once

#include "controller/leadership/controller_mode.h"

namespace hpctl {

class HomeMode final : public ControllerMode {
 public:
  HomeMode(const HomePaths& paths, std::string agent_program);

  std::unique_ptr<Scheduler> make_scheduler(Scheduler::Post post) override;
  std::string node() const override { return host_; }
  JobIdentity identify(const core::Job& job) const override;
  HomePaths users_home() const override { return paths_; }
  bool accepts_jobs() const override { return true; }
  // The environment that the job was submitted with becomes the job's.
  Outcome before_launch(JobId job, const std::string& submit_key) override;

 private:
  const HomePaths paths_;
  const std::string agent_program_;
  const std::string host_;
};

}  // namespace hpctl
