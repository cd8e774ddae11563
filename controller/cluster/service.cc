// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/service.h"

#include <unistd.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/rpc/munge.h"
#include "common/rpc/status.h"
#include "controller/options.h"

namespace hpctl::cluster {
namespace {

constexpr size_t kMaxPath = 4'096;
constexpr size_t kMaxNonce = 64;
constexpr size_t kMaxNodeName = 255;
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

// The caller by the credential of a call, and the request in it.
template <typename Request>
Result<MungeIdentity> open_call(const v1::ClusterCall& call, Request& request) {
  HP_TRY_ASSIGN(MungeIdentity caller, munge_decode(call.credential()));
  const uid_t self = ::geteuid();
  if (self != 0 && caller.uid != self) {
    return Error{ErrorCode::kPermissionDenied,
                 "this cluster controller runs as uid " + std::to_string(self) +
                     " and serves that user only; you are uid " + std::to_string(caller.uid)};
  }
  if (!request.ParseFromString(caller.payload) || request.nonce().empty() ||
      request.nonce().size() > kMaxNonce) {
    return Error{ErrorCode::kInvalidArgument,
                 "the credential is genuine, but its payload is not a question to this service"};
  }
  return caller;
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
  const auto caller = open_call(*call, admission);
  if (!caller.ok()) {
    log_warning("an admission from " + context->peer() + " is refused: " + caller.error().message);
    return to_status(caller.error());
  }
  if (const auto problem = find_problem(admission)) {
    return {grpc::StatusCode::INVALID_ARGUMENT, *problem};
  }
  auto job = supervisor_.admit(caller->uid, caller->gid, admission);
  if (!job.ok()) return to_status(job.error());
  v1::ClusterJobs jobs;
  *jobs.add_jobs() = std::move(*job);
  return reply(caller->uid, admission.nonce(), std::move(jobs), answer);
}

v1::ClusterJobs ClusterService::page(const v1::ClusterQuestion& question, uid_t caller) const {
  v1::ClusterJobs jobs;
  jobs.set_all_users(caller == 0 || caller == ::geteuid());
  const std::optional<uid_t> whose = jobs.all_users() ? std::nullopt : std::optional<uid_t>(caller);
  const JobKey after{question.after_uid(), question.after_job()};
  size_t bytes = 0;
  for (v1::ClusterJob& job : supervisor_.outlines(whose, after, kMaxPageJobs + 1)) {
    summaries_.describe({job.uid(), job.job()}, job);
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

grpc::Status ClusterService::ListJobs(grpc::ServerContext*, const v1::ClusterCall* call,
                                      v1::ClusterAnswer* answer) {
  v1::ClusterQuestion question;
  const auto caller = open_call(*call, question);
  if (!caller.ok()) return to_status(caller.error());
  if (question.summaries()) {
    return reply(caller->uid, question.nonce(), page(question, caller->uid), answer);
  }
  v1::ClusterJobs jobs;
  for (v1::ClusterJob& job : supervisor_.jobs_of(caller->uid)) *jobs.add_jobs() = std::move(job);
  return reply(caller->uid, question.nonce(), std::move(jobs), answer);
}

}  // namespace hpctl::cluster
