// SPDX-License-Identifier: Apache-2.0
// Reading a checkpoint at any world size. A rank asks for the element ranges it owns now; they are
// assembled from whatever was stored. Every stored piece that is touched is read whole and
// its checksum verified, so no unverified byte reaches the caller's memory unnoticed: on error the
// destination is unspecified and must not be used.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/job/file_fault.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shard_reader.h"

namespace hpctl {

class CheckpointLoader {
 public:
  // `step_dir` = path of a step-N.gG directory. Errors as read_manifest; and kDataLoss for a shard
  // file that is missing or has another size. After an error `fault` says which file, and the
  // errno of a shard.
  static Result<CheckpointLoader> open(const std::string& step_dir, FileFault* fault = nullptr);

  const Manifest& manifest() const { return manifest_; }
  const std::string& step_dir() const { return step_dir_; }

  // Fills `out` with block `block` (index), elements `range` (out.size() == range.size(), within
  // the block). With the world size of the save this is one contiguous read straight into `out`.
  // The moments of a checkpoint of weights only are zeros.
  // kDataLoss names file, tensors and byte offset. One thread at a time per loader.
  Outcome load_range(int32_t block, StateKind kind, ElementRange range, std::span<float> out);
  // The file part of the last error of load_range().
  const FileFault& fault() const { return shards_.fault(); }
  // So far, from the shard files.
  uint64_t bytes_read() const { return shards_.bytes_read(); }

 private:
  CheckpointLoader(std::string step_dir, Manifest manifest);
  Outcome load_entry(const ShardEntry& entry, ElementRange wanted, std::span<float> out);

  std::string step_dir_;
  Manifest manifest_;
  ShardFiles shards_;
};

// As load_range, of a block that is stored in slices: every piece that has some of the wanted
// elements is read whole and compared with its checksum; elements of no tensor are zeros.
Outcome read_slices(const Manifest& manifest, ShardFiles& shards, int32_t block, StateKind kind,
                    ElementRange range, std::span<float> out);

// "shard-00001.safetensors: layers.0 exp_avg elements [0, 4096) at byte 512 (tensors ...)":
// how errors and verify name a stored range.
std::string describe_entry(const Manifest& manifest, const ShardEntry& entry);

}  // namespace hpctl
