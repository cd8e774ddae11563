// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/service.h"

#include <unistd.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/net/role_token.h"
#include "common/rpc/munge.h"
#include "common/rpc/status.h"
#include "controller/access/gate.h"
#include "controller/leadership/options.h"

namespace hpctl::cluster {
namespace {

constexpr size_t kMaxPath = 4'096;
constexpr size_t kMaxNonce = 64;
constexpr size_t kMaxNodeName = 255;
constexpr size_t kMaxReason = 300;
constexpr uint64_t kMaxJob = UINT32_MAX;  // of Slurm

bool is_path(const std::string& text) {
  return text.starts_with('/') && text.size() < kMaxPath &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

bool is_node(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNodeName && name.front() != '-' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             "-_.") == std::string::npos;
}

grpc::Status to_status(const Error& error) { return to_grpc(to_absl(error)); }

bool is_refusal(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
         status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
}

// By MUNGE. kPermissionDenied where this service is not for that user.
Result<MungeIdentity> open_credential(const v1::ClusterCall& call) {
  HP_TRY_ASSIGN(MungeIdentity caller, munge_decode(call.credential()));
  const uid_t self = ::geteuid();
  if (self == 0 || caller.uid == self) return caller;
  return Error{ErrorCode::kPermissionDenied,
               "this cluster controller runs as uid " + std::to_string(self) +
                   " and serves that user only; you are uid " + std::to_string(caller.uid)};
}

template <typename Request>
Outcome parse(const std::string& payload, Request& request) {
  if (request.ParseFromString(payload) && !request.nonce().empty() &&
      request.nonce().size() <= kMaxNonce) {
    return Ok{};
  }
  return Error{ErrorCode::kInvalidArgument,
               "the credential is genuine, but its payload is not a question to this service"};
}

}  // namespace

std::optional<std::string> find_problem(const v1::Admission& admission) {
  if (admission.job() == 0 || admission.job() > kMaxJob) return "it names no job";
  if (!is_path(admission.job_dir())) return "job_dir is not an absolute path";
  if (!admission.programs().empty() && !is_path(admission.programs())) {
    return "programs is not an absolute path";
  }
  for (const std::string& node : admission.nodes()) {
    if (!is_node(node)) {
      return "\"" + printable_line(node, kMaxNodeName) + "\" is no name of a node";
    }
  }
  const std::string& scheduler = admission.scheduler();
  if (!scheduler.empty() && scheduler != kSchedulerSlurm && scheduler != kSchedulerNone) {
    return "there is no scheduler \"" + printable_line(scheduler, kMaxNodeName) + "\"";
  }
  return std::nullopt;
}

void ClusterService::note(const grpc::ServerContext& context, Rpc rpc,
                          const std::optional<Asker>& asker, uint64_t job, std::string arguments,
                          const grpc::Status& status) const {
  if (!audit_ || !(rule_of(rpc).is_audited || is_refusal(status))) return;
  AuditEntry entry;
  entry.call = call_name(rpc);
  if (asker) entry.uid = asker->uid;
  if (asker) entry.role = to_word(asker->role);
  entry.from = context.peer();
  entry.job = job;
  entry.arguments = std::move(arguments);
  entry.outcome = outcome_name(status);
  entry.why = status.error_message();
  entry.is_refused_call = !status.ok();
  audit_(std::move(entry));
}

template <typename Request>
Result<ClusterService::Asker> ClusterService::enter(const grpc::ServerContext& context, Rpc rpc,
                                                    const v1::ClusterCall& call,
                                                    Request& request) const {
  std::optional<Asker> asker;
  const auto found = [&]() -> Outcome {
    HP_TRY_ASSIGN(const MungeIdentity caller, open_credential(call));
    asker = {caller.uid, caller.gid, role_of(appointed_, caller.uid, caller.gid, ::geteuid())};
    if (!may_call(asker->role, rpc, false)) {
      return Error{ErrorCode::kPermissionDenied, not_for(asker->role, rpc).error_message()};
    }
    return parse(caller.payload, request);
  }();
  if (found.ok()) return *asker;
  note(context, rpc, asker, 0, "", to_status(found.error()));
  return found.error();
}

grpc::Status ClusterService::reply(uid_t reader, const std::string& nonce, v1::ClusterJobs jobs,
                                   v1::ClusterAnswer* answer) const {
  jobs.set_nonce(nonce);
  jobs.set_version(HPCTL_VERSION);
  jobs.set_node(node_);
  auto credential = munge_encode(jobs.SerializeAsString(), reader);
  if (!credential.ok()) return to_status(credential.error());
  answer->set_credential(std::move(*credential));
  return grpc::Status::OK;
}

grpc::Status ClusterService::Admit(grpc::ServerContext* context, const v1::ClusterCall* call,
                                   v1::ClusterAnswer* answer) {
  v1::Admission admission;
  const auto asker = enter(*context, Rpc::kClusterAdmit, *call, admission);
  if (!asker.ok()) return to_status(asker.error());
  const auto admit = [&]() -> grpc::Status {
    if (const auto problem = find_problem(admission)) {
      return to_grpc(absl::InvalidArgumentError(*problem));
    }
    auto job = supervisor_.admit(asker->uid, asker->gid, admission);
    if (!job.ok()) return to_status(job.error());
    v1::ClusterJobs jobs;
    *jobs.add_jobs() = std::move(*job);
    return reply(asker->uid, admission.nonce(), std::move(jobs), answer);
  };
  grpc::Status status = admit();
  note(*context, Rpc::kClusterAdmit, *asker, admission.job(), "job_dir=" + admission.job_dir(),
       status);
  return status;
}

v1::ClusterJobs ClusterService::page(const v1::ClusterQuestion& question,
                                     const Asker& asker) const {
  v1::ClusterJobs jobs;
  jobs.set_all_users(asker.role != Role::kUser);
  const std::optional<uid_t> whose =
      jobs.all_users() ? std::nullopt : std::optional<uid_t>(asker.uid);
  const JobKey after{question.after_uid(), question.after_job()};
  size_t bytes = 0;
  for (v1::ClusterJob& job :
       list_fleet(supervisor_, summaries_, whose, after, kMaxPageJobs + 1, question.ended())) {
    bytes += job.ByteSizeLong();
    const auto listed = static_cast<size_t>(jobs.jobs_size());
    if (listed > 0 && (listed == kMaxPageJobs || bytes > kMaxPageBytes)) {
      jobs.set_more(true);
      break;
    }
    *jobs.add_jobs() = std::move(job);
  }
  return jobs;
}

// Everybody may know which machines are bad; whose job said what is for those who see all jobs.
v1::ClusterJobs ClusterService::lemons_for(const Asker& asker) const {
  v1::ClusterJobs told;
  told.set_lemons_told(true);
  told.set_all_users(asker.role != Role::kUser);
  for (const FleetLemon& lemon : lemons_.scores()) {
    if (static_cast<size_t>(told.lemons_size()) == kMaxLemons) break;
    v1::NodeLemon& line = *told.add_lemons();
    line.set_node(lemon.score.node);
    line.set_instance(lemon.score.instance);
    line.set_score(lemon.score.score);
    line.set_records(static_cast<uint32_t>(lemon.score.records));
    line.set_users(static_cast<uint32_t>(lemon.users));
    line.set_checked(lemon.checked);
    if (told.all_users()) line.set_reason(lemon.score.worst);
  }
  return told;
}

grpc::Status ClusterService::ListJobs(grpc::ServerContext* context, const v1::ClusterCall* call,
                                      v1::ClusterAnswer* answer) {
  v1::ClusterQuestion question;
  const auto asker = enter(*context, Rpc::kClusterListJobs, *call, question);
  if (!asker.ok()) return to_status(asker.error());
  if (question.lemons()) {
    return reply(asker->uid, question.nonce(), lemons_for(*asker), answer);
  }
  if (question.summaries()) {
    return reply(asker->uid, question.nonce(), page(question, *asker), answer);
  }
  v1::ClusterJobs jobs;
  for (v1::ClusterJob& job : supervisor_.jobs_of(asker->uid)) *jobs.add_jobs() = std::move(job);
  return reply(asker->uid, question.nonce(), std::move(jobs), answer);
}

grpc::Status ClusterService::OpenJob(grpc::ServerContext* context, const v1::ClusterCall* call,
                                     v1::ClusterAnswer* answer) {
  v1::ClusterQuestion question;
  const auto asker = enter(*context, Rpc::kClusterOpenJob, *call, question);
  if (!asker.ok()) return to_status(asker.error());
  const TokenRole role =
      asker->role == Role::kAppointedReader ? TokenRole::kReader : TokenRole::kOperator;
  const auto open = [&]() -> grpc::Status {
    auto found = supervisor_.open(question.job(), asker->uid, role);
    if (!found.ok()) return to_status(found.error());
    v1::ClusterJobs jobs;
    for (v1::ClusterJob& job : *found) *jobs.add_jobs() = std::move(job);
    return reply(asker->uid, question.nonce(), std::move(jobs), answer);
  };
  grpc::Status status = open();
  note(*context, Rpc::kClusterOpenJob, *asker, question.job(),
       std::string("token of ") + to_word(role), status);
  return status;
}

grpc::Status ClusterService::OpenPage(grpc::ServerContext* context, const v1::ClusterCall* call,
                                      v1::ClusterAnswer* answer) {
  v1::ClusterQuestion question;
  const auto asker = enter(*context, Rpc::kClusterOpenPage, *call, question);
  if (!asker.ok()) return to_status(asker.error());
  const auto open = [&]() -> grpc::Status {
    auto url = page_.link(asker->uid, asker->gid);
    if (!url.ok()) return to_status(url.error());
    v1::ClusterJobs told;
    told.set_page_url(std::move(*url));
    return reply(asker->uid, question.nonce(), std::move(told), answer);
  };
  grpc::Status status = open();
  note(*context, Rpc::kClusterOpenPage, *asker, 0, "", status);
  return status;
}

grpc::Status ClusterService::JudgeNode(grpc::ServerContext* context, const v1::ClusterCall* call,
                                       v1::ClusterAnswer* answer) {
  v1::NodeJudgement said;
  const auto asker = enter(*context, Rpc::kClusterJudgeNode, *call, said);
  if (!asker.ok()) return to_status(asker.error());
  const auto judge = [&]() -> grpc::Status {
    if (!is_node(said.node()) || (!said.instance().empty() && !is_node(said.instance()))) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              "\"" + printable_line(said.node(), kMaxNodeName) + "\" is no name of a node"};
    }
    const Outcome kept =
        lemons_.check({0, 0, said.node(), said.instance(),
                       said.passed() ? NodeRecordKind::kCheckPassed : NodeRecordKind::kCheckFailed,
                       "", printable_line(said.reason(), kMaxReason)});
    if (!kept.ok()) return to_status(kept.error());
    return reply(asker->uid, said.nonce(), {}, answer);
  };
  grpc::Status status = judge();
  note(
      *context, Rpc::kClusterJudgeNode, *asker, 0,
      "node=" + printable_line(said.node(), kMaxNodeName) + (said.passed() ? " passed" : " failed"),
      status);
  return status;
}

}  // namespace hpctl::cluster
