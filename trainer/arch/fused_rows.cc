// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/fused_rows.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/arch/device_rows.h"
#include "trainer/arch/model.h"
#include "trainer/device/device_kernels.h"
#include "trainer/kernels/rows.h"

namespace hpctl {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Rows whose sum is one addend of a weight's gradient, whatever the number of threads.
constexpr int64_t kRowsOfSum = 256;
// Elements that are worth a thread.
constexpr int64_t kElementsOfThread = 32768;

// work(T{}), T the type of x, which is wide.
template <typename Work>
auto with_type(const Tensor& x, const Work& work) {
  return x.scalar_type() == at::kDouble ? work(double{}) : work(float{});
}

template <typename Work>
void for_rows(int64_t rows, int64_t width, const Work& work) {
  at::parallel_for(0, rows, std::max<int64_t>(1, kElementsOfThread / width), work);
}

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& operand,
                        const Tensor& narrow_weight, double eps) {
    const Tensor narrow = operand.contiguous();
    const Tensor x = widened(narrow);
    const Tensor weight = widened(narrow_weight);
    const int64_t dim = x.size(-1);
    const int64_t rows = x.numel() / dim;
    const Tensor y = at::empty(x.sizes(), x.options());
    const Tensor inverse_rms = at::empty({rows}, x.options());
    with_type(x, [&]<typename T>(T) {
      const RmsNormForward<T> pass = {dim,
                                      eps,
                                      x.data_ptr<T>(),
                                      weight.data_ptr<T>(),
                                      y.data_ptr<T>(),
                                      inverse_rms.data_ptr<T>()};
      for_rows(rows, dim,
               [&](int64_t begin, int64_t end) { row_kernels<T>().rms_norm(pass, begin, end); });
    });
    context->save_for_backward({narrow, narrow_weight, inverse_rms});
    return y.to(narrow.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::ScalarType type = saved[0].scalar_type();
    const Tensor x = widened(saved[0]);
    const Tensor weight = widened(saved[1]);
    const Tensor gradient = widened(gradients[0]).contiguous();
    const int64_t dim = x.size(-1);
    const int64_t rows = x.numel() / dim;
    const int64_t chunks = (rows + kRowsOfSum - 1) / kRowsOfSum;
    const Tensor x_gradient = at::empty(x.sizes(), x.options());
    const Tensor sums = at::zeros({chunks, dim}, x.options());
    with_type(x, [&]<typename T>(T) {
      at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t end) {
        for (int64_t chunk = first; chunk < end; ++chunk) {
          const RmsNormBackward<T> pass = {dim,
                                           x.data_ptr<T>(),
                                           weight.data_ptr<T>(),
                                           saved[2].data_ptr<T>(),
                                           gradient.data_ptr<T>(),
                                           x_gradient.data_ptr<T>(),
                                           sums.data_ptr<T>() + chunk * dim};
          row_kernels<T>().rms_norm_backward(pass, chunk * kRowsOfSum,
                                             std::min(rows, (chunk + 1) * kRowsOfSum));
        }
      });
    });
    Tensor weight_gradient = sums[0];
    for (int64_t chunk = 1; chunk < chunks; ++chunk) weight_gradient.add_(sums[chunk]);
    return {x_gradient.to(type), weight_gradient.to(type), Tensor()};
  }
};

