// SPDX-License-Identifier: Apache-2.0
// A device whose memory and arithmetic are LibTorch's: a GPU, or, for tests of exactly this code,
// the CPU.
//
// Streams. Computation is on our own stream, which is made LibTorch's current one for the
// constructor's thread, the step loop's. All work of this class is on it, in the order of the
// calls. The default stream would wait for every other library's work on it, and cannot be recorded
// as a graph. Collectives are on the NCCL communicator's stream, of the highest priority: one
// begins when the earlier work of the compute stream is done, and the compute stream waits for it
// at its Collective::wait() (nccl_communicator.h). Copies of the state to host memory
// (trainer/state/host_copies.h) are on a third stream; the next change of the state waits for them.
// Data from host memory (memory.offload) are on a fourth.
//
// Hence the engine's order of calls is the schedule. The gather of block i+1 is begun before block
// i computes and awaited after it, so it runs beside it, and a buffer that is taken again is first
// written after its last use. Nothing here needs record_stream. The host waits for the GPU once a
// step, in FullySharded::finish_step(), and once an evaluation. docs/decisions/1402-device.md,
// 1404-gpu-hot-path.md.
//
// AdamW and the sum of squares are our own kernels if there are any (device_kernels.h), else
// LibTorch's operations.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/compat/torch_compat.h"
#include "trainer/device/device.h"
#include "trainer/device/device_kernels.h"

namespace hpctl {

class TorchDevice : public Device {
 public:
  // Makes it the calling thread's device. A GPU computes as `gpu` says from here on, as far as that
  // is LibTorch's. `kernels`: not owned; null where there are none.
  explicit TorchDevice(at::Device device, const DeviceKernels* kernels = nullptr,
                       const GpuSpec& gpu = {});

  std::string name() const override { return device_.str(); }
  bool is_host() const override { return false; }
  std::string product() const override;
  void* allocate(size_t bytes) override;
  void release(void* memory) noexcept override { tensors_.erase(memory); }
  void zero(float* to, int64_t count) override;
  void copy(const float* from, float* to, int64_t count) override;
  void add(const float* from, float* to, int64_t count) override;
  void round_to_bf16(const float* from, uint16_t* to, int64_t count) override;
  void round_to_fp16(const float* from, uint16_t* to, int64_t count) override;
  void sum_of_squares(const std::vector<std::span<const float>>& parts, double* to) override;
  void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<float>& from,
             const AdamTarget<float>& to) override;
  void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
             const AdamSource<float, uint16_t>& from,
             const AdamTarget<float, uint16_t>& to) override;
  void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
             const AdamSource<float, uint16_t, uint16_t>& from,
             const AdamTarget<float, uint16_t, uint16_t>& to) override;
  void* allocate_host(size_t bytes) override;
  void release_host(void* memory) noexcept override;
  void lock_host(void* memory, size_t bytes) override;
  void unlock_host(void* memory) noexcept override;
  void begin_download(const void* from, void* host, size_t bytes) override;
  void after_downloads() override;
  void await_downloads() override;
  void begin_upload(const void* host, void* to, size_t bytes) override;
  void after_uploads() override;
  void upload(const void* host, void* to, size_t bytes) override;
  void download(const void* from, void* host, size_t bytes) override;
  Result<std::unique_ptr<Communicator>> make_communicator(
      const CommunicatorOptions& options) override;
  int64_t peak_memory_bytes() const override;
  std::map<std::string, std::string> environment() const override;

 private:
  at::Tensor view(const void* memory, int64_t count, at::ScalarType type) const;
  // On a GPU: what `then` is given from here on comes behind what `first` was given so far.
  void wait_for(const c10::Stream& first, const c10::Stream& then) const;
  template <typename M, typename P>
  void adamw_by_kernel(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
                       const AdamSource<float, M, P>& from,
                       const AdamTarget<float, M, P>& to) const;
  template <typename M, typename P>
  void adamw_by_operations(const AdamStep& step, bool decayed, const RandomBits& bits,
                           int64_t count, const AdamSource<float, M, P>& from,
                           const AdamTarget<float, M, P>& to) const;
  // In fp32, by LibTorch's own kernel where it has one.
  void adamw_by_libtorch(const AdamStep& step, bool decayed, int64_t count,
                         const AdamSource<float>& from, const AdamTarget<float>& to);
  void make_streams();

  at::Device device_;
  const DeviceKernels* kernels_;
  cuda::Stream compute_ = nullptr;  // stays until the process ends; null: LibTorch's default one
  std::optional<c10::Stream> computation_;    // of a GPU
  mutable at::Tensor partials_;               // of the sum of squares
  std::map<void*, at::Tensor> tensors_;       // allocate()'s
  std::map<void*, at::Tensor> host_tensors_;  // allocate_host()'s of LibTorch
  std::set<void*> locked_;                    // by lock_host(), page-locked
  std::optional<c10::Stream> downloads_;      // of a GPU
  std::optional<c10::Stream> uploads_;        // of a GPU
  mutable int64_t peak_memory_ = 0;
  // Scalars on the GPU for the fused AdamW, the same for all parts of one step.
  at::Tensor number_;
  at::Tensor inverse_scale_;
  double number_value_ = 0;
  double scale_value_ = 0;
};

// Sets how a GPU computes, for the whole process; TorchDevice calls it for a GPU.
void tell_libtorch(const GpuSpec& gpu);

// The GPU of the worker with this number on its node where LibTorch was built for GPUs, else
// host_device(). `train` tells which kernels it needs. Lives as long as the process. kInternal
// where LibTorch sees fewer GPUs than it should: training on the CPU instead would look like a very
// slow node.
Result<Device*> open_device(int local_rank, const TrainSpec& train);

}  // namespace hpctl
