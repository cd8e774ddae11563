// SPDX-License-Identifier: Apache-2.0
#include "agent/rank_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "common/base/file.h"
#include "common/base/log.h"

namespace hpctl {
namespace {

constexpr size_t kTailBytes = 1024;
constexpr size_t kLastLineBytes = 300;
// Of one drain(): a worker that prints without end must not keep the holder from its other work.
constexpr int kReadsPerDrain = 16;

}  // namespace

RankLog::RankLog(std::string path, uint64_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes) {
  begin();
}

void RankLog::go_on_in(std::string path) {
  drain();
  tail_.clear();
  if (path == path_) return;
  path_ = std::move(path);
  file_.reset();
  size_ = 0;
  begin();
}

void RankLog::begin() {
  const std::string directory = std::filesystem::path(path_).parent_path().string();
  if (const auto made = make_directories(directory); !made.ok()) {
    log_warning(made.error().message + "; the worker's output is discarded");
    return;
  }
  open();
}

void RankLog::open() {
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_.valid()) {
    log_warning(errno_error("cannot open log " + path_).message + "; output is discarded");
    return;
  }
  struct stat st {};
  size_ = ::fstat(file_.get(), &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
}

Result<UniqueFd> RankLog::make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot create a pipe for " + path_);
  pipe_.reset(ends[0]);
  UniqueFd write_end(ends[1]);
  if (::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK) != 0) {
    return errno_error("cannot set up the pipe for " + path_);
  }
  return write_end;
}

void RankLog::line(std::string_view text) { append(std::string(text) + "\n"); }

bool RankLog::drain() {
  if (!pipe_.valid()) return false;
  std::array<char, 65536> buffer;
  for (int i = 0; i < kReadsPerDrain; ++i) {
    const ssize_t n = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    const std::string_view bytes(buffer.data(), static_cast<size_t>(n));
    append(bytes);
    tail_.append(bytes.substr(bytes.size() > kTailBytes ? bytes.size() - kTailBytes : 0));
    if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  }
  return true;
}

void RankLog::append(std::string_view bytes) {
  if (size_ > 0 && size_ + bytes.size() > max_bytes_) rotate();
  if (!file_.valid()) return;
  if (dropped_bytes_ > 0) {
    const std::string note = "[hpctl: " + std::to_string(dropped_bytes_) +
                             " bytes of output could not be written here]\n";
    if (write_all(file_.get(), note, path_).ok()) dropped_bytes_ = 0;
  }
  if (const auto written = write_all(file_.get(), bytes, path_); !written.ok()) {
    if (dropped_bytes_ == 0) log_warning(written.error().message + "; output is dropped");
    dropped_bytes_ += bytes.size();
    return;
  }
  size_ += bytes.size();
}

void RankLog::rotate() {
  for (int i = kRankLogFiles - 1; i > 0; --i) {
    const std::string from = i == 1 ? path_ : path_ + "." + std::to_string(i - 1);
    // A missing older file is the normal case at first; a failed rename only makes a file longer.
    std::rename(from.c_str(), (path_ + "." + std::to_string(i)).c_str());
  }
  open();
}

std::string RankLog::last_line() const {
  size_t end = tail_.size();
  while (end > 0) {
    const size_t newline = tail_.rfind('\n', end - 1);
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    if (begin < end && tail_.find_first_not_of(" \t\r", begin) < end) {
      return tail_.substr(begin, std::min(end - begin, kLastLineBytes));
    }
    if (newline == std::string::npos) break;
    end = newline;
  }
  return "";
}

}  // namespace hpctl
