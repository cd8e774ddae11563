// SPDX-License-Identifier: Apache-2.0
#include "hpctl/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace hpctl {
namespace {

constexpr size_t kChunkBytes = 64U << 10;
constexpr size_t kMaxBytesPerRead = 4U << 20;
constexpr size_t kMaxLineBytes = 1U << 20;  // a longer line is cut: memory is bounded
constexpr int kMaxRotated = 9;

// Moves whole lines from `text` to `lines`; what remains has no end yet.
void take_lines(std::string& text, std::vector<std::string>& lines) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  text.erase(0, begin);
  if (text.size() > kMaxLineBytes) {
    lines.push_back(std::move(text));
    text.clear();
  }
}

// Offset of the last `count` lines of the file (0 = of all); `found` = how many there are.
off_t offset_of_last_lines(int fd, size_t count, size_t& found) {
  off_t end = ::lseek(fd, 0, SEEK_END);
  found = 0;
  if (count == 0) return 0;
  std::array<char, kChunkBytes> chunk{};
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(chunk.size()));
    const ssize_t got = ::pread(fd, chunk.data(), static_cast<size_t>(end - begin), begin);
    if (got <= 0) return end;
    for (ssize_t i = got - 1; i >= 0; --i) {
      // The newline before the first wanted line is one more than the lines wanted.
      if (chunk[static_cast<size_t>(i)] == '\n' && found++ == count) {
        --found;
        return begin + i + 1;
      }
    }
    end = begin;
  }
  return 0;
}

}  // namespace

bool LogFile::open() {
  if (!file_.valid()) file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  return file_.valid();
}

bool LogFile::replaced() const {
  struct stat named {};
  struct stat held {};
  if (::stat(path_.c_str(), &named) != 0 || ::fstat(file_.get(), &held) != 0) return false;
  return named.st_ino != held.st_ino || named.st_dev != held.st_dev;
}

std::vector<std::string> LogFile::read_last(size_t count) {
  // Newest first, until there are enough lines.
  std::vector<std::pair<UniqueFd, off_t>> parts;
  size_t wanted = count;
  for (int i = 0; i <= kMaxRotated; ++i) {
    const std::string path = i == 0 ? path_ : path_ + "." + std::to_string(i);
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
      if (i == 0) continue;
      break;
    }
    size_t found = 0;
    const off_t offset = offset_of_last_lines(fd.get(), wanted, found);
    parts.emplace_back(std::move(fd), offset);
    if (count > 0 && found >= wanted) break;
    if (count > 0) wanted -= found;
  }
  std::vector<std::string> lines;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    file_ = std::move(part->first);
    ::lseek(file_.get(), part->second, SEEK_SET);
    while (read_available(lines)) {
    }
  }
  if (count > 0 && lines.size() > count) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  }
  return lines;
}

bool LogFile::read_available(std::vector<std::string>& lines) {
  std::array<char, kChunkBytes> chunk{};
  size_t total = 0;
  while (total < kMaxBytesPerRead) {
    const ssize_t got = ::read(file_.get(), chunk.data(), chunk.size());
    if (got <= 0) break;
    total += static_cast<size_t>(got);
    partial_.append(chunk.data(), static_cast<size_t>(got));
    take_lines(partial_, lines);
  }
  return total > 0;
}

std::vector<std::string> LogFile::read_new(bool at_end) {
  std::vector<std::string> lines;
  if (open()) {
    // Asked before reading: what the old file holds after the answer is read before the new one.
    const bool moved_on = replaced();
    read_available(lines);
    if (moved_on) {
      while (read_available(lines)) {
      }
      file_.reset();
      if (open()) read_available(lines);
    }
  }
  if (at_end && !partial_.empty()) {
    lines.push_back(std::move(partial_));
    partial_.clear();
  }
  return lines;
}

}  // namespace hpctl
