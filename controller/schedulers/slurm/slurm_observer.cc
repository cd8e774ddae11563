// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/slurm/slurm_observer.h"

#include <algorithm>

#include "controller/schedulers/slurm/node_replacement.h"

namespace hpctl {
namespace {

using Kind = SlurmObservation::Kind;

std::string describe_state(const SlurmJob& job) {
  std::string text = job.state;
  for (const std::string& flag : job.flags) text += "+" + flag;
  if (job.reason != "None" && !job.reason.empty()) text += " (" + job.reason + ")";
  return text;
}

}  // namespace

std::string describe_state(const SlurmNode& node) {
  return node.state_text() + (node.reason.empty() ? "" : " (" + node.reason + ")");
}

namespace {

// As long as what it ran is being ended, libslurm shows also a node that is DOWN as MIXED.
std::string why_taken(const SlurmNode& node) {
  if (node.is_unusable()) return ": " + describe_state(node);
  return node.reason.empty() ? "" : " (" + node.reason + ")";
}

}  // namespace

void SlurmObserver::compare_job(const SlurmJob& job, std::vector<SlurmObservation>& out) const {
  const std::string before = job_ ? describe_state(*job_) : "RUNNING";
  const std::string now = describe_state(job);
  if (now != before) out.push_back({Kind::kNote, "", "Slurm shows the job as " + now});
}

void SlurmObserver::compare_node(const SlurmNode* before, const SlurmNode& node, bool in_allocation,
                                 std::vector<SlurmObservation>& out) const {
  const auto say = [&](Kind kind, const std::string& what) {
    out.push_back({kind, node.name, what, in_allocation, is_recovery_requested(node), false,
                   is_reboot_requested(node)});
  };
  const bool was_unusable = before != nullptr && before->is_unusable();
  const bool was_failing = before != nullptr && before->has_flag("FAIL");
  const std::string was = before == nullptr ? "" : describe_state(*before);
  const std::string now = describe_state(node);
  if (node.has_flag("FAIL") && (!was_failing || was != now)) {
    say(Kind::kMarked, "Slurm shows " + node.name + " as " + now);
  } else if (node.is_unusable() && was != now) {
    say(Kind::kNote, "Slurm shows " + node.name + " as " + now);
  } else if (!node.is_unusable() && was_unusable) {
    say(Kind::kReturned, "Slurm can use " + node.name + " again: " + now);
  }
}

std::vector<SlurmObservation> SlurmObserver::compare(const SlurmJob& job,
                                                     const std::vector<SlurmNode>& nodes) {
  std::vector<SlurmObservation> out;
  compare_job(job, out);
  std::map<std::string, SlurmNode> now;
  for (const SlurmNode& node : nodes) now[node.name] = node;
  for (const auto& [name, node] : now) {
    const auto before = nodes_.find(name);
    compare_node(before == nodes_.end() ? nullptr : &before->second, node, job.has_node(name), out);
  }
  const bool same_life = !job_ || job_->restart_count == job.restart_count;
  if (!job_ && nodes_before_.empty()) nodes_before_ = job.nodes;
  if (job.state == "RUNNING" && same_life && !job.nodes.empty()) {
    for (const std::string& name : nodes_before_) {
      if (job.has_node(name)) continue;
      const auto node = now.find(name);
      const std::string state = node == now.end() ? "" : why_taken(node->second);
      const bool known = node != now.end();
      out.push_back({Kind::kTaken, name, "Slurm took it out of the allocation" + state, false,
                     known && is_recovery_requested(node->second),
                     known && is_given_up(node->second)});
    }
    for (const std::string& name : job.nodes) {
      if (std::find(nodes_before_.begin(), nodes_before_.end(), name) != nodes_before_.end()) {
        continue;
      }
      out.push_back({Kind::kNote, name, "Slurm added " + name + " to the allocation"});
    }
  }
  job_ = job;
  nodes_before_ = job.nodes;
  nodes_ = std::move(now);
  return out;
}

}  // namespace hpctl
