// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/cuda_ops.h"

#include <torch/csrc/autograd/custom_function.h>

#include "common/base/check.h"
#include "trainer/arch/logits_gradient.h"

namespace hpctl::on_device {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

Element element_of(const Tensor& x) { return on_device::element_of(x.scalar_type()); }

cuda::Stream stream_of(const Tensor& x) { return compat::current_stream(x.device()); }

at::TensorOptions fp32_like(const Tensor& x) { return x.options().dtype(at::kFloat); }

void keep(AutogradContext* context, const DeviceKernels* kernels) {
  context->saved_data["kernels"] = reinterpret_cast<int64_t>(kernels);
}
const DeviceKernels& kept(AutogradContext* context) {
  return *reinterpret_cast<const DeviceKernels*>(context->saved_data["kernels"].toInt());
}

// Address of the first element; null where x is undefined.
void* data_if_any(const Tensor& x) { return x.defined() ? x.data_ptr() : nullptr; }

// RMSNorm of x, or where `addend` is defined, of `sum`, to which it writes x + addend. All are
// contiguous.
struct Normed {
  Tensor y;
  Tensor inverse_rms;
};
Normed norm_rows(const DeviceKernels& kernels, const Tensor& x, const Tensor& weight, double eps,
                 const Tensor& addend = {}, const Tensor& sum = {}) {
  const int64_t dim = x.size(-1);
  const int64_t rows = x.numel() / dim;
  Normed normed = {at::empty_like(x), at::empty({rows}, fp32_like(x))};
  kernels.rms_norm(element_of(x),
                   {.rows = rows,
                    .dim = dim,
                    .eps = static_cast<float>(eps),
                    .packed = 0,
                    .x = x.data_ptr(),
                    .weight = weight.data_ptr(),
                    .y = normed.y.data_ptr(),
                    .inverse_rms = normed.inverse_rms.data_ptr<float>(),
                    .addend = data_if_any(addend),
                    .sum = data_if_any(sum)},
                   stream_of(x));
  return normed;
}

// Gradients of x and of the weight; `saved` are x, the weight and the inverse roots. `other`, if
// defined, is added to the gradient of x.
variable_list norm_gradients(const DeviceKernels& kernels, const variable_list& saved,
                             const Tensor& y_gradient, const Tensor& other = {}) {
  const Tensor& x = saved[0];
  const Tensor& weight = saved[1];
  const Tensor gradient = y_gradient.contiguous();
  const Tensor other_gradient = other.defined() ? other.contiguous() : other;
  const int64_t dim = x.size(-1);
  const int64_t rows = x.numel() / dim;
  const DeviceKernels::NormBlocks blocks = DeviceKernels::norm_blocks(rows, dim);
  const Tensor x_gradient = at::empty_like(x);
  const Tensor weight_gradient = at::empty_like(weight);
  const Tensor partials = at::empty({blocks.blocks, dim}, fp32_like(x));
  kernels.rms_norm_backward(element_of(x),
                            {.rows = rows,
                             .dim = dim,
                             .block_rows = blocks.block_rows,
                             .packed = 0,
                             .shared = 0,
                             .x = x.data_ptr(),
                             .weight = weight.data_ptr(),
                             .inverse_rms = saved[2].data_ptr<float>(),
                             .y_gradient = gradient.data_ptr(),
                             .x_gradient = x_gradient.data_ptr(),
                             .partials = partials.data_ptr<float>(),
                             .other_gradient = data_if_any(other_gradient)},
                            stream_of(x));
  kernels.sum_columns(element_of(x),
                      {.rows = blocks.blocks,
                       .dim = dim,
                       .from = partials.data_ptr<float>(),
                       .to = weight_gradient.data_ptr()},
                      stream_of(x));
  return {x_gradient, weight_gradient};
}

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& operand, const Tensor& factors,
                        double eps, const DeviceKernels* kernels) {
    const Tensor x = operand.contiguous();
    const Tensor weight = factors.contiguous();
    const Normed normed = norm_rows(*kernels, x, weight, eps);
    context->save_for_backward({x, weight, normed.inverse_rms});
    keep(context, kernels);
    return normed.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list results =
        norm_gradients(kept(context), context->get_saved_variables(), gradients[0]);
    results.resize(4);
    return results;
  }
};

