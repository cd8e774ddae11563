// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/buffer_pool.h"

namespace hpctl {

void* BufferPool::take() {
  if (free_.empty()) {
    all_.emplace_back(device_, bytes_each_);
    free_.push_back(all_.back().data());
  }
  void* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

}  // namespace hpctl
