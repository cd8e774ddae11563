// SPDX-License-Identifier: Apache-2.0
// The output of `hpctl watch`: a line per change, or all of one look; and its exit status.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/watch/job_watch.h"
#include "controller/publish/status_files.h"
#include "hpctl/open_job.h"
#include "hpctl/terminal.h"

namespace hpctl {

// The exit status of a check of Nagios and similar tools: nothing, warn, critical, unknown.
inline constexpr int kWatchNothing = 0;
inline constexpr int kWatchWarn = 1;
inline constexpr int kWatchCritical = 2;
inline constexpr int kWatchUnknown = 3;
int watch_status(std::optional<Severity> worst);

// What is found of the job in one look, except that it failed: "it has waited ...; repair ...".
std::vector<std::string> obstacles_of(const OpenJob& job);

// One line each, printable.
void print_changes(const Terminal& terminal, const WatchChanges& changes, WallTime now,
                   bool as_json);
// All that is found, of so many jobs.
void print_present(const Terminal& terminal, const FleetWatch& watch, size_t jobs,
                   const std::vector<std::string>& notes, bool as_json);
// The content of the --heartbeat file.
std::string heartbeat_json(const FleetWatch& watch, size_t jobs, WallTime now);

}  // namespace hpctl
