// SPDX-License-Identifier: Apache-2.0
#include "common/job/lineage.h"

#include <algorithm>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/base/plausible.h"

namespace hpctl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GenerationMember, rank, node, instance_id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(QuarantinedNode, node, instance_id, by, reason,
                                                hardware, since_wall_ms, until_wall_ms,
                                                recovery_wall_ms, reboot, rebooted_wall_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GenerationRecord, generation, parent, start_step, checkpoint,
                                   from_memory, committed, job, job_name, members, reason,
                                   restarts_used, damaged, created_wall_ms, restart_count,
                                   quarantined, job_uuid, order, withdrawn)

namespace {

constexpr size_t kMaxLineageBytes = 64U << 20;

std::string record_path(const std::string& checkpoint_dir, uint64_t generation) {
  return checkpoint_dir + "/generations/" + std::to_string(generation) + ".json";
}

std::string quarantined_path(const std::string& job_dir, uint64_t restart_count) {
  return job_dir + "/quarantined-" + std::to_string(restart_count) + ".json";
}

// A whole number without sign or leading zero, at most 18 digits.
std::optional<uint64_t> parse_number(const std::string& text) {
  if (text.empty() || text.size() > 18 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

// Why the record cannot be one that a controller wrote; "" = it can.
std::string find_problem(const GenerationRecord& record) {
  if (record.generation == 0 || record.generation > kMaxGeneration) {
    return "there is no generation " + std::to_string(record.generation);
  }
  if (record.parent >= record.generation) {
    return "generation " + std::to_string(record.parent) + " cannot be its parent";
  }
  if (record.start_step > kMaxStep) {
    return "there is no step " + std::to_string(record.start_step);
  }
  if (record.restarts_used < 0 || record.restarts_used > kMaxRestartsRecorded) {
    return "there were not " + std::to_string(record.restarts_used) + " restarts";
  }
  return "";
}

}  // namespace

std::string to_json_text(const GenerationRecord& record) {
  return json_text(nlohmann::json(record), {.indent = 1}) + "\n";
}

Outcome write_quarantined(const std::string& job_dir, uint64_t restart_count,
                          const std::vector<QuarantinedNode>& nodes) {
  return write_file_atomic(quarantined_path(job_dir, restart_count),
                           json_text(nlohmann::json(nodes), {.indent = 1}) + "\n");
}

Result<std::vector<QuarantinedNode>> read_quarantined(const std::string& job_dir,
                                                      uint64_t restart_count) {
  const std::string path = quarantined_path(job_dir, restart_count);
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, kMaxLineageBytes));
  if (!text) return std::vector<QuarantinedNode>{};
  nlohmann::json document;
  try {
    document = parse_json(*text);
    return document.get<std::vector<QuarantinedNode>>();
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + ": " + problem_in(document, e)};
  }
}

Result<GenerationRecord> generation_record_from_json(const std::string& text) {
  nlohmann::json record;
  try {
    record = parse_json(text);
    if (record.is_object()) {  // maybe of a release that did not write these
      record.emplace("quarantined", nlohmann::json::array());
      record.emplace("restart_count", 0);
      record.emplace("from_memory", false);
      record.emplace("committed", "");
      record.emplace("job_uuid", "");
      record.emplace("order", "");
      record.emplace("withdrawn", nlohmann::json::array());
    }
    auto parsed = record.get<GenerationRecord>();
    if (const std::string problem = find_problem(parsed); !problem.empty()) {
      return Error{ErrorCode::kDataLoss, "not a generation record: " + problem};
    }
    return parsed;
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, "not a generation record: " + problem_in(record, e)};
  }
}

Outcome create_generation(const std::string& checkpoint_dir, const GenerationRecord& record) {
  if (const std::string problem = find_problem(record); !problem.empty()) {
    return Error{ErrorCode::kInvalidArgument, "not a generation record: " + problem};
  }
  HP_TRY(make_directories(checkpoint_dir + "/generations"));
  HP_TRY(
      create_file_exclusive(record_path(checkpoint_dir, record.generation), to_json_text(record)));
  return sync_directory(checkpoint_dir);
}

Result<GenerationRecord> read_generation(const std::string& checkpoint_dir, uint64_t generation) {
  const std::string path = record_path(checkpoint_dir, generation);
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxLineageBytes));
  auto record = generation_record_from_json(text);
  // A record is created whole and never changed. If it is damaged, the storage is.
  if (!record.ok()) return Error{ErrorCode::kStorage, path + ": " + record.error().message};
  if (record->generation != generation) {
    return Error{ErrorCode::kDataLoss,
                 path + " names generation " + std::to_string(record->generation)};
  }
  return record;
}

Result<std::vector<GenerationRecord>> read_lineage(const std::string& checkpoint_dir) {
  std::vector<GenerationRecord> records;
  const std::string dir = checkpoint_dir + "/generations";
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(dir));
  for (const std::string& name : names) {
    if (name.size() < 6 || name.substr(name.size() - 5) != ".json") continue;
    const auto number = parse_number(name.substr(0, name.size() - 5));
    if (!number) continue;
    HP_TRY_ASSIGN(auto record, read_generation(checkpoint_dir, *number));
    records.push_back(std::move(record));
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.generation < b.generation; });
  return records;
}

