// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fuse_server.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>

namespace hpctl::test {
namespace {

template <typename T>
const T& as(const char* body) {
  return *reinterpret_cast<const T*>(body);
}

void fill(fuse_attr& attr, const struct stat& st) {
  attr = {};
  attr.ino = st.st_ino;
  attr.size = static_cast<uint64_t>(st.st_size);
  attr.blocks = static_cast<uint64_t>(st.st_blocks);
  attr.atime = static_cast<uint64_t>(st.st_atim.tv_sec);
  attr.mtime = static_cast<uint64_t>(st.st_mtim.tv_sec);
  attr.ctime = static_cast<uint64_t>(st.st_ctim.tv_sec);
  attr.atimensec = static_cast<uint32_t>(st.st_atim.tv_nsec);
  attr.mtimensec = static_cast<uint32_t>(st.st_mtim.tv_nsec);
  attr.ctimensec = static_cast<uint32_t>(st.st_ctim.tv_nsec);
  attr.mode = st.st_mode;
  attr.nlink = static_cast<uint32_t>(st.st_nlink);
  attr.uid = st.st_uid;
  attr.gid = st.st_gid;
  attr.blksize = static_cast<uint32_t>(st.st_blksize);
}

// What the kernel has done already, or does itself.
int flags_of(uint32_t flags) {
  return (static_cast<int>(flags) & ~(O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_NOCTTY)) |
         O_CLOEXEC;
}

timespec time_of(uint64_t seconds, uint32_t nanoseconds, uint32_t valid, uint32_t set,
                 uint32_t now) {
  if ((valid & set) == 0) return {0, UTIME_OMIT};
  if ((valid & now) != 0) return {0, UTIME_NOW};
  return {static_cast<time_t>(seconds), static_cast<long>(nanoseconds)};
}

}  // namespace

FuseServer::FuseServer(const std::string& source, int device) : device_(device) {
  Node root{UniqueFd(::open(source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), 1, {}};
  struct stat st {};
  if (::fstat(root.fd.get(), &st) == 0) root.file = {st.st_dev, st.st_ino};
  known_[root.file] = FUSE_ROOT_ID;
  nodes_[FUSE_ROOT_ID] = std::move(root);
}

void FuseServer::answer(std::string_view request) {
  fuse_in_header header{};
  if (request.size() < sizeof(header)) return;
  std::memcpy(&header, request.data(), sizeof(header));
  unique_ = header.unique;
  // Requests are aligned to 8 bytes, as their header's size is.
  answer(header, request.data() + sizeof(header));
}

void FuseServer::reply(int error, const void* data, size_t size) {
  fuse_out_header header{};
  header.len = static_cast<uint32_t>(sizeof(header) + (error == 0 ? size : 0));
  header.error = -error;
  header.unique = unique_;
  const std::array<iovec, 2> parts{
      {{&header, sizeof(header)}, {const_cast<void*>(data), error == 0 ? size : 0}}};
  // Whoever asked may have been killed meanwhile.
  [[maybe_unused]] const ssize_t n = ::writev(device_, parts.data(), parts.size());
}

void FuseServer::answer(const fuse_in_header& header, const char* body) {
  const uint64_t node = header.nodeid;
  switch (header.opcode) {
    case FUSE_INIT:
      return init(as<fuse_init_in>(body));
    case FUSE_FORGET:
      return forget(node, as<fuse_forget_in>(body).nlookup);
    case FUSE_BATCH_FORGET: {
      const auto count = as<fuse_batch_forget_in>(body).count;
      const char* one = body + sizeof(fuse_batch_forget_in);
      for (uint32_t i = 0; i < count; ++i, one += sizeof(fuse_forget_one)) {
        forget(as<fuse_forget_one>(one).nodeid, as<fuse_forget_one>(one).nlookup);
      }
      return;
    }
    case FUSE_INTERRUPT:
      return;
    case FUSE_LOOKUP:
      return reply_entry(node, body);
    case FUSE_GETATTR:
      return reply_attributes(node);
    case FUSE_SETATTR:
      return set_attributes(node, as<fuse_setattr_in>(body));
    case FUSE_READLINK:
      return read_link(node);
    case FUSE_MKDIR: {
      const char* name = body + sizeof(fuse_mkdir_in);
      if (::mkdirat(fd_of(node), name, as<fuse_mkdir_in>(body).mode) != 0) return reply(errno);
      return reply_entry(node, name);
    }
    case FUSE_MKNOD: {
      const auto& in = as<fuse_mknod_in>(body);
      const char* name = body + sizeof(fuse_mknod_in);
      if (::mknodat(fd_of(node), name, in.mode, in.rdev) != 0) return reply(errno);
      return reply_entry(node, name);
    }
    case FUSE_SYMLINK: {
      const char* target = body + std::strlen(body) + 1;
      if (::symlinkat(target, fd_of(node), body) != 0) return reply(errno);
      return reply_entry(node, body);
    }
    case FUSE_LINK: {
      const char* name = body + sizeof(fuse_link_in);
      const std::string old = path_of(as<fuse_link_in>(body).oldnodeid);
      if (::linkat(AT_FDCWD, old.c_str(), fd_of(node), name, AT_SYMLINK_FOLLOW) != 0) {
        return reply(errno);
      }
      return reply_entry(node, name);
    }
    case FUSE_UNLINK:
      return reply_result(::unlinkat(fd_of(node), body, 0) == 0);
    case FUSE_RMDIR:
      return reply_result(::unlinkat(fd_of(node), body, AT_REMOVEDIR) == 0);
    case FUSE_RENAME:
    case FUSE_RENAME2: {
      const bool is_new = header.opcode == FUSE_RENAME2;
      const uint64_t to = as<fuse_rename_in>(body).newdir;
      const unsigned flags = is_new ? as<fuse_rename2_in>(body).flags : 0;
      const char* name = body + (is_new ? sizeof(fuse_rename2_in) : sizeof(fuse_rename_in));
      const char* new_name = name + std::strlen(name) + 1;
      return reply_result(::renameat2(fd_of(node), name, fd_of(to), new_name, flags) == 0);
    }
    case FUSE_OPEN:
      return open(node, as<fuse_open_in>(body).flags);
    case FUSE_CREATE:
      return create(node, as<fuse_create_in>(body), body + sizeof(fuse_create_in));
    case FUSE_READ:
      return read(as<fuse_read_in>(body));
    case FUSE_WRITE:
      return write(as<fuse_write_in>(body), body + sizeof(fuse_write_in));
    case FUSE_RELEASE:
      ::close(static_cast<int>(as<fuse_release_in>(body).fh));
      return reply(0);
    case FUSE_FLUSH:
      return reply(0);
    case FUSE_FSYNC:
      return reply_result(::fsync(static_cast<int>(as<fuse_fsync_in>(body).fh)) == 0);
    case FUSE_FALLOCATE: {
      const auto& in = as<fuse_fallocate_in>(body);
      return reply_result(::fallocate(static_cast<int>(in.fh), static_cast<int>(in.mode),
                                      static_cast<off_t>(in.offset),
                                      static_cast<off_t>(in.length)) == 0);
    }
    case FUSE_OPENDIR:
      return open_directory(node);
    case FUSE_READDIR:
      return read_directory(as<fuse_read_in>(body));
    case FUSE_RELEASEDIR:
      listings_.erase(as<fuse_release_in>(body).fh);
      return reply(0);
    case FUSE_FSYNCDIR:
      return reply(0);
    case FUSE_STATFS:
      return statfs(node);
    default:
      return reply(ENOSYS);
  }
}

void FuseServer::init(const fuse_init_in& in) {
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = FUSE_KERNEL_MINOR_VERSION;
  out.max_readahead = in.max_readahead;
  out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS);
  out.max_background = 16;
  out.congestion_threshold = 12;
  out.max_write = kMaxWrite;
  out.time_gran = 1;
  reply_with(out);
}

std::string FuseServer::path_of(uint64_t node) const {
  return "/proc/self/fd/" + std::to_string(fd_of(node));
}

bool FuseServer::make_entry(uint64_t parent, const char* name, fuse_entry_out& entry) {
  UniqueFd fd(::openat(fd_of(parent), name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!fd.valid() || ::fstat(fd.get(), &st) != 0) return false;
  const auto [known, is_new] = known_.try_emplace({st.st_dev, st.st_ino}, last_node_ + 1);
  if (is_new) nodes_[++last_node_] = {std::move(fd), 0, known->first};
  ++nodes_.at(known->second).lookups;
  entry = {};
  entry.nodeid = known->second;
  fill(entry.attr, st);
  return true;
}

void FuseServer::reply_entry(uint64_t parent, const char* name) {
  fuse_entry_out entry{};
  if (!make_entry(parent, name, entry)) return reply(errno);
  reply_with(entry);
}

void FuseServer::forget(uint64_t node, uint64_t lookups) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || node == FUSE_ROOT_ID) return;
  found->second.lookups -= std::min(lookups, found->second.lookups);
  if (found->second.lookups > 0) return;
  known_.erase(found->second.file);
  nodes_.erase(found);
}

