// SPDX-License-Identifier: Apache-2.0
// Events as people read them.
#pragma once

#include <string>

#include "controller/publish/status_files.h"
#include "hpctl/terminal.h"

namespace hpctl {

// "2026-11-21T12:30:45.123Z  WorkerExited  worker 3 on n1 died of SIGKILL ...", wrapped to the
// terminal with the text aligned.
void print_event(const Terminal& terminal, const EventView& event);

// Red for faults, yellow for recoveries, green for good news.
Colour colour_of_event(const EventView& event);

// The directory of a Slurm job, jobs/submit-KEY, by the shorter name of its link, jobs/JOB.
std::string with_job_paths(std::string text, uint64_t job);

// Breaks `text` at spaces into lines of at most `width` columns; all but the first are indented by
// `indent` spaces, which count.
std::string wrap(const std::string& text, size_t width, size_t indent);

}  // namespace hpctl
