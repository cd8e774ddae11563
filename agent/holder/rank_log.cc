// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/rank_log.h"

#include <fcntl.h>

#include <array>
#include <utility>

#include "agent/core/exception_text.h"

namespace hpctl {
namespace {

constexpr size_t kTailBytes = 32'768;  // a traceback, and what is printed behind it
constexpr size_t kPieceBytes = 65536;
constexpr size_t kLastLineBytes = 300;
// For one drain(): a worker that prints without end must not keep the holder from its other work.
constexpr int kReadsPerDrain = 16;

}  // namespace

RankLog::RankLog(LogWriter& writer, std::string path, uint64_t max_bytes)
    : writer_(writer), path_(std::move(path)), max_bytes_(max_bytes) {}

RankLog::~RankLog() {
  if (lost_bytes_ > 0) send("");  // the log's last line tells what is missing before it
}

void RankLog::go_on_in(std::string path) {
  drain();
  tail_.clear();
  path_ = std::move(path);
}

void RankLog::watch_for(std::vector<LinePattern> patterns) {
  watch_.reset();
  if (!patterns.empty()) watch_.emplace(std::move(patterns));
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
  std::array<char, kPieceBytes> buffer;
  for (int i = 0; i < kReadsPerDrain; ++i) {
    const ssize_t n = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    const std::string_view bytes(buffer.data(), static_cast<size_t>(n));
    append(bytes);
    if (watch_) watch_->read(bytes, clock_.monotonic_ms());
    tail_.append(bytes.substr(bytes.size() > kTailBytes ? bytes.size() - kTailBytes : 0));
    // Seldom, because it moves what stays.
    if (tail_.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  }
  return true;
}

void RankLog::append(std::string_view bytes) {
  for (size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
    send(bytes.substr(begin, kPieceBytes));
  }
}

void RankLog::send(std::string_view bytes) {
  if (writer_.append({path_, max_bytes_, lost_bytes_, bytes})) {
    lost_bytes_ = 0;
  } else {
    lost_bytes_ += bytes.size();
  }
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

std::string RankLog::last_words() const {
  std::string exception = agent::last_exception(tail_);
  return exception.empty() ? last_line() : exception.substr(0, kLastLineBytes);
}

}  // namespace hpctl