void FuseServer::reply_attributes(uint64_t node) {
  struct stat st {};
  if (::fstat(fd_of(node), &st) != 0) return reply(errno);
  fuse_attr_out out{};
  fill(out.attr, st);
  reply_with(out);
}

void FuseServer::set_attributes(uint64_t node, const fuse_setattr_in& in) {
  const std::string path = path_of(node);
  bool is_ok = true;
  if ((in.valid & FATTR_MODE) != 0) is_ok = ::chmod(path.c_str(), in.mode) == 0;
  if (is_ok && (in.valid & (FATTR_UID | FATTR_GID)) != 0) {
    is_ok = ::chown(path.c_str(), (in.valid & FATTR_UID) != 0 ? in.uid : static_cast<uid_t>(-1),
                    (in.valid & FATTR_GID) != 0 ? in.gid : static_cast<gid_t>(-1)) == 0;
  }
  if (is_ok && (in.valid & FATTR_SIZE) != 0) {
    const auto size = static_cast<off_t>(in.size);
    is_ok = (in.valid & FATTR_FH) != 0 ? ::ftruncate(static_cast<int>(in.fh), size) == 0
                                       : ::truncate(path.c_str(), size) == 0;
  }
  if (is_ok && (in.valid & (FATTR_ATIME | FATTR_MTIME)) != 0) {
    const std::array<timespec, 2> times = {
        time_of(in.atime, in.atimensec, in.valid, FATTR_ATIME, FATTR_ATIME_NOW),
        time_of(in.mtime, in.mtimensec, in.valid, FATTR_MTIME, FATTR_MTIME_NOW)};
    is_ok = ::utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0;
  }
  if (!is_ok) return reply(errno);
  reply_attributes(node);
}

