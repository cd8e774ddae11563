// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pausable_mount.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "tests/support/fuse_server.h"

namespace hpctl::test {

PausableMount::PausableMount(const std::string& source, std::string directory)
    : directory_(std::move(directory)),
      device_(::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!device_.valid()) return;
  const std::string options =
      "fd=" + std::to_string(device_.get()) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
  mounted_ =
      ::mount("pausable", directory_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
  if (!mounted_) return;
  server_ = std::make_unique<FuseServer>(source, device_.get());
  thread_ = std::thread([this] { serve(); });
}

PausableMount::~PausableMount() {
  if (!mounted_) return;
  ::umount2(directory_.c_str(), MNT_DETACH);
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void PausableMount::pause() {
  ::eventfd_write(wake_.get(), 1);
  std::unique_lock lock(mutex_);
  is_paused_ = true;
  changed_.wait(lock, [this] { return !is_answering_; });
}

void PausableMount::resume() {
  const std::lock_guard lock(mutex_);
  is_paused_ = false;
  changed_.notify_all();
}

// A request is only taken from the kernel when it is answered: one that waits there can be killed.
void PausableMount::serve() {
  std::string request;
  for (;;) {
    std::array<pollfd, 2> inputs{{{device_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
    ::poll(inputs.data(), inputs.size(), -1);
    eventfd_t count = 0;
    if (inputs[1].revents != 0) ::eventfd_read(wake_.get(), &count);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !is_paused_ || is_over_; });
      if (is_over_) return;
      is_answering_ = true;
    }
    request.resize(FuseServer::kRequestBytes);
    const bool has_request = (inputs[0].revents & POLLIN) != 0;
    const ssize_t n = has_request ? ::read(device_.get(), request.data(), request.size()) : 0;
    if (n > 0) server_->answer(std::string_view(request).substr(0, static_cast<size_t>(n)));
    const std::lock_guard lock(mutex_);
    is_answering_ = false;
    changed_.notify_all();
    if ((inputs[0].revents & POLLERR) != 0) return;  // unmounted
  }
}

}  // namespace hpctl::test