struct Swiglu : Function<Swiglu> {
  static Tensor forward(AutogradContext* context, const Tensor& gate_operand,
                        const Tensor& up_operand) {
    const variable_list narrow = {gate_operand.contiguous(), up_operand.contiguous()};
    const Tensor gate = widened(narrow[0]);
    const Tensor up = widened(narrow[1]);
    const Tensor y = at::empty(gate.sizes(), gate.options());
    with_type(gate, [&]<typename T>(T) {
      const SwigluForward<T> pass = {gate.data_ptr<T>(), up.data_ptr<T>(), y.data_ptr<T>()};
      for_rows(gate.numel(), 1,
               [&](int64_t begin, int64_t end) { row_kernels<T>().swiglu(pass, begin, end); });
    });
    context->save_for_backward(narrow);
    return y.to(narrow[0].scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::ScalarType type = saved[0].scalar_type();
    const Tensor gate = widened(saved[0]);
    const Tensor up = widened(saved[1]);
    const Tensor gradient = widened(gradients[0]).contiguous();
    const Tensor gate_gradient = at::empty(gate.sizes(), gate.options());
    const Tensor up_gradient = at::empty(gate.sizes(), gate.options());
    with_type(gate, [&]<typename T>(T) {
      const SwigluBackward<T> pass = {gate.data_ptr<T>(), up.data_ptr<T>(), gradient.data_ptr<T>(),
                                      gate_gradient.data_ptr<T>(), up_gradient.data_ptr<T>()};
      for_rows(gate.numel(), 1, [&](int64_t begin, int64_t end) {
        row_kernels<T>().swiglu_backward(pass, begin, end);
      });
    });
    return {gate_gradient.to(type), up_gradient.to(type)};
  }
};

struct CrossEntropy : Function<CrossEntropy> {
  static variable_list forward(AutogradContext* context, const Tensor& operand,
                               const Tensor& labels, double z_loss) {
    const Tensor logits = operand.contiguous();
    const Tensor targets = labels.contiguous();
    const int64_t rows = logits.size(0);
    const int64_t vocab = logits.size(1);
    const Tensor log_sums = at::empty({rows}, logits.options());
    double entropy = 0;
    double squares = 0;
    with_type(logits, [&]<typename T>(T) {
      const LogSums<T> pass = {vocab, logits.data_ptr<T>(), log_sums.data_ptr<T>()};
      for_rows(rows, vocab,
               [&](int64_t begin, int64_t end) { row_kernels<T>().log_sums(pass, begin, end); });
      const int64_t* target = targets.data_ptr<int64_t>();
      for (int64_t row = 0; row < rows; ++row) {
        if (target[row] < 0) continue;
        TORCH_CHECK(target[row] < vocab, "target ", target[row], " of ", vocab, " words");
        const double log_sum = pass.log_sums[row];
        entropy += log_sum - pass.logits[row * vocab + target[row]];
        squares += log_sum * log_sum;
      }
    });
    context->save_for_backward({logits, targets, log_sums});
    context->saved_data["z_loss"] = z_loss;
    const Tensor reported = at::full({}, entropy, logits.options());
    context->mark_non_differentiable({reported});
    return {reported, at::full({}, entropy + z_loss * squares, logits.options())};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& logits = saved[0];
    const int64_t vocab = logits.size(1);
    const double weight = with_type(logits, [&]<typename T>(T) {
      return static_cast<double>(*gradients[1].contiguous().data_ptr<T>());
    });
    const Tensor slopes =
        saved[2] * (2 * context->saved_data["z_loss"].toDouble() * weight) * saved[1].ge(0);
    const Tensor gradient = at::empty(logits.sizes(), logits.options());
    with_type(logits, [&]<typename T>(T) {
      const CrossEntropyBackward<T> pass = {vocab,
                                            logits.data_ptr<T>(),
                                            saved[2].data_ptr<T>(),
                                            saved[1].data_ptr<int64_t>(),
                                            static_cast<T>(weight),
                                            slopes.data_ptr<T>(),
                                            gradient.data_ptr<T>()};
      for_rows(logits.size(0), vocab, [&](int64_t begin, int64_t end) {
        row_kernels<T>().cross_entropy_backward(pass, begin, end);
      });
    });
    return {gradient, Tensor(), Tensor()};
  }
};

}  // namespace

bool has_fused_rows(at::Device device, at::ScalarType type) {
  if (device.is_cpu()) return true;
  const DeviceKernels* const kernels = device.is_cuda() ? device_kernels() : nullptr;
  return kernels != nullptr && type != at::kDouble && kernels->has(on_device::element_of(type));
}

bool has_fused_loss(at::Device device, at::ScalarType type) {
  return has_fused_rows(device, type) && (device.is_cuda() || wide_type(type) == type);
}

Tensor fused_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  if (!x.is_cuda()) return RmsNorm::apply(x, weight, eps);
  return on_device::rms_norm(*device_kernels(), x, weight, eps);
}

Tensor fused_swiglu(const Tensor& gate, const Tensor& up) {
  if (!gate.is_cuda()) return Swiglu::apply(gate, up);
  return on_device::swiglu(*device_kernels(), gate, up);
}

FusedLoss fused_cross_entropy(const Tensor& logits, const Tensor& targets, double z_loss) {
  if (logits.is_cuda()) {
    return on_device::cross_entropy(*device_kernels(), logits, targets, z_loss);
  }
  const variable_list sums = CrossEntropy::apply(logits, targets, z_loss);
  return {sums[0], sums[1]};
}

}  // namespace hpctl
