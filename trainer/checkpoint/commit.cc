// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/commit.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "trainer/checkpoint/durable_file.h"

namespace hpctl {
namespace {

Outcome check_receipts(const std::vector<Receipt>& receipts, const Manifest& base) {
  if (receipts.size() == static_cast<size_t>(base.world_size)) return Ok{};
  return Error{ErrorCode::kFailedPrecondition,
               "cannot commit " + base.ref().name() + ": " + std::to_string(receipts.size()) +
                   " of " + std::to_string(base.world_size) + " ranks wrote their shard"};
}

// A shard that this host cannot see was written to a directory that is not shared.
Outcome check_visible(const std::string& step_dir, const Manifest& manifest) {
  for (const ShardFile& file : manifest.files) {
    const std::string path = step_dir + "/" + file.file;
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) {
      Error error = errno_error("cannot commit: " + path +
                                " was written by its rank but is not "
                                "visible here");
      error.message += "; is checkpoint.dir on a disk that all nodes share?";
      return error;
    }
    if (static_cast<uint64_t>(st.st_size) != file.bytes) {
      return Error{ErrorCode::kDataLoss,
                   "cannot commit: " + path + " has " + std::to_string(st.st_size) +
                       " bytes, its rank wrote " + std::to_string(file.bytes)};
    }
  }
  return Ok{};
}

Outcome write_manifest(const std::string& checkpoint_dir, const std::string& step_dir,
                       const Manifest& manifest) {
  auto text = to_manifest_text(manifest);
  if (!text.ok()) {
    Error error = text.error();
    error.message = "cannot commit " + manifest.ref().name() + ": " + error.message;
    return error;
  }
  HP_FAILPOINT("checkpoint.manifest.before_create");
  HP_TRY_ASSIGN(DurableFile file, DurableFile::create(step_dir + "/manifest.json"));
  HP_TRY(file.append(text->data(), text->size()));
  HP_FAILPOINT("checkpoint.manifest.written");
  HP_TRY(file.sync());
  HP_FAILPOINT("checkpoint.manifest.before_rename");
  HP_TRY(file.rename_into_place());
  HP_FAILPOINT("checkpoint.manifest.renamed");
  return sync_directory(checkpoint_dir);
}

// The index of a slice of the receipt among the slices of all ranks.
int32_t merged_index(const std::vector<TensorSlice>& slices, const Receipt& receipt,
                     int32_t slice) {
  const auto found =
      std::lower_bound(slices.begin(), slices.end(), receipt.slices[static_cast<size_t>(slice)]);
  return static_cast<int32_t>(found - slices.begin());
}

}  // namespace

Outcome commit_checkpoint(const std::string& checkpoint_dir, Manifest base,
                          const std::vector<Receipt>& receipts) {
  const std::string step_dir = checkpoint_dir + "/" + base.ref().name();
  HP_TRY_ASSIGN(const bool is_committed, has_manifest(step_dir));
  if (is_committed) {
    return Error{ErrorCode::kAlreadyExists, step_dir + " is a committed checkpoint already"};
  }
  HP_TRY(check_receipts(receipts, base));
  base.files.assign(receipts.size(), ShardFile{});
  base.slices.clear();
  base.shards.clear();
  for (const Receipt& receipt : receipts) {
    base.slices.insert(base.slices.end(), receipt.slices.begin(), receipt.slices.end());
  }
  std::sort(base.slices.begin(), base.slices.end());
  for (const Receipt& receipt : receipts) {
    if (receipt.rank < 0 || receipt.rank >= base.world_size) {
      return Error{ErrorCode::kInvalidArgument, "cannot commit " + base.ref().name() +
                                                    ": a receipt of unknown rank " +
                                                    std::to_string(receipt.rank)};
    }
    base.files[static_cast<size_t>(receipt.rank)] = receipt.file;
    for (ShardEntry entry : receipt.entries) {
      if (entry.slice >= 0) entry.slice = merged_index(base.slices, receipt, entry.slice);
      base.shards.push_back(entry);
    }
  }
  sort_entries(base.shards);
  if (const auto problem = manifest_problem(base); !problem.empty()) {
    return Error{ErrorCode::kFailedPrecondition,
                 "cannot commit " + base.ref().name() + ": " + problem};
  }
  HP_TRY(check_visible(step_dir, base));
  return write_manifest(checkpoint_dir, step_dir, base);
}

Outcome abandon_checkpoint(const std::string& checkpoint_dir, const CheckpointRef& checkpoint) {
  const std::string step_dir = checkpoint_dir + "/" + checkpoint.name();
  HP_TRY_ASSIGN(const bool is_committed, has_manifest(step_dir));
  if (is_committed) return Ok{};
  return remove_tree(step_dir);
}

}  // namespace hpctl
