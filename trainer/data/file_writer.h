// SPDX-License-Identifier: Apache-2.0
// A TemporaryFile written piece by piece: buffered, numbers little endian, whole files copied in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/result.h"
#include "common/base/temporary_file.h"

namespace hpctl {

class FileWriter {
 public:
  static Result<FileWriter> create(const std::string& path);

  Outcome append(std::string_view bytes);
  // Little endian, `size` bytes.
  Outcome append_number(uint64_t value, size_t size);
  // Copies a whole file, in the kernel where the file system can.
  Outcome append_file(const std::string& path);
  // The file has its name, durably.
  Outcome finish();

 private:
  explicit FileWriter(TemporaryFile file) : file_(std::move(file)) {}
  Outcome flush();

  TemporaryFile file_;
  std::string buffer_;
};

}  // namespace hpctl
