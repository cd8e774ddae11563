// SPDX-License-Identifier: Apache-2.0
// The bytes of an input file, decompressed by what its name ends in: .gz (zlib), .xz (liblzma),
// .zst (libzstd), all with several members or frames after one another.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

class Decompressor;

// PATH without .gz, .xz or .zst.
std::string without_compression(const std::string& path);

class TextInput {
 public:
  static Result<TextInput> open(const std::string& path);
  TextInput(TextInput&&) noexcept;
  TextInput& operator=(TextInput&&) noexcept;
  ~TextInput();

  // Up to out.size() bytes; 0 = the end. kDataLoss: the compressed data is damaged or cut short.
  Result<size_t> read(std::span<char> out);
  // Passes over `bytes` bytes; the file must have them.
  Outcome skip(uint64_t bytes);
  // Bytes of the file itself consumed so far.
  uint64_t raw_position() const { return raw_position_; }

 private:
  TextInput();
  Result<size_t> read_raw(std::span<char> out);

  std::string path_;
  UniqueFd fd_;
  std::unique_ptr<Decompressor> decompressor_;  // null: the file is plain
  std::string raw_;                             // compressed bytes read ahead
  size_t raw_used_ = 0;
  bool raw_ended_ = false;
  uint64_t raw_position_ = 0;
};

}  // namespace hpctl
