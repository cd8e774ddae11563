// SPDX-License-Identifier: Apache-2.0
// The account of a job's time, for people and metrics: parts whose sum is all of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "common/base/wall_time.h"
#include "common/job/time_spent.h"

namespace hpctl {

// From one point in time to a later one. nullopt if either is unknown. 0 if the clock went back
// meanwhile.
inline std::optional<int64_t> elapsed_ms(WallTime from, WallTime to) {
  if (!from.is_known() || !to.is_known()) return std::nullopt;
  return std::max<int64_t>(0, to.unix_ms() - from.unix_ms());
}

// All the time since a job was submitted.
struct TimeAccount {
  int64_t wall_ms = 0;
  TimeSpent spent;
  int64_t training_ms = 0;  // the rest
  // A command that reports no steps may have repeated some, so there is no share of training.
  bool tells_steps = false;

  int64_t since_first_step_ms() const { return wall_ms - spent.start_ms; }
};

inline TimeAccount account_of(const TimeSpent& spent, int64_t wall_ms, bool tells_steps) {
  TimeAccount account{wall_ms, spent, 0, tells_steps};
  // No step yet, whatever was tried.
  if (spent.start_ms == 0) {
    account.spent.start_ms = std::max<int64_t>(0, wall_ms - spent.total_ms());
  }
  // Clocks of two controllers may differ.
  account.wall_ms = std::max(wall_ms, account.spent.total_ms());
  account.training_ms = account.wall_ms - account.spent.total_ms();
  return account;
}

// Share of training in this much time; nullopt before the first step, and without reported steps.
inline std::optional<double> training_share(const TimeAccount& account, int64_t of_ms) {
  if (!account.tells_steps || account.training_ms <= 0 || of_ms <= 0) return std::nullopt;
  return static_cast<double>(account.training_ms) / static_cast<double>(of_ms);
}
inline std::optional<double> goodput_of(const TimeAccount& account) {
  return training_share(account, account.since_first_step_ms());
}
// Effective training time ratio.
inline std::optional<double> ettr_of(const TimeAccount& account) {
  return training_share(account, account.wall_ms);
}

struct TimePart {
  const char* name;  // in `hpctl goodput`, and as a label of metrics
  int64_t ms = 0;
  const char* what;  // for people
};

// Their sum is wall_ms.
inline std::array<TimePart, 10> parts_of(const TimeAccount& account) {
  const TimeSpent& spent = account.spent;
  return {
      {{"start", spent.start_ms, "from its submission to its first step"},
       {"train", account.training_ms, "steps, and their evaluation"},
       {"checkpoint", spent.waits.checkpoint_ms, "steps waited for a checkpoint; mean of ranks"},
       {"data", spent.waits.data_ms, "steps waited for samples; mean of ranks"},
       {"notice", spent.notice_ms, "from the last step before a fault until it was known"},
       {"decide", spent.decide_ms, "workers were ended, and what to go on from was found"},
       {"wait", spent.wait_ms, "for nodes, in the queue again, between attempts"},
       {"restart", spent.restart_ms, "workers were started, until their first step"},
       {"repeat", spent.repeat_ms, "from there to the step that had been reached"},
       {"suspended", spent.suspended_ms, "the scheduler had stopped it"}}};
}

}  // namespace hpctl
