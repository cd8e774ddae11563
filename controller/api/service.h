// SPDX-License-Identifier: Apache-2.0
// The users' side of the controller: the gate admits each call (gate.h). A call sees the jobs of
// its uid (root: all; by a token, the jobs of the token's owner), and is answered from the state
// between two commits.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/node_record.h"
#include "common/job/paths.h"
#include "controller/access/gate.h"
#include "controller/agents/agent_link.h"
#include "controller/agents/progress.h"
#include "controller/api/event_feed.h"
#include "controller/engine/owner_loop.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl {

struct ControllerIdentity {
  std::string version;
  std::string node;     // host name
  std::string metrics;  // HOST:PORT or ""
  bool accepts_jobs;    // else it has one and takes no other
};

class ControllerService final : public v1::Controller::CallbackService {
 public:
  // A fault on purpose, told by this event, that the controller's next search for a checkpoint of
  // the job meets (fails_directory()). Called on the owner thread.
  using FailDirectory = std::function<void(InjectedFault fault, const core::LogEntry& told)>;

  // The URL of a link to the status page for that uid. Any thread.
  using MakePageLink = std::function<Result<std::string>(uint32_t uid)>;

  // Evidence against machines. Any thread.
  using Lemons = std::function<std::vector<LemonScore>()>;

  // The list of jobs has been sent to a caller. Called on the owner thread.
  using Listed = std::function<void()>;

  ControllerService(const HomePaths& paths, ControllerIdentity identity, const Gate& gate,
                    OwnerLoop& loop, EventFeed& feed, ProgressTable& progress, AgentLink& agents,
                    FailDirectory fail_directory, MakePageLink make_page_link, Lemons lemons,
                    Listed listed);

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::SubmitResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::JobStatus* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* QuarantineNode(grpc::CallbackServerContext* context,
                                           const v1::QuarantineNodeRequest* request,
                                           v1::QuarantineNodeResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseNode(grpc::CallbackServerContext* context,
                                        const v1::ReleaseNodeRequest* request,
                                        v1::ReleaseNodeResponse* response) override;
  grpc::ServerUnaryReactor* RecoverNode(grpc::CallbackServerContext* context,
                                        const v1::RecoverNodeRequest* request,
                                        v1::RecoverNodeResponse* response) override;
  grpc::ServerUnaryReactor* Inject(grpc::CallbackServerContext* context,
                                   const v1::InjectRequest* request,
                                   v1::InjectResponse* response) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const v1::CancelRequest* request,
                                   v1::CancelResponse* response) override;
  grpc::ServerUnaryReactor* RemoveJob(grpc::CallbackServerContext* context,
                                      const v1::RemoveJobRequest* request,
                                      v1::RemoveJobResponse* response) override;
  grpc::ServerWriteReactor<v1::Event>* WatchEvents(grpc::CallbackServerContext* context,
                                                   const v1::WatchEventsRequest* request) override;
  grpc::ServerUnaryReactor* Why(grpc::CallbackServerContext* context, const v1::WhyRequest* request,
                                v1::WhyResponse* response) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* OpenPage(grpc::CallbackServerContext* context,
                                     const v1::OpenPageRequest* request,
                                     v1::OpenPageResponse* response) override;
  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const v1::GetVersionRequest* request,
                                       v1::GetVersionResponse* response) override;

  // Rises with every call: the idle end looks whether it moved.
  uint64_t calls() const { return calls_; }

 private:
  using Answer = std::function<grpc::Status(const core::State& state)>;

  Entry enter(const grpc::CallbackServerContext* context, Rpc rpc);
  // Waits for the owner thread.
  absl::StatusOr<JobId> look_up(const std::string& text, const Caller& caller, Rpc rpc);
  // Answers from the state, on the owner thread.
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Rpc rpc,
                                   const Caller& caller, Answer answer);
  // An order about one job: an event, and what is done and answered once the core has accepted it
  // and `told` is in the history.
  using MakeOrder = std::function<core::EventBody(JobId job, uint32_t uid)>;
  using AnswerOrder = std::function<void(const core::Job& job, const core::LogEntry& told)>;
  struct Order {
    Rpc rpc;
    std::string job;        // that is meant, as the caller says it
    std::string arguments;  // for the audit log
    MakeOrder make;
    AnswerOrder answer;
  };
  grpc::ServerUnaryReactor* order(grpc::CallbackServerContext* context, Order order);
  // Answers at once.
  grpc::ServerUnaryReactor* reply(grpc::CallbackServerContext* context, grpc::Status status);

  const HomePaths paths_;
  const ControllerIdentity identity_;
  const Gate& gate_;
  OwnerLoop& loop_;
  EventFeed& feed_;
  ProgressTable& progress_;
  AgentLink& agents_;
  const FailDirectory fail_directory_;
  const MakePageLink make_page_link_;
  const Lemons lemons_;
  const Listed listed_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace hpctl
