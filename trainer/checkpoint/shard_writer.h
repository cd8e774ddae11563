// SPDX-License-Identifier: Apache-2.0
// One rank's part of a checkpoint, written in the background from a sealed snapshot.
//
// How a save goes, on every rank at once:
//   1. write_shard(): STEP_DIR is created, the shard goes to a temporary name, is fsynced, renamed
//      to shard-RRRRR.safetensors, and its directory entry is made durable;
//   2. the Receipt (size, checksums) travels to one rank as bytes (encode_receipt);
//   3. that rank calls commit_checkpoint (commit.h), whose last act is manifest.json. Until then
//      the checkpoint does not exist.
// On an error anywhere, one rank calls abandon_checkpoint; a committed checkpoint is never touched.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/lineage.h"
#include "trainer/checkpoint/manifest.h"

namespace hpctl {

// Values of block[range] for one kind, or of a slice, as they lie in memory; only read during
// write_shard.
struct ShardPart {
  int32_t block = 0;  // index in the layout
  StateKind kind = StateKind::kParam;
  ElementRange range;
  std::span<const float> values;  // range.size() elements
  // Null: an interval. Else of that block, and `range` is all of it; outlives the call.
  const TensorSlice* slice = nullptr;
};

// How far a file is; for other threads.
struct ShardProgress {
  std::atomic<uint64_t> bytes{0};       // of the parts that were written
  std::atomic<bool> is_syncing{false};  // all are, and the file cannot be given up any more
};

struct ShardJob {
  std::string checkpoint_dir;
  CheckpointRef checkpoint;
  int32_t rank = 0;
  int32_t world_size = 1;
  const std::vector<Block>* blocks = nullptr;  // the layout; outlives the call
  // Every kind with the same ranges, ascending by (kind, block, begin or slice); empty ones are
  // left out of the file. All ranks have a block in intervals, or all in slices.
  std::vector<ShardPart> parts;
  // Once it is true, the file is given up at its next piece; null = never. Outlives the call.
  const std::atomic<bool>* given_up = nullptr;
  ShardProgress* progress = nullptr;  // null = nobody asks. Likewise.
};

// The result of one rank's write.
struct Receipt {
  int32_t rank = 0;
  ShardFile file;
  std::vector<TensorSlice> slices;  // ascending
  std::vector<ShardEntry> entries;  // entry.file = rank; entry.slice = index in `slices`
  bool operator==(const Receipt&) const = default;
};

// __metadata__ of a shard file.
std::map<std::string, std::string> shard_metadata(const CheckpointRef& checkpoint, int32_t rank,
                                                  int32_t world_size);

// Blocking; call from the saving thread. Errors: kAlreadyExists when the checkpoint is committed
// already; kResourceExhausted (disk full, with remedy), kStorage (read-only, server away),
// kPermissionDenied, kUnavailable (given up), kInternal.
// On error this rank's own temporary file is gone.
Result<Receipt> write_shard(const ShardJob& job);

// For the exchange among ranks.
std::string encode_receipt(const Receipt& receipt);
Result<Receipt> decode_receipt(const std::string& bytes);

}  // namespace hpctl
