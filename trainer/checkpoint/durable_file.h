// SPDX-License-Identifier: Apache-2.0
// A temporary file (common/base/temporary_file.h) for large contents written piece by piece, with
// their checksum; errors carry the remedy for a full or read-only disk. All but the last page of a
// large file goes past the page cache, where the file system can
// (docs/decisions/1303-checkpoints-past-the-cache.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/result.h"
#include "common/base/temporary_file.h"

namespace hpctl {

class DurableFile {
 public:
  static Result<DurableFile> create(const std::string& path);
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;

  Outcome append(const void* data, size_t size);
  // Makes all appended bytes durable.
  Outcome sync();
  // After sync(). Replaces what has the name.
  Outcome rename_into_place();

  uint64_t bytes() const { return bytes_; }
  uint32_t crc32c() const { return crc32c_; }  // of everything appended

 private:
  struct Unmap {
    void operator()(char* memory) const;
  };

  explicit DurableFile(TemporaryFile file) : file_(std::move(file)) {}
  Outcome write_staged(size_t size);
  void set_direct(bool direct);

  TemporaryFile file_;
  std::unique_ptr<char[], Unmap> staging_;  // kChunk bytes, aligned for direct writes
  size_t staged_ = 0;
  bool direct_ = false;
  uint64_t bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// "...: No space left on device; free space there, or write to a larger disk (of a job:
// checkpoint.dir)".
Error with_disk_remedy(Error error);

}  // namespace hpctl
