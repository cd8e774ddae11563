// SPDX-License-Identifier: Apache-2.0
// FuseServer: answers the kernel's requests for a FUSE mount with what a directory has. Each node
// is an O_PATH descriptor, so it survives renames and removals. What it does not know, it refuses
// with ENOSYS. One thread.
#pragma once

#include <linux/fuse.h>
#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/fd.h"

namespace hpctl::test {

class FuseServer {
 public:
  static constexpr size_t kMaxWrite = 128U << 10;
  static constexpr size_t kRequestBytes = kMaxWrite + 4096;

  // `device` is an open /dev/fuse and outlives this.
  FuseServer(const std::string& source, int device);

  // One request as it was read from the device.
  void answer(std::string_view request);

 private:
  struct Node {
    UniqueFd fd;
    uint64_t lookups = 0;
    std::pair<dev_t, ino_t> file;
  };
  struct Entry {
    std::string name;
    uint64_t inode = 0;
    uint32_t type = 0;
  };

  void answer(const fuse_in_header& header, const char* body);
  void reply(int error, const void* data = nullptr, size_t size = 0);
  void reply_result(bool is_ok) { reply(is_ok ? 0 : errno); }
  template <typename T>
  void reply_with(const T& answer) {
    reply(0, &answer, sizeof(answer));
  }

  void init(const fuse_init_in& in);
  void reply_entry(uint64_t parent, const char* name);
  bool make_entry(uint64_t parent, const char* name, fuse_entry_out& entry);
  void forget(uint64_t node, uint64_t lookups);
  void reply_attributes(uint64_t node);
  void set_attributes(uint64_t node, const fuse_setattr_in& in);
  void open(uint64_t node, uint32_t flags);
  void create(uint64_t parent, const fuse_create_in& in, const char* name);
  void read(const fuse_read_in& in);
  void write(const fuse_write_in& in, const char* data);
  void open_directory(uint64_t node);
  void read_directory(const fuse_read_in& in);
  void read_link(uint64_t node);
  void statfs(uint64_t node);

  int fd_of(uint64_t node) const { return nodes_.at(node).fd.get(); }
  std::string path_of(uint64_t node) const;  // to open it again

  const int device_;
  uint64_t unique_ = 0;  // of the request that is answered
  std::map<uint64_t, Node> nodes_;
  std::map<std::pair<dev_t, ino_t>, uint64_t> known_;
  uint64_t last_node_ = FUSE_ROOT_ID;
  std::map<uint64_t, std::vector<Entry>> listings_;  // of open directories
  uint64_t last_listing_ = 0;
};

}  // namespace hpctl::test
