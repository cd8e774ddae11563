// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/local/local_scheduler.h"

#include <cstdlib>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/rpc/spawn.h"
#include "controller/schedulers/local/holder_process.h"

namespace hpctl {

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
      }) {}

// Holders of an earlier controller's time: watched again, or known to be gone.
void LocalScheduler::resume(const core::State& state) {
  for (const auto& [key, node] : state.nodes) {
    if (node.state == core::NodeState::kEnded || node.state == core::NodeState::kDown) continue;
    if (node.state == core::NodeState::kLaunching && node.holder_pid == 0)
      continue;  // in the outbox
    if (const uint64_t pid = present_holder(key); pid != 0) {
      watch(key, pid);
    } else {
      holder_ended(key, node.holder_pid, "ended while no controller was there");
    }
  }
}

void LocalScheduler::holder_ended(const core::NodeKey& node, uint64_t pid,
                                  const std::string& cause) {
  // Another process may be the node by now: the loser of a race for the lock ends too.
  if (const uint64_t present = present_holder(node); present != 0 && present != pid) {
    watch(node, present);
    return;
  }
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

uint64_t LocalScheduler::present_holder(const core::NodeKey& node) const {
  const std::string path = paths_.node_lock(node.job, node.name);
  if (!is_accessible(path)) return 0;
  // Free: we held it for a moment; a holder that is just starting then waits for us.
  if (lock_file(path).ok()) return 0;
  const auto text = read_file(path, 64);
  const long pid = text.ok() ? std::strtol(text->c_str(), nullptr, 10) : 0;
  // A dead holder's guardian keeps the lock until nothing of the node is left.
  return process_lives(static_cast<pid_t>(pid)) ? static_cast<uint64_t>(pid) : 0;
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
  const uint64_t present = present_holder(node);
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
    if (const auto made = make_directories(directory); !made.ok()) {
      return core::ActionFailed{id, action.job, action.node, made.error().message, true};
    }
  }
  HP_FAILPOINT("controller.launch.before");
  // Fail-points armed for the controller are not meant for its agents.
  const auto pid = spawn_in_new_session(
      {{agent_program_, "--holder", "--home", paths_.home(), "--job", to_string(action.job),
        "--node", action.node, "--socket", paths_.controller_socket(), "--launch", to_string(id)},
       paths_.node_log(action.job, action.node),
       -1,
       {"HPCTL_FAILPOINT"}});
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
