// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "common/base/file.h"
#include "trainer/data/read_at.h"

namespace hpctl {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

}  // namespace

FileWriter::FileWriter(UniqueFd fd, std::string path, std::string temporary)
    : fd_(std::move(fd)), path_(std::move(path)), temporary_(std::move(temporary)) {}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      buffer_(std::move(other.buffer_)) {}

FileWriter::~FileWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<FileWriter> FileWriter::create(const std::string& path) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return errno_error("cannot create " + temporary);
  return FileWriter(std::move(fd), path, temporary);
}

Outcome FileWriter::append(std::string_view bytes) {
  buffer_ += bytes;
  return buffer_.size() >= kBufferBytes ? flush() : Outcome(Ok{});
}

Outcome FileWriter::append_number(uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) buffer_ += static_cast<char>(value >> (8 * i));
  return buffer_.size() >= kBufferBytes ? flush() : Outcome(Ok{});
}

Outcome FileWriter::append_file(const std::string& path) {
  HP_TRY(flush());
  const UniqueFd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from.valid()) return errno_error("cannot open " + path);
  loff_t offset = 0;
  ssize_t n = 0;
  while ((n = ::copy_file_range(from.get(), &offset, fd_.get(), nullptr, 1 << 30, 0)) > 0) {
  }
  if (n == 0) return Ok{};
  if (errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    return errno_error("cannot copy " + path + " to " + temporary_);
  }
  std::vector<uint8_t> piece(kBufferBytes);
  for (;;) {
    HP_TRY_ASSIGN(const size_t got,
                  read_at(from.get(), path, static_cast<uint64_t>(offset), piece));
    if (got == 0) return Ok{};
    HP_TRY(write_all(fd_.get(), {reinterpret_cast<const char*>(piece.data()), got}, temporary_));
    offset += static_cast<loff_t>(got);
  }
}

Outcome FileWriter::finish() {
  HP_TRY(flush());
  if (::fsync(fd_.get()) != 0) return errno_error("cannot sync " + temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return errno_error("cannot rename " + temporary_);
  }
  temporary_.clear();
  const size_t slash = path_.rfind('/');
  return sync_directory(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
}

Outcome FileWriter::flush() {
  HP_TRY(write_all(fd_.get(), buffer_, temporary_));
  buffer_.clear();
  return Ok{};
}

}  // namespace hpctl
