// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/corpus.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "common/base/check.h"
#include "common/base/checksum.h"
#include "common/base/file.h"
#include "trainer/data/read_at.h"

namespace hpctl {
namespace {

constexpr size_t kMaxFiles = 100'000;
constexpr int kMaxDepth = 64;
constexpr size_t kMaxOpenFiles = 128;
constexpr size_t kProbedFiles = 256;
constexpr size_t kProbeBytes = 4096;
constexpr std::array kPreparedSuffixes = {".jsonl", ".ndjson", ".gz", ".xz", ".zst"};
constexpr const char* kRemedy =
    "; set workload.train.data.path to a text file, a directory of text files or the prefix of "
    "PREFIX.bin and PREFIX.idx";

Error with_remedy(Error error) {
  error.message += kRemedy;
  return error;
}

// Bytes that are no training text, by the names that `hpctl data prepare` reads in another way.
bool needs_preparing(const std::string& path) {
  return std::any_of(kPreparedSuffixes.begin(), kPreparedSuffixes.end(),
                     [&](const char* suffix) { return path.ends_with(suffix); });
}

void hash_number(Sha256& hash, uint64_t value) {
  std::array<unsigned char, 8> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(value >> (8 * i));
  }
  hash.update(bytes.data(), bytes.size());
}

}  // namespace

Result<Corpus> Corpus::open(const std::string& path) {
  Corpus corpus;
  corpus.path_ = path;
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return with_remedy(errno_error("cannot read data " + path));
  if (S_ISDIR(st.st_mode)) {
    HP_TRY(corpus.add_directory("", 0));
    std::sort(corpus.files_.begin(), corpus.files_.end(),
              [](const File& a, const File& b) { return a.name < b.name; });
  } else {
    if (!S_ISREG(st.st_mode)) {
      return with_remedy(Error{ErrorCode::kInvalidArgument, path + " is not a regular file"});
    }
    HP_TRY(corpus.add_file(path, "", static_cast<uint64_t>(st.st_size)));
  }
  for (File& file : corpus.files_) {
    file.begin = corpus.tokens_;
    corpus.tokens_ += file.size + 1;
  }
  if (corpus.files_.empty()) {
    const std::string what =
        "no text in " + path + ": it has no file, or only empty or hidden ones";
    // A directory may be the mount point of a file system that is away.
    if (S_ISDIR(st.st_mode)) return with_remedy(Error{ErrorCode::kNotFound, what, ENOENT});
    return with_remedy(Error{ErrorCode::kInvalidArgument, what});
  }
  corpus.tokens_ -= 1;  // separators stand between files only
  HP_TRY(corpus.compute_fingerprint());
  return corpus;
}

Outcome Corpus::add_directory(const std::string& relative, int depth) {
  const std::string directory = relative.empty() ? path_ : path_ + "/" + relative;
  if (depth > kMaxDepth) {
    return with_remedy(Error{ErrorCode::kInvalidArgument, directory + " is nested too deeply"});
  }
  auto names = list_directory(directory);
  if (!names.ok()) return with_remedy(names.error());
  for (const std::string& name : *names) {
    if (name[0] == '.') continue;
    const std::string path = directory + "/" + name;
    const std::string inside = relative.empty() ? name : relative + "/" + name;
    struct stat link {};
    struct stat target {};
    if (::lstat(path.c_str(), &link) != 0 || ::stat(path.c_str(), &target) != 0) {
      return with_remedy(errno_error("cannot read data " + path));
    }
    if (S_ISDIR(link.st_mode)) HP_TRY(add_directory(inside, depth + 1));
    if (S_ISREG(target.st_mode)) {
      HP_TRY(add_file(path, inside, static_cast<uint64_t>(target.st_size)));
    }
  }
  return Ok{};
}

Outcome Corpus::add_file(const std::string& path, const std::string& name, uint64_t size) {
  if (::access(path.c_str(), R_OK) != 0)
    return with_remedy(errno_error("cannot read data " + path));
  if (size == 0) return Ok{};
  if (needs_preparing(path)) {
    return Error{ErrorCode::kInvalidArgument,
                 "data " + path +
                     " is compressed or JSON lines, not text; run `hpctl data prepare " + path_ +
                     " --tokenizer byte --append-eod --out PREFIX` and set data.path to PREFIX"};
  }
  if (files_.size() == kMaxFiles) {
    return Error{ErrorCode::kInvalidArgument, path_ + " has more than " +
                                                  std::to_string(kMaxFiles) +
                                                  " files; join them into fewer and larger ones"};
  }
  files_.push_back(File{path, name, size, 0});
  return Ok{};
}

Outcome Corpus::compute_fingerprint() {
  Sha256 hash;
  hash.update("hpctl corpus 1\n");
  hash_number(hash, files_.size());
  for (const File& file : files_) {
    hash_number(hash, file.name.size());
    hash.update(file.name);
    hash_number(hash, file.size);
  }
  const size_t probes = std::min(files_.size(), kProbedFiles);
  std::vector<uint8_t> probe;
  for (size_t k = 0; k < probes; ++k) {
    const size_t index = k * files_.size() / probes;
    const uint64_t size = files_[index].size;
    probe.resize(std::min<uint64_t>(size, kProbeBytes));
    HP_TRY(read_file_part(index, 0, probe));
    hash.update(probe.data(), probe.size());
    HP_TRY(read_file_part(index, size - probe.size(), probe));
    hash.update(probe.data(), probe.size());
  }
  fingerprint_ = hash.hex_digest();
  return Ok{};
}

Result<int> Corpus::descriptor(size_t file) {
  if (const auto found = open_files_.find(file); found != open_files_.end()) {
    return found->second.get();
  }
  if (open_files_.size() >= kMaxOpenFiles) open_files_.clear();
  UniqueFd fd(::open(files_[file].path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno_error("cannot open data " + files_[file].path);
  return open_files_.emplace(file, std::move(fd)).first->second.get();
}

Outcome Corpus::read_file_part(size_t file, uint64_t offset, std::span<uint8_t> out) {
  HP_TRY_ASSIGN(const int fd, descriptor(file));
  HP_TRY_ASSIGN(const size_t done, read_at(fd, files_[file].path, offset, out));
  if (done == out.size()) return Ok{};
  return Error{ErrorCode::kFailedPrecondition,
               files_[file].path + " became shorter while training; restore it and resume"};
}

Outcome Corpus::read(uint64_t begin, std::span<uint8_t> out) {
  HP_CHECK(begin <= tokens_ && out.size() <= tokens_ - begin);
  if (out.empty()) return Ok{};
  auto next = std::upper_bound(files_.begin(), files_.end(), begin,
                               [](uint64_t token, const File& file) { return token < file.begin; });
  auto file = static_cast<size_t>(next - files_.begin()) - 1;
  uint64_t offset = begin - files_[file].begin;  // == size: the separator behind the file
  while (!out.empty()) {
    if (offset == files_[file].size) {
      out[0] = kSeparatorToken;
      out = out.subspan(1);
      ++file;
      offset = 0;
      continue;
    }
    const size_t size = std::min<uint64_t>(out.size(), files_[file].size - offset);
    HP_TRY(read_file_part(file, offset, out.first(size)));
    out = out.subspan(size);
    offset += size;
  }
  return Ok{};
}

}  // namespace hpctl
