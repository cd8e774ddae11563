// SPDX-License-Identifier: Apache-2.0
// The input of a preparation, cut into parts. Names ending in .jsonl, .ndjson or .json (before .gz,
// .xz or .zst) hold a JSON object per line, each a document; any other file is text and one
// document.
//
// A part of a JSON lines file ends with the first line that ends at or after `part_bytes` of its
// text; a text file is one part. So the parts depend only on the files, and a killed run can
// continue with the missing ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/prepare/text_input.h"

namespace hpctl {

struct InputFile {
  std::string path;
  uint64_t bytes = 0;
  int64_t mtime_ns = 0;
  bool json_lines = false;
};

// Files as given; a directory stands for its files, recursively, in bytewise order, names beginning
// with '.' left out. Errors: missing, empty or not a file.
Result<std::vector<InputFile>> find_inputs(const std::vector<std::string>& paths);

// Where a part lies.
struct PartPlace {
  size_t file = 0;     // index of the input
  uint64_t begin = 0;  // in the file's text
  uint64_t end = 0;
  uint64_t first_line = 0;  // lines of the file before it
  uint64_t lines = 0;
  uint64_t raw_bytes = 0;  // of the file itself, for progress
  bool last = false;       // nothing of the file follows
};

struct InputPart {
  PartPlace place;
  std::string text;
};

// Gives the parts in order. One thread.
class PartCutter {
 public:
  static constexpr uint64_t kMaxDocumentBytes = 512U << 20;

  PartCutter(const std::vector<InputFile>& files, uint64_t part_bytes)
      : files_(files), part_bytes_(part_bytes) {}

  // nullopt: there are no more.
  Result<std::optional<InputPart>> next();
  // Instead of next(): the next part is known to lie at `place`.
  Outcome skip(const PartPlace& place);

 private:
  Outcome open_next();
  Outcome fill();

  const std::vector<InputFile>& files_;
  uint64_t part_bytes_;
  size_t file_ = 0;
  std::optional<TextInput> input_;
  std::string pending_;  // read, but not yet given
  bool input_ended_ = false;
  uint64_t offset_ = 0;  // of pending_ in the file's text
  uint64_t line_ = 0;
  uint64_t raw_given_ = 0;
};

}  // namespace hpctl
