// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/mirror.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/checksum.h"
#include "common/base/failpoint.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/confirm.h"
#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/manifest.h"

namespace hpctl {
namespace {

constexpr size_t kCopiedAtOnce = 4U << 20;
constexpr size_t kMaxMirrorBytes = 16U << 10;
constexpr const char* kManifestInStep = "/manifest.json";

using Clock = std::chrono::steady_clock;

// Holds the copy to its rate, and asks meanwhile whether it goes on.
class Pace {
 public:
  explicit Pace(const MirrorCopyOrder& order) : order_(order) {}

  bool spend(uint64_t bytes) {
    bytes_ += bytes;
    if (order_.bytes_per_second == 0) return order_.goes_on();
    const auto due =
        begin_ + std::chrono::duration<double>(static_cast<double>(bytes_) /
                                               static_cast<double>(order_.bytes_per_second));
    constexpr std::chrono::milliseconds kSlice(50);
    while (order_.goes_on()) {
      const std::chrono::duration<double> left = due - Clock::now();
      if (left.count() <= 0) return true;
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, kSlice));
    }
    return false;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  const MirrorCopyOrder& order_;
  const Clock::time_point begin_ = Clock::now();
  uint64_t bytes_ = 0;
};

class Copy {
 public:
  Copy(std::string from, std::string to, const MirrorCopyOrder& order)
      : from_(std::move(from)), to_(std::move(to)), order_(order), pace_(order) {}

  // `text`: of the manifest.
  Outcome run(const Manifest& manifest, const std::string& text) {
    HP_TRY(make_directories(to_));
    buffer_.resize(kCopiedAtOnce);
    for (const ShardFile& file : manifest.files) HP_TRY(copy(file));
    HP_FAILPOINT("mirror.copied");
    const Outcome sound = confirm_files(to_, manifest, VerifyDepth::kFull, order_.goes_on);
    if (!sound.ok()) return spoiled(sound.error());
    HP_TRY(sync_directory(to_));
    HP_FAILPOINT("mirror.manifest.before");
    HP_TRY(write_file_atomic(to_ + kManifestInStep, text));
    HP_FAILPOINT("mirror.manifest.after");
    return Ok{};
  }
  uint64_t bytes() const { return pace_.bytes(); }

 private:
  // A file of an earlier attempt is read in full: one that is not what the source has is replaced.
  Result<bool> is_there(const ShardFile& file) {
    const std::string path = to_ + "/" + file.file;
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) {
      if (errno == ENOENT) return false;
      return errno_error("cannot look at " + path);
    }
    if (static_cast<uint64_t>(st.st_size) != file.bytes) return false;
    const UniqueFd made(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!made.valid()) return errno_error("cannot open " + path);
    uint32_t crc = 0;
    HP_TRY(read_through(made.get(), path, [&crc](const char* bytes, size_t n) -> Outcome {
      crc = crc32c(bytes, n, crc);
      return Ok{};
    }));
    return crc == file.crc32c;
  }

  Outcome copy(const ShardFile& file) {
    HP_TRY_ASSIGN(const bool there, is_there(file));
    if (there) return Ok{};
    const std::string path = from_ + "/" + file.file;
    const UniqueFd source(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!source.valid()) return errno_error("cannot open " + path);
    HP_TRY_ASSIGN(DurableFile target, DurableFile::create(to_ + "/" + file.file));
    HP_TRY(copy_bytes(source.get(), path, target));
    if (target.bytes() != file.bytes || target.crc32c() != file.crc32c) return damage(path, file);
    HP_TRY(target.sync());
    HP_TRY(target.rename_into_place());
    HP_FAILPOINT("mirror.file");
    return Ok{};
  }

  Outcome copy_bytes(int source, const std::string& path, DurableFile& target) {
    return read_through(source, path,
                        [&target](const char* bytes, size_t n) { return target.append(bytes, n); });
  }

