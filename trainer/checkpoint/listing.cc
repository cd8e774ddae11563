// SPDX-License-Identifier: Apache-2.0
// Lists the existing checkpoints, and decides which of them count.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/shard_reader.h"

namespace hpctl {
namespace {

// The size of all files there, named in the manifest or not. A file that disappears meanwhile
// counts nothing.
Result<uint64_t> bytes_of_files(const std::string& step_dir) {
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(step_dir));
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    const std::string path = step_dir + "/" + name;
    struct stat st {};
    if (::lstat(path.c_str(), &st) == 0) {
      bytes += static_cast<uint64_t>(st.st_size);
    } else if (errno != ENOENT) {
      return errno_error("cannot read the size of " + path);
    }
  }
  return bytes;
}

// For a checkpoint with complete files. `lineage`: the chain that it belongs to.
void judge_by_lineage(CheckpointListing& listing, const std::vector<GenerationRecord>& lineage,
                      bool is_newest_chain) {
  for (const GenerationRecord& record : lineage) {
    const auto& damaged = record.damaged;
    if (std::find(damaged.begin(), damaged.end(), listing.ref.name()) == damaged.end()) continue;
    listing.state = CheckpointState::kDamaged;
    listing.detail = "recorded as damaged by generation " + std::to_string(record.generation);
    return;
  }
  if (!valid_by_lineage(listing.ref, lineage)) {
    listing.state = CheckpointState::kStale;
    listing.detail =
        "not on the surviving history of generation " + std::to_string(lineage.front().generation);
    return;
  }
  listing.state = is_newest_chain ? CheckpointState::kValid : CheckpointState::kForeign;
  if (!is_newest_chain) listing.detail = "of the chain of " + job_of(lineage.front());
}

Result<CheckpointListing> look_at(const std::string& checkpoint_dir, const CheckpointRef& ref,
                                  const std::vector<CheckpointChain>& chains) {
  CheckpointListing listing;
  listing.ref = ref;
  const CheckpointChain* const chain = find_chain_of(chains, ref.generation);
  listing.chain = chain == nullptr ? 0 : chain->number();
  const std::string step_dir = checkpoint_dir + "/" + ref.name();
  HP_TRY_ASSIGN(listing.bytes, bytes_of_files(step_dir));
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
  for (const ShardFile& file : manifest->files) {
    const auto size = check_shard_size(step_dir, file);
    if (size.ok()) continue;
    listing.state = CheckpointState::kDamaged;
    listing.detail = size.error().message;
    return listing;
  }
  const bool is_recorded = chain != nullptr;
  const CheckpointChain none{};
  const CheckpointChain& newest = chains.empty() ? none : chains.front();
  judge_by_lineage(listing, is_recorded ? chain->records : newest.records,
                   !is_recorded || chain == &newest);
  return listing;
}

}  // namespace

const char* to_string(CheckpointState state) {
  switch (state) {
    case CheckpointState::kValid:
      return "valid";
    case CheckpointState::kStale:
      return "stale";
    case CheckpointState::kForeign:
      return "foreign";
    case CheckpointState::kIncomplete:
      return "incomplete";
    case CheckpointState::kDamaged:
      return "damaged";
  }
  return "unknown";
}

Result<std::vector<CheckpointListing>> list_checkpoint_states(const std::string& checkpoint_dir) {
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  return list_checkpoint_states(checkpoint_dir, find_chains(records));
}

Result<std::vector<CheckpointListing>> list_checkpoint_states(
    const std::string& checkpoint_dir, const std::vector<CheckpointChain>& chains) {
  HP_TRY_ASSIGN(const auto names, list_directory(checkpoint_dir));
  std::vector<CheckpointListing> listings;
  for (const std::string& name : names) {
    const auto ref = parse_checkpoint_name(name);
    if (!ref) continue;
    HP_TRY_ASSIGN(CheckpointListing listing, look_at(checkpoint_dir, *ref, chains));
    listings.push_back(std::move(listing));
  }
  std::sort(listings.begin(), listings.end(),
            [](const auto& a, const auto& b) { return a.ref < b.ref; });
  return listings;
}

const CheckpointListing* find_resumed(const std::vector<CheckpointListing>& listings) {
  const auto found = std::find_if(listings.rbegin(), listings.rend(), [](const auto& listing) {
    return listing.state == CheckpointState::kValid;
  });
  return found == listings.rend() ? nullptr : &*found;
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
  HP_TRY_ASSIGN(const bool is_checkpoint, has_manifest(trimmed));
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
