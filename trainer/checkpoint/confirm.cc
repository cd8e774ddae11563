// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/confirm.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/base/checksum.h"
#include "common/base/fd.h"
#include "trainer/checkpoint/loader.h"

namespace hpctl {
namespace {

constexpr size_t kConfirmedAtOnce = 4U << 20;
constexpr size_t kSampledRanges = 2;  // of each shard

Error damage_of(const std::string& path, const std::string& what) {
  return {ErrorCode::kDataLoss, path + " is damaged: " + what};
}

// An open file whose pages are no longer cached on this machine. Committed files are durable, so
// none of their pages is dirty and the kernel drops them all.
Result<UniqueFd> open_past_cache(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    Error error = errno_error("cannot open " + path);
    if (error.code == ErrorCode::kNotFound) return damage_of(path, "it is missing");
    return error;
  }
  const int failed = ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (failed != 0) return errno_error("cannot read " + path + " past the page cache", failed);
  return fd;
}

class Confirmation {
 public:
  Confirmation(const std::string& step_dir, const Manifest& manifest, VerifyDepth depth,
               const std::function<bool()>& goes_on)
      : step_dir_(step_dir), manifest_(manifest), depth_(depth), goes_on_(goes_on) {
    buffer_.resize(kConfirmedAtOnce);
    entries_.resize(manifest.files.size());
    for (const ShardEntry& entry : manifest.shards) {
      entries_[static_cast<size_t>(entry.file)].push_back(&entry);
    }
  }

  Outcome run() {
    for (size_t i = 0; i < manifest_.files.size(); ++i) HP_TRY(confirm(i));
    return Ok{};
  }

 private:
  Outcome confirm(size_t index) {
    const ShardFile& file = manifest_.files[index];
    const std::string path = step_dir_ + "/" + file.file;
    HP_TRY_ASSIGN(const UniqueFd fd, open_past_cache(path));
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return errno_error("cannot read " + path);
    if (static_cast<uint64_t>(st.st_size) != file.bytes) {
      return damage_of(path, "it has " + std::to_string(st.st_size) + " bytes, the manifest says " +
                                 std::to_string(file.bytes));
    }
    if (depth_ == VerifyDepth::kSample) return confirm_sample(fd.get(), index);
    if (depth_ == VerifyDepth::kSizes) return goes_on_() ? Outcome(Ok{}) : interrupted();
    HP_TRY_ASSIGN(const uint32_t crc, checksum(fd.get(), path, 0, file.bytes));
    return crc == file.crc32c ? Outcome(Ok{}) : damage_of(path, "crc32c does not match");
  }

  Outcome confirm_sample(int fd, size_t index) {
    const auto& entries = entries_[index];
    for (const size_t i : sampled_ranges(manifest_.ref(), index, entries.size())) {
      const ShardEntry& entry = *entries[i];
      const uint64_t bytes = static_cast<uint64_t>(entry.range.size()) * sizeof(float);
      const std::string path = step_dir_ + "/" + manifest_.files[index].file;
      HP_TRY_ASSIGN(const uint32_t crc, checksum(fd, path, entry.offset, bytes));
      if (crc == entry.crc32c) continue;
      return Error{ErrorCode::kDataLoss,
                   step_dir_ + "/" + describe_entry(manifest_, entry) + ": crc32c does not match"};
    }
    return Ok{};
  }

  Result<uint32_t> checksum(int fd, const std::string& path, uint64_t offset, uint64_t bytes) {
    uint32_t crc = 0;
    for (const uint64_t end = offset + bytes; offset < end;) {
      if (!goes_on_()) return interrupted();
      const auto size = static_cast<size_t>(std::min<uint64_t>(end - offset, kConfirmedAtOnce));
      const ssize_t n = ::pread(fd, buffer_.data(), size, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_error("cannot read " + path + " at byte " + std::to_string(offset));
      if (n == 0) return damage_of(path, "it ends at byte " + std::to_string(offset));
      crc = crc32c(buffer_.data(), static_cast<size_t>(n), crc);
      offset += static_cast<uint64_t>(n);
    }
    return crc;
  }

  Error interrupted() const {
    return {ErrorCode::kUnavailable, "the verification of " + step_dir_ + " was interrupted"};
  }

  const std::string& step_dir_;
  const Manifest& manifest_;
  const VerifyDepth depth_;
  const std::function<bool()>& goes_on_;
  std::vector<char> buffer_;
  std::vector<std::vector<const ShardEntry*>> entries_;  // by file
};

// Spreads its input over all 64 bits (the finalizer of MurmurHash3).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33U)) * 0xff51afd7ed558ccdU;
  x = (x ^ (x >> 33U)) * 0xc4ceb9fe1a85ec53U;
  return x ^ (x >> 33U);
}

}  // namespace

std::vector<size_t> sampled_ranges(const CheckpointRef& checkpoint, size_t file, size_t count) {
  std::set<size_t> chosen;
  uint64_t state = mix(checkpoint.step) ^ mix(~checkpoint.generation) ^ mix(file << 32U);
  while (chosen.size() < std::min(kSampledRanges, count)) {
    state = mix(state + 0x9e3779b97f4a7c15U);
    chosen.insert(static_cast<size_t>(state % count));
  }
  return {chosen.begin(), chosen.end()};
}

Outcome confirm_checkpoint(const std::string& step_dir, VerifyDepth depth,
                           const std::function<bool()>& goes_on) {
  HP_TRY(open_past_cache(step_dir + "/manifest.json"));
  HP_TRY_ASSIGN(const Manifest manifest, read_manifest(step_dir));
  return Confirmation(step_dir, manifest, depth, goes_on).run();
}

}  // namespace hpctl
