// SPDX-License-Identifier: Apache-2.0
// What the kernels of a GPU are held against: each operation of cuda_ops.h beside its definition
// by ATen in fp64 on the host, result and gradients, over shapes that take each way through the
// kernels; AdamW beside the host's; the sum of squares beside a plain loop; attention beside the
// CPU's in fp64. Without GoogleTest, because the same cases serve two programs: a unit test, which
// runs the kernels on the host behind stubs (cuda_ops_test.cc, device_kernels_test.cc), and
// kernels_check.cc, which runs them on a real card.
//
// All of it is used from one thread. Kernels outlive the cases that are made of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/compat/torch_compat.h"
#include "trainer/device/device_kernels.h"
#include "trainer/device/torch_device.h"

namespace hpctl::testing {

using Operands = std::vector<at::Tensor>;
// Several results make one row.
using Computation = std::function<at::Tensor(const Operands&)>;
// Does `work` several times, under conditions that must not change a bit of what it gives.
using Repeat = std::function<void(const std::function<void()>& work)>;

struct TypeBound {
  at::ScalarType type;
  double largest;
};

// An operation on `operands`, which are on the host; those that are floating are taken in each of
// the types of `bounds`, for the definition widened to fp64.
struct KernelCase {
  std::string what;
  Computation definition;
  Computation kernel;
  Operands operands;
  std::vector<TypeBound> bounds;
};

// Largest difference, in units of the largest expected number; not a number where one is.
double apart(const at::Tensor& found, const at::Tensor& expected);
// Those that are floating in this type.
Operands in_type(const Operands& operands, at::ScalarType type);
// The result, and the gradients of what is floating where that of the result is `gradient`.
Operands results_of(const Computation& computation, const Operands& operands,
                    const at::Tensor& gradient);

// A result or gradient of a case, where it came out.
struct Comparison {
  std::string what;   // operation, type, and 0 for the result or the number of the gradient
  double difference;  // as apart()
  double bound;
  bool right_type;
  bool same_bits;  // in every repetition

  bool passed() const { return difference < bound && right_type && same_bits; }
  // "swiglu of 7, BFloat16, 1: 0.0021 of 0.00395", and what is wrong besides.
  std::string text() const;
};
// The kernel's operands are copied to `device`.
std::vector<Comparison> compare(const KernelCase& one, at::Device device, const Repeat& repeat);

constexpr double kNormEpsilon = 1e-5;
constexpr double kZLoss = 0.01;

// By their definitions. x, weight; gate, up; logits, targets: entropy and objective.
at::Tensor defined_rms_norm(const Operands& x);
at::Tensor defined_swiglu(const Operands& x);
at::Tensor defined_losses(const Operands& x);
// `angle` [T, h / 2] fp64; positions as on_device::rotary(), or undefined. x: [B, T, heads, h]
Computation defined_rotary(const at::Tensor& angle, const at::Tensor& positions);

// Random ones, of the same numbers each time.
Operands norm_operands(int64_t rows, int64_t dim);
Operands swiglu_operands(int64_t count);
Operands loss_operands(int64_t rows, int64_t vocab);

// Rows of a warp and of a block, of whole packs and not, the longest without room in shared memory;
// and more rows than blocks, so that a warp or block has several.
std::vector<KernelCase> norm_cases(const DeviceKernels& kernels);
// What is wrong; nothing where all is well. A residual stream that is added and normed by one
// kernel has the bits of an addition and of a norm by two, forward and backward.
std::vector<std::string> residual_norm_problems(const DeviceKernels& kernels, at::Device device,
                                                const Repeat& repeat);
std::vector<KernelCase> swiglu_cases(const DeviceKernels& kernels);
std::vector<KernelCase> loss_cases(const DeviceKernels& kernels);
// By the number of the token, and by positions that begin again with each document.
std::vector<KernelCase> rotary_cases(const DeviceKernels& kernels);
// By weights that follow one another and by others, as one product.
std::vector<KernelCase> projection_cases(at::Device device);
// As the models call it: whole sequences, documents, windows; key heads for each query head and for
// groups. The definition is the CPU's attention in fp64.
std::vector<KernelCase> attention_cases(at::Device device);

// What is wrong; nothing where all is well. AdamW has the bits of optim/adamw.cc, with moments in
// fp32 and in bf16, where operands can be loaded at once and where not; and the host's weights in
// bf16 beside parameters in fp32.
std::vector<std::string> adamw_problems(TorchDevice& device, const Repeat& repeat);
// The sum of squares is that of a loop to kSquaresBound, and the same bits wherever it lies.
std::vector<std::string> squares_problems(TorchDevice& device, const Repeat& repeat);
// Gradients of weights in bf16, added in fp32 over two micro-batches as LibTorch does it on this
// device, to zeros and in unwritten memory (gradient_memory.h), are those of the CPU in fp64 to
// product_error(), and the same bits again. Nothing is tried where LibTorch has no such products.
std::vector<std::string> weight_gradient_problems(at::Device device);

}  // namespace hpctl::testing
