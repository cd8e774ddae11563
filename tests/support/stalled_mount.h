// SPDX-License-Identifier: Apache-2.0
// StalledMount: a file system whose server does not answer. Whoever touches a path below it waits
// in the kernel until end(), and can only be ended by SIGKILL, as with a file server that is away.
//
// It is a FUSE mount whose server answers the kernel's greeting and nothing else.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/fd.h"

namespace hpctl::test {

class StalledMount {
 public:
  // `directory` exists. mounted() is false where this machine does not let us mount (no /dev/fuse,
  // or not root): skip the test then.
  explicit StalledMount(std::string directory)
      : directory_(std::move(directory)), server_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    if (!server_.valid()) return;
    const std::string options =
        "fd=" + std::to_string(server_.get()) + ",rootmode=40000,user_id=0,group_id=0";
    mounted_ =
        ::mount("stalled", directory_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
    if (mounted_) greet();
  }
  StalledMount(const StalledMount&) = delete;
  StalledMount& operator=(const StalledMount&) = delete;
  ~StalledMount() { end(); }

  bool mounted() const { return mounted_; }
  // Whoever waits gets an error.
  void end() {
    if (!std::exchange(mounted_, false)) return;
    server_.reset();
    ::umount2(directory_.c_str(), MNT_DETACH);
  }

 private:
  void greet() {
    alignas(fuse_in_header) std::array<char, FUSE_MIN_READ_BUFFER> request{};
    if (::read(server_.get(), request.data(), request.size()) < 0) return;
    struct {
      fuse_out_header header;
      fuse_init_out init;
    } answer{};
    answer.header.len = sizeof(answer);
    std::memcpy(&answer.header.unique, request.data() + offsetof(fuse_in_header, unique),
                sizeof(answer.header.unique));
    answer.init.major = FUSE_KERNEL_VERSION;
    answer.init.minor = FUSE_KERNEL_MINOR_VERSION;
    answer.init.max_write = 4096;
    [[maybe_unused]] const ssize_t n = ::write(server_.get(), &answer, sizeof(answer));
  }

  const std::string directory_;
  UniqueFd server_;
  bool mounted_ = false;
};

}  // namespace hpctl::test
