// SPDX-License-Identifier: Apache-2.0
// Reads every byte of a checkpoint once and compares it with the manifest's checksums: of each
// stored range, and of each whole file (which also covers the safetensors header).
//
// To confirm what another reader found damaged, only that range is read, or that file.
#include <fcntl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/checksum.h"
#include "common/base/fd.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/shard_reader.h"

namespace hpctl {
namespace {

constexpr size_t kPieceBytes = 1U << 20;

class FileVerifier {
 public:
  FileVerifier(const std::string& step_dir, const Manifest& manifest, VerifyReport& report)
      : step_dir_(step_dir), manifest_(manifest), report_(report), shards_(step_dir) {
    buffer_.resize(kPieceBytes);
  }

  // `entries`: those stored in the file, ascending by offset.
  void verify(const ShardFile& file, const std::vector<const ShardEntry*>& entries) {
    if (auto size = check_shard_size(step_dir_, file); !size.ok()) {
      report_.problems.push_back(size.error().message);
      return;
    }
    const size_t known = report_.problems.size();
    position_ = 0;
    file_crc_ = 0;
    for (const ShardEntry* entry : entries) {
      const std::string what = step_dir_ + "/" + describe_entry(manifest_, *entry);
      if (entry->offset < position_) {
        report_.problems.push_back(what + " overlaps the range before it");
        return;
      }
      uint32_t crc = 0;
      const uint64_t bytes = static_cast<uint64_t>(entry->range.size()) * sizeof(float);
      if (!advance(file, entry->offset, nullptr) || !advance(file, entry->offset + bytes, &crc)) {
        return;
      }
      ++report_.ranges;
      if (crc != entry->crc32c) report_.problems.push_back(what + ": crc32c does not match");
    }
    if (!advance(file, file.bytes, nullptr)) return;
    if (file_crc_ != file.crc32c && report_.problems.size() == known) {
      report_.problems.push_back(
          step_dir_ + "/" + file.file +
          ": bytes outside the stored ranges (the header, before byte " +
          std::to_string(entries.empty() ? file.bytes : entries.front()->offset) +
          ") do not match its crc32c");
    }
  }

 private:
  // Reads on to byte `end`, feeding the file's checksum and `range_crc`.
  bool advance(const ShardFile& file, uint64_t end, uint32_t* range_crc) {
    while (position_ < end) {
      const auto size = static_cast<size_t>(std::min<uint64_t>(end - position_, kPieceBytes));
      if (auto read = shards_.read(file, position_, buffer_.data(), size); !read.ok()) {
        report_.problems.push_back(read.error().message);
        return false;
      }
      file_crc_ = crc32c(buffer_.data(), size, file_crc_);
      if (range_crc != nullptr) *range_crc = crc32c(buffer_.data(), size, *range_crc);
      position_ += size;
      report_.bytes += size;
    }
    return true;
  }

  const std::string& step_dir_;
  const Manifest& manifest_;
  VerifyReport& report_;
  ShardFiles shards_;
  std::vector<char> buffer_;
  uint64_t position_ = 0;
  uint32_t file_crc_ = 0;
};

// So that the next read asks the disk, or the file server. What cannot be opened fails there.
void forget_cached(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid()) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

bool shows_damage(const Error& error) { return error.code == ErrorCode::kDataLoss; }

// "" = its bytes are those that the manifest tells.
Result<std::string> check_range(const std::string& step_dir, const Manifest& manifest,
                                const ShardEntry& entry) {
  const ShardFile& file = manifest.files[static_cast<size_t>(entry.file)];
  const uint64_t end = entry.offset + static_cast<uint64_t>(entry.range.size()) * sizeof(float);
  ShardFiles shards(step_dir);
  std::vector<char> buffer(kPieceBytes);
  uint32_t crc = 0;
  for (uint64_t at = entry.offset; at < end;) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(end - at, kPieceBytes));
    if (auto read = shards.read(file, at, buffer.data(), size); !read.ok()) {
      if (shows_damage(read.error())) return read.error().message;
      return read.error();
    }
    crc = crc32c(buffer.data(), size, crc);
    at += size;
  }
  if (crc == entry.crc32c) return std::string();
  return step_dir + "/" + describe_entry(manifest, entry) + ": crc32c does not match";
}

// The ranges of a file that the claim names; all where it names none.
std::vector<const ShardEntry*> claimed_ranges(const Manifest& manifest, size_t file,
                                              const std::string& claim) {
  std::vector<const ShardEntry*> all;
  std::vector<const ShardEntry*> named;
  for (const ShardEntry& entry : manifest.shards) {
    if (static_cast<size_t>(entry.file) != file) continue;
    all.push_back(&entry);
    if (claim.find(describe_entry(manifest, entry)) != std::string::npos) named.push_back(&entry);
  }
  return named.empty() ? all : named;
}

Result<std::string> check_file(const std::string& step_dir, const Manifest& manifest, size_t file,
                               const std::string& claim) {
  forget_cached(step_dir + "/" + manifest.files[file].file);
  if (auto size = check_shard_size(step_dir, manifest.files[file]); !size.ok()) {
    if (shows_damage(size.error())) return size.error().message;
    return size.error();
  }
  for (const ShardEntry* entry : claimed_ranges(manifest, file, claim)) {
    HP_TRY_ASSIGN(std::string found, check_range(step_dir, manifest, *entry));
    if (!found.empty()) return found;
  }
  return std::string();
}

}  // namespace

Result<std::string> confirm_damage(const std::string& step_dir, const std::string& claim) {
  forget_cached(step_dir + "/manifest.json");
  const auto manifest = read_manifest(step_dir);
  if (!manifest.ok()) {
    const ErrorCode code = manifest.error().code;
    const bool damaged = code == ErrorCode::kDataLoss || code == ErrorCode::kNotFound;
    if (damaged) return manifest.error().message;
    return manifest.error();
  }
  const auto is_named = [&](const ShardFile& file) {
    return claim.find(file.file) != std::string::npos;
  };
  const auto& files = manifest->files;
  const bool names_one = std::any_of(files.begin(), files.end(), is_named);
  for (size_t i = 0; i < files.size(); ++i) {
    if (names_one && !is_named(files[i])) continue;
    HP_TRY_ASSIGN(std::string found, check_file(step_dir, *manifest, i, claim));
    if (!found.empty()) return found;
  }
  return std::string();
}

Result<VerifyReport> verify_checkpoint(const std::string& step_dir) {
  HP_TRY_ASSIGN(const Manifest manifest, read_manifest(step_dir));
  std::vector<std::vector<const ShardEntry*>> by_file(manifest.files.size());
  for (const ShardEntry& entry : manifest.shards) {
    by_file[static_cast<size_t>(entry.file)].push_back(&entry);
  }
  VerifyReport report;
  FileVerifier verifier(step_dir, manifest, report);
  for (size_t i = 0; i < by_file.size(); ++i) {
    std::sort(by_file[i].begin(), by_file[i].end(),
              [](const auto* a, const auto* b) { return a->offset < b->offset; });
    verifier.verify(manifest.files[i], by_file[i]);
  }
  return report;
}

}  // namespace hpctl
