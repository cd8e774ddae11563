// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/local/local_scheduler.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/submitted_environment.h"
#include "common/process/spawn.h"
#include "controller/schedulers/local/holder_process.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kLookAgain{1};

// That of the job's submitter, with what the controller itself was started with to find its home
// and its tests. nullopt: the job has none, and its nodes get the controller's.
Result<std::optional<std::vector<std::string>>> node_environment(const HomePaths& paths,
                                                                 JobId job) {
  HP_TRY_ASSIGN(auto environment, read_submitted_environment(paths, job));
  if (!environment) return environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view own(*entry);
    if (own.starts_with("HPCTL_") || own.starts_with("LD_PRELOAD=")) {
      environment->emplace_back(own);
    }
  }
  return environment;
}

}  // namespace

LocalScheduler::LocalScheduler(const HomePaths& paths, std::string agent_program, Post post)
    : paths_(paths),
      agent_program_(std::move(agent_program)),
      post_(std::move(post)),
      watch_([this](pid_t pid, const std::string& cause) {
        core::NodeKey node;
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          const auto it = nodes_.find(static_cast<uint64_t>(pid));
          if (it == nodes_.end()) return;
          node = it->second;
          nodes_.erase(it);
        }
        holder_ended(node, static_cast<uint64_t>(pid), cause);
      }),
      looks_([this](const std::stop_token& stopped) { settle_later(stopped); }) {}

void LocalScheduler::stop() {
  looks_.request_stop();
  if (looks_.joinable()) looks_.join();
  watch_.stop();
}

// Holders of an earlier controller's time: watched again, or known to be gone.
void LocalScheduler::resume(const core::State& state) {
  for (const auto& [key, node] : state.nodes) {
    if (node.state == core::NodeState::kEnded || node.state == core::NodeState::kDown) continue;
    if (node.state == core::NodeState::kLaunching && node.holder_pid == 0)
      continue;  // in the outbox
    settle_or_wait({key, node.holder_pid, "ended while no controller was there", false});
  }
}

void LocalScheduler::holder_ended(const core::NodeKey& node, uint64_t pid,
                                  const std::string& cause) {
  settle_or_wait({node, pid, cause, true});
}

void LocalScheduler::settle_or_wait(const Change& change) {
  const auto settled = settle(change);
  if (settled.ok()) return;
  log_warning("cannot tell whether node " + change.node.name + " of job " +
              to_string(change.node.job) +
              " has a holder, and look again every second: " + settled.error().message);
  const std::lock_guard<std::mutex> lock(mutex_);
  unsettled_.push_back(change);
  has_unsettled_.notify_one();
}

Outcome LocalScheduler::settle(const Change& change) {
  HP_TRY_ASSIGN(const uint64_t present, present_holder(change.node));
  // Another process may be the node by now: the loser of a race for the lock ends too.
  if (present != 0 && !(change.has_ended && present == change.pid)) {
    watch(change.node, present);
  } else {
    report_lost(change.node, change.pid, change.cause);
  }
  return Ok{};
}

void LocalScheduler::settle_later(const std::stop_token& stopped) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (has_unsettled_.wait(lock, stopped, [this] { return !unsettled_.empty(); })) {
    // Nothing tells that a file system is back.
    has_unsettled_.wait_for(lock, stopped, kLookAgain, [] { return false; });
    if (stopped.stop_requested()) return;
    std::vector<Change> pending = std::exchange(unsettled_, {});
    lock.unlock();
    std::erase_if(pending, [this](const Change& change) { return settle(change).ok(); });
    lock.lock();
    unsettled_.insert(unsettled_.end(), pending.begin(), pending.end());
  }
}

void LocalScheduler::report_lost(const core::NodeKey& node, uint64_t pid,
                                 const std::string& cause) {
  post_(node.job, [node, pid, cause](const core::State& state) -> std::optional<core::EventBody> {
    const auto row = state.nodes.find(node);
    if (row == state.nodes.end()) return std::nullopt;
    const bool known = row->second.holder_pid == pid || row->second.holder_pid == 0;
    const bool over =
        row->second.state == core::NodeState::kEnded || row->second.state == core::NodeState::kDown;
    if (!known || over) return std::nullopt;
    return core::NodeLost{node.job, node.name, row->second.boot_id,
                          "holder " + std::to_string(pid) + " " + cause};
  });
}

