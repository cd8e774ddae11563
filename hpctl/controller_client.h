// SPDX-License-Identifier: Apache-2.0
// The controller of an HPCTL_HOME as verbs see it: every call has a deadline, every error is one
// line that says what to do. kUnavailable = it does not answer (exit status 3).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/worker/injected_fault.h"
#include "hpctl/job_source.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl {

class ControllerClient final : public JobSource {
 public:
  // nullptr when no controller answers; never starts one.
  static std::unique_ptr<ControllerClient> connect(const HomePaths& paths);
  // The newest controller of a Slurm job. kUnavailable if it does not answer, or if another process
  // answers at its address: the error says which, and nothing was sent.
  static Result<std::unique_ptr<ControllerClient>> connect(const HomePaths& paths, JobId job);
  // Starts a controller when none answers. kUnavailable if the home's file system does not answer.
  static Result<std::unique_ptr<ControllerClient>> ensure(const HomePaths& paths);

  ControllerClient(const HomePaths& paths, std::shared_ptr<grpc::Channel> channel);

  Result<std::vector<JobSummary>> list_jobs() override;
  Result<JobView> get_job(JobId job) override;
  Result<std::vector<EventView>> events(JobId job, uint64_t after_seq) override;
  Result<Explanation> why(JobId job) override;
  bool is_live() const override { return true; }
  ControllerClient* controller() override { return this; }

  Result<JobId> submit(const std::string& spec_json, const std::string& submit_key);
  // The state after the request.
  Result<std::string> cancel(JobId job);
  // Its record. kNotFound: the controller knows no such job.
  Outcome remove_job(JobId job);
  // for_ms 0 = until released. `asks_first`: refused where the job would be requeued.
  Outcome quarantine_node(JobId job, const std::string& node, const std::string& reason,
                          int64_t for_ms, bool asks_first);
  // Once its work has left: a reboot, or another machine in its place.
  Outcome recover_node(JobId job, const std::string& node, const std::string& reason, bool reboot,
                       bool asks_first);
  Outcome release_node(JobId job, const std::string& node);
  // A fault on purpose; the seq of its event in the history. kUnavailable: it may have happened,
  // and kill-controller has.
  Result<uint64_t> inject(JobId job, InjectedFault fault, int32_t rank, const std::string& node);
  // A link to the status page, of that job ("" = all), that counts once.
  Result<v1::OpenPageResponse> open_page(const std::string& job);
  Result<v1::GetVersionResponse> version();

 private:
  using Stub = v1::Controller::Stub;
  template <typename Request, typename Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

  // Nothing when `status` is OK.
  Outcome check(const grpc::Status& status) const;
  static constexpr std::chrono::milliseconds kCallTimeout{5000};
  // A call and its answer.
  template <typename Request, typename Response>
  Result<Response> call(Method<Request, Response> method, const Request& request,
                        std::chrono::milliseconds timeout = kCallTimeout) const;

  std::string home_;
  std::string log_;  // of the controller
  std::unique_ptr<v1::Controller::Stub> stub_;
};

}  // namespace hpctl
