// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/fused_ops.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/arch/cuda_ops.h"
#include "trainer/arch/element_data.h"
#include "trainer/arch/logits_gradient.h"
#include "trainer/arch/model.h"
#include "trainer/device/device_kernels.h"
#include "trainer/kernels/bf16.h"
#include "trainer/kernels/rowwise.h"

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

// work(T{}, S{}): the type in which rows like x are computed, and that in memory (rowwise.h).
template <typename Work>
auto with_types(const Tensor& x, const Work& work) {
  if (x.scalar_type() == at::kDouble) return work(double{}, double{});
  return x.scalar_type() == at::kBFloat16 ? work(float{}, uint16_t{}) : work(float{}, float{});
}

template <typename Work>
void for_rows(int64_t rows, int64_t width, const Work& work) {
  at::parallel_for(0, rows, std::max<int64_t>(1, kElementsOfThread / width), work);
}

// The type that passes through memory: bf16 unchanged, otherwise the type of computation.
Tensor in_memory(const Tensor& x) { return x.scalar_type() == at::kBFloat16 ? x : widened(x); }

// One value of S, as the kernel sees it.
double value_of(double value) { return value; }
double value_of(uint16_t bf16) { return float_of_bf16(bf16); }

// Null where x is undefined.
template <typename T>
T* data_if_any(const Tensor& x) {
  return x.defined() ? data_of<T>(x) : nullptr;
}

// RMSNorm of x, or where `addend` and `sum` are defined of their sum, which it writes. All are
// in_memory() and contiguous.
struct Normed {
  Tensor y;
  Tensor inverse_rms;
};
Normed norm_rows(const Tensor& x, const Tensor& narrow_weight, double eps,
                 const Tensor& addend = {}, const Tensor& sum = {}) {
  const Tensor weight = widened(narrow_weight);
  const int64_t dim = x.size(-1);
  const int64_t rows = x.numel() / dim;
  Normed normed = {at::empty(x.sizes(), x.options()), at::empty({rows}, weight.options())};
  with_types(x, [&]<typename T, typename S>(T, S) {
    const RmsNormForward<T, S> pass = {dim,
                                       eps,
                                       data_of<S>(x),
                                       data_of<T>(weight),
                                       data_of<S>(normed.y),
                                       data_of<T>(normed.inverse_rms),
                                       data_if_any<S>(addend),
                                       data_if_any<S>(sum)};
    for_rows(rows, dim,
             [&](int64_t begin, int64_t end) { row_kernels<T, S>().rms_norm(pass, begin, end); });
  });
  return normed;
}

// Gradients of x and of the weight, of the type of x; `saved` are x, the weight and the inverse
// roots. `other`, if defined, is added to the gradient of x.
variable_list norm_gradients(const variable_list& saved, const Tensor& y_gradient,
                             const Tensor& other = {}) {
  const at::ScalarType type = saved[0].scalar_type();
  const Tensor x = in_memory(saved[0]);
  const Tensor weight = widened(saved[1]);
  const Tensor gradient = in_memory(y_gradient).contiguous();
  const int64_t dim = x.size(-1);
  const int64_t rows = x.numel() / dim;
  const int64_t chunks = (rows + kRowsOfSum - 1) / kRowsOfSum;
  const Tensor x_gradient = at::empty(x.sizes(), x.options());
  const Tensor sums = at::zeros({chunks, dim}, weight.options());
  with_types(x, [&]<typename T, typename S>(T, S) {
    const auto add = [&](int64_t chunk) {
      const RmsNormBackward<T, S> pass = {dim,
                                          data_of<S>(x),
                                          data_of<T>(weight),
                                          data_of<T>(saved[2]),
                                          data_of<S>(gradient),
                                          data_of<S>(x_gradient),
                                          data_of<T>(sums) + chunk * dim,
                                          data_if_any<S>(other)};
      row_kernels<T, S>().rms_norm_backward(pass, chunk * kRowsOfSum,
                                            std::min(rows, (chunk + 1) * kRowsOfSum));
    };
    at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t end) {
      for (int64_t chunk = first; chunk < end; ++chunk) add(chunk);
    });
  });
  Tensor weight_gradient = sums[0];
  for (int64_t chunk = 1; chunk < chunks; ++chunk) weight_gradient.add_(sums[chunk]);
  return {x_gradient.to(type), weight_gradient.to(type)};
}

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& operand, const Tensor& weight,
                        double eps) {
    const Tensor x = operand.contiguous();
    const Normed normed = norm_rows(in_memory(x), weight, eps);
    context->save_for_backward({x, weight, normed.inverse_rms});
    return normed.y.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list results = norm_gradients(context->get_saved_variables(), gradients[0]);
    results.resize(3);
    return results;
  }
};

struct ResidualRmsNorm : Function<ResidualRmsNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& operand,
                               const Tensor& addend, const Tensor& weight, double eps) {
    const Tensor x = operand.contiguous();
    const bool adds = addend.numel() > 0;
    const Tensor residual = adds ? at::empty(x.sizes(), x.options()) : x;
    const Normed normed =
        adds ? norm_rows(x, weight, eps, addend.contiguous(), residual) : norm_rows(x, weight, eps);
    context->save_for_backward({residual, weight, normed.inverse_rms});
    context->saved_data["adds"] = adds;
    return {residual, normed.y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list results =
        norm_gradients(context->get_saved_variables(), gradients[1], gradients[0].contiguous());
    const bool adds = context->saved_data["adds"].toBool();
    return {results[0], adds ? results[0] : Tensor(), results[1], Tensor()};
  }
};

