// SPDX-License-Identifier: Apache-2.0
// The kernels of trainer/kernels on one thread, as the engine calls them, at every level that this
// processor has, beside LibTorch's operations for the same, in turn: medians of kRounds. In bf16
// attention is at the best level, widened and, where the processor has them, on matrix units. Of
// attention, sequences x tokens and query heads / key heads x dimension; its operations are counted
// without what is masked: 2 products of matrices forward, 5 backward. Rotary positions are no
// kernel of their own on a CPU: attention turns queries and keys where it copies them, so its row
// is attention with them. Products with weights and the loss of chunks are at the best level alone.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "tests/bench/figures.h"
#include "trainer/arch/blocked_attention.h"
#include "trainer/arch/fused_ops.h"
#include "trainer/arch/ops.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/device/device.h"
#include "trainer/kernels/attention.h"
#include "trainer/kernels/level.h"
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

// An operation on `operands`, all with gradients, and the gradient of its result.
using Operation = std::function<Tensor(const std::vector<Tensor>& operands)>;

// Forward and backward milliseconds.
using Times = std::pair<double, double>;

Times passes_of(const Operation& operation, const std::vector<Tensor>& operands,
                const Tensor& gradient) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : operands) leaves.push_back(x.detach().set_requires_grad(true));
  Tensor result;
  const double forward = milliseconds([&] { result = operation(leaves); });
  return {forward, milliseconds([&] { compat::backward(result, gradient); })};
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
    std::printf("%-19s %-21s %-12s %9.2f %9.2f ", kernel.c_str(), shape.c_str(), level.c_str(),
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

// One of those in which the kernels compute.
struct Way {
  std::string name;
  KernelLevel level = kernel_level();
  Bf16Products products = bf16_products();
};

std::vector<Way> all_levels() {
  std::vector<Way> ways;
  for (const KernelLevel level : kernel_levels()) ways.push_back({to_word(level), level});
  return ways;
}

// Without units there is one.
std::vector<Way> all_of_bf16() {
  std::vector<Way> ways;
  for (const Bf16Products products : {Bf16Products::kWidened, bf16_products()}) {
    if (ways.empty() || ways.back().products != products) {
      ways.push_back({to_word(products), kernel_level(), products});
    }
  }
  return ways;
}

struct Compared {
  std::string kernel;
  std::string shape;
  std::vector<Tensor> operands;
  Operation ours;
  Operation by_libtorch;
  double flops = 0;  // 0: not counted
};

void compare(const Compared& c, const std::vector<Way>& ways, nlohmann::ordered_json& cases) {
  const Tensor gradient = at::randn_like(c.by_libtorch(c.operands));
  Rounds times;
  for (int round = 0; round <= kRounds; ++round) {
    times["libtorch"].push_back(passes_of(c.by_libtorch, c.operands, gradient));
    for (const Way& way : ways) {
      const ScopedKernelLevel level(way.level);
      const ScopedBf16Products products(way.products);
      times[way.name].push_back(passes_of(c.ours, c.operands, gradient));
    }
    if (round == 0) times.clear();  // touches its memory for the first time
  }
  report(c.kernel, c.shape, c.flops, times, cases);
}

std::string name_of(const std::string& kernel, at::ScalarType type) {
  return type == at::kBFloat16 ? kernel + ", bf16" : kernel;
}

// x [.., tokens, heads, dim], as trainer/arch/attention.cc turns it for products.
Tensor turned(const Tensor& x, const RotaryAngles& rotary) {
  if (!rotary.cos.defined()) return x;
  const auto both = [](const Tensor& table) { return at::cat({table, table}, 1).unsqueeze(1); };
  const std::vector<Tensor> halves = x.to(at::kFloat).chunk(2, -1);
  const Tensor quarter = at::cat({-halves[1], halves[0]}, -1);
  return (x * both(rotary.cos) + quarter * both(rotary.sin)).to(x.scalar_type());
}

// As trainer/arch/attention.cc does it by products; `mask` [tokens, tokens] is added to scores.
Tensor attention_by_products(const Shape& s, const std::vector<Tensor>& qkv, const Tensor& mask,
                             const RotaryAngles& rotary) {
  const int64_t group = s.heads / s.kv_heads;
  const Tensor rows = (turned(qkv[0], rotary) / std::sqrt(static_cast<double>(s.dim)))
                          .view({s.sequences, s.tokens, s.kv_heads, group, s.dim})
                          .permute({0, 2, 3, 1, 4})
                          .reshape({s.sequences, s.kv_heads, group * s.tokens, s.dim});
  const Tensor scores = at::matmul(rows, turned(qkv[1], rotary).permute({0, 2, 3, 1}))
                            .view({s.sequences, s.kv_heads, group, s.tokens, s.tokens});
  const Tensor weights = at::softmax(scores + mask, -1, at::kFloat)
                             .to(qkv[0].scalar_type())
                             .view({s.sequences, s.kv_heads, group * s.tokens, s.tokens});
  return at::matmul(weights, qkv[2].transpose(1, 2))
      .view({s.sequences, s.kv_heads, group, s.tokens, s.dim})
      .permute({0, 3, 1, 2, 4})
      .reshape({s.sequences, s.tokens, s.heads * s.dim});
}

void measure_attention(const Shape& s, at::ScalarType type, nlohmann::ordered_json& cases) {
  const auto of = [&](int64_t heads) {
    return at::randn({s.sequences, s.tokens, heads, s.dim}).to(type);
  };
  const Tensor hidden = at::full({s.tokens, s.tokens}, -std::numeric_limits<float>::infinity());
  const Tensor mask = hidden.triu(1) + hidden.tril(-std::min(s.window, s.tokens));
  const Tensor angles = at::rand({s.tokens, s.dim / 2}) * 6;
  const RotaryAngles rotary = s.turned ? RotaryAngles{angles.cos(), angles.sin()} : RotaryAngles{};
  const AttentionRule rule = {1 / std::sqrt(static_cast<double>(s.dim)), s.window};
  const int64_t window = std::min(s.window, s.tokens);
  const int64_t seen = window * (window + 1) / 2 + (s.tokens - window) * window;
  const double pairs = static_cast<double>(s.sequences * s.heads * seen);
  compare({name_of(s.turned ? "with rotary" : "attention", type),
           s.what,
           {of(s.heads), of(s.kv_heads), of(s.kv_heads)},
           [&](const auto& x) { return blocked_attention(x[0], x[1], x[2], {}, rule, rotary); },
           [&](const auto& x) { return attention_by_products(s, x, mask, rotary); },
           14 * pairs * static_cast<double>(s.dim)},
          type == at::kBFloat16 ? all_of_bf16() : all_levels(), cases);
}

// As the engine has them: logits in a type that the loss does not take are widened first.
void measure_rows(at::ScalarType type, nlohmann::ordered_json& cases) {
  constexpr double kEps = 1e-5;
  const auto of = [type](at::IntArrayRef sizes) { return at::randn(sizes).to(type); };
  compare({name_of("RMSNorm", type),
           "2048 x 256",
           {of({2048, 256}), of({256})},
           [](const auto& x) { return fused_rms_norm(x[0], x[1], kEps); },
           [](const auto& x) {
             return x[0] * at::rsqrt(x[0].square().mean(-1, /*keepdim=*/true) + kEps) * x[1];
           }},
          all_levels(), cases);
  compare({name_of("SwiGLU", type),
           "2048 x 768",
           {of({2048, 768}), of({2048, 768})},
           [](const auto& x) { return fused_swiglu(x[0], x[1]); },
           [](const auto& x) { return at::silu(x[0]) * x[1]; }},
          all_levels(), cases);
  const Tensor targets = at::randint(2048, {2048}, at::kLong);
  const at::ScalarType taken = has_fused_loss(at::kCPU, type) ? type : at::kFloat;
  compare({name_of("cross entropy", type),
           "2048 x 2048",
           {of({2048, 2048})},
           [&](const auto& x) { return fused_cross_entropy(x[0].to(taken), targets, 0).objective; },
           [&](const auto& x) {
             return at::nll_loss(at::log_softmax(x[0], -1, at::kFloat), targets, {},
                                 at::Reduction::Sum);
           }},
          all_levels(), cases);
}

template <typename M>
constexpr at::ScalarType kTypeOf = std::is_same_v<M, uint16_t> ? at::kBFloat16 : at::kFloat;

template <typename M>
M* kept_in(const Tensor& x) {
  if constexpr (std::is_same_v<M, uint16_t>) {
    return reinterpret_cast<uint16_t*>(x.data_ptr<at::BFloat16>());
  } else {
    return x.data_ptr<M>();
  }
}

// A step of AdamW out of place, as state is kept, beside PyTorch's operations of a step in place. M
// is the type of moments and P that of parameters; LibTorch's operations widen those of bf16, and
// round them to nearest.
template <typename M, typename P>
void measure_adamw(const std::string& name, nlohmann::ordered_json& cases) {
  constexpr int64_t kCount = kModelElements;
  const Tensor from[] = {at::randn({kCount}).to(kTypeOf<P>), at::randn({kCount}).to(kTypeOf<M>),
                         at::rand({kCount}).to(kTypeOf<M>)};
  const Tensor to[] = {at::empty({kCount}, kTypeOf<P>), at::empty({kCount}, kTypeOf<M>),
                       at::empty({kCount}, kTypeOf<M>)};
  const Tensor gradient = at::randn({kCount});
  const AdamStep step(OptimizerSpec{}, 3, 1e-3, 1.0);
  const auto by_libtorch = [&] {
    const Tensor p = from[0].to(at::kFloat).mul_(step.decay);
    const Tensor m = from[1].to(at::kFloat).mul_(step.beta1).add_(gradient, 1 - step.beta1);
    const Tensor v =
        from[2].to(at::kFloat).mul_(step.beta2).addcmul_(gradient, gradient, 1 - step.beta2);
    const Tensor root = (v.sqrt() * step.inverse_root_correction2).add_(step.eps);
    p.addcdiv_(m, root, -step.step_size);
    from[0].copy_(p);  // nothing where they are wide
    from[1].copy_(m);
    from[2].copy_(v);
  };
  const AdamSource<float, M, P> source = {kept_in<P>(from[0]), kept_in<M>(from[1]),
                                          kept_in<M>(from[2]), gradient.data_ptr<float>()};
  const AdamTarget<float, M, P> target = {kept_in<P>(to[0]), kept_in<M>(to[1]), kept_in<M>(to[2])};
  const RandomBits bits = random_bits(1, step, 0, 0);
  Rounds times;
  for (int round = 0; round <= kRounds; ++round) {
    times["libtorch"].emplace_back(milliseconds(by_libtorch), 0);
    for (const KernelLevel level : kernel_levels()) {
      const ScopedKernelLevel scoped(level);
      const auto ours = [&] {
        host_device().adamw(step, /*decayed=*/true, bits, kCount, source, target);
      };
      times[to_word(level)].emplace_back(milliseconds(ours), 0);
    }
    if (round == 0) times.clear();
  }
  report(name, "6,160,384", 0, times, cases);
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
  report(name_of("product", type), shape, 4.0 * static_cast<double>(rows * kIn * kOut), times,
         cases);
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
  std::printf("%-19s %-21s %-12s %9s %9s %9s %7s\n", "kernel", "shape", "level", "fwd ms", "bwd ms",
              "GFLOP/s", "x");
  const at::ScalarType types[] = {at::kFloat, at::kBFloat16};
  for (const hpctl::Shape& shape :
       {hpctl::Shape{"16x128, 16/16x16", 16, 128, 16, 16, 16},
        hpctl::Shape{"4x512, 16/16x16", 4, 512, 16, 16, 16},
        hpctl::Shape{"same", 4, 512, 16, 16, 16, hpctl::kNoWindow, true},
        hpctl::Shape{"2x1024, 16/16x16", 2, 1024, 16, 16, 16},
        hpctl::Shape{"2x1024, 8/2x64", 2, 1024, 8, 2, 64},
        hpctl::Shape{"same", 2, 1024, 8, 2, 64, hpctl::kNoWindow, true},
        hpctl::Shape{"1x2048, 8/2x128", 1, 2048, 8, 2, 128},
        hpctl::Shape{"same, window 256", 1, 2048, 8, 2, 128, 256}}) {
    for (const at::ScalarType type : types) hpctl::measure_attention(shape, type, cases);
  }
  for (const at::ScalarType type : types) hpctl::measure_rows(type, cases);
  for (const int64_t tokens : {128, 4096}) {
    for (const at::ScalarType type : types) hpctl::measure_weight_gradient(tokens, type, cases);
  }
  hpctl::measure_head(4096, 2048, 1024, cases);
  hpctl::measure_head(1024, 32000, 256, cases);
  hpctl::measure_adamw<float, float>("AdamW", cases);
  hpctl::measure_adamw<uint16_t, float>("AdamW, bf16", cases);
  hpctl::measure_adamw<uint16_t, uint16_t>("AdamW, all bf16", cases);
  hpctl::measure_gradient_norm(cases);
  std::printf("%s\n",
              nlohmann::ordered_json{{"bench", "kernels"}, {"cases", cases}}.dump().c_str());
  return 0;
}