void FuseServer::open(uint64_t node, uint32_t flags) {
  const int fd = ::open(path_of(node).c_str(), flags_of(flags));
  if (fd < 0) return reply(errno);
  fuse_open_out out{};
  out.fh = static_cast<uint64_t>(fd);
  out.open_flags = FOPEN_KEEP_CACHE;  // nobody else changes what is below
  reply_with(out);
}

void FuseServer::create(uint64_t parent, const fuse_create_in& in, const char* name) {
  const int flags = flags_of(in.flags) | O_CREAT | (static_cast<int>(in.flags) & O_EXCL);
  const int fd = ::openat(fd_of(parent), name, flags, in.mode);
  if (fd < 0) return reply(errno);
  struct {
    fuse_entry_out entry;
    fuse_open_out open;
  } out{};
  if (!make_entry(parent, name, out.entry)) {
    const int error = errno;
    ::close(fd);
    return reply(error);
  }
  out.open.fh = static_cast<uint64_t>(fd);
  out.open.open_flags = FOPEN_KEEP_CACHE;
  reply_with(out);
}

void FuseServer::read(const fuse_read_in& in) {
  std::string bytes(in.size, '\0');
  const ssize_t n =
      ::pread(static_cast<int>(in.fh), bytes.data(), bytes.size(), static_cast<off_t>(in.offset));
  if (n < 0) return reply(errno);
  reply(0, bytes.data(), static_cast<size_t>(n));
}

void FuseServer::write(const fuse_write_in& in, const char* data) {
  const ssize_t n = ::pwrite(static_cast<int>(in.fh), data, in.size, static_cast<off_t>(in.offset));
  if (n < 0) return reply(errno);
  fuse_write_out out{};
  out.size = static_cast<uint32_t>(n);
  reply_with(out);
}

void FuseServer::open_directory(uint64_t node) {
  const int fd = ::open(path_of(node).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fd < 0 ? nullptr : ::fdopendir(fd),
                                                      &::closedir);
  if (directory == nullptr) return reply(errno);
  fuse_open_out out{};
  out.fh = ++last_listing_;
  while (const dirent* entry = ::readdir(directory.get())) {
    listings_[out.fh].push_back({entry->d_name, entry->d_ino, entry->d_type});
  }
  reply_with(out);
}

void FuseServer::read_directory(const fuse_read_in& in) {
  const auto found = listings_.find(in.fh);
  if (found == listings_.end()) return reply(EBADF);
  const std::vector<Entry>& entries = found->second;
  std::string bytes;
  for (size_t i = in.offset; i < entries.size(); ++i) {
    const auto& [name, inode, type] = entries[i];
    const size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name.size());
    if (bytes.size() + size > in.size) break;
    fuse_dirent out{};
    out.ino = inode;
    out.off = i + 1;
    out.namelen = static_cast<uint32_t>(name.size());
    out.type = type;
    const size_t begin = bytes.size();
    bytes.resize(begin + size, '\0');
    std::memcpy(bytes.data() + begin, &out, FUSE_NAME_OFFSET);
    std::memcpy(bytes.data() + begin + FUSE_NAME_OFFSET, name.data(), name.size());
  }
  reply(0, bytes.data(), bytes.size());
}

void FuseServer::read_link(uint64_t node) {
  std::array<char, PATH_MAX> target{};
  const ssize_t n = ::readlinkat(fd_of(node), "", target.data(), target.size());
  if (n < 0) return reply(errno);
  reply(0, target.data(), static_cast<size_t>(n));
}

void FuseServer::statfs(uint64_t node) {
  struct statvfs found {};
  if (::fstatvfs(fd_of(node), &found) != 0) return reply(errno);
  fuse_statfs_out out{};
  out.st.blocks = found.f_blocks;
  out.st.bfree = found.f_bfree;
  out.st.bavail = found.f_bavail;
  out.st.files = found.f_files;
  out.st.ffree = found.f_ffree;
  out.st.bsize = static_cast<uint32_t>(found.f_bsize);
  out.st.namelen = static_cast<uint32_t>(found.f_namemax);
  out.st.frsize = static_cast<uint32_t>(found.f_frsize);
  reply_with(out);
}

}  // namespace hpctl::test
