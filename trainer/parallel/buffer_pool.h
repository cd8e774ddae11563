// SPDX-License-Identifier: Apache-2.0
// Buffers of one size that are taken and given back many times per step: gathered parameters and
// full gradients of one block each. Kept mapped, so that a step causes no page faults.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/device/device.h"

namespace hpctl {

class BufferPool {
 public:
  // The device outlives it.
  explicit BufferPool(size_t bytes_each, Device& device = host_device())
      : bytes_each_(bytes_each), device_(device) {}

  // 64-byte aligned, `bytes_each` long, contents undefined. Throws as Device::allocate.
  void* take();
  void give_back(void* buffer) { free_.push_back(buffer); }

  // Buffers made so far: the most that were in use at a time.
  size_t made() const { return all_.size(); }

 private:
  size_t bytes_each_;
  Device& device_;
  std::vector<DeviceArray<std::byte>> all_;
  std::vector<void*> free_;
};

}  // namespace hpctl
