// SPDX-License-Identifier: Apache-2.0
// Which checkpoints are there, and which of them count.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/shard_reader.h"

namespace hpctl {
namespace {

CheckpointListing look_at(const std::string& checkpoint_dir, const CheckpointRef& ref,
                          const std::vector<GenerationRecord>& chain) {
  CheckpointListing listing;
  listing.ref = ref;
  const std::string step_dir = checkpoint_dir + "/" + ref.name();
  const auto manifest = read_manifest(step_dir);
  if (!manifest.ok()) {
    const bool missing = manifest.error().code == ErrorCode::kNotFound;
    listing.state = missing ? CheckpointState::kIncomplete : CheckpointState::kDamaged;
    listing.detail =
        missing ? "no manifest: interrupted, or being written" : manifest.error().message;
    return listing;
  }
  listing.world_size = manifest->world_size;
  listing.created_wall_ms = manifest->created_wall_ms;
  listing.state = CheckpointState::kValid;
  for (const ShardFile& file : manifest->files) {
    listing.bytes += file.bytes;
    const auto size = check_shard_size(step_dir, file);
    if (size.ok() || listing.state == CheckpointState::kDamaged) continue;
    listing.state = CheckpointState::kDamaged;
    listing.detail = size.error().message;
  }
  if (listing.state == CheckpointState::kDamaged || valid_by_lineage(ref, chain)) return listing;
  for (const GenerationRecord& record : chain) {
    const auto& damaged = record.damaged;
    if (std::find(damaged.begin(), damaged.end(), ref.name()) == damaged.end()) continue;
    listing.state = CheckpointState::kDamaged;
    listing.detail = "recorded as damaged by generation " + std::to_string(record.generation);
    return listing;
  }
  listing.state = CheckpointState::kStale;
  listing.detail =
      "not on the surviving history of generation " + std::to_string(chain.front().generation);
  return listing;
}

}  // namespace

const char* to_string(CheckpointState state) {
  switch (state) {
    case CheckpointState::kValid:
      return "valid";
    case CheckpointState::kStale:
      return "stale";
    case CheckpointState::kIncomplete:
      return "incomplete";
    case CheckpointState::kDamaged:
      return "damaged";
  }
  return "unknown";
}

Result<std::vector<CheckpointListing>> list_checkpoint_states(const std::string& checkpoint_dir) {
  HP_TRY_ASSIGN(const auto names, list_directory(checkpoint_dir));
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  const auto chain = chain_of_newest(records);
  std::vector<CheckpointListing> listings;
  for (const std::string& name : names) {
    if (const auto ref = parse_checkpoint_name(name)) {
      listings.push_back(look_at(checkpoint_dir, *ref, chain));
    }
  }
  std::sort(listings.begin(), listings.end(),
            [](const auto& a, const auto& b) { return a.ref < b.ref; });
  return listings;
}

namespace {

Error no_valid_checkpoint(const std::string& checkpoint_dir, const std::string& of_whom) {
  return Error{ErrorCode::kNotFound, "no valid checkpoint" + of_whom + " in " + checkpoint_dir +
                                         "; see what is there with: hpctl checkpoint ls " +
                                         checkpoint_dir};
}

}  // namespace

Result<std::vector<GenerationRecord>> chain_of_job(const std::string& checkpoint_dir,
                                                   const JobOfRecords& job) {
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  GenerationRecord own;
  own.job = job.job;
  own.job_name = job.name;
  own.job_uuid = job.uuid;
  for (auto it = records.rbegin(); it != records.rend(); ++it) {
    if (of_same_job(*it, own)) return chain_of(records, it->generation);
  }
  if (records.empty()) return records;
  const GenerationRecord& newest = records.back();
  return Error{ErrorCode::kNotFound,
               "job " + std::to_string(job.job) + " has recorded no generation in " +
                   checkpoint_dir + "; the newest one there is of job " +
                   std::to_string(newest.job) + " \"" + newest.job_name +
                   "\". To look at that one's checkpoints, give the directory"};
}

Result<std::string> resolve_checkpoint_of(const std::string& checkpoint_dir,
                                          const JobOfRecords& job) {
  HP_TRY_ASSIGN(const auto chain, chain_of_job(checkpoint_dir, job));
  HP_TRY_ASSIGN(const auto latest, latest_on_chain(checkpoint_dir, chain, {}));
  if (latest) return checkpoint_dir + "/" + latest->name();
  return no_valid_checkpoint(checkpoint_dir, " of job " + std::to_string(job.job));
}

Result<std::string> resolve_checkpoint(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return errno_error("cannot read checkpoint " + path);
  if (!S_ISDIR(st.st_mode)) {
    return Error{ErrorCode::kInvalidArgument,
                 path + " is not a directory; give a checkpoint directory or its step-N.gG"};
  }
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::string name = trimmed.substr(trimmed.rfind('/') + 1);
  if (parse_checkpoint_name(name)) return trimmed;
  HP_TRY_ASSIGN(const bool is_checkpoint, path_exists(trimmed + "/manifest.json"));
  if (is_checkpoint) return trimmed;
  HP_TRY_ASSIGN(const auto latest, latest_valid_checkpoint(trimmed, {}));
  if (!latest) return no_valid_checkpoint(trimmed, "");
  return trimmed + "/" + latest->name();
}

std::string show_json(const Manifest& manifest) {
  nlohmann::ordered_json skipped = nlohmann::ordered_json::array();
  for (const SampleRange& range : manifest.skipped) skipped.push_back({range.begin, range.end});
  return json_text(nlohmann::ordered_json{{"step", manifest.step},
                                          {"generation", manifest.generation},
                                          {"parent", manifest.parent},
                                          {"world_size", manifest.world_size},
                                          {"sample_cursor", manifest.sample_cursor},
                                          {"skipped", skipped}});
}

}  // namespace hpctl
