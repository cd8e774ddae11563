// SPDX-License-Identifier: Apache-2.0
// ServedDirectory: a file system whose server can be stopped and continued, as a file server that
// fails over. A path below it works as an ordinary one; while the server is stopped, each call on
// it waits in the kernel.
//
// The server is bindfs, a FUSE program of Debian's, on a directory in /tmp.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

#include "tests/support/temporary_directory.h"

namespace hpctl::test {

class ServedDirectory {
 public:
  // `path` becomes the mount point.
  explicit ServedDirectory(std::string path) : path_(std::move(path)) {
    EXPECT_TRUE(make_directories(path_).ok());
    const dev_t before = device();
    server_ = ::fork();
    if (server_ == 0) {
      ::execlp("bindfs", "bindfs", "-f", stored_.path().c_str(), path_.c_str(), nullptr);
      ::_exit(127);
    }
    while (device() == before) {
      if (::waitpid(server_, nullptr, WNOHANG) != 0) {
        server_ = -1;  // it is not installed, or may not mount
        return;
      }
      ::poll(nullptr, 0, 10);
    }
  }
  ServedDirectory(const ServedDirectory&) = delete;
  ServedDirectory& operator=(const ServedDirectory&) = delete;
  ~ServedDirectory() {
    if (server_ < 0) return;
    go_on();
    EXPECT_EQ(::umount2(path_.c_str(), MNT_DETACH), 0);
    ::kill(server_, SIGTERM);  // it ends by itself only when no mount namespace has a copy
    EXPECT_EQ(::waitpid(server_, nullptr, 0), server_);
  }

  // False: this machine has no bindfs, or does not let us mount. Skip the test then.
  bool served() const { return server_ > 0; }
  void stop() const {
    EXPECT_EQ(::kill(server_, SIGSTOP), 0);
    int status = 0;
    EXPECT_EQ(::waitpid(server_, &status, WUNTRACED), server_);
    EXPECT_TRUE(WIFSTOPPED(status)) << status;
  }
  void go_on() const { EXPECT_EQ(::kill(server_, SIGCONT), 0); }

 private:
  dev_t device() const {
    struct stat st {};
    EXPECT_EQ(::stat(path_.c_str(), &st), 0);
    return st.st_dev;
  }

  const TemporaryDirectory stored_;
  const std::string path_;
  pid_t server_ = -1;
};

}  // namespace hpctl::test
