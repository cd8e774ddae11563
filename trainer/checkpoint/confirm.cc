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
#include "common/base/file.h"
#include "common/base/rng.h"
#include "trainer/checkpoint/loader.h"

namespace hpctl {
namespace {

constexpr size_t kConfirmedAtOnce = 4U << 20;
constexpr size_t kSampledRanges = 2;  // of each shard
constexpr char kManifestFile[] = "manifest.json";

Error damage_of(const std::string& path, const std::string& what) {
  return {ErrorCode::kDataLoss, path + " is damaged: " + what};
}

// An open file whose pages are no longer cached on this machine. Committed files are durable, so
// none of their pages is dirty and the kernel drops them all.
Result<UniqueFd> open_past_cache(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    const Error error = errno_error("cannot open " + path);
    if (error.code != ErrorCode::kNotFound) return error;
    HP_TRY_ASSIGN(const bool exists, entry_exists(path));
    return exists ? error : damage_of(path, "it is missing");
  }
  const int failed = ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (failed != 0) return errno_error("cannot read " + path + " past the page cache", failed);
  return fd;
}

class Confirmation {
 public:
  Confirmation(const std::string& step_dir, const Manifest& manifest,
               const std::function<bool()>& goes_on)
      : step_dir_(step_dir), manifest_(manifest), goes_on_(goes_on) {
    buffer_.resize(kConfirmedAtOnce);
    entries_.resize(manifest.files.size());
    for (const ShardEntry& entry : manifest.shards) {
      entries_[static_cast<size_t>(entry.file)].push_back(&entry);
    }
  }

  Outcome run(VerifyDepth depth) {
    for (size_t i = 0; i < manifest_.files.size(); ++i) HP_TRY(confirm(i, depth));
    return Ok{};
  }
  // For a file: the stored ranges that share bytes with the part, or all of it.
  Outcome run_claimed(size_t index, const FileFault& part) {
    const auto is_claimed = [&](const ShardEntry* entry) {
      const uint64_t bytes = static_cast<uint64_t>(entry->range.size()) * sizeof(float);
      return entry->offset < part.offset + part.bytes && part.offset < entry->offset + bytes;
    };
    const auto& entries = entries_[index];
    const bool names_one = std::any_of(entries.begin(), entries.end(), is_claimed);
    HP_TRY_ASSIGN(const UniqueFd fd, open_whole(index));
    for (const ShardEntry* entry : entries) {
      if (names_one && !is_claimed(entry)) continue;
      HP_TRY(confirm_range(fd.get(), index, *entry));
    }
    return Ok{};
  }
  // For a worker that reports its unusable files in words alone.
  Outcome run_claimed(const std::string& words) {
    const auto is_named = [&](const ShardFile& file) {
      return words.find(file.file) != std::string::npos;
    };
    const auto& files = manifest_.files;
    const bool names_one = std::any_of(files.begin(), files.end(), is_named);
    for (size_t i = 0; i < files.size(); ++i) {
      if (names_one && !is_named(files[i])) continue;
      HP_TRY_ASSIGN(const UniqueFd fd, open_whole(i));
      for (const ShardEntry* entry : claimed_ranges(i, words)) {
        HP_TRY(confirm_range(fd.get(), i, *entry));
      }
    }
    return Ok{};
  }

 private:
  std::string path_of(size_t index) const { return step_dir_ + "/" + manifest_.files[index].file; }

  // Opens the file if it has the manifest's size.
  Result<UniqueFd> open_whole(size_t index) const {
    const std::string path = path_of(index);
    HP_TRY_ASSIGN(UniqueFd fd, open_past_cache(path));
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return errno_error("cannot read " + path);
    const uint64_t bytes = manifest_.files[index].bytes;
    if (static_cast<uint64_t>(st.st_size) == bytes) return fd;
    return damage_of(path, "it has " + std::to_string(st.st_size) + " bytes, the manifest says " +
                               std::to_string(bytes));
  }

  Outcome confirm(size_t index, VerifyDepth depth) {
    HP_TRY_ASSIGN(const UniqueFd fd, open_whole(index));
    if (depth == VerifyDepth::kSizes) return goes_on_() ? Outcome(Ok{}) : interrupted();
    if (depth == VerifyDepth::kSample) {
      const auto& entries = entries_[index];
      for (const size_t i : sampled_ranges(manifest_.ref(), index, entries.size())) {
        HP_TRY(confirm_range(fd.get(), index, *entries[i]));
      }
      return Ok{};
    }
    const ShardFile& file = manifest_.files[index];
    HP_TRY_ASSIGN(const uint32_t crc, checksum(fd.get(), path_of(index), 0, file.bytes));
    return crc == file.crc32c ? Outcome(Ok{}) : damage_of(path_of(index), "crc32c does not match");
  }

