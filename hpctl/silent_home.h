// SPDX-License-Identifier: Apache-2.0
// The jobs of a home whose file system does not answer: those of its local controller, which is
// asked through a socket on a local disk. Nothing is read from the home.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hpctl/controller_client.h"
#include "hpctl/job_source.h"

namespace hpctl {

class SilentHome final : public JobSource {
 public:
  // Without a client each answer is kUnavailable.
  SilentHome(const HomePaths& paths, std::unique_ptr<ControllerClient> client)
      : paths_(paths), client_(std::move(client)) {}

  Result<std::vector<JobSummary>> list_jobs() override;
  Result<JobView> get_job(JobId job) override;
  Result<std::vector<EventView>> events(JobId job, uint64_t after_seq) override;
  Result<Explanation> why(JobId job) override;
  bool is_live() const override { return client_ != nullptr; }
  ControllerClient* controller() override { return client_.get(); }
  std::string notice(const JobView& job) const override;

 private:
  Outcome check_client() const;

  const HomePaths paths_;
  const std::unique_ptr<ControllerClient> client_;
};

}  // namespace hpctl
