// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/host_memory.h"

#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

namespace hpctl {

namespace {

constexpr size_t kAlignment = 64;  // c10::gAlignment

// The result of malloc is stored before the aligned address, because ATen's raw_allocate wants a
// deleter that needs no more than that.
void give_back(void* aligned) {
  if (aligned != nullptr) std::free(static_cast<void**>(aligned)[-1]);
}

// Without `override`: releases differ in const and in whether they call copy_data.
class HostAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const { return take(bytes); }
  c10::DataPtr allocate(size_t bytes) { return take(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const {
    std::memcpy(to, from, bytes);
  }

 private:
  static c10::DataPtr take(size_t bytes) {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &give_back, cpu};
    // Addresses of malloc are multiples of 16: one pointer fits in front.
    void* memory = std::malloc(bytes + kAlignment);
    if (memory == nullptr) throw std::bad_alloc();
    const uintptr_t aligned = (reinterpret_cast<uintptr_t>(memory) / kAlignment + 1) * kAlignment;
    auto* place = reinterpret_cast<void**>(aligned);
    place[-1] = memory;
    return {place, place, &give_back, cpu};
  }
};

}  // namespace

void use_host_memory_again() {
  static std::once_flag once;
  // Never destroyed: tensors of static duration may outlive everything.
  std::call_once(once,
                 [] { c10::SetCPUAllocator(std::make_unique<HostAllocator>().release(), 1); });
}

}  // namespace hpctl
