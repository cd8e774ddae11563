// SPDX-License-Identifier: Apache-2.0
// A fact about a job that needs attention, in words. `hpctl watch`, the status page, notifications
// and the metric hpctl_job_finding use the same ones. Programs may rely on the words of kinds and
// severities (docs/cli.md has them all).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <tuple>

#include "common/base/wall_time.h"
#include "common/base/word_enum.h"
#include "common/job/ids.h"

namespace hpctl {

enum class Severity { kWarn, kCritical };
constexpr auto words_of(Severity) { return std::to_array<const char*>({"warn", "critical"}); }

enum class FindingKind {
  kFailed,
  kRecoversForLong,
  kStandsStill,
  kControllerSilent,
  kLossNotFinite,
  kBudgetLow,
  kRestartsOften,
  kSparesExhausted,
  kRequeueRefused,
  kNodeQuarantined,
  kNodeSlow,
  kNodeLemon,
  kGenerationOrphaned,
  kGoodputFell,
  kStorageAway,
  kMirrorLags,
  kQueueBlocked,
  kDirectoryGone,
  kHangSuspected,
};
constexpr auto words_of(FindingKind) {
  return std::to_array<const char*>(
      {"failed", "recovers_for_long", "stands_still", "controller_silent", "loss_not_finite",
       "budget_low", "restarts_often", "spares_exhausted", "requeue_refused", "node_quarantined",
       "node_slow", "node_lemon", "generation_orphaned", "goodput_fell", "storage_away",
       "mirror_lags", "queue_blocked", "directory_gone", "hang_suspected"});
}

struct Finding {
  FindingKind kind = FindingKind::kFailed;
  Severity severity = Severity::kWarn;
  JobId job;
  std::string name;    // of the job
  std::string owner;   // uid as text
  std::string user;    // its name; "" = not known
  std::string node;    // that it is about; "" = the job as a whole
  WallTime since;      // since when it is so, as far as that is known
  std::string what;    // one line
  std::string action;  // what to do, one line
};

// Where the package has the runbook, as the runbook_url of alerts has it.
inline constexpr const char* kRunbook = "file:///usr/share/doc/hpctl/runbook.md";
// The section about it: kRunbook + "#hpctljobfailed".
std::string runbook_of(FindingKind kind);

// Two findings with the same key are the same one, whatever their words.
inline auto key_of(const Finding& f) { return std::tie(f.owner, f.job, f.kind, f.node); }

}  // namespace hpctl