// `addend` is empty where there is none.
struct ResidualRmsNorm : Function<ResidualRmsNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& operand,
                               const Tensor& addend, const Tensor& factors, double eps,
                               const DeviceKernels* kernels) {
    const Tensor x = operand.contiguous();
    const Tensor weight = factors.contiguous();
    const bool adds = addend.numel() > 0;
    const Tensor residual = adds ? at::empty_like(x) : x;
    const Normed normed = adds ? norm_rows(*kernels, x, weight, eps, addend.contiguous(), residual)
                               : norm_rows(*kernels, x, weight, eps);
    context->save_for_backward({residual, weight, normed.inverse_rms});
    context->saved_data["adds"] = adds;
    keep(context, kernels);
    return {residual, normed.y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list results =
        norm_gradients(kept(context), context->get_saved_variables(), gradients[1], gradients[0]);
    const bool adds = context->saved_data["adds"].toBool();
    return {results[0], adds ? results[0] : Tensor(), results[1], Tensor(), Tensor()};
  }
};

// Elements between the beginnings of neighbouring rows of x, where each row, its last `dims`
// dimensions, is in one piece and all are equally far apart; otherwise 0.
int64_t row_stride(const Tensor& x, int64_t dims) {
  const int64_t outer = x.dim() - dims;
  int64_t width = 1;
  for (int64_t d = x.dim() - 1; d >= outer; --d) {
    if (x.size(d) != 1 && x.stride(d) != width) return 0;
    width *= x.size(d);
  }
  int64_t stride = width;  // of one row
  int64_t next = 0;        // the stride that the next dimension must have; 0: any
  for (int64_t d = outer - 1; d >= 0; --d) {
    if (x.size(d) == 1) continue;
    if (next == 0) stride = x.stride(d);
    if (next != 0 && x.stride(d) != next) return 0;
    next = x.stride(d) * x.size(d);
  }
  return stride >= width ? stride : 0;
}

// Gradients of two operands as these lie: where rows are twice as far apart as they are long, as
// columns of one array, which joined_projections.h need not copy together then.
variable_list gradients_like(const Tensor& x, int64_t stride) {
  const int64_t width = x.size(-1);
  if (stride != 2 * width)
    return {at::empty(x.sizes(), x.options()), at::empty(x.sizes(), x.options())};
  std::vector<int64_t> both = x.sizes().vec();
  both.back() = 2 * width;
  const Tensor whole = at::empty(both, x.options());
  return {whole.narrow(-1, 0, width), whole.narrow(-1, width, width)};
}

struct Swiglu : Function<Swiglu> {
  static Tensor forward(AutogradContext* context, const Tensor& gate_operand,
                        const Tensor& up_operand, const DeviceKernels* kernels) {
    const int64_t found = row_stride(gate_operand, 1);
    const bool alike = found > 0 && found == row_stride(up_operand, 1);
    const Tensor gate = alike ? gate_operand : gate_operand.contiguous();
    const Tensor up = alike ? up_operand : up_operand.contiguous();
    const Tensor y = at::empty(gate.sizes(), gate.options());
    kernels->swiglu(element_of(gate),
                    {.count = gate.numel(),
                     .width = gate.size(-1),
                     .stride = alike ? found : gate.size(-1),
                     .packed = 0,
                     .gate = gate.data_ptr(),
                     .up = up.data_ptr(),
                     .y = y.data_ptr()},
                    stream_of(gate));
    context->save_for_backward({gate, up});
    keep(context, kernels);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& gate = saved[0];
    const Tensor gradient = gradients[0].contiguous();
    const int64_t stride = row_stride(gate, 1);
    const variable_list made = gradients_like(gate, stride);
    kept(context).swiglu_backward(element_of(gate),
                                  {.count = gate.numel(),
                                   .width = gate.size(-1),
                                   .stride = stride,
                                   .gradient_stride = row_stride(made[0], 1),
                                   .packed = 0,
                                   .gate = gate.data_ptr(),
                                   .up = saved[1].data_ptr(),
                                   .y_gradient = gradient.data_ptr(),
                                   .gate_gradient = made[0].data_ptr(),
                                   .up_gradient = made[1].data_ptr()},
                                  stream_of(gate));
    return {made[0], made[1], Tensor()};
  }
};

// CUDA's long long is int64 by another name here.
const long long* numbers(const Tensor& x) {
  static_assert(sizeof(long long) == sizeof(int64_t));
  return x.defined() ? static_cast<const long long*>(x.data_ptr()) : nullptr;
}

