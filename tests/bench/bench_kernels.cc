// SPDX-License-Identifier: Apache-2.0
// The kernels of trainer/kernels on one thread, at every level that this processor has, beside
// LibTorch's operations for the same, in turn: medians of kRounds. Of attention, sequences x tokens
// and query heads / key heads x dimension; its operations are counted without what is masked: 2
// products of matrices forward, 5 backward. Rotary positions are no kernel of their own on a CPU:
// attention turns queries and keys where it copies them, so its row is attention with them.
// Products with weights and the loss of chunks are as the engine calls them, at the best level
// alone.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "tests/bench/figures.h"
#include "trainer/arch/fused_rows.h"
#include "trainer/arch/ops.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/kernels/attention.h"
#include "trainer/optim/adamw.h"
#include "trainer/process/pin_environment.h"

namespace hpctl {
namespace {

using at::Tensor;

constexpr int kRounds = 7;
constexpr int64_t kModelElements = 6'160'384;  // of debugmodel

struct Shape {
  const char* what;
  int64_t sequences;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  int64_t window = kNoWindow;
  bool turned = false;
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

// [sequences, tokens, heads, dim] each; cosines and sines [tokens, dim / 2].
struct Operands {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor out_gradient;
  Tensor cos;
  Tensor sin;
};

Operands operands_of(const Shape& s) {
  const auto of = [&](int64_t heads) { return at::randn({s.sequences, s.tokens, heads, s.dim}); };
  const Tensor angles = at::rand({s.tokens, s.dim / 2}) * 6;
  return {of(s.heads), of(s.kv_heads), of(s.kv_heads), of(s.heads), angles.cos(), angles.sin()};
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
  const RotaryTables<float> rotary =
      s.turned ? RotaryTables<float>{o.cos.data_ptr<float>(), o.sin.data_ptr<float>()}
               : RotaryTables<float>{};
  const AttentionForward<float> forward = {
      shape, read(o.q), read(o.k), read(o.v), rows(out), log_sums.data_ptr<float>(), rotary};
  const AttentionBackward<float> backward = {shape,
                                             read(o.q),
                                             read(o.k),
                                             read(o.v),
                                             read(out),
                                             read(o.out_gradient),
                                             log_sums.data_ptr<float>(),
                                             rows(gradients[0]),
                                             rows(gradients[1]),
                                             rows(gradients[2]),
                                             rotary};
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

// x [.., tokens, heads, dim], as trainer/arch/attention.cc turns it for products.
Tensor turned(const Tensor& x, const Operands& o) {
  const auto both = [](const Tensor& table) { return at::cat({table, table}, 1).unsqueeze(1); };
  const std::vector<Tensor> halves = x.chunk(2, -1);
  return x * both(o.cos) + at::cat({-halves[1], halves[0]}, -1) * both(o.sin);
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
    const Tensor queries = s.turned ? turned(q, o) : q;
    const Tensor keys = s.turned ? turned(k, o) : k;
    const Tensor rows = (queries / std::sqrt(static_cast<double>(s.dim)))
                            .view({s.sequences, s.tokens, s.kv_heads, group, s.dim})
                            .permute({0, 2, 3, 1, 4})
                            .reshape({s.sequences, s.kv_heads, group * s.tokens, s.dim});
    const Tensor scores = at::matmul(rows, keys.permute({0, 2, 3, 1}))
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
    std::printf("%-15s %-21s %-12s %9.2f %9.2f ", kernel.c_str(), shape.c_str(), level.c_str(),
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
  report(s.turned ? "with rotary" : "attention", s.what, 14 * pairs * static_cast<double>(s.dim),
         times, cases);
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
  constexpr int64_t kCount = kModelElements;
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

// The sum of squares in fp64, beside PyTorch's norm for clipping, which adds in fp32.
void measure_gradient_norm(nlohmann::ordered_json& cases) {
  const Tensor gradient = at::randn({kModelElements});
  double norm = 0;
  Rounds times;
  for (int round = 0; round <= kRounds; ++round) {
    times["libtorch"].emplace_back(
        milliseconds([&] { norm = at::linalg_vector_norm(gradient, 2).item<double>(); }), 0);
    for (const KernelLevel level : kernel_levels()) {
      double squares = 0;
      times[to_word(level)].emplace_back(milliseconds([&] {
                                           squares = optimizer_kernels<float>(level).sum_of_squares(
                                               gradient.data_ptr<float>(), kModelElements);
                                         }),
                                         0);
      HP_CHECK(std::abs(std::sqrt(squares) - norm) < 1e-3 * norm);
    }
    if (round == 0) times.clear();
  }
  report("gradient norm", "6,160,384", 0, times, cases);
}

// A product with a weight and, backward, that weight's gradient alone, added to a sum in fp32 as in
// each micro-batch but the first. LibTorch's product is added in a pass of its own.
void measure_weight_gradient(int64_t rows, at::ScalarType type, nlohmann::ordered_json& cases) {
  constexpr int64_t kIn = 256;
  constexpr int64_t kOut = 768;
  const Tensor x = at::randn({rows, kIn}).to(type);
  const Tensor weight = at::randn({kOut, kIn}).to(type);
  const Tensor gradient = at::randn({rows, kOut}).to(type);
  const Tensor sum = at::zeros({kOut, kIn});
  const Tensor leaf = weight.detach().set_requires_grad(true);
  leaf.mutable_grad() = at::zeros({kOut, kIn});
  const bool narrow = type != at::kFloat;
  const std::string by = narrow ? to_word(bf16_products()) : "BLAS";
  Rounds times;
  for (int round = 0; round <= kRounds; ++round) {
    Tensor y;
    const double peer_forward = milliseconds([&] { y = at::linear(x, weight); });
    times["libtorch"].emplace_back(peer_forward,
                                   milliseconds([&] { sum.add_(at::mm(gradient.t(), x)); }));
    const double forward = milliseconds([&] { y = ops::linear(x, leaf); });
    times[by].emplace_back(forward, milliseconds([&] { compat::backward(y, gradient); }));
    if (round == 0) times.clear();
  }
  const std::string shape = std::to_string(rows) + " x 256 -> 768";
  report(narrow ? "product, bf16" : "product", shape, 4.0 * static_cast<double>(rows * kIn * kOut),
         times, cases);
}

// The head without its norm, `chunk` rows of logits at a time, as trainer/parallel/fsdp.cc has it;
// LibTorch has all logits at once.
void measure_head(int64_t rows, int64_t vocab, int64_t chunk, nlohmann::ordered_json& cases) {
  constexpr int64_t kDim = 256;
  const Tensor x = at::randn({rows, kDim});
  const Tensor weight = at::randn({vocab, kDim}) * 0.05;
  const Tensor targets = at::randint(vocab, {rows}, at::kLong);
  const Tensor leaf = weight.detach().set_requires_grad(true);
  leaf.mutable_grad() = at::zeros({vocab, kDim});
  Rounds times;
  for (int round = 0; round <= kRounds; ++round) {
    times["libtorch"].push_back(passes_of(
        [&](const auto& operands) {
          const Tensor logits = at::linear(operands[0], operands[1]);
          return at::nll_loss(at::log_softmax(logits, -1), targets, {}, at::Reduction::Sum);
        },
        {x, weight}, at::ones({})));
    Times both = {0, 0};
    for (int64_t first = 0; first < rows; first += chunk) {
      const int64_t count = std::min(chunk, rows - first);
      const Tensor part = x.narrow(0, first, count).detach().set_requires_grad(true);
      Tensor loss;
      both.first += milliseconds([&] {
        loss = fused_cross_entropy(ops::linear(part, leaf), targets.narrow(0, first, count), 0)
                   .objective;
      });
      both.second += milliseconds([&] { compat::backward(loss, at::ones({})); });
    }
    times[to_word(kernel_level())].push_back(both);
    if (round == 0) times.clear();
  }
  const std::string shape =
      std::to_string(rows) + " -> " + std::to_string(vocab) + ", by " + std::to_string(chunk);
  report("head and loss", shape, 6.0 * static_cast<double>(rows * kDim * vocab), times, cases);
}

}  // namespace
}  // namespace hpctl

int main(int, char** argv) {
  // As hptrain sees to it for itself, before OpenBLAS chooses its kernels: it begins once more.
  hpctl::pin_environment();
  hpctl::ask_for_huge_pages(argv);
  at::set_num_threads(1);
  nlohmann::ordered_json cases;
  std::printf("%-15s %-21s %-12s %9s %9s %9s %7s\n", "kernel", "shape", "level", "fwd ms", "bwd ms",
              "GFLOP/s", "x");
  for (const hpctl::Shape& shape :
       {hpctl::Shape{"16x128, 16/16x16", 16, 128, 16, 16, 16},
        hpctl::Shape{"4x512, 16/16x16", 4, 512, 16, 16, 16},
        hpctl::Shape{"same", 4, 512, 16, 16, 16, hpctl::kNoWindow, true},
        hpctl::Shape{"2x1024, 16/16x16", 2, 1024, 16, 16, 16},
        hpctl::Shape{"2x1024, 8/2x64", 2, 1024, 8, 2, 64},
        hpctl::Shape{"same", 2, 1024, 8, 2, 64, hpctl::kNoWindow, true},
        hpctl::Shape{"1x2048, 8/2x128", 1, 2048, 8, 2, 128},
        hpctl::Shape{"same, window 256", 1, 2048, 8, 2, 128, 256}}) {
    hpctl::measure(shape, cases);
  }
  hpctl::measure_rows(cases);
  for (const int64_t tokens : {128, 4096}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      hpctl::measure_weight_gradient(tokens, type, cases);
    }
  }
  hpctl::measure_head(4096, 2048, 1024, cases);
  hpctl::measure_head(1024, 32000, 256, cases);
  hpctl::measure_adamw(cases);
  hpctl::measure_gradient_norm(cases);
  std::printf("%s\n",
              nlohmann::ordered_json{{"bench", "kernels"}, {"cases", cases}}.dump().c_str());
  return 0;
}
