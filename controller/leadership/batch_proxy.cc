// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/batch_proxy.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/job/job_files.h"
#include "common/job/paths.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/job_channel.h"
#include "controller/leadership/directory_watch.h"
#include "controller/leadership/job_mode.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kAdmissionTimeout{30};
constexpr int kFirstPauseMs = 250;
constexpr int kLongestPauseMs = 8'000;
constexpr std::chrono::seconds kCallTimeout{5};
constexpr int kFileLookMs = 500;  // a file on a shared file system tells nobody that it is there
constexpr int64_t kSilentLookMs = 2 * kFileLookMs;
constexpr int kAskMs = 5'000;  // whether the job still has a controller
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

// What the job's directory says. A lane reads it, because the directory may not answer; the batch
// script's signals must be passed on all the same, to the controller that was known before.
class JobDirectory {
 public:
  JobDirectory(const ControllerOptions& options, const Clock& clock)
      : job_dir_(options.job_dir),
        clock_(clock),
        watch_(
            job_dir_, "whether the job has ended cannot be seen", [this] { read(); }, clock) {}

  void tick() { watch_.tick(); }
  bool is_silent() const { return watch_.waits_ms() > kSilentLookMs; }
  std::vector<std::string> stop() { return watch_.stop(); }

  std::optional<int> verdict() const {
    const std::lock_guard lock(mutex_);
    return verdict_;
  }
  // nullptr: none has started yet.
  std::shared_ptr<grpc::Channel> controller() const {
    const std::lock_guard lock(mutex_);
    return controller_;
  }
  // Another one may have the job: the next look reads which.
  void ask_for_controller() { is_controller_wanted_ = true; }
  // The next look writes it.
  void note_preemption() { is_preempted_ = true; }
  // False until then, unless the directory does not answer.
  bool knows_controller() const { return !is_controller_wanted_ || is_silent(); }
  // Before it was read: with the default for each key.
  JobSpec spec() const {
    const std::lock_guard lock(mutex_);
    return document_ ? document_->spec : JobSpec{};
  }

 private:
  void read() {
    if (is_preempted_ && !preemption_was_noted_) {
      const auto noted = hpctl::note_preemption(job_dir_, restart_count());
      preemption_was_noted_ = noted.ok();
      if (!noted.ok()) log_error(noted.error().message + "; Slurm may not requeue the job");
    }
    const auto verdict = standing_verdict(job_dir_, restart_count());
    if (verdict.ok() && *verdict) {
      const std::lock_guard lock(mutex_);
      verdict_ = **verdict;
    }
    if (is_controller_wanted_ || clock_.monotonic_ms() >= reread_ms_) read_controller();
    if (spec_was_read_) return;
    auto document = read_job_document(job_dir_);
    spec_was_read_ = document.ok();
    if (!document.ok()) return;
    const std::lock_guard lock(mutex_);
    document_ = std::move(*document);
  }
  void read_controller() {
    reread_ms_ = clock_.monotonic_ms() + kAskMs;
    const auto found = connect_job(job_dir_);
    if (found.ok()) {
      const std::lock_guard lock(mutex_);
      controller_ = found->channel;
    }
    is_controller_wanted_ = false;
  }

  const std::string job_dir_;
  const Clock& clock_;
  mutable std::mutex mutex_;  // of the next three
  std::optional<int> verdict_;
  std::shared_ptr<grpc::Channel> controller_;
  std::optional<JobDocument> document_;
  std::atomic<bool> is_controller_wanted_{false};
  std::atomic<bool> is_preempted_{false};
  int64_t reread_ms_ = 0;  // the lane's, as what follows
  bool spec_was_read_ = false;
  bool preemption_was_noted_ = false;
  DirectoryWatch watch_;  // last: its thread uses what is above
};

