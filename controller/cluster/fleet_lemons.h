// SPDX-License-Identifier: Apache-2.0
// The cluster controller's knowledge of lemons (node_claims.h), kept in STATE/node-claims.json
// across its own end. A damaged file is set aside and said; a file that cannot be read (EIO) stays
// as it is, and nothing is written over it. Scores are no reason not to serve.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/cluster/node_claims.h"

namespace hpctl::cluster {

// Any thread.
class FleetLemons {
 public:
  // The shortest interval between writes of changes; an operator's check is written at once.
  static constexpr int64_t kSaveEveryMs = 30'000;
  static constexpr size_t kMaxFileBytes = 16U << 20;

  // In `state_dir`, which is the service's own. `clock` outlives it.
  FleetLemons(const std::string& state_dir, const Clock& clock);

  void hear(const JobKey& job, const std::vector<NodeRecord>& said);
  Outcome check(NodeRecord record);
  std::vector<FleetLemon> scores() const;
  // Those that are lemons, for a job's controller: without the words of other users.
  std::vector<LemonScore> lemons() const;
  // Writes what has changed where it is time, or `now`.
  void save(bool now);

 private:
  Outcome write();

  const std::string path_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  NodeClaims claims_;
  std::optional<Error> unread_;  // why the file could not be read
  bool changed_ = false;
  int64_t saved_ms_ = 0;
};

}  // namespace hpctl::cluster
