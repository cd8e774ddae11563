// SPDX-License-Identifier: Apache-2.0
#include "controller/page/page_rows.h"

#include <cmath>
#include <utility>

#include "common/base/json_text.h"

namespace hpctl {

using nlohmann::json;

std::string page_json_text(const json& document) { return json_text(document); }

json number_or_null(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json page_job_row(const JobSummary& summary, const std::vector<Finding>& found) {
  const auto eta = eta_ms(summary);
  json findings = json::array();
  for (const Finding& finding : found) {
    findings.push_back(
        {to_word(finding.severity), finding.what, finding.action, finding.since.unix_ms()});
  }
  return {{"job", summary.job.value},
          {"key", to_string(summary.job)},
          {"findings", std::move(findings)},
          {"name", summary.name},
          {"state", summary.state},
          {"user", summary.owner},
          {"generation", summary.generation},
          {"step", summary.step},
          {"steps", summary.total_steps},
          {"told", summary.is_told()},
          {"eta_ms", eta ? json(*eta) : json(nullptr)},
          {"loss", nullptr},
          {"tokens_per_second", summary.tokens_per_second},
          {"goodput", number_or_null(goodput_of(summary).value_or(NAN))},
          {"faults", summary.faults},
          {"restarts", summary.restarts},
          {"nodes", summary.nodes.size()},
          {"ranks", summary.ranks},
          {"submitted_ms", summary.submitted_at.unix_ms()},
          {"ended_ms", summary.ended_at.unix_ms()},
          {"reason", summary.reason}};
}

json page_time_rows(const TimeAccount& account) {
  json rows = json::array();
  for (const TimePart& part : parts_of(account)) rows.push_back({part.name, part.ms, part.what});
  return rows;
}

json page_lemon_row(const LemonScore* score) {
  if (score == nullptr) return nullptr;
  return {score->score, score->is_lemon(), score->worst};
}

}  // namespace hpctl
