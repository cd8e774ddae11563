// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/shard_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace hpctl {
namespace {

constexpr size_t kMaxOpenFiles = 64;

// A file that is gone has lost its bytes. A file system that cannot give them now has not.
Error as_data_loss(Error error) {
  if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kDataLoss;
  return error;
}

}  // namespace

Outcome check_shard_size(const std::string& step_dir, const ShardFile& file, FileFault* fault) {
  const std::string path = step_dir + "/" + file.file;
  struct stat st {};
  const int error = ::stat(path.c_str(), &st) == 0 ? 0 : errno;
  if (fault != nullptr) *fault = {file.file, 0, 0, error};
  if (error != 0) return as_data_loss(errno_error("cannot read " + path, error));
  if (static_cast<uint64_t>(st.st_size) == file.bytes) return Ok{};
  return Error{ErrorCode::kDataLoss, path + " is damaged: it has " + std::to_string(st.st_size) +
                                         " bytes, the manifest says " + std::to_string(file.bytes)};
}

bool is_sliced(const Manifest& manifest, int32_t block) {
  const auto found = std::partition_point(manifest.slices.begin(), manifest.slices.end(),
                                          [&](const TensorSlice& s) { return s.block < block; });
  return found != manifest.slices.end() && found->block == block;
}

std::span<const ShardEntry> entries_of(const Manifest& manifest, int32_t block, StateKind kind,
                                       ElementRange range) {
  if (range.empty()) return {};
  const auto key = std::tuple(block, kind);
  const auto& shards = manifest.shards;
  const auto first = std::partition_point(shards.begin(), shards.end(), [&](const ShardEntry& e) {
    const auto at = std::tuple(e.block, e.kind);
    return at < key || (at == key && e.range.end <= range.begin);
  });
  const auto last = std::partition_point(first, shards.end(), [&](const ShardEntry& e) {
    return std::tuple(e.block, e.kind) == key && e.range.begin < range.end;
  });
  return {first, last};
}

Result<int> ShardFiles::descriptor(const std::string& path) {
  if (const auto found = open_.find(path); found != open_.end()) return found->second.get();
  if (open_.size() >= kMaxOpenFiles) open_.clear();
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    fault_.error = errno;
    return as_data_loss(errno_error("cannot open " + path, fault_.error));
  }
  return open_.emplace(path, std::move(fd)).first->second.get();
}

Outcome ShardFiles::read(const ShardFile& file, uint64_t offset, void* out, size_t size) {
  const std::string path = step_dir_ + "/" + file.file;
  blame(file, offset, size);
  HP_TRY_ASSIGN(const int fd, descriptor(path));
  auto* bytes = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t n = ::pread(fd, bytes, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      fault_.error = errno;
      return as_data_loss(
          errno_error("cannot read " + path + " at byte " + std::to_string(offset), fault_.error));
    }
    if (n == 0) {
      return Error{ErrorCode::kDataLoss,
                   path + " is damaged: it ends at byte " + std::to_string(offset)};
    }
    bytes += n;
    offset += static_cast<uint64_t>(n);
    bytes_read_ += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return Ok{};
}

}  // namespace hpctl
