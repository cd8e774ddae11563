// SPDX-License-Identifier: Apache-2.0
// The kernels of trainer/kernels on one thread, at every level that this processor has, beside
// LibTorch's operations for the same, in turn: medians of kRounds. Operations are counted without
// the masked half: 2 products of matrices forward, 5 backward.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/compat/torch_compat.h"
#include "trainer/kernels/attention.h"

namespace hpctl {
namespace {

using at::Tensor;

constexpr int kRounds = 7;

struct Shape {
  const char* what;
  int64_t sequences;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
};

double milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// [sequences, tokens, heads, dim] each.
struct Operands {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor out_gradient;
};

Operands operands_of(const Shape& s) {
  const auto of = [&](int64_t heads) { return at::randn({s.sequences, s.tokens, heads, s.dim}); };
  return {of(s.heads), of(s.kv_heads), of(s.kv_heads), of(s.heads)};
}

// Forward and backward milliseconds.
using Times = std::pair<double, double>;

Times by_kernel(const Shape& s, const Operands& o, KernelLevel level) {
  const AttentionShape shape = {s.sequences * s.tokens, s.heads, s.kv_heads, s.dim,
                                1 / std::sqrt(static_cast<double>(s.dim))};
  const auto rows = [](const Tensor& x) {
    return TokenRows<float>{x.data_ptr<float>(), x.size(2) * x.size(3)};
  };
  const auto read = [&](const Tensor& x) {
    return TokenRows<const float>{rows(x).data, rows(x).stride};
  };
  const Tensor log_sums = at::empty({s.heads, shape.tokens});
  const Tensor out = at::empty_like(o.q);
  const Tensor gradients[] = {at::empty_like(o.q), at::empty_like(o.k), at::empty_like(o.v)};
  const AttentionForward<float> forward = {shape,     read(o.q), read(o.k),
                                           read(o.v), rows(out), log_sums.data_ptr<float>()};
  const AttentionBackward<float> backward = {shape,
                                             read(o.q),
                                             read(o.k),
                                             read(o.v),
                                             read(out),
                                             read(o.out_gradient),
                                             log_sums.data_ptr<float>(),
                                             rows(gradients[0]),
                                             rows(gradients[1]),
                                             rows(gradients[2])};
  const auto for_each_unit = [&](const auto& work) {
    const AttentionScratch<float> scratch(shape, s.tokens);
    for (int64_t b = 0; b < s.sequences; ++b) {
      for (int64_t n = 0; n < s.kv_heads; ++n) {
        work(AttentionUnit{b * s.tokens, s.tokens, n}, scratch);
      }
    }
  };
  return {milliseconds([&] {
            for_each_unit([&](const AttentionUnit& unit, const auto& scratch) {
              attention_forward(forward, unit, scratch, level);
            });
          }),
          milliseconds([&] {
            for_each_unit([&](const AttentionUnit& unit, const auto& scratch) {
              attention_backward(backward, unit, scratch, level);
            });
          })};
}

// As trainer/arch/attention.cc does it by products.
Times by_operations(const Shape& s, const Operands& o) {
  const auto leaf = [](const Tensor& x) { return x.detach().set_requires_grad(true); };
  const Tensor q = leaf(o.q);
  const Tensor k = leaf(o.k);
  const Tensor v = leaf(o.v);
  const int64_t group = s.heads / s.kv_heads;
  const Tensor mask =
      at::full({s.tokens, s.tokens}, -std::numeric_limits<float>::infinity()).triu(1);
  Tensor out;
  const double forward = milliseconds([&] {
    const Tensor rows = (q / std::sqrt(static_cast<double>(s.dim)))
                            .view({s.sequences, s.tokens, s.kv_heads, group, s.dim})
                            .permute({0, 2, 3, 1, 4})
                            .reshape({s.sequences, s.kv_heads, group * s.tokens, s.dim});
    const Tensor scores = at::matmul(rows, k.permute({0, 2, 3, 1}))
                              .view({s.sequences, s.kv_heads, group, s.tokens, s.tokens});
    const Tensor weights =
        at::softmax(scores + mask, -1).view({s.sequences, s.kv_heads, group * s.tokens, s.tokens});
    out = at::matmul(weights, v.transpose(1, 2))
              .view({s.sequences, s.kv_heads, group, s.tokens, s.dim})
              .permute({0, 3, 1, 2, 4})
              .reshape({s.sequences, s.tokens, s.heads, s.dim});
  });
  return {forward, milliseconds([&] { compat::backward(out, o.out_gradient); })};
}

void measure(const Shape& s, nlohmann::ordered_json& cases) {
  const Operands operands = operands_of(s);
  std::map<std::string, std::vector<Times>> times;
  for (int round = 0; round <= kRounds; ++round) {
    times["libtorch"].push_back(by_operations(s, operands));
    for (const KernelLevel level : kernel_levels()) {
      times[to_word(level)].push_back(by_kernel(s, operands, level));
    }
    if (round == 0) times.clear();  // touches its memory for the first time
  }
  const double pairs = static_cast<double>(s.sequences * s.heads * s.tokens * (s.tokens + 1) / 2);
  const auto middle = [&](const std::string& what) {
    std::vector<double> forward;
    std::vector<double> backward;
    for (const auto& [f, b] : times[what]) {
      forward.push_back(f);
      backward.push_back(b);
    }
    return Times{median(forward), median(backward)};
  };
  const Times peer = middle("libtorch");
  for (const auto& [what, all] : times) {
    const auto [forward, backward] = middle(what);
    const double flops = 14 * pairs * static_cast<double>(s.dim);
    const double gflops = flops / (forward + backward) / 1e6;
    const double ratio = (peer.first + peer.second) / (forward + backward);
    std::printf("%-34s %-9s %9.2f %9.2f %9.1f %7.1f\n", s.what, what.c_str(), forward, backward,
                gflops, ratio);
    cases.push_back({{"kernel", "attention"},
                     {"shape", s.what},
                     {"level", what},
                     {"forward_ms", forward},
                     {"backward_ms", backward},
                     {"gflops", gflops},
                     {"times_libtorch", ratio}});
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace hpctl

int main() {
  at::set_num_threads(1);
  nlohmann::ordered_json cases;
  std::printf("%-34s %-9s %9s %9s %9s %7s\n", "attention: sequences x tokens, heads", "level",
              "fwd ms", "bwd ms", "GFLOP/s", "x");
  for (const hpctl::Shape& shape : {hpctl::Shape{"16 x 128, 16 of 16", 16, 128, 16, 16, 16},
                                    hpctl::Shape{"4 x 512, 16 of 16", 4, 512, 16, 16, 16},
                                    hpctl::Shape{"2 x 1024, 16 of 16", 2, 1024, 16, 16, 16},
                                    hpctl::Shape{"2 x 1024, 8/2 of 64", 2, 1024, 8, 2, 64},
                                    hpctl::Shape{"1 x 2048, 8/2 of 128", 1, 2048, 8, 2, 128}}) {
    hpctl::measure(shape, cases);
  }
  std::printf("%s\n",
              nlohmann::ordered_json{{"bench", "kernels"}, {"cases", cases}}.dump().c_str());
  return 0;
}
