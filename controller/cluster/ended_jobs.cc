// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/ended_jobs.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/rpc/job_summary_wire.h"

namespace hpctl::cluster {
namespace {

using nlohmann::json;

json to_json(const JobReports::Ended& ended, int64_t ahead_ms) {
  std::string summary;
  const auto printed = google::protobuf::util::MessageToJsonString(ended.heard.summary, &summary);
  return {{"uid", ended.heard.key.uid},
          {"job", ended.heard.key.job},
          {"gone_wall_ms", ended.gone_ms + ahead_ms},
          {"summary", printed.ok() ? json::parse(summary) : json::object()}};
}

JobReports::Ended from_json(const json& entry, int64_t now_ms, int64_t ahead_ms) {
  JobReports::Ended ended;
  entry.at("uid").get_to(ended.heard.key.uid);
  entry.at("job").get_to(ended.heard.key.job);
  // A clock that was set meanwhile keeps none for longer than an hour from now.
  const auto gone_wall_ms = std::max<int64_t>(0, entry.at("gone_wall_ms").get<int64_t>());
  ended.gone_ms = std::min(gone_wall_ms - ahead_ms, now_ms);
  ended.heard.at_ms = ended.gone_ms;
  v1::JobSummary said;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a newer release
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(json_text(entry.at("summary")), &said, options);
  if (parsed.ok()) fill(to_job_summary(said), ended.heard.summary);
  return ended;
}

}  // namespace

Outcome EndedJobs::write(const std::vector<JobReports::Ended>& ended) const {
  const int64_t ahead_ms = clock_.wall_ms() - clock_.monotonic_ms();
  json list = json::array();
  for (const JobReports::Ended& one : ended) list.push_back(to_json(one, ahead_ms));
  return write_file_atomic(path_, json_text(json{{"ended", std::move(list)}}) + "\n");
}

Result<std::vector<JobReports::Ended>> EndedJobs::load() const {
  std::vector<JobReports::Ended> ended;
  const auto text = read_file(path_);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return ended;
  if (!text.ok()) return text.error();
  const int64_t now_ms = clock_.monotonic_ms();
  const int64_t ahead_ms = clock_.wall_ms() - now_ms;
  json document;
  try {
    document = parse_json(*text);
    for (const json& entry : document.at("ended")) {
      ended.push_back(from_json(entry, now_ms, ahead_ms));
    }
  } catch (const json::exception& e) {
    return Error{ErrorCode::kDataLoss, path_ + " is damaged: " + problem_in(document, e)};
  }
  return ended;
}

}  // namespace hpctl::cluster
