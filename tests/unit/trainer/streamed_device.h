// SPDX-License-Identifier: Apache-2.0
// A GPU whose copies to host memory are on a stream of the stub of the CUDA runtime (a thread),
// each in parts. A test may stop there before and after every part. Arithmetic is the host's, so
// the bits are, too; it comes behind what the compute stream waits for.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/gpu/cuda_api.h"
#include "trainer/device/device.h"

// The stub's.
extern "C" int cudaStreamSynchronize(void* stream);
extern "C" int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data);

namespace hpctl::test {

class StreamedDevice final : public Device {
 public:
  static constexpr int kParts = 4;  // of a download

  StreamedDevice() : cuda_(**cuda::load()) {
    for (cuda::Stream* stream : {&compute_, &side_}) done(cuda_.stream_create(stream, 0));
  }
  ~StreamedDevice() override {
    for (cuda::Stream stream : {compute_, side_}) done(cuda_.stream_destroy(stream));
  }

  // Called on the side stream's thread: the download's number, from 1 on, and the part that comes
  // next, kParts behind the last.
  std::function<void(int download, int part)> at_part = [](int, int) {};
  // Called in await_downloads(), by the thread that waits: before and after it.
  std::function<void()> before_waiting = [] {};
  std::function<void()> after_waiting = [] {};

  int downloads() const { return downloads_; }
  size_t downloaded_bytes() const { return downloaded_bytes_; }
  int uploads() const { return uploads_; }
  bool has_locked() const { return !locked_.empty(); }

  std::string name() const override { return "cuda:0"; }
  bool is_host() const override { return false; }
  std::string product() const override { return ""; }
  void* allocate(size_t bytes) override { return host_device().allocate(bytes); }
  void release(void* memory) noexcept override { host_device().release(memory); }
  void zero(float* to, int64_t count) override {
    compute();
    host_device().zero(to, count);
  }
  void copy(const float* from, float* to, int64_t count) override {
    compute();
    host_device().copy(from, to, count);
  }
  void add(const float* from, float* to, int64_t count) override {
    compute();
    host_device().add(from, to, count);
  }
  void round_to_bf16(const float* from, uint16_t* to, int64_t count) override {
    compute();
    host_device().round_to_bf16(from, to, count);
  }
  void round_to_fp16(const float* from, uint16_t* to, int64_t count) override {
    compute();
    host_device().round_to_fp16(from, to, count);
  }
  void sum_of_squares(const std::vector<std::span<const float>>& parts, double* to) override {
    compute();
    host_device().sum_of_squares(parts, to);
  }
  void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<float>& from,
             const AdamTarget<float>& to) override {
    compute();
    const Former<float, float> former(count, from);
    host_device().adamw(step, decayed, count, former.source, to);
  }
  void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
             const AdamSource<float, uint16_t>& from,
             const AdamTarget<float, uint16_t>& to) override {
    compute();
    const Former<uint16_t, float> former(count, from);
    host_device().adamw(step, decayed, bits, count, former.source, to);
  }
  void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
             const AdamSource<float, uint16_t, uint16_t>& from,
             const AdamTarget<float, uint16_t, uint16_t>& to) override {
    compute();
    const Former<uint16_t, uint16_t> former(count, from);
    host_device().adamw(step, decayed, bits, count, former.source, to);
  }

  void* allocate_host(size_t bytes) override { return allocate(bytes); }
  void release_host(void* memory) noexcept override { release(memory); }
  void lock_host(void* memory, size_t bytes) override {
    done(cuda::host_register_on(cuda_, 0, memory, bytes));
    locked_[static_cast<std::byte*>(memory)] = bytes;
  }
  void unlock_host(void* memory) noexcept override {
    done(cuda_.host_unregister(memory));
    locked_.erase(static_cast<std::byte*>(memory));
  }
  void begin_download(const void* from, void* host, size_t bytes) override {
    order(compute_, side_);
    ++downloads_;
    downloaded_bytes_ += bytes;
    for (int part = 0; part <= kParts; ++part) {
      tell(downloads_, part);
      if (part == kParts) break;
      const size_t begin = bytes * static_cast<size_t>(part) / kParts;
      const size_t end = bytes * static_cast<size_t>(part + 1) / kParts;
      done(cuda_.copy_async(static_cast<char*>(host) + begin,
                            static_cast<const char*>(from) + begin, end - begin, cuda::kCopyDefault,
                            side_));
    }
  }
  void after_downloads() override { order(side_, compute_); }
  void await_downloads() override {
    before_waiting();
    cudaStreamSynchronize(side_);
    after_waiting();
  }
  void begin_upload(const void* host, void* to, size_t bytes) override { upload(host, to, bytes); }
  void after_uploads() override {}
  void upload(const void* host, void* to, size_t bytes) override {
    compute();
    ++uploads_;
    std::memcpy(to, host, bytes);
  }
  void download(const void* from, void* host, size_t bytes) override {
    compute();
    std::memcpy(host, from, bytes);
  }
  Result<std::unique_ptr<Communicator>> make_communicator(
      const CommunicatorOptions& options) override {
    return hpctl::make_communicator(options);
  }
  int64_t peak_memory_bytes() const override { return 0; }
  std::map<std::string, std::string> environment() const override { return {}; }

 private:
  // The host's loops take no target that is their source.
  template <typename M, typename P>
  struct Former {
    Former(int64_t count, const AdamSource<float, M, P>& of)
        : param(of.param, of.param + count),
          exp_avg(of.exp_avg, of.exp_avg + count),
          exp_avg_sq(of.exp_avg_sq, of.exp_avg_sq + count),
          source{param.data(), exp_avg.data(), exp_avg_sq.data(), of.gradient} {}
    std::vector<P> param;
    std::vector<M> exp_avg;
    std::vector<M> exp_avg_sq;
    AdamSource<float, M, P> source;
  };

  void compute() { cudaStreamSynchronize(compute_); }
  static void done(cuda::Status status) { HP_CHECK(status == cuda::kSuccess); }
  void order(cuda::Stream first, cuda::Stream then) {
    cuda::Event event = nullptr;
    done(cuda_.event_create(&event, cuda::kEventDisableTiming));
    done(cuda_.event_record(event, first));
    done(cuda_.stream_wait_event(then, event, 0));
    done(cuda_.event_destroy(event));
  }
  void tell(int download, int part) {
    struct Call {
      StreamedDevice* device;
      int download;
      int part;
    };
    auto* call = std::make_unique<Call>(Call{this, download, part}).release();
    cudaLaunchHostFunc(
        side_,
        [](void* data) {
          const std::unique_ptr<Call> call(static_cast<Call*>(data));
          call->device->at_part(call->download, call->part);
        },
        call);
  }

  const cuda::Api& cuda_;
  cuda::Stream compute_ = nullptr;
  cuda::Stream side_ = nullptr;
  int downloads_ = 0;
  int uploads_ = 0;
  size_t downloaded_bytes_ = 0;
  std::map<std::byte*, size_t> locked_;
};

}  // namespace hpctl::test
