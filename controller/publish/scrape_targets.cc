// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/scrape_targets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/job/controller_beat.h"
#include "common/job/endpoint.h"
#include "common/job/job_files.h"
#include "common/net/host_port.h"

namespace hpctl {
namespace {

constexpr char kPrefix[] = "metrics-targets-";
constexpr char kSuffix[] = ".json";
constexpr int64_t kLeavingSeconds = 60;  // a controller that ends removes its own (scrape_linger.h)
constexpr int64_t kDeadSeconds = 24 * 3600;

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// The job in "metrics-targets-JOB.json".
std::optional<std::string> job_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const size_t around = sizeof kPrefix - 1 + sizeof kSuffix - 1;
  if (name.size() <= around) return std::nullopt;
  std::string job = name.substr(sizeof kPrefix - 1, name.size() - around);
  return is_number(job) ? std::optional(std::move(job)) : std::nullopt;
}

// By the clock of the file's own server.
std::optional<int64_t> changed_seconds(const std::string& path) {
  struct stat of {};
  if (::stat(path.c_str(), &of) != 0) return std::nullopt;
  return of.st_mtim.tv_sec;
}

bool is_over(const std::string& job_dir, const std::string& targets, int64_t now_seconds) {
  const auto exists = path_exists(job_dir);
  if (!exists.ok()) return false;
  if (!*exists) return true;
  const auto newest = newest_controller(job_dir);
  if (!newest.ok()) return false;
  if (*newest) {
    const auto verdict = standing_verdict(job_dir, (*newest)->restart_count);
    const auto since = changed_seconds(verdict_path(job_dir));
    if (verdict.ok() && *verdict && since && *since + kLeavingSeconds < now_seconds) return true;
  }
  const auto written = changed_seconds(targets);
  const auto beat = changed_seconds(beat_path(job_dir));
  return written && std::max(*written, beat.value_or(0)) + kDeadSeconds < now_seconds;
}

}  // namespace

std::string scrape_targets_path(const std::string& directory) {
  const std::filesystem::path path(directory);
  const std::string job = path.filename();
  const bool is_job = is_number(job) && path.parent_path().filename() == "jobs";
  if (!is_job) return directory + "/metrics-targets.json";
  return path.parent_path().parent_path() / (kPrefix + job + kSuffix);
}

std::string scrape_targets(const std::vector<ScrapeTarget>& targets, const std::string& reachable) {
  using nlohmann::ordered_json;
  ordered_json document = ordered_json::array();
  for (const auto& [bound, labels] : targets) {
    if (bound.empty()) continue;
    const HostPort at = HostPort::parse(bound).value();
    const bool is_any = at.host == "0.0.0.0" || at.host == "[::]" || at.host == "+";
    const std::string target = is_any ? HostPort{reachable, at.port}.text() : bound;
    document.push_back({{"targets", {target}}, {"labels", labels}});
  }
  return json_text(document) + "\n";
}

void publish_scrape_targets(const std::string& path, const std::string& document,
                            const IsOurs& is_ours) {
  const auto written = replace_fenced(path, document, is_ours);
  if (!written.ok()) log_warning(written.error().message);
}

void remove_scrape_targets(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return;
  log_warning(errno_error("cannot remove " + path).message);
}

void sweep_scrape_targets(const std::string& job_dir) {
  const std::string own = scrape_targets_path(job_dir);
  const auto now_seconds = changed_seconds(own);
  const std::filesystem::path home = std::filesystem::path(own).parent_path();
  const auto names = list_directory(home);
  if (!now_seconds || !names.ok()) return;
  size_t looked_at = 0;
  for (const std::string& name : *names) {
    const auto job = job_of(name);
    const std::string path = home / name;
    if (!job || path == own) continue;
    if (++looked_at > kSweptTargets) return;
    if (is_over(home / "jobs" / *job, path, *now_seconds)) remove_scrape_targets(path);
  }
}

}  // namespace hpctl
