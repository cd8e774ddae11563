// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "common/base/fd.h"
#include "trainer/data/read_at.h"

namespace hpctl {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

}  // namespace

Result<FileWriter> FileWriter::create(const std::string& path) {
  HP_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(path));
  return FileWriter(std::move(file));
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
  while ((n = ::copy_file_range(from.get(), &offset, file_.fd(), nullptr, 1 << 30, 0)) > 0) {
  }
  if (n == 0) return Ok{};
  if (errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    return errno_error("cannot copy " + path + " to " + file_.name());
  }
  std::vector<uint8_t> piece(kBufferBytes);
  for (;;) {
    HP_TRY_ASSIGN(const size_t got,
                  read_at(from.get(), path, static_cast<uint64_t>(offset), piece));
    if (got == 0) return Ok{};
    HP_TRY(file_.append({reinterpret_cast<const char*>(piece.data()), got}));
    offset += static_cast<loff_t>(got);
  }
}

Outcome FileWriter::finish() {
  HP_TRY(flush());
  HP_TRY(file_.sync());
  return file_.rename_into_place();
}

Outcome FileWriter::flush() {
  HP_TRY(file_.append(buffer_));
  buffer_.clear();
  return Ok{};
}

}  // namespace hpctl
