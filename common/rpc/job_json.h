// SPDX-License-Identifier: Apache-2.0
// The JSON of statuses and events that programs rely on (docs/cli.md): what `hpctl ... --json`
// prints, and what the controller leaves in HPCTL_HOME/jobs/J/status.json and events.jsonl for the
// time after it. Keys are only ever added. Absent values are null: loss before the first step, node
// and rank of an event about neither.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {

// One object on one line, without a newline. Text that is not UTF-8 is replaced, never an error.
std::string to_json_text(const v1::JobStatus& status);
std::string to_json_text(const v1::Event& event);
// {"jobs": [{"job", "name", "state"}]}
std::string to_json_text(const std::vector<v1::JobSummary>& jobs);
// {"nodes": [...]} as in a status, and each with its "job".
std::string to_json_text(const std::vector<v1::NodeStatus>& nodes);
// {"job", "state", "summary", "chain": [events]}
std::string to_json_text(const v1::JobStatus& status, const v1::WhyResponse& why);

// The inverse, for files: unknown keys are ignored, missing ones keep their defaults.
Result<v1::JobStatus> job_status_from_json(const std::string& text);
Result<v1::Event> event_from_json(const std::string& text);

}  // namespace hpctl
