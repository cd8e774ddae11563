// SPDX-License-Identifier: Apache-2.0
// Counts the memory of LibTorch's tensors on the CPU.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

namespace hpctl::testing {

class TensorMemory : public c10::Allocator {
 public:
  // From the first call on all tensors are; the counter lives as long as the process.
  static TensorMemory& counted() {
    static TensorMemory* const memory = [] {
      TensorMemory* const made = std::make_unique<TensorMemory>(c10::GetCPUAllocator()).release();
      c10::SetCPUAllocator(made, /*priority=*/2);
      return made;
    }();
    return *memory;
  }

  explicit TensorMemory(c10::Allocator* inner) : inner_(inner) {}

  // A new peak begins at what there is now.
  void begin() {
    const std::lock_guard lock(mutex_);
    peak_ = before_ = live_;
  }
  // Bytes since then, at most.
  size_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_ - before_;
  }

  // Without `override`: releases differ in what is const and in whether copy_data is asked for.
  c10::DataPtr allocate(size_t bytes) const { return const_cast<TensorMemory*>(this)->take(bytes); }
  c10::DataPtr allocate(size_t bytes) { return take(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const {
    std::memcpy(to, from, bytes);
  }

 private:
  struct Held {
    size_t bytes;
    c10::DeleterFnPtr deleter;
  };

  static void give_back(void* memory) {
    if (memory != nullptr) counted().release(memory);
  }
  void release(void* memory) {
    c10::DeleterFnPtr deleter = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = held_.find(memory);
      live_ -= found->second.bytes;
      deleter = found->second.deleter;
      held_.erase(found);
    }
    deleter(memory);
  }
  c10::DataPtr take(size_t bytes) {
    c10::DataPtr made = inner_->allocate(bytes);
    const c10::DeleterFnPtr deleter = made.get_deleter();
    void* const memory = made.release_context();
    if (memory != nullptr) {
      const std::lock_guard lock(mutex_);
      held_[memory] = {bytes, deleter};
      live_ += bytes;
      peak_ = std::max(peak_, live_);
    }
    return {memory, memory, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::Allocator* inner_;
  mutable std::mutex mutex_;
  std::map<void*, Held> held_;
  size_t live_ = 0;
  size_t peak_ = 0;
  size_t before_ = 0;
};

}  // namespace hpctl::testing
