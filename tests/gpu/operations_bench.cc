// SPDX-License-Identifier: Apache-2.0
// Times what decision 1406 joined, beside the operations that it replaced, at the widths of Llama
// 3.2 1B and 8,192 tokens. run.sh builds and starts it.
//
//   operations_bench cuda|cpu
//
// Prints a line of JSON for each: {"what", "ms", "apart_ms"}. With `cpu` the program tries itself:
// small operands, and kernels behind the stubs (card.h). Exit codes: 0 all were timed, 1 one could
// not be computed or there are no kernels, 2 wrong usage.
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/card.h"
#include "trainer/arch/cuda_ops.h"
#include "trainer/arch/gradient_memory.h"
#include "trainer/arch/joined_projections.h"
#include "trainer/arch/ops.h"
#include "trainer/arch/wide_matmul.h"
#include "trainer/device/torch_device.h"
#include "trainer/optim/adamw.h"
#include "trainer/process/pin_environment.h"

namespace hpctl::testing {
namespace {

using at::Tensor;
using Work = std::function<void()>;

struct Sizes {
  int64_t tokens;
  int64_t dim;
  int64_t kv;
  int64_t ffn;
  int64_t parameters;
  int repetitions;
};
constexpr Sizes kOfCard = {8192, 2048, 512, 8192, int64_t{1} << 26, 50};
constexpr Sizes kOfHost = {16, 64, 32, 96, 4096, 1};

// Weights one behind the other, as in a block, and their gradients in fp32.
struct Layer {
  Layer(const at::TensorOptions& options, const std::vector<int64_t>& rows, int64_t width) {
    int64_t all = 0;
    for (const int64_t count : rows) all += count;
    const Tensor flat = at::randn({all, width}, options);
    sum = at::zeros({all, width}, options.dtype(at::kFloat));
    for (const Tensor& part : flat.split_with_sizes(rows)) {
      weights.push_back(part.detach().set_requires_grad(true));
    }
    attach(sum);
  }
  void attach(const Tensor& memory) {
    int64_t first = 0;
    for (Tensor& weight : weights) {
      weight.mutable_grad() = memory.narrow(0, first, weight.size(0));
      first += weight.size(0);
    }
  }

  std::vector<Tensor> weights;
  Tensor sum;
};

class Bench {
 public:
  Bench(at::Device device, const DeviceKernels& kernels)
      : device_(device),
        kernels_(kernels),
        training_(device, &kernels),
        sizes_(device.is_cuda() ? kOfCard : kOfHost),
        add_(wide_product_of(device)) {}

  void run() {
    residual_norm();
    projections("q, k and v", {sizes_.dim, sizes_.kv, sizes_.kv}, false);
    projections("q, k and v with biases", {sizes_.dim, sizes_.kv, sizes_.kv}, true);
    projections("gate and up", {sizes_.ffn, sizes_.ffn}, false);
    if (add_ != nullptr) first_gradient();
    adamw();
  }

 private:
  at::TensorOptions bf16() const { return at::TensorOptions(at::kBFloat16).device(device_); }
  Tensor random(at::IntArrayRef shape) const { return at::randn(shape, bf16()); }

  void settle() const {
    if (!device_.is_cuda()) return;
    c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device_).synchronize();
  }

  double milliseconds(const Work& work) const {
    using Clock = std::chrono::steady_clock;
    for (int warm = 0; warm < 3; ++warm) work();
    settle();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < sizes_.repetitions; ++i) work();
    settle();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() /
           sizes_.repetitions;
  }

  void compare(const std::string& what, const Work& joined, const Work& apart) const {
    std::cout << R"({"what": ")" << what << R"(", "ms": )" << milliseconds(joined)
              << R"(, "apart_ms": )" << milliseconds(apart) << "}" << std::endl;
  }

  void residual_norm() const {
    Tensor x = random({sizes_.tokens, sizes_.dim}).requires_grad_();
    Tensor addend = random({sizes_.tokens, sizes_.dim}).requires_grad_();
    Tensor weight = random({sizes_.dim}).requires_grad_();
    const Tensor gradient = random({sizes_.tokens, sizes_.dim});
    const auto backward = [&](const ResidualNorm& both) {
      torch::autograd::backward({both.residual, both.normed}, {gradient, gradient});
      for (Tensor* leaf : {&x, &addend, &weight}) leaf->mutable_grad() = Tensor();
    };
    compare(
        "residual stream and RMSNorm, forward and backward",
        [&] { backward(on_device::residual_rms_norm(kernels_, x, addend, weight, 1e-5)); },
        [&] {
          const Tensor sum = x + addend;
          backward({sum, on_device::rms_norm(kernels_, sum, weight, 1e-5)});
        });
  }

