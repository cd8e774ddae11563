// SPDX-License-Identifier: Apache-2.0
// Memory for the numbers of other ranks while they are added, one buffer for each sum under way.
// A buffer is kept for later sums: the page faults of fresh memory would cost more than the
// addition. Any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace hpctl {

class ScratchPool {
 public:
  // One buffer, until it ends. The pool outlives it.
  class Lease {
   public:
    Lease(ScratchPool& pool, size_t bytes) : pool_(pool), memory_(pool.take(bytes)) {}
    ~Lease() { pool_.give_back(std::move(memory_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    std::byte* data() { return memory_.data(); }

   private:
    ScratchPool& pool_;
    std::vector<std::byte> memory_;
  };

 private:
  std::vector<std::byte> take(size_t bytes) {
    std::vector<std::byte> memory;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        memory = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (memory.size() < bytes) memory = std::vector<std::byte>(bytes);
    return memory;
  }
  void give_back(std::vector<std::byte> memory) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
  }

  std::mutex mutex_;
  std::vector<std::vector<std::byte>> free_;
};

}  // namespace hpctl
