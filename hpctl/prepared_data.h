// SPDX-License-Identifier: Apache-2.0
// The datasets that `hpctl submit` has prepared, $HPCTL_HOME/data (docs/decisions/1205): which of
// them are in use, and the end of the others.
//
// A dataset is removed when no submission has taken it for 30 days and no job of the home names it
// that is running or ended within those days. If a job's record cannot be read, nothing is removed:
// it might name any. Submissions hold a shared lock while they look for a dataset and mark it used,
// and the removal needs an exclusive lock, so no submission gets a dataset that is about to be
// removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/job/paths.h"

namespace hpctl {

inline constexpr int64_t kUnusedDataSeconds = int64_t{30} * 24 * 60 * 60;

class PreparedData {
 public:
  explicit PreparedData(const HomePaths& paths) : paths_(paths) {}

  std::string directory() const { return paths_.home() + "/data"; }

  // Nothing is removed as long as the descriptor is open. Waits for a removal, which takes
  // milliseconds; makes the directory. Invalid without locks: then there is no removal.
  UniqueFd hold() const;
  // Where `prefix` is a dataset of the directory, a submission has taken it now.
  void mark_used(const std::string& prefix) const;
  // The prefixes that went, at the wall time `now_s`; none while a submission holds the directory.
  std::vector<std::string> remove_unused(int64_t now_s) const;

 private:
  HomePaths paths_;
};

}  // namespace hpctl
