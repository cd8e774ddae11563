// SPDX-License-Identifier: Apache-2.0
#include "common/slurm/slurm_messages.h"

#include <algorithm>
#include <array>

namespace hpctl {
namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

bool SlurmJob::has_flag(const std::string& flag) const { return contains(flags, flag); }

bool SlurmJob::has_node(const std::string& node) const { return contains(nodes, node); }

bool SlurmJob::is_requeued() const {
  return state == "PENDING" || has_flag("REQUEUED") || has_flag("REQUEUE_HOLD");
}

bool SlurmJob::has_ended() const {
  return state != "PENDING" && state != "RUNNING" && state != "SUSPENDED" &&
         !has_flag("COMPLETING");
}

bool SlurmNode::has_flag(const std::string& flag) const { return contains(flags, flag); }

bool SlurmNode::is_unusable() const {
  static const std::array<const char*, 3> kUnusable = {"DRAIN", "FAIL", "NOT_RESPONDING"};
  return state == "DOWN" || std::any_of(kUnusable.begin(), kUnusable.end(),
                                        [this](const char* flag) { return has_flag(flag); });
}

std::string SlurmNode::state_text() const {
  std::string text = state;
  for (const std::string& flag : flags) text += "+" + flag;
  return text;
}

}  // namespace hpctl
