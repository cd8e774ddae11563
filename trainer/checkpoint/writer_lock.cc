// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/writer_lock.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/printable.h"

namespace hpctl {
namespace {

constexpr int kMostTries = 100;
constexpr size_t kMostHolderBytes = 300;

// Of `directory` and those above it.
std::vector<std::string> missing_directories(const std::string& directory) {
  std::vector<std::string> missing;
  for (size_t slash = 0; slash != std::string::npos;) {
    slash = directory.find('/', slash + 1);
    std::string prefix = directory.substr(0, slash);
    if (prefix.back() == '/') continue;
    // A directory that cannot be checked may be another's, and stays.
    const auto exists = path_exists(prefix);
    if (exists.ok() && !*exists) missing.push_back(std::move(prefix));
  }
  return missing;
}

// False: the holder before removed it after it was opened here.
bool is_file_at(int fd, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

Error in_use(const std::string& target, const std::string& lock_path) {
  const auto words = read_file(lock_path);
  const std::string holder = words.ok() ? printable_line(*words, kMostHolderBytes) : "";
  return Error{ErrorCode::kFailedPrecondition,
               target + " is being written by " + (holder.empty() ? "another process" : holder) +
                   "; wait until that has ended, or name another directory"};
}

}  // namespace

WriterLock::WriterLock(WriterLock&& other) noexcept
    : made_(std::exchange(other.made_, {})),
      path_(std::exchange(other.path_, "")),
      lock_(std::move(other.lock_)) {}

WriterLock::~WriterLock() {
  if (!path_.empty()) ::unlink(path_.c_str());
  lock_.reset();  // NFS keeps a file that is open in its directory
  while (!made_.empty() && ::rmdir(made_.back().c_str()) == 0) made_.pop_back();
}

Result<WriterLock> WriterLock::take(const std::string& directory, const std::string& name) {
  WriterLock taken(missing_directories(directory));
  const std::string target = directory + "/" + name;
  const std::string path = target + ".lock";
  for (int tries = 1;; ++tries) {
    HP_TRY(make_directories(directory));
    auto lock = lock_file(path);
    if (lock.ok() && is_file_at(lock->get(), path)) {
      taken.lock_ = std::move(lock).value();
      break;
    }
    if (!lock.ok() && lock.error().code == ErrorCode::kAlreadyExists) return in_use(target, path);
    // One that ends now removes the file, and the directory that it had made.
    const bool vanished = lock.ok() || lock.error().code == ErrorCode::kNotFound;
    if (vanished && tries < kMostTries) continue;
    return lock.ok() ? in_use(target, path) : lock.error();
  }
  taken.path_ = path;
  if (::ftruncate(taken.lock_.get(), 0) != 0) return errno_error("cannot write " + path);
  HP_TRY(write_all(taken.lock_.get(),
                   "process " + std::to_string(::getpid()) + " on " + host_name(), path));
  return taken;
}

}  // namespace hpctl
