// SPDX-License-Identifier: Apache-2.0
// The kernels of trainer/kernels on one thread, at every level that this processor has, beside
// LibTorch's operations for the same, in turn: medians of kRounds. Of attention, sequences x tokens
// and query heads / key heads x dimension; its operations are counted without what is masked: 2
// products of matrices forward, 5 backward.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "tests/bench/figures.h"
#include "trainer/arch/fused_rows.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/kernels/attention.h"
#include "trainer/optim/adamw.h"

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
  int64_t window = kNoWindow;
};

// CPU time of this thread: what else the machine does matters less than on a clock.
double now_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double milliseconds(const std::function<void()>& work) {
  const double begin = now_ms();
  work();
  return now_ms() - begin;
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
  const AttentionShape shape = {s.sequences * s.tokens,
                                s.heads,
                                s.kv_heads,
                                s.dim,
                                1 / std::sqrt(static_cast<double>(s.dim)),
                                s.window};
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
  const Tensor hidden = at::full({s.tokens, s.tokens}, -std::numeric_limits<float>::infinity());
  const Tensor mask = hidden.triu(1) + hidden.tril(-std::min(s.window, s.tokens));
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

// Of both passes, by what did them.
using Rounds = std::map<std::string, std::vector<Times>>;

Times middle(const std::vector<Times>& times) {
  std::vector<double> forward;
  std::vector<double> backward;
  for (const auto& [f, b] : times) {
    forward.push_back(f);
    backward.push_back(b);
  }
  return {testing::median(forward), testing::median(backward)};
}

void report(const std::string& kernel, const std::string& shape, double flops, const Rounds& rounds,
            nlohmann::ordered_json& cases) {
  const Times peer = middle(rounds.at("libtorch"));
  for (const auto& [level, all] : rounds) {
    const auto [forward, backward] = middle(all);
    const double gflops = flops / (forward + backward) / 1e6;
    const double ratio = (peer.first + peer.second) / (forward + backward);
    std::printf("%-14s %-20s %-9s %9.2f %9.2f ", kernel.c_str(), shape.c_str(), level.c_str(),
                forward, backward);
    if (flops > 0) {
      std::printf("%9.1f %7.1f\n", gflops, ratio);
    } else {
      std::printf("%9s %7.1f\n", "", ratio);
    }
    cases.push_back({{"kernel", kernel},
                     {"shape", shape},
                     {"level", level},
                     {"forward_ms", forward},
                     {"backward_ms", backward},
                     {"gflops", gflops},
                     {"times_libtorch", ratio}});
  }
  std::fflush(stdout);
}

void measure(const Shape& s, nlohmann::ordered_json& cases) {
  const Operands operands = operands_of(s);
  Rounds times;
  for (int round = 0; round <= kRounds; ++round) {
    times["libtorch"].push_back(by_operations(s, operands));
    for (const KernelLevel level : kernel_levels()) {
      times[to_word(level)].push_back(by_kernel(s, operands, level));
    }
    if (round == 0) times.clear();  // touches its memory for the first time
  }
  const int64_t window = std::min(s.window, s.tokens);
  const int64_t seen = window * (window + 1) / 2 + (s.tokens - window) * window;
  const double pairs = static_cast<double>(s.sequences * s.heads * seen);
  report("attention", s.what, 14 * pairs * static_cast<double>(s.dim), times, cases);
}

// An operation on `operands`, all with gradients, and the gradient of its result.
using Operation = std::function<Tensor(const std::vector<Tensor>& operands)>;

Times passes_of(const Operation& operation, const std::vector<Tensor>& operands,
                const Tensor& gradient) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : operands) leaves.push_back(x.detach().set_requires_grad(true));
  Tensor result;
  const double forward = milliseconds([&] { result = operation(leaves); });
  return {forward, milliseconds([&] { compat::backward(result, gradient); })};
}

void compare(const std::string& kernel, const std::string& shape,
             const std::vector<Tensor>& operands, const Operation& fused,
             const Operation& by_libtorch, nlohmann::ordered_json& cases) {
  const Tensor gradient = at::ones_like(by_libtorch(operands));
  Rounds times;
  for (int round = 0; round <= kRounds; ++round) {
    times["libtorch"].push_back(passes_of(by_libtorch, operands, gradient));
    times[to_word(kernel_level())].push_back(passes_of(fused, operands, gradient));
    if (round == 0) times.clear();
  }
  report(kernel, shape, 0, times, cases);
}