Result<uint64_t> LocalScheduler::present_holder(const core::NodeKey& node) const {
  const std::string path = paths_.node_lock(node.job, node.name);
  HP_TRY_ASSIGN(const bool exists, path_exists(path));
  if (!exists) return uint64_t{0};
  // Free: we held it for a moment; a holder that is just starting then waits for us.
  const auto lock = lock_file(path);
  if (lock.ok()) return uint64_t{0};
  if (lock.error().code != ErrorCode::kAlreadyExists) return lock.error();
  HP_TRY_ASSIGN(const std::string text, read_file(path, 64));
  const long pid = std::strtol(text.c_str(), nullptr, 10);
  // A dead holder's reaper keeps the lock until nothing of the node is left.
  return process_lives(static_cast<pid_t>(pid)) ? static_cast<uint64_t>(pid) : uint64_t{0};
}

void LocalScheduler::watch(const core::NodeKey& node, uint64_t pid) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    nodes_[pid] = node;
  }
  if (const auto watched = watch_.watch(static_cast<pid_t>(pid)); !watched.ok()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      nodes_.erase(pid);
    }
    holder_ended(node, pid, "ended");
  }
}

Outcome LocalScheduler::end_former_life(uint64_t pid, const core::NodeKey& node) {
  log_warning("ending the former holder of node " + node.name + " of job " + to_string(node.job) +
              " (pid " + std::to_string(pid) + "), which was given up but still runs");
  {
    // The core knows; told again, it would take this for the end of the new life.
    const std::lock_guard<std::mutex> lock(mutex_);
    nodes_.erase(pid);
  }
  return kill_holder(static_cast<pid_t>(pid), node);
}

core::EventBody LocalScheduler::launch(ActionId id, const core::LaunchNode& action) {
  const core::NodeKey node{action.job, action.node};
  const auto found = present_holder(node);
  if (!found.ok()) {  // a second holder beside one that lives would wait for its lock for ever
    return launch_failed(id, action, found.error());
  }
  const uint64_t present = *found;
  // A later launch's holder: this action was withdrawn while it waited for its turn.
  const auto launched_by = launch_of_holder(static_cast<pid_t>(present), node);
  if (launched_by && *launched_by >= id) {
    watch(node, present);
    return core::NodeLaunched{id, action.job, action.node, present};
  }
  if (launched_by) {
    if (const auto ended = end_former_life(present, node); !ended.ok()) {
      return core::ActionFailed{id, action.job, action.node, ended.error().message, false};
    }
  }
  for (const std::string& directory :
       {paths_.node(action.job, action.node), paths_.job_logs(action.job)}) {
    const auto made = make_directories_below(paths_.job(action.job), directory);
    if (!made.ok()) {
      return launch_failed(id, action, made.error());
    }
  }
  auto environment = node_environment(paths_, action.job);
  if (!environment.ok()) {
    return launch_failed(id, action, environment.error());
  }
  HP_FAILPOINT("controller.launch.before");
  // Fail-points armed for the controller are not meant for its agents.
  const auto pid = spawn_in_new_session(
      {{agent_program_, "--holder", "--home", paths_.home(), "--job", to_string(action.job),
        "--node", action.node, "--socket", paths_.controller_socket(), "--launch", to_string(id)},
       paths_.node_log(action.job, action.node),
       -1,
       {"HPCTL_FAILPOINT"},
       std::move(*environment)});
  HP_FAILPOINT("controller.launch.after");
  if (!pid.ok()) {
    const bool permanent = pid.error().code == ErrorCode::kNotFound ||
                           pid.error().code == ErrorCode::kPermissionDenied;
    return core::ActionFailed{id, action.job, action.node, pid.error().message, permanent};
  }
  watch(node, static_cast<uint64_t>(*pid));
  return core::NodeLaunched{id, action.job, action.node, static_cast<uint64_t>(*pid)};
}

}  // namespace hpctl