  // The ranges of a file that the claim names; all where it names none.
  std::vector<const ShardEntry*> claimed_ranges(size_t index, const std::string& claim) const {
    std::vector<const ShardEntry*> named;
    for (const ShardEntry* entry : entries_[index]) {
      if (claim.find(describe_entry(manifest_, *entry)) != std::string::npos)
        named.push_back(entry);
    }
    return named.empty() ? entries_[index] : named;
  }

  Outcome confirm_range(int fd, size_t index, const ShardEntry& entry) {
    const uint64_t bytes = static_cast<uint64_t>(entry.range.size()) * sizeof(float);
    HP_TRY_ASSIGN(const uint32_t crc, checksum(fd, path_of(index), entry.offset, bytes));
    if (crc == entry.crc32c) return Ok{};
    return Error{ErrorCode::kDataLoss,
                 step_dir_ + "/" + describe_entry(manifest_, entry) + ": crc32c does not match"};
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
  const std::function<bool()>& goes_on_;
  std::vector<char> buffer_;
  std::vector<std::vector<const ShardEntry*>> entries_;  // by file
};

Result<Manifest> read_manifest_again(const std::string& step_dir) {
  HP_TRY(open_past_cache(step_dir + "/manifest.json"));
  return read_manifest(step_dir);
}

}  // namespace

Outcome check_in_place(const std::string& checkpoint_dir, uint64_t generation) {
  const std::string record =
      checkpoint_dir + "/generations/" + std::to_string(generation) + ".json";
  HP_TRY_ASSIGN(const bool is_there, entry_exists(record));
  if (is_there) return Ok{};
  return Error{ErrorCode::kStorage, record + " is not there"};
}

Outcome check_path_in_place(const std::string& step_dir) {
  HP_TRY_ASSIGN(const bool is_there, entry_exists(step_dir));
  if (is_there) return Ok{};
  const size_t slash = step_dir.rfind('/');
  const auto ref = parse_checkpoint_name(step_dir.substr(slash + 1));
  if (ref) return check_in_place(step_dir.substr(0, slash), ref->generation);
  return Error{ErrorCode::kStorage, step_dir + " is not there"};
}

std::vector<size_t> sampled_ranges(const CheckpointRef& checkpoint, size_t file, size_t count) {
  std::set<size_t> chosen;
  Rng rng(mix64(checkpoint.step) ^ mix64(~checkpoint.generation) ^ mix64(file << 32U));
  while (chosen.size() < std::min(kSampledRanges, count)) {
    chosen.insert(static_cast<size_t>(rng.below(count)));
  }
  return {chosen.begin(), chosen.end()};
}

Outcome confirm_checkpoint(const std::string& step_dir, VerifyDepth depth,
                           const std::function<bool()>& goes_on) {
  HP_TRY_ASSIGN(const Manifest manifest, read_manifest_again(step_dir));
  return Confirmation(step_dir, manifest, goes_on).run(depth);
}

Outcome confirm_files(const std::string& step_dir, const Manifest& manifest, VerifyDepth depth,
                      const std::function<bool()>& goes_on) {
  return Confirmation(step_dir, manifest, goes_on).run(depth);
}

Result<std::string> confirm_damage(const std::string& step_dir, const std::string& words,
                                   const FileFault& part) {
  const auto confirm = [&]() -> Outcome {
    HP_TRY_ASSIGN(const Manifest manifest, read_manifest_again(step_dir));
    if (part.file == kManifestFile) return Ok{};
    const std::function<bool()> to_the_end = [] { return true; };
    Confirmation confirmation(step_dir, manifest, to_the_end);
    const auto& files = manifest.files;
    const auto claimed = std::find_if(
        files.begin(), files.end(), [&](const ShardFile& file) { return file.file == part.file; });
    if (claimed == files.end()) return confirmation.run_claimed(words);
    return confirmation.run_claimed(static_cast<size_t>(claimed - files.begin()), part);
  };
  const Outcome sound = confirm();
  if (sound.ok()) return std::string();
  if (sound.error().code == ErrorCode::kDataLoss) return sound.error().message;
  return sound.error();
}

}  // namespace hpctl
