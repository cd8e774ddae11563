// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/job_node.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/endpoint.h"
#include "common/job/job_files.h"
#include "common/process/pidfd.h"
#include "common/slurm/hyperpod.h"

namespace hpctl::holder {
namespace {

// The controller bounds its end itself: up to 30 s for a node that does not answer (and its hooks),
// 10 s for the batch script, 2 min for slurmctld. If it is left behind, no process ends the
// allocation.
constexpr int kSuccessorPatienceMs = 600'000;

Outcome prepare(const HomePaths& paths, JobId job, const std::string& node) {
  if (std::getenv(kTakeEnvironment) != nullptr) {
    HP_TRY(take_job_environment(paths.home()));
    ::unsetenv(kTakeEnvironment);
  }
  HP_TRY(prepare_socket_directory(paths));
  HP_TRY(make_directories_below(paths.job(job), paths.node(job, node)));
  HP_TRY(make_directories_below(paths.job(job), paths.job_logs(job)));
  const std::string path = paths.node_log(job, node);
  const UniqueFd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!log.valid()) return errno_error("cannot write " + path);
  if (::dup2(log.get(), STDOUT_FILENO) < 0 || ::dup2(log.get(), STDERR_FILENO) < 0) {
    return errno_error("cannot redirect the output to " + path);
  }
  return Ok{};
}

bool is_of_storage(const Outcome& outcome) {
  return !outcome.ok() && outcome.error().code == ErrorCode::kStorage;
}

}  // namespace

Outcome prepare_job_node(const HomePaths& paths, JobId job, const std::string& node, int attempts) {
  Outcome prepared = prepare(paths, job, node);
  for (int attempt = 1; is_of_storage(prepared) && attempt < attempts; ++attempt) {
    if (attempt == 1) log_warning(prepared.error().message + "; tried again every second");
    std::this_thread::sleep_for(std::chrono::seconds(1));
    prepared = prepare(paths, job, node);
  }
  return prepared;
}

void wait_for_successor_here(const HomePaths& paths, const std::string& node) {
  if (!paths.is_one_job()) return;
  const auto controller = newest_controller(paths.home());
  if (!controller.ok() || !controller->has_value()) return;
  const ControllerRecord& record = **controller;
  if (record.epoch < 2 || record.node != node || record.boot_id != identify_machine().boot_id) {
    return;
  }
  const UniqueFd process = open_pidfd(static_cast<pid_t>(record.pid));
  if (!process.valid()) return;
  log_info("waiting for controller " + std::to_string(record.epoch) + " to end the job");
  pollfd ended{process.get(), POLLIN, 0};
  if (::poll(&ended, 1, kSuccessorPatienceMs) == 0) log_warning("it does not end; leaving");
}

}  // namespace hpctl::holder