bool is_recorded_by(const GenerationRecord& record, uint64_t job, const std::string& job_uuid) {
  return record.job_uuid.empty() ? record.job == job : record.job_uuid == job_uuid;
}

bool of_same_job(const GenerationRecord& a, const GenerationRecord& b) {
  if (!a.job_uuid.empty() && !b.job_uuid.empty()) return a.job_uuid == b.job_uuid;
  return a.job == b.job && a.job_name == b.job_name;
}

std::vector<GenerationRecord> chain_of_newest(const std::vector<GenerationRecord>& records) {
  return records.empty() ? records : chain_of(records, records.back().generation);
}

std::set<uint64_t> find_withdrawn(const std::vector<GenerationRecord>& records) {
  std::set<uint64_t> withdrawn;
  for (const GenerationRecord& later : records) {
    for (const uint64_t generation : later.withdrawn) {
      const auto named = std::lower_bound(
          records.begin(), records.end(), generation,
          [](const GenerationRecord& record, uint64_t g) { return record.generation < g; });
      const bool is_there = named != records.end() && named->generation == generation;
      if (is_there && of_same_job(*named, later)) withdrawn.insert(generation);
    }
  }
  return withdrawn;
}

std::set<uint64_t> generations_of_newest_job(const std::vector<GenerationRecord>& records) {
  std::set<uint64_t> own;
  for (const GenerationRecord& record : chain_of_newest(records)) own.insert(record.generation);
  for (const GenerationRecord& record : records) {
    if (of_same_job(record, records.back())) own.insert(record.generation);
  }
  return own;
}

std::vector<GenerationRecord> chain_of(const std::vector<GenerationRecord>& records,
                                       uint64_t generation) {
  std::vector<GenerationRecord> chain;
  uint64_t wanted = generation;
  for (auto it = records.rbegin(); it != records.rend() && wanted != 0; ++it) {
    if (it->generation != wanted) continue;
    chain.push_back(*it);
    wanted = it->parent;
  }
  return chain;
}

std::string CheckpointRef::name() const {
  return "step-" + std::to_string(step) + ".g" + std::to_string(generation);
}

std::optional<CheckpointRef> parse_checkpoint_name(const std::string& name) {
  const auto dot = name.find(".g");
  if (name.rfind("step-", 0) != 0 || dot == std::string::npos) return std::nullopt;
  const auto step = parse_number(name.substr(5, dot - 5));
  const auto generation = parse_number(name.substr(dot + 2));
  if (!step || !generation || *step > kMaxStep || *generation > kMaxGeneration) return std::nullopt;
  return CheckpointRef{*step, *generation};
}

bool valid_by_lineage(const CheckpointRef& checkpoint, const std::vector<GenerationRecord>& chain) {
  for (const auto& record : chain) {
    const auto& damaged = record.damaged;
    if (std::find(damaged.begin(), damaged.end(), checkpoint.name()) != damaged.end()) return false;
  }
  if (chain.empty()) return true;
  for (const auto& record : chain) {
    if (record.generation == checkpoint.generation) return checkpoint.step >= record.start_step;
    if (record.start_step < checkpoint.step) return false;
  }
  // An import is older than every generation. The chain that began with it resumes from it until it
  // has its own checkpoint.
  return chain.back().checkpoint == checkpoint.name();
}

std::string find_known_commit(const std::vector<GenerationRecord>& chain) {
  for (const GenerationRecord& record : chain) {
    for (const std::string& name : {record.committed, record.checkpoint}) {
      const auto ref = parse_checkpoint_name(name);  // a path is of another directory
      if (ref && valid_by_lineage(*ref, chain)) return name;
    }
  }
  return "";
}

Result<bool> has_manifest(const std::string& step_dir) {
  return entry_exists(step_dir + "/manifest.json");
}

Result<std::vector<CheckpointRef>> list_checkpoints(const std::string& checkpoint_dir) {
  std::vector<CheckpointRef> found;
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(checkpoint_dir));
  for (const std::string& name : names) {
    const auto ref = parse_checkpoint_name(name);
    if (!ref) continue;
    HP_TRY_ASSIGN(const bool is_complete, has_manifest(checkpoint_dir + "/" + name));
    if (is_complete) found.push_back(*ref);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::optional<CheckpointRef>> latest_on_chain(const std::string& checkpoint_dir,
                                                     const std::vector<GenerationRecord>& chain,
                                                     const std::vector<std::string>& exclude) {
  HP_TRY_ASSIGN(const auto found, list_checkpoints(checkpoint_dir));
  for (auto it = found.rbegin(); it != found.rend(); ++it) {
    if (std::find(exclude.begin(), exclude.end(), it->name()) != exclude.end()) continue;
    if (valid_by_lineage(*it, chain)) return std::optional<CheckpointRef>(*it);
  }
  return std::optional<CheckpointRef>();
}

Result<std::optional<CheckpointRef>> latest_valid_checkpoint(
    const std::string& checkpoint_dir, const std::vector<std::string>& exclude) {
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  return latest_on_chain(checkpoint_dir, chain_of_newest(records), exclude);
}

}  // namespace hpctl
