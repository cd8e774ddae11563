// SPDX-License-Identifier: Apache-2.0
// Lines that the pages of a home, of a job and of a cluster have alike (docs/status-page.md).
// Include from .cc files only: the JSON library is heavy. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/job/job_summary.h"
#include "common/job/node_record.h"
#include "common/watch/finding.h"

namespace hpctl {

// Text that is not UTF-8 is replaced.
std::string page_json_text(const nlohmann::json& document);
// null where it is not finite.
nlohmann::json number_or_null(double value);

// A job in the list; its `loss` is null, which a summary does not have.
nlohmann::json page_job_row(const JobSummary& summary, const std::vector<Finding>& found);
// [name, ms, what] of each part.
nlohmann::json page_time_rows(const TimeAccount& account);
// [score, whether that makes it a lemon, why]; nullptr = no evidence against it
nlohmann::json page_lemon_row(const LemonScore* score);

}  // namespace hpctl
