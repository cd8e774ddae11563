// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/fused_rows.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <vector>

#include "trainer/arch/device_rows.h"
#include "trainer/arch/logits_gradient.h"
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

// Elements of an operand of bf16 that are widened at a time.
constexpr int64_t kElementsOfChunk = 2048;

// work(T{}), T the type in which x is computed.
template <typename Work>
auto with_type(const Tensor& x, const Work& work) {
  return x.scalar_type() == at::kDouble ? work(double{}) : work(float{});
}

template <typename Work>
void for_rows(int64_t rows, int64_t width, const Work& work) {
  at::parallel_for(0, rows, std::max<int64_t>(1, kElementsOfThread / width), work);
}

// What passes through memory: bf16 as it is, and else what is computed with.
Tensor in_memory(const Tensor& x) { return x.scalar_type() == at::kBFloat16 ? x : widened(x); }

template <typename T>
T* element_of(const Tensor& x, int64_t at) {
  return x.data_ptr<T>() + at;
}

template <>
uint16_t* element_of<uint16_t>(const Tensor& x, int64_t at) {
  return reinterpret_cast<uint16_t*>(x.data_ptr<at::BFloat16>()) + at;
}

// What a kernel reads and writes, of rows from a certain one on.
template <typename T>
struct RowPointers {
  std::array<T*, 3> in;
  std::array<T*, 2> out;
};

// Rows of operands and results, which in_memory() gave, as T: work(pointers, first, rows). Those of
// bf16 few at a time, as what a kernel reads and writes then stays in the cache.
template <typename T, typename Work>
void with_rows(const variable_list& in, const variable_list& out, int64_t width, int64_t begin,
               int64_t end, const Work& work) {
  RowPointers<T> p{};
  if (in[0].scalar_type() != at::kBFloat16) {
    for (size_t i = 0; i < in.size(); ++i) p.in[i] = element_of<T>(in[i], begin * width);
    for (size_t i = 0; i < out.size(); ++i) p.out[i] = element_of<T>(out[i], begin * width);
    work(p, begin, end - begin);
    return;
  }
  const int64_t most = std::min(end - begin, std::max<int64_t>(1, kElementsOfChunk / width));
  std::vector<T> chunks(static_cast<size_t>(most * width) * (in.size() + out.size()));
  for (size_t i = 0; i < in.size() + out.size(); ++i) {
    T* const chunk = chunks.data() + static_cast<size_t>(most * width) * i;
    (i < in.size() ? p.in[i] : p.out[i - in.size()]) = chunk;
  }
  const RowKernels<T>& kernels = row_kernels<T>();
  for (int64_t row = begin; row < end; row += most) {
    const int64_t rows = std::min(most, end - row);
    for (size_t i = 0; i < in.size(); ++i) {
      kernels.widen(element_of<uint16_t>(in[i], row * width), p.in[i], rows * width);
    }
    work(p, row, rows);
    for (size_t i = 0; i < out.size(); ++i) {
      kernels.narrow(p.out[i], element_of<uint16_t>(out[i], row * width), rows * width);
    }
  }
}

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& operand,
                        const Tensor& narrow_weight, double eps) {
    const Tensor narrow = operand.contiguous();
    const Tensor x = in_memory(narrow);
    const Tensor weight = widened(narrow_weight);
    const int64_t dim = x.size(-1);
    const int64_t rows = x.numel() / dim;
    const Tensor y = at::empty(x.sizes(), x.options());
    const Tensor inverse_rms = at::empty({rows}, weight.options());
    with_type(x, [&]<typename T>(T) {
      const auto work = [&](const RowPointers<T>& p, int64_t first, int64_t count) {
        const RmsNormForward<T> pass = {
            dim, eps, p.in[0], weight.data_ptr<T>(), p.out[0], element_of<T>(inverse_rms, first)};
        row_kernels<T>().rms_norm(pass, 0, count);
      };
      for_rows(rows, dim,
               [&](int64_t begin, int64_t end) { with_rows<T>({x}, {y}, dim, begin, end, work); });
    });
    context->save_for_backward({narrow, narrow_weight, inverse_rms});
    return y.to(narrow.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::ScalarType type = saved[0].scalar_type();
    const Tensor x = in_memory(saved[0]);
    const Tensor weight = widened(saved[1]);
    const Tensor gradient = in_memory(gradients[0]).contiguous();
    const int64_t dim = x.size(-1);
    const int64_t rows = x.numel() / dim;
    const int64_t chunks = (rows + kRowsOfSum - 1) / kRowsOfSum;
    const Tensor x_gradient = at::empty(x.sizes(), x.options());
    const Tensor sums = at::zeros({chunks, dim}, weight.options());
    with_type(x, [&]<typename T>(T) {
      const auto add = [&](int64_t chunk) {
        const auto work = [&](const RowPointers<T>& p, int64_t first, int64_t count) {
          const RmsNormBackward<T> pass = {dim,
                                           p.in[0],
                                           weight.data_ptr<T>(),
                                           element_of<T>(saved[2], first),
                                           p.in[1],
                                           p.out[0],
                                           element_of<T>(sums, chunk * dim)};
          row_kernels<T>().rms_norm_backward(pass, 0, count);
        };
        with_rows<T>({x, gradient}, {x_gradient}, dim, chunk * kRowsOfSum,
                     std::min(rows, (chunk + 1) * kRowsOfSum), work);
      };
      at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t end) {
        for (int64_t chunk = first; chunk < end; ++chunk) add(chunk);
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
    const Tensor gate = in_memory(narrow[0]);
    const Tensor up = in_memory(narrow[1]);
    const Tensor y = at::empty(gate.sizes(), gate.options());
    with_type(gate, [&]<typename T>(T) {
      const auto work = [](const RowPointers<T>& p, int64_t, int64_t count) {
        row_kernels<T>().swiglu({p.in[0], p.in[1], p.out[0]}, 0, count);
      };
      for_rows(gate.numel(), 1, [&](int64_t begin, int64_t end) {
        with_rows<T>({gate, up}, {y}, 1, begin, end, work);
      });
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
    with_type(gate, [&]<typename T>(T) {
      const auto work = [](const RowPointers<T>& p, int64_t, int64_t count) {
        row_kernels<T>().swiglu_backward({p.in[0], p.in[1], p.in[2], p.out[0], p.out[1]}, 0, count);
      };
      for_rows(gate.numel(), 1, [&](int64_t begin, int64_t end) {
        with_rows<T>({gate, up, gradient}, {gate_gradient, up_gradient}, 1, begin, end, work);
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
    keep_whether_spent(context, logits);
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
    const Tensor gradient = gradient_of_logits(context, logits);
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
