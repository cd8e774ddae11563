// SPDX-License-Identifier: Apache-2.0
// The sign of life of a job's controller in the job's directory: JOBDIR/controllers/beat.
//
// A node that is cut off from the network may still see the shared directory. What it cannot reach
// looks dead to it, and without this it would take the job away from a controller that serves all
// others. So the controller moves the beat while it hears most of the job's nodes, and nobody
// succeeds a controller whose beat moves. The beat is a hint: it is not synced, and what is safe
// never rests on it (generation records do that). No clock is compared: a beat that changes while
// one looks is alive.
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

// "EPOCH COUNT\n", each padded to 20 digits. `count` differs from that of the beat before.
Outcome write_beat(const std::string& job_dir, uint64_t epoch, uint64_t count);
// The bytes of the beat; "" = none yet.
Result<std::string> read_beat(const std::string& job_dir);
// True when the beat changes within kBeatWatchMs. Blocks the caller for as long, or until `enough`.
Result<bool> beat_moves(const std::string& job_dir, const std::function<bool()>& enough);

// Whether the `heard` ones are most of `nodes`. Of two halves the one with the first node counts.
bool is_majority(const std::set<std::string>& heard, const std::vector<std::string>& nodes);

}  // namespace hpctl
