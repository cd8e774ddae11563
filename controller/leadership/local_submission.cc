// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/local_submission.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/file.h"

namespace hpctl {
namespace {

std::string lock_path(const HomePaths& home, const std::string& uuid) {
  return home.home() + "/submitting-" + uuid;
}

// An owner.json may have anything for a UUID.
bool is_hex(const std::string& uuid) {
  return !uuid.empty() && uuid.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

Result<LocalSubmission> LocalSubmission::begin(const HomePaths& home, const std::string& uuid) {
  std::string path = lock_path(home, uuid);
  HP_TRY_ASSIGN(UniqueFd lock, lock_file(path));
  return LocalSubmission(std::move(path), std::move(lock));
}

LocalSubmission::~LocalSubmission() {
  if (lock_.valid()) ::unlink(path_.c_str());
}

Result<bool> is_being_submitted(const HomePaths& home, const std::string& uuid) {
  if (!is_hex(uuid)) return false;
  const std::string path = lock_path(home, uuid);
  HP_TRY_ASSIGN(const bool has_lock, entry_exists(path));
  if (!has_lock) return false;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return errno_error("cannot open " + path);
  if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return true;
    return errno_error("cannot lock " + path);
  }
  ::unlink(path.c_str());
  return false;
}

}  // namespace hpctl