struct Swiglu : Function<Swiglu> {
  static Tensor forward(AutogradContext* context, const Tensor& gate_operand,
                        const Tensor& up_operand) {
    const variable_list narrow = {gate_operand.contiguous(), up_operand.contiguous()};
    const Tensor gate = in_memory(narrow[0]);
    const Tensor up = in_memory(narrow[1]);
    const Tensor y = at::empty(gate.sizes(), gate.options());
    with_types(gate, [&]<typename T, typename S>(T, S) {
      const SwigluForward<T, S> pass = {data_of<S>(gate), data_of<S>(up), data_of<S>(y)};
      for_rows(gate.numel(), 1,
               [&](int64_t begin, int64_t end) { row_kernels<T, S>().swiglu(pass, begin, end); });
    });
    context->save_for_backward(narrow);
    return y.to(narrow[0].scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::ScalarType type = saved[0].scalar_type();
    const Tensor gate = in_memory(saved[0]);
    const Tensor up = in_memory(saved[1]);
    const Tensor gradient = in_memory(gradients[0]).contiguous();
    const Tensor gate_gradient = at::empty(gate.sizes(), gate.options());
    const Tensor up_gradient = at::empty(gate.sizes(), gate.options());
    with_types(gate, [&]<typename T, typename S>(T, S) {
      const SwigluBackward<T, S> pass = {data_of<S>(gate), data_of<S>(up), data_of<S>(gradient),
                                         data_of<S>(gate_gradient), data_of<S>(up_gradient)};
      for_rows(gate.numel(), 1, [&](int64_t begin, int64_t end) {
        row_kernels<T, S>().swiglu_backward(pass, begin, end);
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
    const at::TensorOptions wide = logits.options().dtype(wide_type(logits.scalar_type()));
    const Tensor log_sums = at::empty({rows}, wide);
    double entropy = 0;
    double squares = 0;
    with_types(logits, [&]<typename T, typename S>(T, S) {
      const LogSums<T, S> pass = {vocab, data_of<S>(logits), data_of<T>(log_sums)};
      for_rows(rows, vocab,
               [&](int64_t begin, int64_t end) { row_kernels<T, S>().log_sums(pass, begin, end); });
      const int64_t* target = targets.data_ptr<int64_t>();
      for (int64_t row = 0; row < rows; ++row) {
        if (target[row] < 0) continue;
        TORCH_CHECK(target[row] < vocab, "target ", target[row], " of ", vocab, " words");
        const double log_sum = pass.log_sums[row];
        entropy += log_sum - value_of(pass.logits[row * vocab + target[row]]);
        squares += log_sum * log_sum;
      }
    });
    context->save_for_backward({logits, targets, log_sums});
    keep_whether_spent(context, logits);
    context->saved_data["z_loss"] = z_loss;
    const Tensor reported = at::full({}, entropy, wide);
    context->mark_non_differentiable({reported});
    return {reported, at::full({}, entropy + z_loss * squares, wide)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& logits = saved[0];
    const int64_t vocab = logits.size(1);
    const Tensor gradient = gradient_of_logits(context, logits);
    with_types(logits, [&]<typename T, typename S>(T, S) {
      const double weight = *gradients[1].contiguous().data_ptr<T>();
      const double z_slope = 2 * context->saved_data["z_loss"].toDouble() * weight;
      const Tensor slopes = saved[2] * z_slope * saved[1].ge(0);
      const CrossEntropyBackward<T, S> pass = {vocab,
                                               data_of<S>(logits),
                                               data_of<T>(saved[2]),
                                               saved[1].data_ptr<int64_t>(),
                                               static_cast<T>(weight),
                                               data_of<T>(slopes),
                                               data_of<S>(gradient)};
      for_rows(logits.size(0), vocab, [&](int64_t begin, int64_t end) {
        row_kernels<T, S>().cross_entropy_backward(pass, begin, end);
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
  return has_fused_rows(device, type) && (device.is_cuda() || type != at::kHalf);
}

Tensor fused_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  if (!x.is_cuda()) return RmsNorm::apply(x, weight, eps);
  return on_device::rms_norm(*device_kernels(), x, weight, eps);
}

ResidualNorm fused_residual_rms_norm(const Tensor& x, const Tensor& addend, const Tensor& weight,
                                     double eps) {
  if (x.is_cuda()) return on_device::residual_rms_norm(*device_kernels(), x, addend, weight, eps);
  if (x.scalar_type() == at::kHalf) {
    const Tensor residual = addend.defined() ? x + addend : x;
    return {residual, fused_rms_norm(residual, weight, eps)};
  }
  const Tensor added = addend.defined() ? addend : x.detach().new_empty({0});
  const variable_list both = ResidualRmsNorm::apply(x, added, weight, eps);
  return {both[0], both[1]};
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