struct CrossEntropy : Function<CrossEntropy> {
  static variable_list forward(AutogradContext* context, const Tensor& operand,
                               const Tensor& labels, double z_loss, const DeviceKernels* kernels) {
    const Tensor logits = operand.contiguous();
    const Tensor targets = labels.contiguous();
    const int64_t rows = logits.size(0);
    const int64_t vocab = logits.size(1);
    const Element type = element_of(logits);
    const Tensor log_sums = at::empty({rows}, fp32_like(logits));
    const Tensor entropy = at::empty({}, fp32_like(logits));
    const Tensor objective = at::empty({}, fp32_like(logits));
    const auto stream = stream_of(logits);
    kernels->log_sums(type, rows,
                      {.vocab = vocab,
                       .packed = 0,
                       .logits = logits.data_ptr(),
                       .log_sums = log_sums.data_ptr<float>()},
                      stream);
    kernels->losses(type,
                    {.rows = rows,
                     .vocab = vocab,
                     .z_loss = z_loss,
                     .logits = logits.data_ptr(),
                     .log_sums = log_sums.data_ptr<float>(),
                     .targets = numbers(targets),
                     .entropy = entropy.data_ptr<float>(),
                     .objective = objective.data_ptr<float>()},
                    stream);
    context->save_for_backward({logits, targets, log_sums});
    keep_whether_spent(context, logits);
    context->saved_data["z_loss"] = z_loss;
    keep(context, kernels);
    context->mark_non_differentiable({entropy});
    return {entropy, objective};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& logits = saved[0];
    const Tensor weight = gradients[1].contiguous();
    const Tensor gradient = gradient_of_logits(context, logits);
    kept(context).cross_entropy_backward(
        element_of(logits), logits.size(0),
        {.vocab = logits.size(1),
         .packed = 0,
         .z_loss = static_cast<float>(context->saved_data["z_loss"].toDouble()),
         .logits = logits.data_ptr(),
         .log_sums = saved[2].data_ptr<float>(),
         .targets = numbers(saved[1]),
         .weight = weight.data_ptr<float>(),
         .logits_gradient = gradient.data_ptr()},
        stream_of(logits));
    return {gradient, Tensor(), Tensor(), Tensor()};
  }
};

struct Angles {
  Tensor cos;
  Tensor sin;
  Tensor positions;
};

// The gradient is turned back.
Tensor turned(const DeviceKernels& kernels, const Tensor& operand, const Angles& angles,
              float sign) {
  const Tensor x = row_stride(operand, 2) > 0 ? operand : operand.contiguous();
  const Tensor y = at::empty(x.sizes(), x.options());
  kernels.rotary(element_of(x),
                 {.tokens = x.size(0) * x.size(1),
                  .heads = x.size(2),
                  .half = x.size(3) / 2,
                  .length = x.size(1),
                  .stride = row_stride(x, 2),
                  .packed = 0,
                  .sign = sign,
                  .x = x.data_ptr(),
                  .cos = angles.cos.data_ptr<float>(),
                  .sin = angles.sin.data_ptr<float>(),
                  .positions = numbers(angles.positions),
                  .y = y.data_ptr()},
                 stream_of(x));
  return y;
}

struct Rotary : Function<Rotary> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Angles& angles,
                        const DeviceKernels* kernels) {
    context->save_for_backward({angles.cos, angles.sin, angles.positions});
    keep(context, kernels);
    return turned(*kernels, x, angles, 1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Angles angles = {saved[0], saved[1], saved[2]};
    return {turned(kept(context), gradients[0], angles, -1), Tensor(), Tensor()};
  }
};

}  // namespace

Element element_of(at::ScalarType type) {
  if (type == at::kBFloat16) return Element::kBf16;
  if (type == at::kHalf) return Element::kFp16;
  HP_CHECK(type == at::kFloat);
  return Element::kFp32;
}

Tensor rms_norm(const DeviceKernels& kernels, const Tensor& x, const Tensor& weight, double eps) {
  return RmsNorm::apply(x, weight, eps, &kernels);
}

ResidualNorm residual_rms_norm(const DeviceKernels& kernels, const Tensor& x, const Tensor& addend,
                               const Tensor& weight, double eps) {
  const Tensor added = addend.defined() ? addend : x.detach().new_empty({0});
  const variable_list both = ResidualRmsNorm::apply(x, added, weight, eps, &kernels);
  return {both[0], both[1]};
}

Tensor swiglu(const DeviceKernels& kernels, const Tensor& gate, const Tensor& up) {
  return Swiglu::apply(gate, up, &kernels);
}

FusedLoss cross_entropy(const DeviceKernels& kernels, const Tensor& logits, const Tensor& targets,
                        double z_loss) {
  const variable_list sums = CrossEntropy::apply(logits, targets, z_loss, &kernels);
  return {sums[0], sums[1]};
}

Tensor rotary(const DeviceKernels& kernels, const Tensor& x, const Tensor& cos, const Tensor& sin,
              const Tensor& positions) {
  const Angles angles = {cos, sin, positions.defined() ? positions.contiguous() : positions};
  return Rotary::apply(x, angles, &kernels);
}

}  // namespace hpctl::on_device
