// SPDX-License-Identifier: Apache-2.0
#include "common/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "common/base/temporary_file.h"

namespace hpctl {
namespace {

Result<TemporaryFile> write_temporary(const std::string& path, std::string_view data) {
  HP_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(path));
  HP_TRY(file.append(data));
  HP_TRY(file.sync());
  return file;
}

// An entry may be created or removed between a lookup of its name and a listing of its directory.
// It would have to change before each of so many looks to be taken for one that vanished.
constexpr int kLooks = 3;

// Its directory lists it, but the file system does not find it by name.
Error vanished(const std::string& path) {
  return {ErrorCode::kStorage,
          "cannot open " + path +
              ": No such file or directory, but its directory lists it; the file system answers "
              "from a stale cache",
          ENOENT};
}

// The directory that holds the entry, and the entry's name in it.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const std::string trimmed = path.substr(0, end == std::string::npos ? 1 : end + 1);
  const size_t slash = trimmed.rfind('/');
  if (slash == std::string::npos) return {".", trimmed};
  return {slash == 0 ? "/" : trimmed.substr(0, slash), trimmed.substr(slash + 1)};
}

Error gone(const std::string& directory) {
  return {ErrorCode::kNotFound, "the directory " + directory + " is gone", ENOENT};
}

// The directories of the path whose names end behind `slash`.
Outcome make_from(const std::string& path, size_t slash, unsigned mode) {
  while (slash != std::string::npos) {
    slash = path.find('/', slash + 1);
    const std::string prefix = path.substr(0, slash);
    if (::mkdir(prefix.c_str(), mode) == 0) continue;
    const int err = errno;
    struct stat st {};
    if (::stat(prefix.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) continue;
    return errno_error("cannot create directory " + prefix, err == EEXIST ? ENOTDIR : err);
  }
  return Ok{};
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno_error("cannot open " + path);
  return read_all(fd.get(), path, max_bytes);
}

Result<std::optional<std::string>> read_file_if_there(const std::string& path, size_t max_bytes) {
  for (int look = 0; look < kLooks; ++look) {
    auto text = read_file(path, max_bytes);
    if (text.ok()) return std::optional(std::move(*text));
    if (text.error().code != ErrorCode::kNotFound) return text.error();
    HP_TRY_ASSIGN(const bool exists, entry_exists(path));
    if (!exists) return std::optional<std::string>();
  }
  return vanished(path);
}

Result<std::string> read_all(int fd, const std::string& path_for_errors, size_t max_bytes) {
  std::string data;
  std::array<char, 65536> chunk{};
  while (true) {
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("cannot read " + path_for_errors);
    if (n == 0) return data;
    data.append(chunk.data(), static_cast<size_t>(n));
    if (data.size() > max_bytes) {
      return Error{ErrorCode::kInvalidArgument,
                   path_for_errors + " is larger than " + std::to_string(max_bytes) + " bytes"};
    }
  }
}

Outcome write_all(int fd, std::string_view data, const std::string& path_for_errors) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("cannot write " + path_for_errors);
    data.remove_prefix(static_cast<size_t>(n));
  }
  return Ok{};
}

Outcome write_file_atomic(const std::string& path, std::string_view data) {
  HP_TRY_ASSIGN(TemporaryFile file, write_temporary(path, data));
  return file.rename_into_place();
}

Outcome create_file_exclusive(const std::string& path, std::string_view data) {
  HP_TRY_ASSIGN(TemporaryFile file, write_temporary(path, data));
  return file.link_into_place();
}

Outcome make_directories(const std::string& path, unsigned mode) {
  return make_from(path, 0, mode);
}

Outcome make_directories_below(const std::string& root, const std::string& path, unsigned mode) {
  HP_TRY_ASSIGN(const bool exists, entry_exists(root));
  if (!exists) return gone(root);
  return path.size() <= root.size() ? Outcome(Ok{}) : make_from(path, root.size(), mode);
}

Outcome make_directory_of(const std::string& path) {
  const std::string directory = split_path(path).first;
  const std::string above = split_path(directory).first;
  HP_TRY_ASSIGN(const bool exists, entry_exists(above));
  if (!exists) return gone(above);
  const size_t slash = directory.rfind('/');
  return make_from(directory, slash == std::string::npos ? 0 : slash, 0777);
}

Outcome sync_directory(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return errno_error("cannot open directory " + path);
  if (::fsync(fd.get()) != 0) return errno_error("cannot sync directory " + path);
  return Ok{};
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  // Not opendir(): ThreadSanitizer does not see it make a descriptor, and takes a number that is
  // used again for a race.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(fd.valid() ? ::fdopendir(fd.get()) : nullptr,
                                                &::closedir);
  if (dir == nullptr) return errno_error("cannot open directory " + path);
  fd.release();  // dir's now
  std::vector<std::string> names;
  while (true) {
    errno = 0;  // else the end looks like an error before it
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr && errno != 0) return errno_error("cannot read directory " + path);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::vector<std::string>> list_directory_if_there(const std::string& path) {
  for (int look = 0; look < kLooks; ++look) {
    auto names = list_directory(path);
    if (names.ok() || names.error().code != ErrorCode::kNotFound) return names;
    HP_TRY_ASSIGN(const bool exists, entry_exists(path));
    if (!exists) return std::vector<std::string>();
  }
  return vanished(path);
}

Outcome remove_tree(const std::string& path) {
  std::error_code code;
  std::filesystem::remove_all(path, code);
  if (code) return errno_error("cannot remove " + path, code.value());
  return Ok{};
}

Result<bool> path_exists(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return errno_error("cannot look for " + path);
}

Result<bool> entry_exists(const std::string& path) {
  HP_TRY_ASSIGN(const bool found, path_exists(path));
  const auto [directory, name] = split_path(path);
  if (found || name.empty() || name == ".") return found;
  struct stat st {};
  if (::stat(directory.c_str(), &st) == 0 && !S_ISDIR(st.st_mode)) return false;
  for (int look = 0; look < kLooks; ++look) {
    HP_TRY_ASSIGN(const auto names, list_directory_if_there(directory));
    if (!std::binary_search(names.begin(), names.end(), name)) return false;
    HP_TRY_ASSIGN(const bool found_now, path_exists(path));
    if (found_now) return true;
  }
  return vanished(path);
}

bool is_accessible(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Result<UniqueFd> lock_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return errno_error("cannot open lock file " + path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return Error{ErrorCode::kAlreadyExists, path + " is locked by another process"};
    }
    return errno_error("cannot lock " + path);
  }
  return fd;
}

UniqueFd lock_directory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

}  // namespace hpctl
