// SPDX-License-Identifier: Apache-2.0
// The corpus: every byte of a text file, or of the files of a directory, as one row of tokens.
//
// A directory is walked recursively; its regular files are taken in bytewise order of their path
// relative to it. Names that begin with '.' are left out. A symbolic link counts as the file it
// leads to, and links to directories are left out (no cycles). A dangling link is an error, and so
// is a name that says JSON lines or compressed. Empty files contribute nothing. Between two files
// stands one separator token, kSeparatorToken. Token = byte value.
//
// Opening costs one stat per file and a bounded number of small reads, whatever the size of the
// corpus. Windows are read with pread, not mapped: a file cut short while training then is an
// error with a name instead of SIGBUS (docs/decisions/0005-read-not-map.md).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

inline constexpr uint8_t kSeparatorToken = 0;

class Corpus {
 public:
  // Errors say what to do: missing, empty, too many files, dangling links.
  static Result<Corpus> open(const std::string& path);

  uint64_t tokens() const { return tokens_; }
  size_t files() const { return files_.size(); }
  // First token of file k, k <= files(); file_begin(files()) is tokens(). A separator belongs to
  // the file before it.
  uint64_t file_begin(size_t k) const { return k < files_.size() ? files_[k].begin : tokens_; }
  const std::string& path() const { return path_; }
  // 64 hex digits over names, sizes and probes of the content (docs/formats.md). Independent of
  // where the corpus lies. An edit that keeps a file's size and avoids the probes is not seen.
  const std::string& fingerprint() const { return fingerprint_; }

  // Reads tokens [begin, begin + out.size()); the range must lie within tokens(). Keeps a bounded
  // number of descriptors open: use from one thread at a time.
  Outcome read(uint64_t begin, std::span<uint8_t> out);

 private:
  struct File {
    std::string path;    // as opened
    std::string name;    // relative path; "" when the corpus is a single file
    uint64_t size = 0;   // bytes
    uint64_t begin = 0;  // first token
  };

  Outcome add_directory(const std::string& relative, int depth);
  Outcome add_file(const std::string& path, const std::string& name, uint64_t size);
  Outcome compute_fingerprint();
  Result<int> descriptor(size_t file);
  Outcome read_file_part(size_t file, uint64_t offset, std::span<uint8_t> out);

  std::string path_;
  std::vector<File> files_;
  uint64_t tokens_ = 0;
  std::string fingerprint_;
  std::map<size_t, UniqueFd> open_files_;
};

}  // namespace hpctl
