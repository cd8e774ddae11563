// SPDX-License-Identifier: Apache-2.0
// PausableMount: a directory seen through a file server of the test's own, which can stop to answer
// for a while. Whoever touches a path below it then waits in the kernel, and can only be ended by
// SIGKILL, as with a hard NFS mount. Nothing is cached but pages of files.
//
// It is a FUSE mount whose server is a thread of the test, so the test itself must not touch the
// mount while it is paused.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/fd.h"

namespace hpctl::test {

class FuseServer;

class PausableMount {
 public:
  // Shows `source` at `directory`; both exist. mounted() is false where this machine does not let
  // us mount (no /dev/fuse, or not root): skip the test then.
  PausableMount(const std::string& source, std::string directory);
  PausableMount(const PausableMount&) = delete;
  PausableMount& operator=(const PausableMount&) = delete;
  ~PausableMount();

  bool mounted() const { return mounted_; }
  // When it returns, nothing is answered any more.
  void pause();
  void resume();

 private:
  void serve();

  const std::string directory_;
  UniqueFd device_;
  UniqueFd wake_;  // an eventfd
  bool mounted_ = false;
  std::unique_ptr<FuseServer> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_paused_ = false;
  bool is_over_ = false;
  bool is_answering_ = false;
  std::thread thread_;
};

}  // namespace hpctl::test
