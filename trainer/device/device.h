// SPDX-License-Identifier: Apache-2.0
// The place of a rank's state, gradients and gathered parameters, and the operations on them
// outside the model: host memory and plain loops (host_device()), or a GPU through LibTorch's
// kernels (torch_device.h). The sharding engine and the training state see the difference only
// through this interface.
//
// Addresses are the device's: only a device of is_host() may have them read or written by other
// code. Work is done in the order of the calls, from one thread, the step loop's; on a GPU a call
// may return before its work is done, unless a value or host memory comes back. So a buffer may be
// given back and taken again without further care: both uses are in that order.
//
// Failures to get memory throw (std::bad_alloc, c10::OutOfMemoryError), as do LibTorch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/optim/adamw.h"

namespace hpctl {

class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // As LibTorch writes it: "cpu", "cuda:3".
  virtual std::string name() const = 0;
  virtual bool is_host() const = 0;
  // The product, as its driver names it; "" where none is known.
  virtual std::string product() const = 0;

  // 64-byte aligned, contents undefined; released by release().
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;

  virtual void zero(float* to, int64_t count) = 0;
  virtual void copy(const float* from, float* to, int64_t count) = 0;
  virtual void add(const float* from, float* to, int64_t count) = 0;
  // As bf16_rounding.h.
  virtual void round_to_bf16(const float* from, uint16_t* to, int64_t count) = 0;
  virtual void round_to_fp16(const float* from, uint16_t* to, int64_t count) = 0;
  // To a number on the device: over all parts, in fp64, added in an order that depends on their
  // sizes alone.
  virtual void sum_of_squares(const std::vector<std::span<const float>>& parts, double* to) = 0;
  // As adamw.h, and AdamTarget::rounded; source and target may be the same where the device is not
  // the host.
  virtual void adamw(const AdamStep& step, bool decayed, int64_t count,
                     const AdamSource<float>& from, const AdamTarget<float>& to) = 0;
  void adamw(const AdamStep& step, bool decayed, const RandomBits& /*nothing is rounded*/,
             int64_t count, const AdamSource<float>& from, const AdamTarget<float>& to) {
    adamw(step, decayed, count, from, to);
  }
  virtual void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
                     const AdamSource<float, uint16_t>& from,
                     const AdamTarget<float, uint16_t>& to) = 0;
  virtual void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
                     const AdamSource<float, uint16_t, uint16_t>& from,
                     const AdamTarget<float, uint16_t, uint16_t>& to) = 0;

  // Copies to host memory of allocate_host(), which throws as allocate(), beside later work. A copy
  // begins when all earlier work is done. Code that changes the memory calls after_downloads()
  // first, so the change happens after the copy. await_downloads(), on any thread, returns when the
  // begun copies have arrived.
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void release_host(void* memory) noexcept = 0;
  // Memory of the host that the device did not allocate may also be copied to, once it is locked:
  // page-locked, if the driver does it. Otherwise copies work, but not beside other work, and the
  // log says so. unlock_host() comes before the memory is unmapped.
  virtual void lock_host(void* memory, size_t bytes) = 0;
  virtual void unlock_host(void* memory) noexcept = 0;
  virtual void begin_download(const void* from, void* host, size_t bytes) = 0;
  virtual void after_downloads() = 0;
  virtual void await_downloads() = 0;
  // The same from there to the device. A copy begins when all given before is done, and the
  // downloads begun before; what uses the memory calls after_uploads() first. The host memory stays
  // as it is until then.
  virtual void begin_upload(const void* host, void* to, size_t bytes) = 0;
  virtual void after_uploads() = 0;

  // Between host and device memory; done on return.
  virtual void upload(const void* host, void* to, size_t bytes) = 0;
  virtual void download(const void* from, void* host, size_t bytes) = 0;

  // Whose buffers are this device's memory.
  virtual Result<std::unique_ptr<Communicator>> make_communicator(
      const CommunicatorOptions& options) = 0;

  // Most memory that this process has had, in bytes.
  virtual int64_t peak_memory_bytes() const = 0;
  // The labels of this device that the bits of a result depend on, for the environment of a
  // checkpoint.
  virtual std::map<std::string, std::string> environment() const = 0;
};

// The one and only.
Device& host_device();

// `count` values of memory on a device, or of its allocate_host().
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(Device& device, size_t count)
      : memory_(device.allocate(count * sizeof(T)), Release{&device, false}), count_(count) {}
  static DeviceArray on_host(Device& device, size_t count) {
    DeviceArray made;
    made.memory_ = {device.allocate_host(count * sizeof(T)), Release{&device, true}};
    made.count_ = count;
    return made;
  }

  T* data() const { return static_cast<T*>(memory_.get()); }
  size_t size() const { return count_; }

 private:
  struct Release {
    Device* device = nullptr;
    bool host = false;
    void operator()(void* memory) const {
      host ? device->release_host(memory) : device->release(memory);
    }
  };
  std::unique_ptr<void, Release> memory_;
  size_t count_ = 0;
};

// Bytes of allocate_host(), which grow and do not shrink.
class HostStaging {
 public:
  explicit HostStaging(Device& device) : device_(device) {}

  // At least so many bytes; what was there is lost when they grow.
  std::byte* reserve(size_t bytes) {
    if (bytes > memory_.size()) {
      memory_ = {};  // both at once may be too much
      memory_ = DeviceArray<std::byte>::on_host(device_, bytes);
    }
    return memory_.data();
  }
  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }

 private:
  Device& device_;
  DeviceArray<std::byte> memory_;
};

}  // namespace hpctl