  // Past the page cache: fresh data of a worker are read from storage, and nothing reads them here
  // later.
  template <typename Use>
  Outcome read_through(int fd, const std::string& path, const Use& use) {
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    for (off_t offset = 0;;) {
      const ssize_t n = ::pread(fd, buffer_.data(), buffer_.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_error("cannot read " + path + " at byte " + std::to_string(offset));
      if (n == 0) return Ok{};
      HP_TRY(use(buffer_.data(), static_cast<size_t>(n)));
      ::posix_fadvise(fd, offset, n, POSIX_FADV_DONTNEED);
      offset += n;
      if (!pace_.spend(static_cast<uint64_t>(n))) {
        return Error{ErrorCode::kUnavailable, "the copy of " + from_ + " was interrupted"};
      }
    }
  }

  // Names the range, if a second read finds it.
  Error damage(const std::string& path, const ShardFile& file) const {
    const auto confirmed = confirm_damage(from_, file.file);
    const bool named = confirmed.ok() && !confirmed->empty();
    return {ErrorCode::kDataLoss,
            named ? *confirmed : path + " is damaged: crc32c does not match its manifest"};
  }

  // The next attempt reads its files again, and replaces those that are spoiled.
  Error spoiled(const Error& error) const {
    if (error.code != ErrorCode::kDataLoss) return error;
    return {ErrorCode::kInternal, "the copy was not what was written: " + error.message};
  }

  const std::string from_;
  const std::string to_;
  const MirrorCopyOrder& order_;
  Pace pace_;
  std::vector<char> buffer_;
};

bool is_same_generation(GenerationRecord a, const GenerationRecord& b) {
  a.created_wall_ms = b.created_wall_ms;
  // One of them was copied by a release that does not know these.
  if (a.order.empty() || b.order.empty()) {
    a.order = b.order;
    a.withdrawn = b.withdrawn;
  }
  return to_json_text(a) == to_json_text(b);
}

struct Inode {
  uint64_t device = 0;
  uint64_t number = 0;
  auto operator<=>(const Inode&) const = default;
};

Result<std::optional<Inode>> inode_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0) return std::optional(Inode{st.st_dev, st.st_ino});
  if (errno == ENOENT || errno == ENOTDIR) return std::optional<Inode>();
  return errno_error("cannot look at " + path);
}

// For the path and every existing directory above it, the path first; ".." is the real parent.
Result<std::vector<Inode>> inodes_to_root(std::string path) {
  std::vector<Inode> found;
  HP_TRY_ASSIGN(auto inode, inode_of(path));
  while (!inode && path.size() > 1) {
    found.push_back({});  // does not exist: it is nothing else
    path = path.rfind('/') == 0 ? "/" : path.substr(0, path.rfind('/'));
    HP_TRY_ASSIGN(inode, inode_of(path));
  }
  constexpr int kMostLevels = 4'096;
  for (int level = 0; inode && level < kMostLevels; ++level) {
    if (!found.empty() && found.back() == *inode) break;  // the root
    found.push_back(*inode);
    path += "/..";
    HP_TRY_ASSIGN(inode, inode_of(path));
  }
  return found;
}

}  // namespace

Outcome copy_lineage(const std::string& from, const std::string& to) {
  HP_TRY_ASSIGN(const auto source, read_lineage(from));
  HP_TRY_ASSIGN(const auto target, read_lineage(to));
  for (const GenerationRecord& record : source) {
    const auto there = std::find_if(target.begin(), target.end(), [&](const auto& other) {
      return other.generation == record.generation;
    });
    if (there == target.end()) {
      HP_TRY(create_generation(to, record));
    } else if (!is_same_generation(*there, record)) {
      return Error{ErrorCode::kDataLoss,
                   to + " and " + from + " have different records of generation " +
                       std::to_string(record.generation) +
                       "; they are not of one history: use an empty checkpoint.mirror.dir"};
    }
  }
  return Ok{};
}

Result<uint64_t> copy_checkpoint(const std::string& from, const std::string& to,
                                 const std::string& name, const MirrorCopyOrder& order) {
  const std::string path = from + "/" + name + kManifestInStep;
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxManifestBytes));
  HP_TRY_ASSIGN(const Manifest manifest, manifest_from_text(text, path));
  if (manifest.ref().name() != name) {
    return Error{ErrorCode::kDataLoss, path + " belongs to " + manifest.ref().name()};
  }
  HP_TRY_ASSIGN(const bool copied, is_copied(from, to, name));
  if (copied) return uint64_t{0};
  HP_TRY_ASSIGN(const bool other, has_manifest(to + "/" + name));
  if (other) HP_TRY(set_aside(to, name));
  Copy copy(from + "/" + name, to + "/" + name, order);
  HP_TRY(copy.run(manifest, text));
  HP_TRY(sync_directory(to));
  return copy.bytes();
}

