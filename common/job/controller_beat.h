// SPDX-License-Identifier: Apache-2.0
// The sign of life of a job's controller in the job's directory: JOBDIR/controllers/beat.
//
// A node that is cut off from the network may still see the shared directory. Other nodes look dead
// to it, and without this file it would take the job away from a controller that serves all others.
// So the controller moves the beat while it hears most of the job's nodes, and a controller whose
// beat moves gets no successor. The beat is a hint: it is not synced, and safety never depends on
// it (generation records provide that). No clock is compared: a beat that changes between two looks
// is alive.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

// The controller writes at least this often; who wants to succeed it looks for this long.
inline constexpr int kBeatIntervalMs = 500;
inline constexpr int kBeatWatchMs = 1'600;

std::string beat_path(const std::string& job_dir);

// "EPOCH COUNT\n", each padded to 20 digits. `count` differs from the count of the beat before.
Outcome write_beat(const std::string& job_dir, uint64_t epoch, uint64_t count);
// The bytes of the beat; "" = none yet.
Result<std::string> read_beat(const std::string& job_dir);
// True when the beat changes within kBeatWatchMs. Blocks the caller for as long, or until `enough`.
Result<bool> beat_moves(const std::string& job_dir, const std::function<bool()>& enough);

// Returns whether the `heard` nodes are most of `nodes`. With two halves, the one with the first
// node counts.
bool is_majority(const std::set<std::string>& heard, const std::vector<std::string>& nodes);

}  // namespace hpctl
