// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/batch_proxy.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "common/base/clock.h"
#include "common/base/job_files.h"
#include "common/base/log.h"
#include "common/base/paths.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/job_channel.h"
#include "controller/leadership/job_mode.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kAdmissionTimeout{30};
constexpr int kFirstPauseMs = 250;
constexpr int kLongestPauseMs = 8'000;
constexpr std::chrono::seconds kCallTimeout{5};
constexpr int kFileLookMs = 500;  // a file on a shared file system tells nobody that it is there
constexpr int kAskMs = 5'000;     // whether the job still has a controller
constexpr int64_t kNodesEndMs = 120'000;

void set_deadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
}

Outcome ask_for_controller(const ControllerOptions& options) {
  HP_TRY_ASSIGN(const std::string programs, program_directory());
  HP_TRY(write_job_environment(options.job_dir));
  v1::Admission admission;
  admission.set_job(options.job);
  admission.set_job_dir(options.job_dir);
  for (const std::string& node : options.nodes) admission.add_nodes(node);
  admission.set_restart_count(restart_count());
  admission.set_programs(programs);
  admission.set_agent_tokens(true);
  admission.set_scheduler(options.scheduler);
  auto admitted = admit_to_cluster(options.cluster_at, admission, kAdmissionTimeout);
  // Many jobs may start at once.
  for (int pause_ms = kFirstPauseMs; pause_ms <= kLongestPauseMs; pause_ms *= 2) {
    if (admitted.ok() || admitted.error().code != ErrorCode::kResourceExhausted) break;
    ::poll(nullptr, 0, pause_ms);
    admitted = admit_to_cluster(options.cluster_at, admission, kAdmissionTimeout);
  }
  if (!admitted.ok()) return admitted.error();
  log_info("the controller of job " + std::to_string(options.job) + " runs at the cluster's, " +
           options.cluster_at + " (" + admitted->address() + ")");
  return Ok{};
}

// Whether every node has ended, or no controller is left to report it.
bool nodes_have_ended(const ControllerOptions& options) {
  const auto found = connect_job(options.job_dir);
  if (!found.ok()) return true;
  grpc::ClientContext context;
  set_deadline(context);
  v1::GetJobRequest request;
  request.set_job(std::to_string(options.job));
  v1::JobStatus status;
  if (!v1::Controller::NewStub(found->channel)->GetJob(&context, request, &status).ok()) {
    return true;
  }
  return std::all_of(status.nodes().begin(), status.nodes().end(), [](const auto& node) {
    return node.state() == "ended" || node.state() == "down";
  });
}

ToldToEnd ask_why_told_to_end(const ControllerOptions& options) {
  const auto document = read_job_document(options.job_dir);
  return ask_why_told_to_end(JobId{options.job},
                             document.ok() ? document->spec.slurm : SlurmSpec{});
}

bool cancel(const ControllerOptions& options, ToldToEnd why) {
  const auto found = connect_job(options.job_dir);
  if (!found.ok()) return false;
  grpc::ClientContext context;
  set_deadline(context);
  v1::CancelRequest request;
  request.set_job(std::to_string(options.job));
  request.set_time_limit(why == ToldToEnd::kTimeLimit);
  if (const auto document = read_job_document(options.job_dir); document.ok()) {
    const JobId job{options.job};
    const auto paths = HomePaths::of_job(options.job_dir, job, options.node);
    request.set_reason(last_words(why, document->spec, paths.default_checkpoints(job)));
  }
  v1::CancelResponse response;
  return v1::Controller::NewStub(found->channel)->Cancel(&context, request, &response).ok();
}

bool controller_answers(const ControllerOptions& options) {
  const auto found = connect_job(options.job_dir);
  return found.ok() &&
         ping_controller(*found->channel, std::chrono::steady_clock::now() + kCallTimeout, false)
             .ok();
}

// The signal that came within `timeout_ms`; 0 = none.
int next_signal(const UniqueFd& signals, int timeout_ms) {
  pollfd ready{signals.get(), POLLIN, 0};
  ::poll(&ready, 1, timeout_ms);
  signalfd_siginfo info{};
  return ::read(signals.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                  : 0;
}

// The end in order: hooks run on the nodes, and the script must not cut them short.
void wait_for_nodes(const ControllerOptions& options) {
  const SystemClock clock;
  const int64_t deadline_ms = clock.monotonic_ms() + kNodesEndMs;
  while (!nodes_have_ended(options) && clock.monotonic_ms() < deadline_ms) {
    ::poll(nullptr, 0, kFileLookMs);
  }
}

}  // namespace

std::optional<int> batch_proxy(const ControllerOptions& options, const UniqueFd& signals,
                               int silence_ms) {
  const auto asked = ask_for_controller(options);
  if (!asked.ok() && asked.error().code != ErrorCode::kAlreadyExists) {
    log_warning(asked.error().message + "; the job's controller runs here instead, on " +
                options.node);
    return std::nullopt;
  }
  if (!asked.ok()) log_info(asked.error().message);
  bool to_tell = false;  // until a controller is told; one may just be started again
  auto why = ToldToEnd::kSomebody;
  const SystemClock clock;
  int64_t heard_ms = clock.monotonic_ms();
  int64_t ask_ms = heard_ms;
  for (;;) {
    const auto verdict = standing_verdict(options.job_dir, restart_count());
    if (verdict.ok() && verdict->has_value()) {
      wait_for_nodes(options);
      return **verdict;
    }
    const int signal = next_signal(signals, kFileLookMs);
    if (signal == SIGTERM || signal == SIGINT) {
      if (options.scheduler != kSchedulerNone) why = ask_why_told_to_end(options);
      if (why == ToldToEnd::kRequeued) {
        log_info("Slurm requeues the job; its next start goes on");
        return kExitRequeued;
      }
      log_info("ending the job: asked by a signal");
      if (why == ToldToEnd::kPreempted) {
        const auto noted = note_preemption(options.job_dir, restart_count());
        if (!noted.ok()) log_error(noted.error().message + "; Slurm may not requeue the job");
      }
      to_tell = true;
    }
    to_tell = to_tell && !cancel(options, why);
    const int64_t now = clock.monotonic_ms();
    if (now < ask_ms) continue;
    ask_ms = now + std::min(kAskMs, silence_ms);
    if (controller_answers(options)) {
      heard_ms = now;
    } else if (now - heard_ms >= silence_ms) {
      log_error("no controller of the job has answered for " + std::to_string(silence_ms / 1000) +
                " s");
      return kExitFault;
    }
  }
}

}  // namespace hpctl
