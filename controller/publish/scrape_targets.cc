// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/scrape_targets.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "common/base/log.h"

namespace hpctl {

std::string scrape_targets_path(const std::string& directory) {
  const std::filesystem::path path(directory);
  const std::string job = path.filename();
  const bool is_job = !job.empty() && job.find_first_not_of("0123456789") == std::string::npos &&
                      path.parent_path().filename() == "jobs";
  if (!is_job) return directory + "/metrics-targets.json";
  return path.parent_path().parent_path() / ("metrics-targets-" + job + ".json");
}

std::string scrape_targets(const std::vector<ScrapeTarget>& targets, const std::string& reachable) {
  using nlohmann::ordered_json;
  ordered_json document = ordered_json::array();
  for (const auto& [bound, labels] : targets) {
    if (bound.empty()) continue;
    const size_t colon = bound.rfind(':');
    const std::string host = bound.substr(0, colon);
    const bool is_any = host == "0.0.0.0" || host == "[::]" || host == "+";
    const std::string target = (is_any ? reachable : host) + bound.substr(colon);
    document.push_back({{"targets", {target}}, {"labels", labels}});
  }
  return document.dump() + "\n";
}

void publish_scrape_targets(const std::string& path, const std::string& document,
                            const IsOurs& is_ours) {
  const auto written = replace_fenced(path, document, is_ours);
  if (!written.ok()) log_warning(written.error().message);
}

}  // namespace hpctl
