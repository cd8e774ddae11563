// SPDX-License-Identifier: Apache-2.0
// Reading shard files, shared by the loader and the inspections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/job/file_fault.h"
#include "trainer/checkpoint/manifest.h"

namespace hpctl {

// kDataLoss when a shard file is missing or has another size than the manifest says. After an error
// `fault` says which file, and the errno.
Outcome check_shard_size(const std::string& step_dir, const ShardFile& file,
                         FileFault* fault = nullptr);

// Returns whether a block is stored in slices: then read_slices() reads it.
bool is_sliced(const Manifest& manifest, int32_t block);

// The stored pieces that share elements with `range` of a block and kind, in order. For a block
// that is not stored in slices.
std::span<const ShardEntry> entries_of(const Manifest& manifest, int32_t block, StateKind kind,
                                       ElementRange range);

// The shard files of one checkpoint, opened when first read; a bounded number stays open. One
// thread at a time.
class ShardFiles {
 public:
  explicit ShardFiles(std::string step_dir) : step_dir_(std::move(step_dir)) {}

  // Reads exactly `size` bytes; kDataLoss on an I/O error or an early end.
  Outcome read(const ShardFile& file, uint64_t offset, void* out, size_t size);
  // The read bytes differ from the stored ones.
  void blame(const ShardFile& file, uint64_t offset, uint64_t bytes, int32_t error = 0) {
    fault_ = {file.file, offset, bytes, error};
  }
  // The file part of the last error.
  const FileFault& fault() const { return fault_; }
  uint64_t bytes_read() const { return bytes_read_; }
  const std::string& step_dir() const { return step_dir_; }

 private:
  Result<int> descriptor(const std::string& path);

  std::string step_dir_;
  std::map<std::string, UniqueFd> open_;
  FileFault fault_;
  uint64_t bytes_read_ = 0;
};

}  // namespace hpctl
