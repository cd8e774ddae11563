// SPDX-License-Identifier: Apache-2.0
#include "common/base/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/host.h"

namespace hpctl {
namespace {

constexpr int kMostLeftovers = 1'000;

}  // namespace

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return path + kTemporaryInfix + host_name() + "." + std::to_string(getpid()) + "." +
         std::to_string(counter.fetch_add(1));
}

TemporaryFile::TemporaryFile(UniqueFd fd, std::string path, std::string name)
    : fd_(std::move(fd)), path_(std::move(path)), name_(std::move(name)) {}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      name_(std::exchange(other.name_, "")) {}

TemporaryFile::~TemporaryFile() {
  if (!name_.empty()) ::unlink(name_.c_str());
}

Result<TemporaryFile> TemporaryFile::create(const std::string& path) {
  for (int tries = 0;; ++tries) {
    std::string name = temporary_name(path);
    UniqueFd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd.valid()) return TemporaryFile(std::move(fd), path, std::move(name));
    // Left by a process that was killed; in containers process ids repeat.
    if (errno == EEXIST && tries < kMostLeftovers) continue;
    return errno_error("cannot create " + name);
  }
}

Outcome TemporaryFile::append(std::string_view bytes) { return write_all(fd_.get(), bytes, name_); }

Outcome TemporaryFile::sync() {
  if (::fsync(fd_.get()) != 0) return errno_error("cannot sync " + name_);
  return Ok{};
}

Outcome TemporaryFile::rename_into_place() {
  HP_CHECK(!name_.empty());
  if (::rename(name_.c_str(), path_.c_str()) != 0) {
    return errno_error("cannot rename " + name_ + " to " + path_);
  }
  name_.clear();
  return sync_directory(parent_of(path_));
}

Outcome TemporaryFile::link_into_place() {
  HP_CHECK(!name_.empty());
  if (::link(name_.c_str(), path_.c_str()) != 0) return errno_error("cannot create " + path_);
  ::unlink(name_.c_str());
  name_.clear();
  return sync_directory(parent_of(path_));
}

}  // namespace hpctl
