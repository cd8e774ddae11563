// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/job_row.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"

namespace hpctl::cluster {
namespace {

constexpr char kSuffix[] = ".json";

std::string to_json(const JobRow& row) {
  return json_text(nlohmann::json({{"uid", row.key.uid},
                                   {"gid", row.gid},
                                   {"groups", row.groups},
                                   {"job", row.key.job},
                                   {"job_dir", row.job_dir},
                                   {"nodes", row.nodes},
                                   {"restart_count", row.restart_count},
                                   {"programs", row.programs},
                                   {"scheduler", row.scheduler},
                                   {"token", row.token},
                                   {"address", row.address},
                                   {"certificate", row.certificate},
                                   {"metrics_port", row.metrics_port},
                                   {"takes_roles", row.takes_roles},
                                   {"older_agents", row.older_agents},
                                   {"pid", row.pid},
                                   {"start_ticks", row.start_ticks},
                                   {"boot_id", row.boot_id},
                                   {"restarts", row.restarts}}));
}

Result<JobRow> from_json(const std::string& text) {
  JobRow row;
  nlohmann::json json;
  try {
    json = parse_json(text);
    json.at("uid").get_to(row.key.uid);
    json.at("gid").get_to(row.gid);
    json.at("groups").get_to(row.groups);
    json.at("job").get_to(row.key.job);
    json.at("job_dir").get_to(row.job_dir);
    json.at("nodes").get_to(row.nodes);
    json.at("restart_count").get_to(row.restart_count);
    json.at("programs").get_to(row.programs);
    json.at("scheduler").get_to(row.scheduler);
    json.at("token").get_to(row.token);
    json.at("address").get_to(row.address);
    row.certificate = json.value("certificate", "");             // absent in rows of older releases
    row.metrics_port = json.value("metrics_port", uint16_t{0});  // likewise
    row.takes_roles = json.value("takes_roles", false);
    row.older_agents = json.value("older_agents", true);
    json.at("pid").get_to(row.pid);
    json.at("start_ticks").get_to(row.start_ticks);
    json.at("boot_id").get_to(row.boot_id);
    json.at("restarts").get_to(row.restarts);
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, problem_in(json, e)};
  }
  return row;
}

}  // namespace

std::string to_text(const JobKey& key) {
  return "job " + std::to_string(key.job) + " of uid " + std::to_string(key.uid);
}

Result<JobRows> JobRows::open(const std::string& directory) {
  HP_TRY(make_directories(directory, 0700));
  struct stat st {};
  if (::stat(directory.c_str(), &st) != 0) return errno_error("cannot stat " + directory);
  if (st.st_uid != ::geteuid() || (st.st_mode & 077) != 0) {
    return Error{ErrorCode::kPermissionDenied, directory + " must belong to uid " +
                                                   std::to_string(::geteuid()) +
                                                   " with mode 0700: it holds tokens of jobs"};
  }
  return JobRows(directory);
}

std::string JobRows::path_of(const JobKey& key) const {
  return directory_ + "/" + std::to_string(key.uid) + "-" + std::to_string(key.job) + kSuffix;
}

Outcome JobRows::write(const JobRow& row) const {
  return write_file_atomic(path_of(row.key), to_json(row) + "\n");
}

Outcome JobRows::remove(const JobKey& key) const {
  const std::string path = path_of(key);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error("cannot remove " + path);
  return sync_directory(directory_);
}

Result<std::vector<JobRow>> JobRows::load() const {
  HP_TRY_ASSIGN(const auto names, list_directory(directory_));
  std::vector<JobRow> rows;
  for (const std::string& name : names) {
    if (!name.ends_with(kSuffix)) continue;  // a temporary of a write that did not end
    const std::string path = directory_ + "/" + name;
    HP_TRY_ASSIGN(const std::string text, read_file(path));
    auto row = from_json(text);
    if (!row.ok()) {
      return Error{ErrorCode::kDataLoss, path + " is damaged: " + row.error().message +
                                             "; move it away, the job's agents then start a "
                                             "controller of their own"};
    }
    rows.push_back(std::move(*row));
  }
  return rows;
}

}  // namespace hpctl::cluster