void measure_rows(nlohmann::ordered_json& cases) {
  constexpr double kEps = 1e-5;
  compare(
      "RMSNorm", "2048 x 256", {at::randn({2048, 256}), at::randn({256})},
      [](const auto& x) { return fused_rms_norm(x[0], x[1], kEps); },
      [](const auto& x) {
        return x[0] * at::rsqrt(x[0].square().mean(-1, /*keepdim=*/true) + kEps) * x[1];
      },
      cases);
  compare(
      "SwiGLU", "2048 x 768", {at::randn({2048, 768}), at::randn({2048, 768})},
      [](const auto& x) { return fused_swiglu(x[0], x[1]); },
      [](const auto& x) { return at::silu(x[0]) * x[1]; }, cases);
  const Tensor targets = at::randint(2048, {2048}, at::kLong);
  compare(
      "cross entropy", "2048 x 2048", {at::randn({2048, 2048})},
      [&](const auto& x) { return fused_cross_entropy(x[0], targets, 0).objective; },
      [&](const auto& x) {
        return at::nll_loss(at::log_softmax(x[0], -1), targets, {}, at::Reduction::Sum);
      },
      cases);
}

// A step of AdamW out of place, as state is kept, beside PyTorch's operations of a step in place.
void measure_adamw(nlohmann::ordered_json& cases) {
  constexpr int64_t kCount = 6'160'384;  // debugmodel
  const Tensor from[] = {at::randn({kCount}), at::randn({kCount}), at::rand({kCount})};
  const Tensor to[] = {at::empty({kCount}), at::empty({kCount}), at::empty({kCount})};
  const Tensor gradient = at::randn({kCount});
  const AdamStep step(OptimizerSpec{}, 3, 1e-3, 1.0);
  const auto data = [](const Tensor& x) { return x.data_ptr<float>(); };
  const AdamFactors<float> factors = adam_factors<float>(step, /*decayed=*/true);
  Rounds times;
  for (int round = 0; round <= kRounds; ++round) {
    times["libtorch"].emplace_back(
        milliseconds([&] {
          from[0].mul_(step.decay);
          from[1].mul_(step.beta1).add_(gradient, 1 - step.beta1);
          from[2].mul_(step.beta2).addcmul_(gradient, gradient, 1 - step.beta2);
          const Tensor root = (from[2].sqrt() * step.inverse_root_correction2).add_(step.eps);
          from[0].addcdiv_(from[1], root, -step.step_size);
        }),
        0);
    for (const KernelLevel level : kernel_levels()) {
      times[to_word(level)].emplace_back(
          milliseconds([&] {
            optimizer_kernels<float>(level).adamw(
                factors, kCount, {data(from[0]), data(from[1]), data(from[2]), data(gradient)},
                {data(to[0]), data(to[1]), data(to[2])});
          }),
          0);
    }
    if (round == 0) times.clear();
  }
  report("AdamW", "6,160,384", 0, times, cases);
}

}  // namespace
}  // namespace hpctl

int main() {
  at::set_num_threads(1);
  nlohmann::ordered_json cases;
  std::printf("%-14s %-20s %-9s %9s %9s %9s %7s\n", "kernel", "shape", "level", "fwd ms", "bwd ms",
              "GFLOP/s", "x");
  for (const hpctl::Shape& shape : {hpctl::Shape{"16x128, 16/16x16", 16, 128, 16, 16, 16},
                                    hpctl::Shape{"4x512, 16/16x16", 4, 512, 16, 16, 16},
                                    hpctl::Shape{"2x1024, 16/16x16", 2, 1024, 16, 16, 16},
                                    hpctl::Shape{"2x1024, 8/2x64", 2, 1024, 8, 2, 64},
                                    hpctl::Shape{"1x2048, 8/2x128", 1, 2048, 8, 2, 128},
                                    hpctl::Shape{"same, window 256", 1, 2048, 8, 2, 128, 256}}) {
    hpctl::measure(shape, cases);
  }
  hpctl::measure_rows(cases);
  hpctl::measure_adamw(cases);
  std::printf("%s\n",
              nlohmann::ordered_json{{"bench", "kernels"}, {"cases", cases}}.dump().c_str());
  return 0;
}
