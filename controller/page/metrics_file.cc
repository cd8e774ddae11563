// SPDX-License-Identifier: Apache-2.0
#include "controller/page/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "common/base/fd.h"

namespace hpctl {
namespace {

constexpr size_t kMetricsChunk = size_t{1} << 20;
static_assert(kMetricsChunk > MetricsSeries::kMostLineBytes);

}  // namespace

Outcome MetricsFile::read_on() {
  // Not a link: the file is the trainer's own.
  const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    is_read_ = true;
    if (errno == ENOENT) return Ok{};
    return errno_error("cannot open " + path_);
  }
  return read_from(fd.get());
}

Outcome MetricsFile::read_from(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error("cannot look at " + path_);
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, path_ + " is not a regular file"};
  }
  size_ = static_cast<uint64_t>(info.st_size);
  if (info.st_ino != inode_ || size_ < offset_) {
    series_ = MetricsSeries();
    offset_ = 0;
    inode_ = info.st_ino;
  }
  const auto until = std::chrono::steady_clock::now() + kReadTime;
  const uint64_t stop = offset_ + kMostBytesPerRead;
  std::string text;
  while (offset_ < stop && std::chrono::steady_clock::now() < until) {
    text.resize(kMetricsChunk);
    const ssize_t count = ::pread(fd, text.data(), text.size(), static_cast<off_t>(offset_));
    if (count < 0) return errno_error("cannot read " + path_);
    text.resize(static_cast<size_t>(count));
    const size_t taken = take_lines(text);
    offset_ += taken;
    // Half a line at the end of the file.
    is_read_ = taken == 0 && text.size() < kMetricsChunk;
    if (is_read_) return Ok{};
    // A line longer than any of the trainer's.
    if (taken == 0) offset_ += text.size();
  }
  return Ok{};
}

size_t MetricsFile::take_lines(const std::string& text) {
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    series_.add_line(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  return begin;
}

}  // namespace hpctl
