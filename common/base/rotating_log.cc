// SPDX-License-Identifier: Apache-2.0
#include "common/base/rotating_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <utility>

#include "common/base/file.h"
#include "common/base/log.h"

namespace hpctl {
namespace {

constexpr int64_t kOpenAgainMs = 1'000;

}  // namespace

RotatingLog::RotatingLog(std::string path) : path_(std::move(path)) { open(); }

void RotatingLog::open() {
  opened_at_ms_ = clock_.monotonic_ms();
  size_ = 0;
  file_.reset();
  if (const auto made = make_directory_of(path_); !made.ok()) {
    log_warning(made.error().message + "; output is dropped");
    return;
  }
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_.valid()) {
    log_warning(errno_error("cannot open log " + path_).message + "; output is dropped");
    return;
  }
  struct stat st {};
  if (::fstat(file_.get(), &st) == 0) size_ = static_cast<uint64_t>(st.st_size);
}

void RotatingLog::open_again() {
  if (clock_.monotonic_ms() - opened_at_ms_ >= kOpenAgainMs) open();
}

void RotatingLog::append(std::string_view bytes, uint64_t max_bytes) {
  if (!file_.valid()) open_again();
  if (size_ > 0 && size_ + bytes.size() > max_bytes) rotate();
  if (dropped_bytes_ > 0 && write("[hpctl: " + std::to_string(dropped_bytes_) +
                                  " bytes of output could not be written here]\n")) {
    dropped_bytes_ = 0;
  }
  if (!write(bytes)) dropped_bytes_ += bytes.size();
}

bool RotatingLog::write(std::string_view bytes) {
  if (!file_.valid()) return false;
  if (const auto written = write_all(file_.get(), bytes, path_); !written.ok()) {
    if (dropped_bytes_ == 0) log_warning(written.error().message + "; output is dropped");
    return false;
  }
  size_ += bytes.size();
  return true;
}

void RotatingLog::rotate() {
  for (int i = kLogFiles - 1; i > 0; --i) {
    const std::string from = i == 1 ? path_ : path_ + "." + std::to_string(i - 1);
    // A missing older file is the normal case at first; a failed rename only makes a file longer.
    std::rename(from.c_str(), (path_ + "." + std::to_string(i)).c_str());
  }
  open();
}

}  // namespace hpctl
