// SPDX-License-Identifier: Apache-2.0
// hpctl checkpoint ls: all chains of a directory, whose they are, and what a resume takes.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "controller/publish/status_files.h"
#include "hpctl/command_line.h"
#include "trainer/checkpoint/inspect.h"

namespace hpctl {

// `job`: the owner of the directory, whose mirror is shown; nullptr = unknown.
int run_list(const Invocation& invocation, const std::string& directory, const JobView* job);

// "step 30 in /mnt/b/llama, 10 steps behind; a copy has been due for 2 min: No space left". For a
// job with a mirror.
std::string mirror_text(const JobView& job);

// The behaviour of the next job with checkpoint.resume: latest, as a sentence without its full
// stop.
std::string describe_resume(const std::vector<CheckpointListing>& listings);

// "2026-11-25T08:49:25Z"; "" = unknown.
std::string created_text(int64_t wall_ms);

// One line on stdout; returns kExitOk.
int print_json(const Terminal& terminal, const nlohmann::ordered_json& document);

}  // namespace hpctl
