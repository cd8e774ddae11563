// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "trainer/device/device.h"
#include "trainer/kernels/bf16_rounding.h"
#include "trainer/optim/grad_norm.h"

namespace hpctl {

namespace {

class HostDevice final : public Device {
 public:
  std::string name() const override { return "cpu"; }
  bool is_host() const override { return true; }
  std::string product() const override { return ""; }

  void* allocate(size_t bytes) override {
    void* made = std::aligned_alloc(64, std::max<size_t>(64, (bytes + 63) / 64 * 64));
    if (made == nullptr) throw std::bad_alloc();
    return made;
  }
  void release(void* memory) noexcept override { std::free(memory); }

  void zero(float* to, int64_t count) override { std::fill_n(to, count, 0.0F); }
  void copy(const float* from, float* to, int64_t count) override {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  }
  void add(const float* from, float* to, int64_t count) override {
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  }
  void round_to_bf16(const float* from, uint16_t* to, int64_t count) override {
    hpctl::round_to_bf16(from, to, count);
  }
  void round_to_fp16(const float* from, uint16_t* to, int64_t count) override {
    hpctl::round_to_fp16(from, to, count);
  }
  void sum_of_squares(const std::vector<std::span<const float>>& parts, double* to) override {
    *to = 0;
    for (const std::span<const float> part : parts) {
      *to += hpctl::sum_of_squares(part.data(), static_cast<int64_t>(part.size()));
    }
  }
  void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<float>& from,
             const AdamTarget<float>& to) override {
    hpctl::adamw(step, decayed, count, from, to);
    if (to.rounded != nullptr) round_to_bf16(to.param, to.rounded, count);
  }
  void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
             const AdamSource<float, uint16_t>& from,
             const AdamTarget<float, uint16_t>& to) override {
    hpctl::adamw(step, decayed, bits, count, from, to);
    if (to.rounded != nullptr) round_to_bf16(to.param, to.rounded, count);
  }
  void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
             const AdamSource<float, uint16_t, uint16_t>& from,
             const AdamTarget<float, uint16_t, uint16_t>& to) override {
    hpctl::adamw(step, decayed, bits, count, from, to);
  }

  void* allocate_host(size_t bytes) override { return allocate(bytes); }
  void release_host(void* memory) noexcept override { release(memory); }
  void lock_host(void* /*memory*/, size_t /*bytes*/) override {}
  void unlock_host(void* /*memory*/) noexcept override {}
  void begin_download(const void* from, void* host, size_t bytes) override {
    std::memcpy(host, from, bytes);
  }
  void after_downloads() override {}
  void await_downloads() override {}
  void begin_upload(const void* host, void* to, size_t bytes) override {
    std::memcpy(to, host, bytes);
  }
  void after_uploads() override {}
  void upload(const void* host, void* to, size_t bytes) override { std::memcpy(to, host, bytes); }
  void download(const void* from, void* host, size_t bytes) override {
    std::memcpy(host, from, bytes);
  }

  Result<std::unique_ptr<Communicator>> make_communicator(
      const CommunicatorOptions& options) override {
    return hpctl::make_communicator(options);
  }

  // getrusage counts in KiB.
  int64_t peak_memory_bytes() const override {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return int64_t{usage.ru_maxrss} * 1024;
  }
  std::map<std::string, std::string> environment() const override { return {}; }
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace hpctl
