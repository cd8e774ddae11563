// SPDX-License-Identifier: Apache-2.0
// A file written piece by piece that has its name only when all of it is on disk: a temporary in
// the same directory, fsync, rename, fsync of the directory. Buffered. Destroyed before finish(),
// it removes the temporary.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

class FileWriter {
 public:
  static Result<FileWriter> create(const std::string& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  Outcome append(std::string_view bytes);
  // Little endian, `size` bytes.
  Outcome append_number(uint64_t value, size_t size);
  // Copies a whole file, in the kernel where the file system can.
  Outcome append_file(const std::string& path);
  Outcome finish();

 private:
  FileWriter(UniqueFd fd, std::string path, std::string temporary);
  Outcome flush();

  UniqueFd fd_;
  std::string path_;
  std::string temporary_;  // "" once renamed
  std::string buffer_;
};

}  // namespace hpctl
