// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/local_programs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/private_directory.h"

namespace hpctl::holder {
namespace {

constexpr size_t kChunkBytes = 1U << 20;
constexpr size_t kIdDigits = 32;
// statfs(2): ext2 to ext4, XFS, Btrfs, tmpfs, ramfs, overlayfs, F2FS, ZFS, squashfs, EROFS.
constexpr std::array<unsigned long, 10> kLocalFileSystems = {
    0xEF53,     0x58465342, 0x9123683E, 0x01021994, 0x858458F6,
    0x794C7630, 0xF2F52010, 0x2FC12FC1, 0x73717368, 0xE0F5E1E2};

struct Copied {
  std::string from;
  std::string to;  // below the copy's directory
  std::string hash;
};

// Calls `take` with the bytes of `path`, a chunk at a time.
template <typename Take>
Outcome read_chunks(const std::string& path, const Take& take) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error("cannot open " + path);
  std::string chunk(kChunkBytes, '\0');
  for (;;) {
    const ssize_t n = ::read(file.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("cannot read " + path);
    if (n == 0) return Ok{};
    HP_TRY(take(std::string_view(chunk).substr(0, static_cast<size_t>(n))));
  }
}

Result<std::string> hash_of(const std::string& path) {
  Sha256 hash;
  HP_TRY(read_chunks(path, [&](std::string_view bytes) -> Outcome {
    hash.update(bytes);
    return Ok{};
  }));
  return hash.hex_digest();
}

Result<std::vector<Copied>> plan_copies(const std::vector<std::string>& files) {
  const auto root = std::filesystem::path(files.front()).parent_path().parent_path();
  std::vector<Copied> plan;
  for (const std::string& file : files) {
    HP_TRY_ASSIGN(std::string hash, hash_of(file));
    plan.push_back({file, std::filesystem::path(file).lexically_relative(root), std::move(hash)});
  }
  return plan;
}

std::string id_of(const std::vector<Copied>& plan) {
  Sha256 hash;
  for (const Copied& file : plan) hash.update(file.to + "\n" + file.hash + "\n");
  return hash.hex_digest().substr(0, kIdDigits);
}

Outcome copy_file(const std::string& from, const std::string& to) {
  HP_TRY(make_directories(std::filesystem::path(to).parent_path().string(), 0700));
  const UniqueFd file(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
  if (!file.valid()) return errno_error("cannot create " + to);
  return read_chunks(from,
                     [&](std::string_view bytes) { return write_all(file.get(), bytes, to); });
}

// Whether every file of the copy has the bytes that were read from the original.
Outcome verify(const std::vector<Copied>& plan, const std::string& directory) {
  for (const Copied& file : plan) {
    HP_TRY_ASSIGN(const std::string hash, hash_of(directory + "/" + file.to));
    if (hash != file.hash) {
      return Error{ErrorCode::kDataLoss, directory + "/" + file.to + " differs from " + file.from};
    }
  }
  return Ok{};
}

Outcome make_copy(const std::vector<Copied>& plan, const std::string& directory) {
  const std::string beside = directory + ".new";
  HP_TRY(remove_tree(beside));
  for (const Copied& file : plan) HP_TRY(copy_file(file.from, beside + "/" + file.to));
  HP_TRY(verify(plan, beside));
  if (std::rename(beside.c_str(), directory.c_str()) != 0) {
    return errno_error("cannot rename " + beside);
  }
  return Ok{};
}

Result<UniqueFd> lock_shared(const std::string& directory) {
  // Without O_CLOEXEC: the lock is for the program that is executed next.
  UniqueFd lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY));
  if (!lock.valid() || ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0) {
    return errno_error("cannot lock " + directory);
  }
  return lock;
}

// Removes copies without users, and unfinished ones of killed processes.
void remove_unused(const std::string& base, const std::string& but) {
  const auto names = list_directory(base);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string directory = base + "/" + name;
    if (name == but || !lock_directory(directory).valid()) continue;
    if (const auto removed = remove_tree(directory); !removed.ok()) {
      log_warning(removed.error().message);
    }
  }
}

}  // namespace

