// SPDX-License-Identifier: Apache-2.0
#include "common/job/endpoint.h"

#include <algorithm>
#include <charconv>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"

namespace hpctl {
namespace {

constexpr size_t kMaxRecordBytes = 16U << 20;  // a hundred thousand node names

std::string directory_of(const std::string& job_dir) { return job_dir + "/controllers"; }

std::string path_of(const std::string& job_dir, uint64_t epoch) {
  return directory_of(job_dir) + "/" + std::to_string(epoch) + ".json";
}

// K of "K.json"; 0 for any other name.
uint64_t epoch_of(const std::string& name) {
  uint64_t epoch = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data(), last, epoch);
  return error == std::errc() && std::string(end, last) == ".json" ? epoch : 0;
}

}  // namespace

std::string to_json_text(const ControllerRecord& record) {
  return json_text(nlohmann::json({{"epoch", record.epoch},
                                   {"address", record.address},
                                   {"certificate", record.certificate},
                                   {"node", record.node},
                                   {"pid", record.pid},
                                   {"boot_id", record.boot_id},
                                   {"started_wall_ms", record.started_wall_ms},
                                   {"nodes", record.nodes},
                                   {"scheduler", record.scheduler},
                                   {"restart_count", record.restart_count},
                                   {"agent_tokens", record.agent_tokens},
                                   {"older_agents", record.older_agents},
                                   {"owner_tokens", record.owner_tokens}}));
}

Result<ControllerRecord> controller_record_from_json(const std::string& text) {
  ControllerRecord record;
  nlohmann::json json;
  try {
    json = parse_json(text);
    json.at("epoch").get_to(record.epoch);
    json.at("address").get_to(record.address);
    record.certificate = json.value("certificate", "");
    json.at("node").get_to(record.node);
    json.at("pid").get_to(record.pid);
    json.at("boot_id").get_to(record.boot_id);
    json.at("started_wall_ms").get_to(record.started_wall_ms);
    json.at("nodes").get_to(record.nodes);
    json.at("scheduler").get_to(record.scheduler);
    json.at("restart_count").get_to(record.restart_count);
    record.agent_tokens = json.value("agent_tokens", false);
    record.older_agents = json.value("older_agents", false);
    record.owner_tokens = json.value("owner_tokens", false);
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, "not a controller record: " + problem_in(json, e)};
  }
  return record;
}

Outcome create_controller_record(const std::string& job_dir, const ControllerRecord& record) {
  HP_TRY(make_directories_below(job_dir, directory_of(job_dir)));
  return create_file_exclusive(path_of(job_dir, record.epoch), to_json_text(record) + "\n");
}

Result<uint64_t> newest_controller_epoch(const std::string& job_dir) {
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(directory_of(job_dir)));
  uint64_t newest = 0;
  for (const std::string& name : names) newest = std::max(newest, epoch_of(name));
  return newest;
}

Result<std::optional<ControllerRecord>> newest_controller(const std::string& job_dir) {
  HP_TRY_ASSIGN(const uint64_t newest, newest_controller_epoch(job_dir));
  if (newest == 0) return std::optional<ControllerRecord>();
  const std::string path = path_of(job_dir, newest);
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxRecordBytes));
  auto record = controller_record_from_json(text);
  if (!record.ok() || record->epoch != newest) {
    return Error{
        ErrorCode::kDataLoss,
        path + " is damaged: " + (record.ok() ? "it names another epoch" : record.error().message)};
  }
  return std::optional(std::move(record).value());
}

}  // namespace hpctl
