// SPDX-License-Identifier: Apache-2.0
// Buffers of one size that are taken and given back many times per step: gathered parameters and
// full gradients of one block each. Kept mapped, so that a step causes no page faults.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace hpctl {

class BufferPool {
 public:
  explicit BufferPool(size_t bytes_each) : bytes_each_((bytes_each + 63) / 64 * 64) {}

  // 64-byte aligned, `bytes_each` long, contents undefined. Throws std::bad_alloc.
  void* take();
  void give_back(void* buffer) { free_.push_back(buffer); }

  // Buffers made so far: the most that were in use at a time.
  size_t made() const { return all_.size(); }

 private:
  struct Release {
    void operator()(void* buffer) const;
  };

  size_t bytes_each_;
  std::vector<std::unique_ptr<void, Release>> all_;
  std::vector<void*> free_;
};

}  // namespace hpctl
