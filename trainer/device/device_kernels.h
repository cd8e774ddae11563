// SPDX-License-Identifier: Apache-2.0
// The kernels of trainer/kernels/device on this process's GPU: compiled by NVRTC for it, loaded by
// the driver, once. If either is missing there are none, and LibTorch's operations do the same in
// more passes over memory.
//
// A call begins a kernel on `stream` and returns; operands are on the GPU and stay until it is
// done. Of a pass, everything but `packed` and `shared` is the caller's to fill. A kernel that
// cannot be begun throws std::runtime_error. From any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/gpu/cuda_api.h"
#include "trainer/device/cuda_driver.h"
#include "trainer/device/device_program.h"
#include "trainer/kernels/device/passes.cuh"

namespace hpctl {

enum class Element { kFp32, kBf16, kFp16 };

// Bounds of errors, which tests check on the host and on a card (tests/gpu/kernel_cases.h).
//
// For a result or gradient of RMSNorm, SwiGLU, rotary positions and the cross entropy: the largest
// difference from the exact one of the same operands, relative to the largest number of that. In
// fp32 sums of fp32; in bf16 and fp16 half a unit in the last place of the largest number, because
// results in fp32 are rounded once.
constexpr double device_row_bound(Element type) {
  constexpr std::array<double, 3> kBounds = {2e-6, 3.95e-3, 4.95e-4};
  return kBounds[static_cast<size_t>(type)];
}
// For the sum of squares, relative to it: sums of fp64. AdamW has none: its bits are the host's.
inline constexpr double kSquaresBound = 1e-12;

class DeviceKernels {
 public:
  // The kernels of `types`, for a GPU of compute capability `major`.`minor`, whose context is the
  // calling thread's. Each type is compiled in a separate thread.
  static Result<DeviceKernels> load(int major, int minor, const std::vector<Element>& types);

  bool has(Element type) const { return functions_[0][static_cast<size_t>(type)] != nullptr; }

  // As DeviceImage::label.
  const std::string& label() const { return label_; }

  void rms_norm(Element type, device::RmsNorm pass, cuda::Stream stream) const;
  // The division of rows in a backward pass: RmsNormBackward::block_rows, and rows of partials.
  struct NormBlocks {
    int64_t block_rows;
    int64_t blocks;
  };
  static NormBlocks norm_blocks(int64_t rows, int64_t dim);
  void rms_norm_backward(Element type, device::RmsNormBackward pass, cuda::Stream stream) const;
  void sum_columns(Element type, device::SumColumns pass, cuda::Stream stream) const;
  void swiglu(Element type, device::Swiglu pass, cuda::Stream stream) const;
  void swiglu_backward(Element type, device::SwigluBackward pass, cuda::Stream stream) const;
  void rotary(Element type, device::Rotary pass, cuda::Stream stream) const;
  void log_sums(Element type, int64_t rows, device::LogSums pass, cuda::Stream stream) const;
  void losses(Element type, device::Losses pass, cuda::Stream stream) const;
  void cross_entropy_backward(Element type, int64_t rows, device::CrossEntropyBackward pass,
                              cuda::Stream stream) const;
  // `params` and `moments`: fp32 or bf16; the parameters are fp32 where the moments are.
  void adamw(Element params, Element moments, device::AdamW pass, cuda::Stream stream) const;
  // Blocks of the sum of squares of so many numbers, and so Squares::partials.
  static int64_t square_blocks(int64_t count);
  void squares(device::Squares pass, cuda::Stream stream) const;
  void sum_partials(device::SumPartials pass, cuda::Stream stream) const;

 private:
  enum Kernel {
    kRmsNormNarrow,
    kRmsNormWide,
    kRmsNormBackwardNarrow,
    kRmsNormBackwardWide,
    kSumColumns,
    kSwiglu,
    kSwigluBackward,
    kRotary,
    kLogSums,
    kLosses,
    kCrossEntropyBackward,
    kAdamW,
    kAdamWAll,
    kSquares,
    kSumPartials,
    kKernels
  };
  static constexpr int kElements = 3;

  explicit DeviceKernels(const cuda_driver::Api& driver) : driver_(&driver) {}
  static std::string name_of(int kernel, int element);
  Outcome load_module(const DeviceImage& image, Element type);
  void launch(Kernel kernel, Element element, int64_t blocks, int64_t shared_bytes,
              cuda::Stream stream, void* pass) const;

  const cuda_driver::Api* driver_;
  std::string label_;
  cuda_driver::Context context_ = nullptr;
  std::array<std::array<cuda_driver::Function, kElements>, kKernels> functions_{};
};

// For this process's GPU, which has this number and becomes the calling thread's. Null where there
// are none, and the log says why. Once. HPTRAIN_DEVICE_KERNELS=none in the environment leaves them
// out, so that the same job can be tried with and without.
const DeviceKernels* load_device_kernels(int device, const std::vector<Element>& types);
// What that gave; null before.
const DeviceKernels* device_kernels();

}  // namespace hpctl
