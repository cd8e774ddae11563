// SPDX-License-Identifier: Apache-2.0
// A file that appears under its name only when all of it is on disk: written to a temporary name
// in the same directory, synced, renamed, its directory entry synced. Destroyed before
// rename_into_place(), the temporary file is removed. For large files written piece by piece;
// errors carry the remedy for a full or read-only disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

class DurableFile {
 public:
  static Result<DurableFile> create(const std::string& path);
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile();

  Outcome append(const void* data, size_t size);
  Outcome sync();
  // After sync(). Replaces what has the name.
  Outcome rename_into_place();

  uint64_t bytes() const { return bytes_; }
  uint32_t crc32c() const { return crc32c_; }  // of everything appended

 private:
  DurableFile(UniqueFd fd, std::string path, std::string temporary);

  UniqueFd fd_;
  std::string path_;
  std::string temporary_;  // "" once renamed
  uint64_t bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// "...: No space left on device; free space on it or set checkpoint.dir to a larger disk".
Error with_disk_remedy(Error error);

}  // namespace hpctl
