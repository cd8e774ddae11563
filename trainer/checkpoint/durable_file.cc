// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/base/checksum.h"

namespace hpctl {
namespace {

// Large enough for the full speed of a disk with one write at a time.
constexpr size_t kChunk = 8U << 20;
constexpr size_t kAlignment = 4096;

Outcome remedied(const Outcome& outcome) {
  if (outcome.ok()) return outcome;
  return with_disk_remedy(outcome.error());
}

}  // namespace

void DurableFile::Free::operator()(char* memory) const { std::free(memory); }

Error with_disk_remedy(Error error) {
  if (error.code == ErrorCode::kResourceExhausted) {
    error.message += "; free space there or set checkpoint.dir to a larger disk";
  }
  if (error.code == ErrorCode::kPermissionDenied) {
    error.message += "; make it writable or set checkpoint.dir to a writable directory";
  }
  return error;
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : file_(std::move(other.file_)),
      staging_(std::move(other.staging_)),
      staged_(std::exchange(other.staged_, 0)),
      direct_(other.direct_),
      bytes_(other.bytes_),
      crc32c_(other.crc32c_) {}

Result<DurableFile> DurableFile::create(const std::string& path) {
  auto file = TemporaryFile::create(path);
  if (!file.ok()) return with_disk_remedy(file.error());
  return DurableFile(std::move(*file));
}

Outcome DurableFile::append(const void* data, size_t size) {
  if (!staging_) staging_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, kChunk)));
  if (!staging_) return Error{ErrorCode::kResourceExhausted, "no memory to write " + file_.name()};
  crc32c_ = hpctl::crc32c(data, size, crc32c_);
  bytes_ += size;
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const size_t part = std::min(size, kChunk - staged_);
    std::memcpy(staging_.get() + staged_, from, part);
    staged_ += part;
    from += part;
    size -= part;
    if (staged_ < kChunk) continue;
    set_direct(true);
    HP_TRY(write_staged());
  }
  return Ok{};
}

// Without effect where the file system cannot.
void DurableFile::set_direct(bool direct) {
  if (direct == direct_) return;
  const int flags = ::fcntl(file_.fd(), F_GETFL);
  const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
  if (flags >= 0 && ::fcntl(file_.fd(), F_SETFL, wanted) == 0) direct_ = direct;
}

Outcome DurableFile::write_staged() {
  for (size_t done = 0; done < staged_;) {
    const ssize_t n = ::write(file_.fd(), staging_.get() + done, staged_ - done);
    if (n > 0) done += static_cast<size_t>(n);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    // Some take the flag and not the write, or wrote a part that is not aligned.
    if (n < 0 && errno == EINVAL && direct_) {
      set_direct(false);
      if (!direct_) continue;
    }
    return with_disk_remedy(errno_error("cannot write " + file_.name()));
  }
  staged_ = 0;
  return Ok{};
}

Outcome DurableFile::sync() {
  set_direct(false);  // the rest is of any length
  HP_TRY(write_staged());
  return remedied(file_.sync());
}

Outcome DurableFile::rename_into_place() { return remedied(file_.rename_into_place()); }

}  // namespace hpctl
