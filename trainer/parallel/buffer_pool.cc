// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/buffer_pool.h"

namespace hpctl {

Result<void*> BufferPool::take() {
  if (free_.empty()) return make();
  void* buffer = free_.back();
  free_.pop_back();
  HP_TRY(comm_.await_readers({static_cast<const std::byte*>(buffer), bytes_each_}));
  return buffer;
}

void* BufferPool::make() {
  void* shared = device_.is_host() ? comm_.allocate_shared(bytes_each_) : nullptr;
  if (shared != nullptr) return shared;
  return own_.emplace_back(device_, bytes_each_).data();
}

}  // namespace hpctl
