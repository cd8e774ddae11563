// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/blocked_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/arch/element_data.h"
#include "trainer/arch/model.h"
#include "trainer/kernels/attention.h"

namespace hpctl {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The tensors that autograd keeps, in this order. All but the logarithms have the operands' type;
// the kernel works on them widened, except for bf16 on matrix units.
enum Saved { kQueries, kKeys, kValues, kMixed, kLogSums };

AttentionShape shape_of(const variable_list& saved, const AttentionRule& rule) {
  const Tensor& q = saved[kQueries];
  return {.tokens = q.size(0) * q.size(1),
          .heads = q.size(2),
          .kv_heads = saved[kKeys].size(2),
          .head_dim = q.size(3),
          .scale = rule.scale,
          .window = rule.window};
}

// [B, T, heads, h] as TokenRows describe it: part of the row of a wider projection, or copied.
Tensor by_token(const Tensor& x) {
  const bool regular =
      x.stride(3) == 1 && x.stride(2) == x.size(3) && x.stride(0) == x.size(1) * x.stride(1);
  return regular ? x : x.contiguous();
}

bool is_on_tiles(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && bf16_products() == Bf16Products::kMatrixUnits;
}

// As the kernel takes them.
Tensor operand(const Tensor& x) { return is_on_tiles(x) ? x : widened(x); }

variable_list operands_of(const Tensor& q, const Tensor& k, const Tensor& v) {
  return {by_token(operand(q)), by_token(operand(k)), by_token(operand(v))};
}

// work(T{}), T the kernel's type of x, which is an operand.
template <typename Work>
auto with_kernel_type(const Tensor& x, const Work& work) {
  if (x.scalar_type() == at::kDouble) return work(double{});
  return x.scalar_type() == at::kFloat ? work(float{}) : work(uint16_t{});
}

// For a tensor that by_token() returned, or for results and their gradients, [B, T, H * h].
template <typename T>
TokenRows<T> rows_of(const Tensor& x) {
  return {data_of<T>(x), x.is_contiguous() ? x.numel() / (x.size(0) * x.size(1)) : x.stride(1)};
}

template <typename T>
TokenRows<const T> read(const Tensor& x) {
  const TokenRows<T> rows = rows_of<T>(x);
  return {rows.data, rows.stride};
}

template <typename T>
RotaryTables<T> tables_of(const RotaryAngles& rotary) {
  if (!rotary.cos.defined()) return {};
  return {rotary.cos.data_ptr<T>(), rotary.sin.data_ptr<T>()};
}

// work(unit, scratch) for every document and key head, on LibTorch's threads.
template <typename T, typename Work>
void for_each_unit(const AttentionShape& shape, const std::vector<int64_t>& lengths,
                   const Work& work) {
  std::vector<AttentionUnit> units;
  int64_t begin = 0;
  int64_t longest = 0;
  for (const int64_t length : lengths) {
    for (int64_t n = 0; n < shape.kv_heads; ++n) units.push_back({begin, length, n});
    begin += length;
    longest = std::max(longest, length);
  }
  at::parallel_for(0, static_cast<int64_t>(units.size()), 1, [&](int64_t first, int64_t end) {
    const AttentionScratch<T> scratch(shape, longest);
    for (int64_t i = first; i < end; ++i) work(units[static_cast<size_t>(i)], scratch);
  });
}

template <typename T>
void run_forward(const AttentionShape& shape, const std::vector<int64_t>& lengths,
                 const RotaryAngles& rotary, const variable_list& saved) {
  const AttentionForward<T> pass = {
      .shape = shape,
      .q = read<T>(saved[kQueries]),
      .k = read<T>(saved[kKeys]),
      .v = read<T>(saved[kValues]),
      .out = rows_of<T>(saved[kMixed]),
      .log_sums = saved[kLogSums].data_ptr<Wide<T>>(),
      .rotary = tables_of<Wide<T>>(rotary),
  };
  for_each_unit<T>(shape, lengths, [&](const AttentionUnit& unit, const auto& scratch) {
    attention_forward(pass, unit, scratch);
  });
}

template <typename T>
variable_list run_backward(const AttentionShape& shape, const std::vector<int64_t>& lengths,
                           const RotaryAngles& rotary, const variable_list& saved,
                           const Tensor& out_gradient) {
  variable_list gradients;
  for (const Saved operand : {kQueries, kKeys, kValues}) {
    gradients.push_back(at::empty(saved[operand].sizes(), saved[operand].options()));
  }
  const AttentionBackward<T> pass = {
      .shape = shape,
      .q = read<T>(saved[kQueries]),
      .k = read<T>(saved[kKeys]),
      .v = read<T>(saved[kValues]),
      .out = read<T>(saved[kMixed]),
      .out_gradient = read<T>(out_gradient),
      .log_sums = saved[kLogSums].data_ptr<Wide<T>>(),
      .q_gradient = rows_of<T>(gradients[kQueries]),
      .k_gradient = rows_of<T>(gradients[kKeys]),
      .v_gradient = rows_of<T>(gradients[kValues]),
      .rotary = tables_of<Wide<T>>(rotary),
  };
  for_each_unit<T>(shape, lengths, [&](const AttentionUnit& unit, const auto& scratch) {
    attention_backward(pass, unit, scratch);
  });
  return gradients;
}

struct BlockedAttention : torch::autograd::Function<BlockedAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::vector<int64_t>& lengths, const AttentionRule& rule,
                        const RotaryAngles& rotary) {
    variable_list kernel = operands_of(q, k, v);
    const at::TensorOptions options = kernel[kQueries].options();
    kernel.push_back(at::empty({q.size(0), q.size(1), q.size(2) * q.size(3)}, options));
    kernel.push_back(
        at::empty({q.size(2), q.size(0) * q.size(1)}, options.dtype(wide_type(q.scalar_type()))));
    const AttentionShape shape = shape_of(kernel, rule);
    with_kernel_type(kernel[kQueries],
                     [&]<typename T>(T) { run_forward<T>(shape, lengths, rotary, kernel); });
    const Tensor out = kernel[kMixed].to(q.scalar_type());
    const bool narrow = q.scalar_type() != kernel[kQueries].scalar_type();
    context->save_for_backward(narrow ? variable_list{q, k, v, out, kernel[kLogSums]} : kernel);
    context->saved_data["lengths"] = lengths;
    context->saved_data["scale"] = rule.scale;
    context->saved_data["window"] = rule.window;
    context->saved_data["cos"] = rotary.cos;
    context->saved_data["sin"] = rotary.sin;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::ScalarType type = saved[kQueries].scalar_type();
    variable_list kernel = operands_of(saved[kQueries], saved[kKeys], saved[kValues]);
    kernel.push_back(operand(saved[kMixed]));
    kernel.push_back(saved[kLogSums]);
    const AttentionShape shape = shape_of(
        kernel, {context->saved_data["scale"].toDouble(), context->saved_data["window"].toInt()});
    const std::vector<int64_t> lengths = context->saved_data["lengths"].toIntVector();
    const RotaryAngles rotary = {context->saved_data["cos"].toTensor(),
                                 context->saved_data["sin"].toTensor()};
    const Tensor gradient = operand(gradients[0]).contiguous();
    variable_list results = with_kernel_type(kernel[kQueries], [&]<typename T>(T) {
      return run_backward<T>(shape, lengths, rotary, kernel, gradient);
    });
    for (Tensor& result : results) result = result.to(type);
    results.resize(6);  // lengths, rule and angles have none
    return results;
  }
};

}  // namespace

Tensor blocked_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const std::vector<int64_t>& lengths, const AttentionRule& rule,
                         const RotaryAngles& rotary) {
  const std::vector<int64_t> sequences(static_cast<size_t>(q.size(0)), q.size(1));
  return BlockedAttention::apply(q, k, v, lengths.empty() ? sequences : lengths, rule, rotary);
}

}  // namespace hpctl
