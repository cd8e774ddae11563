// SPDX-License-Identifier: Apache-2.0
// Buffers of one size that are taken and given back many times per step: gathered parameters and
// full gradients of one block each. Kept mapped, so that a step causes no page faults. Host memory
// is of the communicator that uses it, where that shares memory between ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/device/device.h"

namespace hpctl {

class BufferPool {
 public:
  // The communicator, which is connected, and the device outlive it.
  BufferPool(size_t bytes_each, Communicator& comm, Device& device = host_device())
      : bytes_each_(bytes_each), comm_(comm), device_(device) {}

  // 64-byte aligned, `bytes_each` long, contents undefined. Throws as Device::allocate; errors come
  // from Communicator::await_readers.
  Result<void*> take();
  void give_back(void* buffer) { free_.push_back(buffer); }

 private:
  void* make();

  size_t bytes_each_;
  Communicator& comm_;
  Device& device_;
  std::vector<DeviceArray<std::byte>> own_;  // those that are not shared
  std::vector<void*> free_;
};

}  // namespace hpctl
