// SPDX-License-Identifier: Apache-2.0
// Reads every byte of a checkpoint once and compares it with the manifest's checksums: of each
// stored range, and of each whole file (which also covers the safetensors header).
#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/checksum.h"
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

}  // namespace

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
