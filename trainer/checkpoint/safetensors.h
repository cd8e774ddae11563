// SPDX-License-Identifier: Apache-2.0
// The safetensors container (github.com/huggingface/safetensors, README, "Format"): u64 length of
// the header, a JSON header {NAME: {"dtype", "shape", "data_offsets": [begin, end]}}, data without
// holes. Reading treats a file as untrusted: bounded, and every size and offset checked before
// any data is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes of the data section, [begin, end)
  uint64_t end = 0;
};

// Length and header, padded with spaces so that the data begins at a multiple of 64 bytes.
std::string safetensors_header(const std::map<std::string, std::string>& metadata,
                               const std::vector<SafetensorsTensor>& tensors);

// The content of a header, by name. `data_bytes` is the size of the file's data section. kDataLoss,
// naming `path` and the tensor, unless the tensors tile the data exactly.
Result<std::map<std::string, SafetensorsTensor>> parse_safetensors_header(std::string_view header,
                                                                          uint64_t data_bytes,
                                                                          const std::string& path);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }

  // Reads `size` bytes from byte `first` of a tensor of this file on.
  Outcome read(const SafetensorsTensor& tensor, uint64_t first, void* out, size_t size) const;

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t data_offset_ = 0;
  std::map<std::string, SafetensorsTensor> tensors_;
};

}  // namespace hpctl
