// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/fleet_lemons.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "common/base/file.h"
#include "common/base/log.h"

namespace hpctl::cluster {
namespace {

constexpr size_t kMostTold = 256;  // lemons

// A damaged file is set aside. An error: the file cannot be read, and is left as it is.
Result<NodeClaims> read_claims(const std::string& path) {
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, FleetLemons::kMaxFileBytes));
  if (!text) return NodeClaims();
  auto claims = NodeClaims::from_json(*text, path);
  if (claims.ok()) return claims;
  ::rename(path.c_str(), (path + ".damaged").c_str());
  log_error("lemon scores of the cluster start from zero: " + claims.error().message +
            "; it is kept as " + path + ".damaged");
  return NodeClaims();
}

}  // namespace

FleetLemons::FleetLemons(const std::string& state_dir, const Clock& clock)
    : path_(state_dir + "/node-claims.json"), clock_(clock) {
  auto claims = read_claims(path_);
  if (claims.ok()) {
    claims_ = std::move(*claims);
  } else {
    unread_ = claims.error();
    log_error("lemon scores of the cluster start from zero, and none is kept: " + unread_->message +
              "; start the service again when the file can be read");
  }
}

void FleetLemons::hear(const JobKey& job, const std::vector<NodeRecord>& said) {
  if (said.empty()) return;
  const std::lock_guard lock(mutex_);
  changed_ = claims_.hear(job, said, clock_.wall_ms()) || changed_;
}

Outcome FleetLemons::check(NodeRecord record) {
  const std::lock_guard lock(mutex_);
  record.wall_ms = clock_.wall_ms();
  claims_.check(std::move(record));
  return write();
}

std::vector<FleetLemon> FleetLemons::scores() const {
  const std::lock_guard lock(mutex_);
  return claims_.scores(clock_.wall_ms());
}

std::vector<LemonScore> FleetLemons::lemons() const {
  std::vector<LemonScore> told;
  for (const FleetLemon& lemon : scores()) {
    if (!lemon.score.is_lemon() || told.size() == kMostTold) break;
    told.push_back(lemon.score);
    told.back().worst = lemon.checked
                            ? "an operator's deep check failed"
                            : "jobs of " + std::to_string(lemon.users) + " users speak against it";
  }
  return told;
}

void FleetLemons::save(bool now) {
  const std::lock_guard lock(mutex_);
  if (!changed_ || (!now && clock_.monotonic_ms() < saved_ms_ + kSaveEveryMs)) return;
  claims_.forget_old(clock_.wall_ms());
  if (const Outcome written = write(); !written.ok()) {
    log_warning("lemon scores of the cluster are not kept: " + written.error().message);
  }
}

Outcome FleetLemons::write() {
  saved_ms_ = clock_.monotonic_ms();
  if (unread_) return *unread_;  // what it holds is not known, so it is not replaced
  HP_TRY(write_file_atomic(path_, claims_.to_json()));
  changed_ = false;
  return Ok{};
}

}  // namespace hpctl::cluster
