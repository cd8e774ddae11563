// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <utility>

#include "common/base/check.h"
#include "common/base/checksum.h"
#include "common/base/file.h"

namespace hpctl {

Error with_disk_remedy(Error error) {
  if (error.code == ErrorCode::kResourceExhausted) {
    error.message += "; free space there or set checkpoint.dir to a larger disk";
  }
  if (error.code == ErrorCode::kPermissionDenied) {
    error.message += "; make it writable or set checkpoint.dir to a writable directory";
  }
  return error;
}

DurableFile::DurableFile(UniqueFd fd, std::string path, std::string temporary)
    : fd_(std::move(fd)), path_(std::move(path)), temporary_(std::move(temporary)) {}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      bytes_(other.bytes_),
      crc32c_(other.crc32c_) {}

DurableFile::~DurableFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<DurableFile> DurableFile::create(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  std::string temporary =
      path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter.fetch_add(1));
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return with_disk_remedy(errno_error("cannot create " + temporary));
  return DurableFile(std::move(fd), path, std::move(temporary));
}

Outcome DurableFile::append(const void* data, size_t size) {
  crc32c_ = hpctl::crc32c(data, size, crc32c_);
  auto written =
      write_all(fd_.get(), std::string_view(static_cast<const char*>(data), size), temporary_);
  if (!written.ok()) return with_disk_remedy(written.error());
  bytes_ += size;
  return Ok{};
}

Outcome DurableFile::sync() {
  if (::fsync(fd_.get()) != 0) return with_disk_remedy(errno_error("cannot sync " + temporary_));
  return Ok{};
}

Outcome DurableFile::rename_into_place() {
  HP_CHECK(!temporary_.empty());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return with_disk_remedy(errno_error("cannot rename " + temporary_ + " to " + path_));
  }
  temporary_.clear();
  return sync_directory(path_.substr(0, path_.rfind('/')));
}

}  // namespace hpctl