  // With biases the weights lie apart.
  void projections(const std::string& what, const std::vector<int64_t>& rows, bool biased) const {
    Layer layer(bf16(), rows, sizes_.dim);
    std::vector<Tensor> biases(rows.size());
    for (size_t i = 0; biased && i < rows.size(); ++i) {
      const Tensor attached = layer.weights[i].grad();
      layer.weights[i] = layer.weights[i].detach().clone().set_requires_grad(true);
      layer.weights[i].mutable_grad() = attached.clone();
      biases[i] = random({rows[i]}).requires_grad_();
    }
    Tensor x = random({sizes_.tokens, sizes_.dim}).requires_grad_();
    std::vector<Tensor> gradients;
    for (const int64_t width : rows) gradients.push_back(random({sizes_.tokens, width}));
    const auto backward = [&](const std::vector<Tensor>& results) {
      torch::autograd::backward(results, gradients);
      x.mutable_grad() = Tensor();
      for (const Tensor& bias : biases) {
        if (bias.defined()) bias.mutable_grad() = Tensor();
      }
    };
    compare(
        what + ", forward and backward",
        [&] { backward(joined_projections(x, layer.weights, biases, add_)); },
        [&] {
          std::vector<Tensor> results;
          for (size_t i = 0; i < rows.size(); ++i) {
            results.push_back(ops::linear(x, layer.weights[i], biases[i]));
          }
          backward(results);
        });
  }

  void first_gradient() const {
    Layer layer(bf16(), {sizes_.ffn}, sizes_.dim);
    const Tensor& memory = layer.sum;
    const Tensor x = random({sizes_.tokens, sizes_.dim});
    const Tensor gradient = random({sizes_.tokens, sizes_.ffn});
    const auto backward = [&] {
      compat::backward(wide_projection(x, layer.weights[0], {}, true, add_), gradient);
    };
    compare(
        "first gradient of a weight, with the product forward",
        [&] {
          layer.attach(gradient_over(memory.data_ptr<float>(), memory.numel(), device_.str(),
                                     {{0, memory.numel()}})
                           .view(memory.sizes()));
          backward();
        },
        [&] {
          memory.zero_();
          layer.attach(memory);
          backward();
        });
  }

  void adamw() {
    const auto count = static_cast<size_t>(sizes_.parameters);
    const DeviceArray<float> param(training_, count);
    const DeviceArray<float> exp_avg(training_, count);
    const DeviceArray<float> exp_avg_sq(training_, count);
    const DeviceArray<float> gradient(training_, count);
    const DeviceArray<uint16_t> rounded(training_, count);
    for (const DeviceArray<float>* const array : {&param, &exp_avg, &exp_avg_sq, &gradient}) {
      training_.zero(array->data(), sizes_.parameters);
    }
    const AdamStep step(OptimizerSpec{}, 1, 1e-3, 1.0);
    const AdamSource<float> from = {param.data(), exp_avg.data(), exp_avg_sq.data(),
                                    gradient.data()};
    const AdamTarget<float> to = {param.data(), exp_avg.data(), exp_avg_sq.data()};
    AdamTarget<float> and_rounded = to;
    and_rounded.rounded = rounded.data();
    Device& device = training_;
    compare(
        "AdamW with the weights in bf16, beside one rounding of them",
        [&] { device.adamw(step, true, sizes_.parameters, from, and_rounded); },
        [&] {
          device.adamw(step, true, sizes_.parameters, from, to);
          device.round_to_bf16(param.data(), rounded.data(), sizes_.parameters);
        });
  }

  at::Device device_;
  const DeviceKernels& kernels_;
  TorchDevice training_;  // its stream is LibTorch's from here on
  Sizes sizes_;
  AddWideProduct* add_;
};

int main_with(std::string_view where) {
  const at::Device device = where == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const DeviceKernels* const kernels = kernels_on(device);
  if (kernels == nullptr) return 1;
  at::manual_seed(1);
  Bench(device, *kernels).run();
  return 0;
}

}  // namespace
}  // namespace hpctl::testing

int main(int count, char** arguments) {
  const std::string_view where = count == 2 ? arguments[1] : "";
  if (where != "cuda" && where != "cpu") {
    std::cerr << "usage: operations_bench cuda|cpu" << std::endl;
    return 2;
  }
  hpctl::pin_environment();  // cuBLAS has one order of sums, as in hptrain
  try {
    return hpctl::testing::main_with(where);
  } catch (const std::exception& error) {
    std::cout << "FAILED " << hpctl::testing::text_of(error) << std::endl;
    return 1;
  }
}