Result<bool> is_copied(const std::string& from, const std::string& to, const std::string& name) {
  HP_TRY_ASSIGN(const auto source,
                read_file_if_there(from + "/" + name + kManifestInStep, kMaxManifestBytes));
  HP_TRY_ASSIGN(const auto copy,
                read_file_if_there(to + "/" + name + kManifestInStep, kMaxManifestBytes));
  return source && copy && *source == *copy;
}

Result<std::vector<std::string>> list_leftovers(const std::string& mirror,
                                                const CheckpointRef& verified) {
  std::vector<std::string> found;
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(mirror));
  for (const std::string& name : names) {
    if (parse_set_aside(name)) found.push_back(name);
    const auto ref = parse_checkpoint_name(name);
    if (!ref || !(*ref < verified)) continue;
    HP_TRY_ASSIGN(const bool complete, has_manifest(mirror + "/" + name));
    if (!complete) found.push_back(name);
  }
  return found;
}

Outcome remove_leftovers(const std::string& mirror, const CheckpointRef& verified) {
  HP_TRY_ASSIGN(const auto names, list_leftovers(mirror, verified));
  for (const std::string& name : names) HP_TRY(delete_checkpoint(mirror, name));
  return Ok{};
}

Result<std::optional<CheckpointRef>> latest_in_mirror(const std::string& mirror,
                                                      const std::vector<GenerationRecord>& records,
                                                      const std::vector<std::string>& exclude) {
  std::vector<GenerationRecord> chain = chain_of_newest(records);
  std::set<std::string> unusable(exclude.begin(), exclude.end());
  for (GenerationRecord& record : chain) {
    unusable.insert(record.damaged.begin(), record.damaged.end());
    record.damaged.clear();
  }
  std::vector<std::string> here;
  for (const std::string& path : unusable) {
    if (path.starts_with(mirror + "/")) here.push_back(path.substr(mirror.size() + 1));
  }
  return latest_on_chain(mirror, chain, here);
}

Outcome remember_first_place(const std::string& mirror, const std::string& first) {
  HP_TRY_ASSIGN(const auto inode, inode_of(first));
  if (!inode) return Error{ErrorCode::kStorage, first + " has gone away"};
  const nlohmann::json document = {
      {"checkpoint_dir", first}, {"device", inode->device}, {"inode", inode->number}};
  const std::string text = json_text(document, {.indent = 1}) + "\n";
  const std::string path = mirror + "/mirror.json";
  HP_TRY_ASSIGN(const auto before, read_file_if_there(path, kMaxMirrorBytes));
  if (before && *before == text) return Ok{};
  return write_file_atomic(path, text);
}

Result<bool> is_first_place(const std::string& mirror, const std::string& first) {
  const std::string path = mirror + "/mirror.json";
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxMirrorBytes));
  HP_TRY_ASSIGN(const auto inode, inode_of(first));
  try {
    const nlohmann::json document = parse_json(text);
    const Inode known{document.at("device").get<uint64_t>(), document.at("inode").get<uint64_t>()};
    return inode && *inode == known;
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + " is damaged: " + e.what()};
  }
}

Outcome check_apart(const std::string& first, const std::string& mirror) {
  HP_TRY_ASSIGN(const auto of_first, inodes_to_root(first));
  HP_TRY_ASSIGN(const auto of_mirror, inodes_to_root(mirror));
  const auto holds = [](const std::vector<Inode>& path, const Inode& inode) {
    return inode != Inode{} && std::find(path.begin(), path.end(), inode) != path.end();
  };
  if (!holds(of_first, of_mirror.front()) && !holds(of_mirror, of_first.front())) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "checkpoint.mirror.dir: " + mirror + " and checkpoint.dir " + first +
                   " are one directory, or one is inside the other; choose a directory apart from "
                   "it, best on another file system"};
}

}  // namespace hpctl