bool is_on_local_disk(const std::string& path) {
  struct statfs found {};
  if (::statfs(path.c_str(), &found) != 0) return false;
  const auto type = static_cast<unsigned long>(found.f_type) & 0xFFFFFFFFUL;
  return std::find(kLocalFileSystems.begin(), kLocalFileSystems.end(), type) !=
         kLocalFileSystems.end();
}

Result<std::vector<std::string>> files_of_running_program() {
  std::array<char, PATH_MAX> buffer{};
  const ssize_t n = ::readlink("/proc/self/exe", buffer.data(), buffer.size() - 1);
  if (n <= 0) return errno_error("cannot read /proc/self/exe");
  const std::string program(buffer.data(), static_cast<size_t>(n));
  const std::filesystem::path path(program);
  if (path.filename().string().starts_with("ld-linux")) {
    return Error{ErrorCode::kFailedPrecondition,
                 "this bundle runs with its own C library, which is found by its place"};
  }
  const std::string root = path.parent_path().parent_path().string();
  HP_TRY_ASSIGN(const std::string maps, read_file("/proc/self/maps"));
  std::vector<std::string> files = {program};
  // The files of the release that the agent reads (agent/nodecheck/machine_environment.h).
  for (const std::string& directory : {path.parent_path().string(), root + "/share/hpctl"}) {
    for (const char* name : {"/environment.json", "/instances.json"}) {
      HP_TRY_ASSIGN(const bool is_there, path_exists(directory + name));
      if (is_there) files.push_back(directory + name);
    }
  }
  std::set<std::string> seen = {program};
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find('/');
    if (begin == std::string::npos) continue;
    const std::string file = line.substr(begin);
    // For a program in /usr/bin, the system's libraries do not belong to the release.
    const bool is_ours = root.size() > 1 && root != "/usr" && file.starts_with(root + "/");
    if (is_ours && seen.insert(file).second) files.push_back(file);
  }
  return files;
}

Result<LocalCopy> copy_programs(const std::vector<std::string>& files, const std::string& base) {
  HP_TRY_ASSIGN(const std::vector<Copied> plan, plan_copies(files));
  const std::string id = id_of(plan);
  const std::string directory = base + "/" + id;
  const UniqueFd turn(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!turn.valid() || ::flock(turn.get(), LOCK_EX) != 0) return errno_error("cannot lock " + base);
  if (!verify(plan, directory).ok()) {
    // A cleaner of /tmp may have removed a part. A process that runs from the rest keeps its open
    // files.
    HP_TRY(remove_tree(directory));
    HP_TRY(make_copy(plan, directory));
  }
  LocalCopy copy{directory + "/" + plan.front().to, UniqueFd()};
  HP_TRY_ASSIGN(copy.in_use, lock_shared(directory));
  remove_unused(base, id);
  return copy;
}

void run_from_local_copy(std::vector<std::string> argv) {
  if (is_on_local_disk("/proc/self/exe")) return;
  const std::string base = user_directory() + "/programs";
  const auto run = [&]() -> Outcome {
    HP_TRY_ASSIGN(const auto files, files_of_running_program());
    HP_TRY(own_private_directory(user_directory()));
    HP_TRY(own_private_directory(base));
    HP_TRY_ASSIGN(const LocalCopy copy, copy_programs(files, base));
    argv.front() = copy.program;
    std::vector<char*> words;
    for (std::string& word : argv) words.push_back(word.data());
    words.push_back(nullptr);
    ::execv(copy.program.c_str(), words.data());
    return errno_error("cannot execute " + copy.program);
  };
  log_warning("runs from a file server, where a pause of that server holds it up: no local copy: " +
              run().error().message);
}

}  // namespace hpctl::holder
