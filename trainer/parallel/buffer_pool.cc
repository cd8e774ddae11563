// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/buffer_pool.h"

#include <cstdlib>
#include <new>

namespace hpctl {

void BufferPool::Release::operator()(void* buffer) const { std::free(buffer); }

void* BufferPool::take() {
  if (free_.empty()) {
    void* made = std::aligned_alloc(64, bytes_each_);
    if (made == nullptr) throw std::bad_alloc();
    all_.emplace_back(made);
    free_.push_back(made);
  }
  void* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

}  // namespace hpctl
