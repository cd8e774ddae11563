// SPDX-License-Identifier: Apache-2.0
#include "controller/run_controller.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/controller_beat.h"
#include "common/job/job_files.h"
#include "common/job/start_failure.h"
#include "common/process/log_writer.h"
#include "common/worker/worker_abi.h"
#include "controller/controller.h"
#include "controller/leadership/batch_proxy.h"
#include "controller/leadership/directory_watch.h"
#include "controller/leadership/home_mode.h"
#include "controller/leadership/job_mode.h"
#include "controller/leadership/starter.h"

namespace hpctl {
namespace {

constexpr int kExitAnotherRuns = 3;
constexpr int64_t kLastLogMs = 2'000;
constexpr char kCostOfSilence[] =
    "this controller serves on, but cannot see whether another has taken over, so it starts no "
    "generation and ends no job until the directory answers";

UniqueFd take_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&taken, signal);
  pthread_sigmask(SIG_BLOCK, &taken, nullptr);
  return UniqueFd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

// The signal that waits; 0 = none.
int next_signal(const UniqueFd& signals) {
  signalfd_siginfo info{};
  return ::read(signals.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                  : 0;
}

// Exit code of a start that failed; `fault` where it is nothing else.
int explain_failure(const Error& error, Starter& starter, int fault) {
  log_error(error.message);
  starter.failed(error);
  return error.code == ErrorCode::kAlreadyExists ? kExitAnotherRuns : fault;
}

// Another attempt may find storage that can be read and written. The batch script makes it, after a
// pause.
bool is_of_storage(const Error& error) {
  return error.code == ErrorCode::kStorage || error.code == ErrorCode::kPermissionDenied ||
         error.code == ErrorCode::kResourceExhausted;
}

// For a job's controller: a user without a controller finds the reason in the job's directory.
int explain_failure_of_job(const Error& error, Starter& starter, const ControllerOptions& options) {
  if (error.code != ErrorCode::kAlreadyExists) {
    const auto noted = note_start_failure(options.job_dir, options.node, error.message);
    if (!noted.ok()) log_warning(noted.error().message);
  }
  const bool is_usage = error.code == ErrorCode::kInvalidArgument;
  const int otherwise = is_of_storage(error) ? kExitStorage : kExitFault;
  return explain_failure(error, starter, is_usage ? kExitUsage : otherwise);
}

// With the exit code, whatever hangs. The log says what was left behind.
int end(Controller& controller, int exit_code) {
  if (const auto hung = controller.stop(); !hung.empty()) leave_with_hung_lanes(hung, exit_code);
  return exit_code;
}

// Until a signal asks for the end, or nothing has happened for long enough.
void wait_in_home(const Controller& controller, const UniqueFd& signals, int64_t idle_seconds) {
  uint64_t calls = 0;
  for (;;) {
    pollfd ready{signals.get(), POLLIN, 0};
    ::poll(&ready, 1, idle_seconds == 0 ? -1 : static_cast<int>(idle_seconds * 1000));
    const int signal = next_signal(signals);
    if (signal == SIGTERM || signal == SIGINT) {
      log_info("ending: asked by a signal");
      return;
    }
    if (ready.revents != 0) continue;
    if (controller.is_idle() && calls == controller.calls()) {
      log_info("ending: no live job and no client for " + std::to_string(idle_seconds) + " s");
      return;
    }
    calls = controller.calls();
  }
}

int run_home(const ControllerOptions& options, const UniqueFd& signals) {
  const HomePaths paths(options.home);
  Starter starter(options.ready_fd, -1);
  const auto programs = program_directory();
  if (!programs.ok()) return explain_failure(programs.error(), starter, 1);
  HomeMode mode(paths, *programs + "/hpagent");
  Controller controller(paths, options, mode);
  if (const auto started = controller.start(); !started.ok()) {
    return end(controller, explain_failure(started.error(), starter, 1));
  }
  starter.serving();
  wait_in_home(controller, signals, options.idle_exit_seconds);
  return end(controller, 0);
}

// This thread takes the signals, so the job's directory is looked at beside it.
// `belongs_to_job`: a signal to this process is meant for the job. One of the cluster controller's
// is ended with its machine, and the job goes on.
int wait_for_verdict(Controller& controller, JobMode& mode, JobId job, DirectoryWatch& watch,
                     const UniqueFd& signals, bool belongs_to_job) {
  for (;;) {
    watch.tick();
    const auto exit_code = mode.wait(signals.get(), kBeatIntervalMs);
    if (exit_code) return *exit_code;
    const int signal = next_signal(signals);
    if (signal == SIGUSR1) log_info("SIGUSR1: noted; there is nothing to do about it");
    const bool all_nodes = controller.take_told_to_end(job);
    if (!all_nodes && signal != SIGTERM && signal != SIGINT) continue;
    if (!all_nodes && !belongs_to_job) {
      log_info("ending: asked by a signal; the job goes on");
      return kExitFault;
    }
    const TerminationCause why = mode.termination_cause();
    if (why == TerminationCause::kRequeued) {
      log_info("Slurm requeues the job; its next start goes on");
      return kExitRequeued;
    }
    log_info("ending the job: asked by a signal" + std::string(all_nodes ? " to all nodes" : ""));
    mode.note_told_to_end(why);
    controller.post(mode.cancellation(why));
  }
}

int run_job(const ControllerOptions& options, const UniqueFd& signals) {
  const auto paths = HomePaths::of_job(options.job_dir, JobId{options.job}, options.node);
  Starter starter(options.ready_fd, options.report_fd);
  const auto ended = standing_verdict(options.job_dir, restart_count());
  if (!ended.ok()) return explain_failure_of_job(ended.error(), starter, options);
  if (ended->has_value()) {
    const std::string what = "the job has ended before with " + std::to_string(**ended);
    log_info(what);
    starter.failed({ErrorCode::kAlreadyExists, what});
    return **ended;
  }
  JobMode mode(paths, options);
  Controller controller(paths, options, mode);
  if (const auto started = controller.start(); !started.ok()) {
    return end(controller, explain_failure_of_job(started.error(), starter, options));
  }
  starter.serving(
      {mode.record().address, mode.record().certificate, controller.metrics_port(), true});
  const SystemClock clock;
  DirectoryWatch watch(
      options.job_dir, kCostOfSilence,
      [&] { mode.look([&] { return controller.heard_nodes(JobId{options.job}); }); }, clock);
  const int exit_code = wait_for_verdict(controller, mode, JobId{options.job}, watch, signals,
                                         options.run_as.empty());
  const bool has_verdict =
      exit_code != kExitSuperseded && exit_code != kExitFault && exit_code != kExitRequeued;
  if (has_verdict) {
    // Slurm itself ends a job that it preempts.
    if (!mode.is_preempted()) controller.complete(exit_code);
    controller.linger_for_scrape(signals.get(), options.run_as.empty()
                                                    ? ScrapeLinger::Readers::kScrapesOfFailure
                                                    : ScrapeLinger::Readers::kScrapesAndCluster);
  }
  auto hung = watch.stop();  // it asks the controller
  for (std::string& lane : controller.stop()) hung.push_back(std::move(lane));
  // A head node sees many jobs. After a requeue the next controller may be there already.
  const bool is_last = exit_code != kExitFault && exit_code != kExitRequeued;
  if (!options.run_as.empty() && is_last) {
    if (const auto removed = remove_tree(paths.state()); !removed.ok()) {
      log_warning(removed.error().message);
    }
  }
  if (!hung.empty()) leave_with_hung_lanes(hung, exit_code);
  log_info("ending with " + std::to_string(exit_code));
  return exit_code;
}

int run_any(const ControllerOptions& options) {
  const UniqueFd signals = take_signals();
  if (options.told_to_end) ::kill(::getpid(), SIGTERM);
  if (options.job_dir.empty()) return run_home(options, signals);
  if (!options.cluster_at.empty()) {
    if (const auto exit_code = batch_proxy(options, signals)) return *exit_code;
  }
  return run_job(options, signals);
}

}  // namespace

int run_controller(const ControllerOptions& options) {
  set_log_component("controller");
  // The starter takes the end of this pipe for the controller's end, and then reads the reason.
  const UniqueFd until_logged(
      options.ready_fd < 0 ? -1 : ::fcntl(options.ready_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  LogWriter log;
  if (const auto started = log.start(OwnLog::kThroughWriter); !started.ok()) {
    log_warning(started.error().message + "; a log on a file server may hold this process up");
  }
  const int exit_code = run_any(options);
  log.finish(kLastLogMs);
  return exit_code;
}

}  // namespace hpctl
