// SPDX-License-Identifier: Apache-2.0
#include "hpctl/controller_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>

#include "common/base/file.h"
#include "common/base/printable.h"
#include "common/net/tcp_probe.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/job_summary_wire.h"
#include "common/rpc/status.h"
#include "hpctl/directory_answer.h"
#include "hpctl/home_access.h"

namespace hpctl {
namespace {

constexpr std::chrono::milliseconds kPingTimeout{1000};  // of a machine that may be gone
constexpr std::chrono::milliseconds kStartTimeout{10'000};
constexpr std::chrono::milliseconds kSubmitTimeout{20'000};

// An argument as a field of a request, of which protobuf carries UTF-8 only.
std::string wire_text(const std::string& argument) {
  constexpr size_t kMaxBytes = 4096;
  return printable_line(argument, kMaxBytes);
}

void set_deadline(grpc::ClientContext& context, std::chrono::milliseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

SteadyTime after(std::chrono::milliseconds timeout) {
  return std::chrono::steady_clock::now() + timeout;
}

NodeView to_view(const v1::NodeStatus& n) {
  NodeView view{n.name(),    n.role(),       n.state(),     n.instance_id(),
                n.boot_id(), n.holder_pid(), n.agent_pid(), n.note()};
  if (n.has_standbys()) {
    const v1::Standbys& standbys = n.standbys();
    view.standbys = StandbyView{standbys.wanted(), standbys.ready(), standbys.loading(),
                                standbys.memory_bytes()};
  }
  return view;
}

WorkerView to_view(const v1::WorkerStatus& w) {
  return {w.rank(), w.node(), w.pid(), w.generation(), w.state(), w.phase(), w.step()};
}

JobView to_view(const v1::JobStatus& s) {
  JobView view;
  view.job = s.job();
  view.name = s.name();
  view.state = s.state();
  view.generation = s.generation();
  view.step = s.step();
  view.loss = s.loss();
  view.restarts = s.restarts();
  view.controller_pid = s.controller_pid();
  view.controller_node = s.controller_node();
  for (const auto& node : s.nodes()) view.nodes.push_back(to_view(node));
  for (const auto& worker : s.workers()) view.workers.push_back(to_view(worker));
  view.reason = s.reason();
  view.total_steps = s.total_steps();
  view.tokens_per_second = s.tokens_per_second();
  view.mfu = s.mfu();
  view.checkpoint_step = s.checkpoint_step();
  view.snapshot_step = s.snapshot_step();
  for (const v1::Straggler& row : s.stragglers()) {
    view.stragglers.push_back({row.node(), row.rank(), row.slowdown(), row.evidence()});
  }
  view.checkpoint_dir = s.checkpoint_dir();
  view.mirror = {s.mirror().dir(), s.mirror().step(), s.mirror().behind_ms(), s.mirror().problem()};
  view.job_uuid = s.job_uuid();
  view.submitted_at = WallTime(s.submitted_wall_ms());
  view.ended_at = WallTime(s.ended_wall_ms());
  view.lost_ms = s.lost_ms();
  view.spent = to_time_spent(s.spent());
  view.faults = s.faults();
  view.owner = s.owner();
  view.chaos = s.chaos();
  view.step_ms = s.step_ms();
  view.last_fault = s.last_fault();
  for (const v1::ChosenValue& row : s.chosen()) {
    view.chosen.values.push_back({row.key(), row.value(), row.reason()});
  }
  view.chosen.basis = s.chosen_for();
  if (s.has_margins()) view.margins = to_job_margins(s.margins());
  return view;
}

EventView to_view(const v1::Event& e) {
  return {e.seq(),  e.wall_ms(), e.type(),  e.job(),         e.generation(),
          e.node(), e.rank(),    e.cause(), e.because_seq(), e.step()};
}

// The kernel of a machine that is there accepts, whatever its processes do.
bool is_there(const std::string& address) {
  return probe_tcp({address}, kPingTimeout) == std::vector{TcpAnswer::kAccepted};
}

}  // namespace

std::unique_ptr<ControllerClient> ControllerClient::connect(const HomePaths& paths) {
  if (!is_accessible(paths.controller_socket())) return nullptr;
  auto channel = connect_controller(paths);
  // Where nobody listens the kernel says so at once. Who listens and is slow has a busy machine,
  // and what is on disk instead is less than what it would say.
  if (!ping_controller(*channel, after(kCallTimeout), false).ok()) return nullptr;
  return std::make_unique<ControllerClient>(paths, std::move(channel));
}

Result<std::unique_ptr<ControllerClient>> ControllerClient::ensure(const HomePaths& paths) {
  if (!directory_answers(paths.jobs())) {
    if (auto client = connect(paths)) return client;
    return Error{ErrorCode::kUnavailable, describe_verdict(paths.jobs())};
  }
  HP_TRY(check_home_is_ours(paths));
  auto channel = ensure_controller(paths, after(kStartTimeout));
  if (!channel.ok()) {
    return Error{error_code(channel.status()), message_of(channel.status())};
  }
  return std::make_unique<ControllerClient>(paths, std::move(*channel));
}

ControllerClient::ControllerClient(const HomePaths& paths, std::shared_ptr<grpc::Channel> channel)
    : home_(paths.home()),
      log_(paths.controller_log()),
      stub_(v1::Controller::NewStub(std::move(channel))) {}

Result<std::unique_ptr<ControllerClient>> ControllerClient::connect(const HomePaths& paths,
                                                                    JobId job) {
  HP_TRY(check_directory_answers(paths.jobs()));
  const auto found = connect_job(paths.job(job));
  if (!found.ok()) return Error{ErrorCode::kUnavailable, found.error().message};
  const ControllerRecord& record = found->controller;
  auto answered = ping_controller(*found->channel, after(kPingTimeout), false);
  // Who listens and is slow has a busy machine, here as well; an attempt to connect may be over
  // before it answers (kAttemptMs).
  if (absl::IsDeadlineExceeded(answered) && is_there(record.address)) {
    answered = ping_controller(*found->channel, after(kCallTimeout - kPingTimeout), true);
  }
  if (is_unproven(answered)) {
    return Error{ErrorCode::kUnavailable, "who listens at " + record.address + " (" + record.node +
                                              ") could not prove to be the job's controller " +
                                              std::to_string(record.epoch) +
                                              " and was sent nothing"};
  }
  if (!answered.ok()) {
    return Error{ErrorCode::kUnavailable, "the job's controller does not answer"};
  }
  auto client = std::make_unique<ControllerClient>(paths, found->channel);
  client->log_ = paths.node(job, record.node) + "/controller.log";
  return client;
}

Outcome ControllerClient::check(const grpc::Status& status) const {
  if (status.ok()) return Ok{};
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return Error{
        ErrorCode::kFailedPrecondition,
        "the controller of " + home_ +
            " is of an older release, which cannot do that (hpctl version tells which); use "
            "the hpctl of that release, or another verb"};
  }
  const ErrorCode code = error_code(from_grpc(status));
  if (code != ErrorCode::kUnavailable) return Error{code, status.error_message()};
  return Error{code, "the controller of " + home_ + " does not answer: " + status.error_message() +
                         " (its log: " + log_ + ")"};
}

template <typename Request, typename Response>
Result<Response> ControllerClient::call(Method<Request, Response> method, const Request& request,
                                        std::chrono::milliseconds timeout) const {
  grpc::ClientContext context;
  set_deadline(context, timeout);
  Response response;
  HP_TRY(check((stub_.get()->*method)(&context, request, &response)));
  return response;
}

Result<std::vector<JobSummary>> ControllerClient::list_jobs() {
  HP_TRY_ASSIGN(const auto response, call(&Stub::ListJobs, v1::ListJobsRequest()));
  std::vector<JobSummary> jobs;
  for (const auto& job : response.jobs()) jobs.push_back(to_job_summary(job));
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.job < b.job; });
  return jobs;
}

Result<JobView> ControllerClient::get_job(JobId job) {
  v1::GetJobRequest request;
  request.set_job(to_string(job));
  HP_TRY_ASSIGN(const auto response, call(&Stub::GetJob, request));
  return to_view(response);
}

Result<std::vector<EventView>> ControllerClient::events(JobId job, uint64_t after_seq) {
  grpc::ClientContext context;
  set_deadline(context, kCallTimeout);
  v1::WatchEventsRequest request;
  request.set_job(to_string(job));
  request.set_after_seq(after_seq);
  const auto stream = stub_->WatchEvents(&context, request);
  std::vector<EventView> events;
  for (v1::Event event; stream->Read(&event);) events.push_back(to_view(event));
  HP_TRY(check(stream->Finish()));
  return events;
}

Result<Explanation> ControllerClient::why(JobId job) {
  v1::WhyRequest request;
  request.set_job(to_string(job));
  HP_TRY_ASSIGN(const auto response, call(&Stub::Why, request));
  Explanation explanation{response.summary(), {}};
  for (const auto& event : response.chain()) explanation.chain.push_back(to_view(event));
  return explanation;
}

Result<JobId> ControllerClient::submit(const std::string& spec_json,
                                       const std::string& submit_key) {
  v1::SubmitRequest request;
  request.set_spec_json(spec_json);
  request.set_submit_key(submit_key);
  HP_TRY_ASSIGN(const auto response, call(&Stub::Submit, request, kSubmitTimeout));
  return JobId{response.job()};
}

Result<std::string> ControllerClient::cancel(JobId job) {
  v1::CancelRequest request;
  request.set_job(to_string(job));
  HP_TRY_ASSIGN(const auto response, call(&Stub::Cancel, request));
  return response.state();
}

Outcome ControllerClient::remove_job(JobId job) {
  v1::RemoveJobRequest request;
  request.set_job(to_string(job));
  HP_TRY(call(&Stub::RemoveJob, request));
  return Ok{};
}

Outcome ControllerClient::quarantine_node(JobId job, const std::string& node,
                                          const std::string& reason, int64_t for_ms,
                                          bool asks_first) {
  v1::QuarantineNodeRequest request;
  request.set_job(to_string(job));
  request.set_node(wire_text(node));
  request.set_reason(wire_text(reason));
  request.set_for_ms(for_ms);
  request.set_asks_first(asks_first);
  HP_TRY(call(&Stub::QuarantineNode, request));
  return Ok{};
}

Outcome ControllerClient::release_node(JobId job, const std::string& node) {
  v1::ReleaseNodeRequest request;
  request.set_job(to_string(job));
  request.set_node(wire_text(node));
  HP_TRY(call(&Stub::ReleaseNode, request));
  return Ok{};
}

Outcome ControllerClient::recover_node(JobId job, const std::string& node,
                                       const std::string& reason, bool reboot, bool asks_first) {
  v1::RecoverNodeRequest request;
  request.set_job(to_string(job));
  request.set_node(wire_text(node));
  request.set_reason(wire_text(reason));
  request.set_reboot(reboot);
  request.set_asks_first(asks_first);
  HP_TRY(call(&Stub::RecoverNode, request));
  return Ok{};
}

Result<uint64_t> ControllerClient::inject(JobId job, InjectedFault fault, int32_t rank,
                                          const std::string& node) {
  v1::InjectRequest request;
  request.set_job(to_string(job));
  request.set_fault(to_word(fault));
  request.set_rank(rank);
  request.set_node(wire_text(node));
  HP_TRY_ASSIGN(const auto response, call(&Stub::Inject, request));
  return response.seq();
}

Result<v1::OpenPageResponse> ControllerClient::open_page(const std::string& job) {
  v1::OpenPageRequest request;
  request.set_job(job);
  return call(&Stub::OpenPage, request);
}

Result<v1::GetVersionResponse> ControllerClient::version() {
  return call(&Stub::GetVersion, v1::GetVersionRequest());
}

}  // namespace hpctl