// Whether every node has ended, or no controller is left to report it.
bool nodes_have_ended(const ControllerOptions& options, const JobDirectory& directory) {
  if (!directory.knows_controller()) return false;
  const auto controller = directory.controller();
  if (controller == nullptr) return true;
  grpc::ClientContext context;
  set_deadline(context);
  v1::GetJobRequest request;
  request.set_job(std::to_string(options.job));
  v1::JobStatus status;
  if (!v1::Controller::NewStub(controller)->GetJob(&context, request, &status).ok()) return true;
  return std::all_of(status.nodes().begin(), status.nodes().end(), [](const auto& node) {
    return node.state() == "ended" || node.state() == "down";
  });
}

// False: no controller has taken it.
bool cancel(const ControllerOptions& options, JobDirectory& directory, TerminationCause why) {
  if (!directory.knows_controller()) return false;
  directory.ask_for_controller();  // for the next attempt
  const auto controller = directory.controller();
  if (controller == nullptr) return false;
  const JobId job{options.job};
  const auto paths = HomePaths::of_job(options.job_dir, job, options.node);
  grpc::ClientContext context;
  set_deadline(context);
  v1::CancelRequest request;
  request.set_job(to_string(job));
  request.set_time_limit(why == TerminationCause::kTimeLimit);
  request.set_reason(last_words(why, directory.spec(), paths.default_checkpoints(job)));
  v1::CancelResponse response;
  return v1::Controller::NewStub(controller)->Cancel(&context, request, &response).ok();
}

bool controller_answers(JobDirectory& directory) {
  const auto controller = directory.controller();
  const auto deadline = std::chrono::steady_clock::now() + kCallTimeout;
  if (controller != nullptr && ping_controller(*controller, deadline, false).ok()) return true;
  directory.ask_for_controller();
  return false;
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
void wait_for_nodes(const ControllerOptions& options, JobDirectory& directory) {
  const SystemClock clock;
  const int64_t deadline_ms = clock.monotonic_ms() + kNodesEndMs;
  directory.ask_for_controller();
  while (!nodes_have_ended(options, directory) && clock.monotonic_ms() < deadline_ms) {
    directory.tick();
    ::poll(nullptr, 0, kFileLookMs);
  }
}

int wait_for_end(const ControllerOptions& options, JobDirectory& directory, const UniqueFd& signals,
                 int silence_ms) {
  bool to_tell = false;  // until a controller is told; one may just be started again
  auto why = TerminationCause::kSomebody;
  const SystemClock clock;
  int64_t heard_ms = clock.monotonic_ms();
  int64_t ask_ms = heard_ms;
  for (;;) {
    directory.tick();
    if (const auto verdict = directory.verdict()) {
      wait_for_nodes(options, directory);
      return *verdict;
    }
    const int signal = next_signal(signals, kFileLookMs);
    if (signal == SIGTERM || signal == SIGINT) {
      if (options.scheduler != kSchedulerNone) {
        why = ask_termination_cause(JobId{options.job}, directory.spec().slurm);
      }
      if (why == TerminationCause::kRequeued) {
        log_info("Slurm requeues the job; its next start goes on");
        return kExitRequeued;
      }
      log_info("ending the job: asked by a signal");
      if (why == TerminationCause::kPreempted) directory.note_preemption();
      directory.ask_for_controller();
      to_tell = true;
    }
    to_tell = to_tell && !cancel(options, directory, why);
    const int64_t now = clock.monotonic_ms();
    if (now < ask_ms) continue;
    ask_ms = now + std::min(kAskMs, silence_ms);
    // While the directory is silent, another controller may have the job.
    if (controller_answers(directory) || directory.is_silent()) {
      heard_ms = now;
    } else if (now - heard_ms >= silence_ms) {
      log_error("no controller of the job has answered for " + std::to_string(silence_ms / 1000) +
                " s");
      return kExitFault;
    }
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
  const SystemClock clock;
  JobDirectory directory(options, clock);
  const int exit_code = wait_for_end(options, directory, signals, silence_ms);
  if (const auto hung = directory.stop(); !hung.empty()) leave_with_hung_lanes(hung, exit_code);
  return exit_code;
}

}  // namespace hpctl
