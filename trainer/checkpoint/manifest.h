// SPDX-License-Identifier: Apache-2.0
// manifest.json: the document that makes a directory step-N.gG a checkpoint. docs/formats.md gives
// the bytes. Reading treats it as untrusted: bounded, checksummed, every field and relation
// validated, so that code behind read_manifest may rely on all that is written here.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/job/lineage.h"
#include "common/layout/block_layout.h"
#include "trainer/checkpoint/manifest_format.h"
#include "trainer/checkpoint/tensor_slice.h"
#include "trainer/data/step_samples.h"
#include "trainer/optim/records.h"

namespace hpctl {

// The stored values per element of a block: fp32 each.
enum class StateKind : uint8_t { kParam = 0, kExpAvg = 1, kExpAvgSq = 2 };
inline constexpr std::array<StateKind, 3> kStateKinds = {StateKind::kParam, StateKind::kExpAvg,
                                                         StateKind::kExpAvgSq};
const char* to_string(StateKind kind);  // "param", "exp_avg", "exp_avg_sq"

// The corpus and how it was cut; a resumed job must find the same.
struct DataIdentity {
  std::string fingerprint;  // Corpus::fingerprint
  uint64_t tokens = 0;
  int64_t seq_len = 0;
  bool operator==(const DataIdentity&) const = default;
};

struct ShardFile {
  std::string file;  // "shard-00003.safetensors"; index in Manifest::files = rank
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // of the whole file
  bool operator==(const ShardFile&) const = default;
};

// A piece of one rank's interval or slice of one block and kind, with its own checksum
// (shard_table.h).
struct ShardEntry {
  int32_t block = 0;  // index in Manifest::blocks
  StateKind kind = StateKind::kParam;
  ElementRange range;   // of the block's flat range, or of the slice's own order; not empty
  int32_t file = 0;     // index in Manifest::files
  uint64_t offset = 0;  // first byte within the file; range.size() * 4 bytes follow
  uint32_t crc32c = 0;  // of those bytes
  int32_t slice = -1;   // index in Manifest::slices; -1: an interval
  bool operator==(const ShardEntry&) const = default;
};

struct Manifest {
  uint64_t step = 0;
  uint64_t generation = 0;
  uint64_t parent = 0;  // generation of the checkpoint this history continues; 0 = from the seed
  int32_t world_size = 1;
  uint64_t sample_cursor = 0;        // next sample number (step_samples.h)
  std::vector<SampleRange> skipped;  // normalized
  StabilityRecord stability;         // not in the document when it says nothing
  LossScaleRecord loss_scale;        // likewise
  DataIdentity data;
  uint64_t seed = 0;
  ModelSpec model;
  LoraSpec lora;                                   // on() where the blocks are its adapters
  std::map<std::string, std::string> environment;  // what bit-exactness depends on; labels
  bool exact = true;                               // bit-exact resume is promised
  std::string inexact_reason;                      // why not
  int64_t created_wall_ms = 0;                     // label only
  // Parameters alone, imported (huggingface.h): no moments are stored, `data` says no more than the
  // longest sequence (seq_len), and a job of any data and seed may begin with them.
  bool weights_only = false;
  std::vector<Block> blocks;
  std::vector<ShardFile> files;  // one per rank, ascending
  // For blocks that are not stored as intervals: all slices of such a block, ascending. Every kind
  // has the same ones.
  std::vector<TensorSlice> slices;
  // Ascending by (block, kind, slice, begin); tile each block, or its slices, and kind.
  std::vector<ShardEntry> shards;

  CheckpointRef ref() const { return {step, generation}; }
  std::span<const StateKind> kinds() const {  // that are stored
    return std::span(kStateKinds).first(weights_only ? 1 : kStateKinds.size());
  }
};

// "shard-00003.safetensors"
std::string shard_file_name(int32_t rank);

// The order of Manifest::shards.
void sort_entries(std::vector<ShardEntry>& entries);

// The problem that keeps this from being a manifest, or "" when there is none.
std::string manifest_problem(const Manifest& manifest);

// kFailedPrecondition when the text could not be read again: ranges that are not in the order of
// shard_table.h, or more than `most_bytes`.
Result<std::string> to_manifest_text(const Manifest& manifest,
                                     size_t most_bytes = kMaxManifestBytes);
// `path_for_errors` names the document in messages. kDataLoss when damaged.
Result<Manifest> manifest_from_text(const std::string& text, const std::string& path_for_errors);

// Reads STEP_DIR/manifest.json. kNotFound: the save was never completed. kDataLoss: damaged, or
// it belongs to another checkpoint than the directory's name says.
Result<Manifest> read_manifest(const std::string& step_dir);

// The values that a job must share with a checkpoint to resume from it.
struct RunIdentity {
  ModelSpec model;
  std::vector<Block> blocks;
  DataIdentity data;
  uint64_t seed = 0;
};
// A difference that makes the stored tensors another model's, "model.dim is 64 there and 128 here";
// "" = none.
std::string find_model_difference(const Manifest& manifest, const ModelSpec& model,
                                  const std::vector<Block>& blocks);
// An error of one line with the remedy when the job is another one: other model, changed data,
// other seq_len or seed. World size and batch sizes may differ.
Outcome check_resumable(const Manifest& manifest, const RunIdentity& run,
                        const std::string& step_dir);

}  // namespace hpctl
