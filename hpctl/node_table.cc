// SPDX-License-Identifier: Apache-2.0
#include "hpctl/node_table.h"

#include <algorithm>
#include <utility>

#include "hpctl/lemons.h"

namespace hpctl {
namespace {

template <typename Has>
bool any_node(const std::vector<JobView>& jobs, Has has) {
  return std::any_of(jobs.begin(), jobs.end(), [&](const JobView& job) {
    return std::any_of(job.nodes.begin(), job.nodes.end(), has);
  });
}

}  // namespace

std::string pid_text(uint64_t pid) { return pid == 0 ? "-" : std::to_string(pid); }

std::string standbys_text(const NodeView& node) {
  if (!node.standbys) return "";
  const StandbyView& standbys = *node.standbys;
  std::string text = std::to_string(standbys.ready) + " of " + std::to_string(standbys.wanted);
  if (standbys.loading > 0) text += ", " + std::to_string(standbys.loading) + " loading";
  if (standbys.memory_bytes > 0)
    text += ", " + std::to_string(standbys.memory_bytes >> 20) + " MiB";
  return text;
}

Table make_node_table(const std::vector<JobView>& jobs, const std::vector<LemonScore>& lemons,
                      bool with_job, size_t most) {
  const auto lemon_of = [&](const NodeView& node) {
    return find_lemon_score(lemons, node.name, node.instance_id);
  };
  const bool has_lemons =
      any_node(jobs, [&](const NodeView& node) { return lemon_of(node) != nullptr; });
  const bool has_standbys =
      any_node(jobs, [](const NodeView& node) { return node.standbys.has_value(); });
  const bool has_notes = any_node(jobs, [](const NodeView& node) { return !node.note.empty(); });
  std::vector<std::string> header = {"NODE", "ROLE", "STATE", "HOLDER", "AGENT", "INSTANCE"};
  if (with_job) header.insert(header.begin(), "JOB");
  if (has_standbys) header.emplace_back("STANDBYS");
  if (has_lemons) header.emplace_back("LEMON");
  if (has_notes) header.emplace_back("NOTE");
  Table table(header);
  for (const JobView& job : jobs) {
    for (size_t i = 0; i < std::min(most, job.nodes.size()); ++i) {
      const NodeView& node = job.nodes[i];
      std::vector<std::string> row = {node.name,
                                      node.role,
                                      node.state,
                                      pid_text(node.holder_pid),
                                      pid_text(node.agent_pid),
                                      node.instance_id};
      if (with_job) row.insert(row.begin(), std::to_string(job.job));
      if (has_standbys) row.push_back(standbys_text(node));
      if (has_lemons) row.push_back(lemon_of(node) == nullptr ? "" : lemon_text(*lemon_of(node)));
      if (has_notes) row.push_back(node.note);
      table.add(std::move(row), colour_of_state(node.state));
    }
  }
  return table;
}

}  // namespace hpctl
