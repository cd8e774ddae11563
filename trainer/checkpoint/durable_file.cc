// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/durable_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/base/checksum.h"

namespace hpctl {
namespace {

// Large enough for the full speed of a disk with one write at a time.
constexpr size_t kChunk = 8U << 20;
constexpr size_t kAlignment = 4096;
constexpr size_t kHugePage = 2U << 20;
// The copy finds the bytes that the checksum has read in the processor's cache.
constexpr size_t kPiece = 256U << 10;

// In huge pages, where the kernel has them: a direct write then goes to the disk in a few long
// pieces of memory instead of one per page. Not of the heap, whose memory may have small pages
// already. nullptr when there is none.
char* map_staging() {
  const size_t mapped = kChunk + kHugePage;
  void* const memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(memory);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  if (before > 0) ::munmap(begin, before);
  if (before < kHugePage) ::munmap(begin + before + kChunk, kHugePage - before);
  ::madvise(begin + before, kChunk, MADV_HUGEPAGE);
  return begin + before;
}

Outcome remedied(const Outcome& outcome) {
  if (outcome.ok()) return outcome;
  return with_disk_remedy(outcome.error());
}

}  // namespace

void DurableFile::Unmap::operator()(char* memory) const { ::munmap(memory, kChunk); }

Error with_disk_remedy(Error error) {
  if (error.code == ErrorCode::kResourceExhausted) {
    error.message += "; free space there, or write to a larger disk (of a job: checkpoint.dir)";
  }
  if (error.code == ErrorCode::kStorage) {
    error.message += "; look at the file system's server, and at its mount on this node";
  }
  if (error.code == ErrorCode::kPermissionDenied) {
    error.message += "; make it writable, or write elsewhere (of a job: checkpoint.dir)";
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
  if (!staging_) staging_.reset(map_staging());
  // Not kResourceExhausted: that is a full disk here.
  if (!staging_) return Error{ErrorCode::kInternal, "no memory to write " + file_.name()};
  bytes_ += size;
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const size_t part = std::min({size, kPiece, kChunk - staged_});
    crc32c_ = hpctl::crc32c(from, part, crc32c_);
    std::memcpy(staging_.get() + staged_, from, part);
    staged_ += part;
    from += part;
    size -= part;
    if (staged_ < kChunk) continue;
    set_direct(true);
    HP_TRY(write_staged(kChunk));
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

// The first `size` bytes; those behind them move to the front.
Outcome DurableFile::write_staged(size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(file_.fd(), staging_.get() + done, size - done);
    if (n > 0) done += static_cast<size_t>(n);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    // Some take the flag and not the write, or wrote a part that is not aligned.
    if (n < 0 && errno == EINVAL && direct_) {
      set_direct(false);
      if (!direct_) continue;
    }
    return with_disk_remedy(errno_error("cannot write " + file_.name()));
  }
  staged_ -= size;
  if (staged_ > 0) std::memmove(staging_.get(), staging_.get() + size, staged_);
  return Ok{};
}

Outcome DurableFile::sync() {
  if (bytes_ >= kChunk) HP_TRY(write_staged(staged_ / kAlignment * kAlignment));
  set_direct(false);  // the rest is of any length
  HP_TRY(write_staged(staged_));
  return remedied(file_.sync());
}

Outcome DurableFile::rename_into_place() { return remedied(file_.rename_into_place()); }

}  // namespace hpctl
