// SPDX-License-Identifier: Apache-2.0
// A training state whose every element is a function of its place, saved as any number of ranks
// would save it, so that tests can tell where each byte they read came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/lineage.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/shard_writer.h"

namespace hpctl {

// A small Llama whose block sizes no tested world size divides evenly.
ModelSpec synthetic_model();

// The value of element `element`; differs between blocks, kinds, elements and salts. Gaps between
// tensors are zero, as in training.
float synthetic_value(const std::vector<Block>& blocks, int32_t block, StateKind kind,
                      int64_t element, uint64_t salt);

struct SyntheticSave {
  std::string checkpoint_dir;
  CheckpointRef ref;
  int32_t world_size = 1;
  uint64_t salt = 0;
  uint64_t parent = 0;
  std::vector<SampleRange> skipped;
  // 0: every block as intervals. Else most blocks as the slices that follow from it.
  uint64_t cut = 0;
};

// Every tensor of most blocks in boxes at random, ascending.
std::vector<TensorSlice> random_slices(const std::vector<Block>& blocks, uint64_t cut);

// The manifest's part that does not depend on the shards.
Manifest synthetic_manifest(const SyntheticSave& save);

// Writes the shard of one rank of a save of `blocks`, as write_shard.
Result<Receipt> write_synthetic_shard(const SyntheticSave& save, int32_t rank,
                                      const std::vector<Block>& blocks);
// Of the model's.
Result<Receipt> write_synthetic_shard(const SyntheticSave& save, int32_t rank);

// All ranks, receipts through their encoding, and the commit. `base`: synthetic_manifest(), or that
// with other blocks.
Outcome save_synthetic(const SyntheticSave& save, Manifest base);
Outcome save_synthetic(const SyntheticSave& save);

// As the controller of a job with that newest generation prunes.
inline Result<RetentionReport> keep_newest(const std::string& checkpoint_dir, int64_t keep,
                                           uint64_t generation, int64_t keep_every = 0) {
  return delete_older_checkpoints(
      checkpoint_dir, {.generation = generation, .keep = keep, .keep_every = keep_every});
}

}  // namespace hpctl
