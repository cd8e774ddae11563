// SPDX-License-Identifier: Apache-2.0
// Attention as the models call it, beside the same in LibTorch's own operations and their
// gradients.
#include "trainer/arch/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/unit/trainer/counted_operations.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/kernels/level.h"

namespace hpctl {
namespace {

using at::Tensor;

constexpr int64_t kBatch = 3;
constexpr int64_t kTokens = 150;
constexpr int64_t kHeads = 4;
constexpr int64_t kDim = 16;

ModelSpec model_with(int64_t kv_heads, int64_t window = 0) {
  ModelSpec model;
  model.arch = Arch::mistral;
  model.dim = 40;  // heads have a width of their own
  model.heads = kHeads;
  model.kv_heads = kv_heads;
  model.head_dim = kDim;
  model.sliding_window = window;
  return model;
}

// By the definition: pairs (i, i + h / 2) turned by position * theta^(-2i / h). x: [1, T, heads, h]
Tensor turned(const Tensor& x) {
  const int64_t half = x.size(3) / 2;
  const Tensor frequency =
      at::pow(ModelSpec().rope_theta, at::arange(half, at::kDouble) / static_cast<double>(-half));
  const Tensor angle = at::outer(at::arange(x.size(1), at::kDouble), frequency).unsqueeze(1);
  const Tensor a = x.narrow(3, 0, half);
  const Tensor b = x.narrow(3, half, half);
  return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, 3);
}

Documents documents_of(const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return {};
  std::vector<Tensor> positions;
  for (const int64_t length : lengths) positions.push_back(at::arange(length));
  return documents_at(at::cat(positions).view({kBatch, kTokens}));
}

// `window` 0: none.
Tensor by_operations(const Tensor& q, const Tensor& k, const Tensor& v, int64_t window) {
  const int64_t group = q.size(2) / k.size(2);
  const auto heads = [](const Tensor& x) { return x.transpose(1, 2); };
  const Tensor scores =
      at::matmul(heads(turned(q)), heads(turned(k).repeat_interleave(group, 2)).transpose(-1, -2)) /
      std::sqrt(static_cast<double>(q.size(3)));
  const Tensor all = at::ones({q.size(1), q.size(1)}, at::kBool);
  const Tensor hidden = window > 0 ? all.triu(1).logical_or(all.tril(-window)) : all.triu(1);
  const Tensor weights =
      at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  return at::matmul(weights, heads(v.repeat_interleave(group, 2))).transpose(1, 2).flatten(2);
}

Tensor by_operations(const Tensor& q, const Tensor& k, const Tensor& v, const Documents& documents,
                     int64_t window) {
  if (documents.empty()) return by_operations(q, k, v, window);
  std::vector<Tensor> mixed;
  int64_t begin = 0;
  for (const int64_t length : documents.lengths) {
    const auto part = [&](const Tensor& x) {
      return x.flatten(0, 1).narrow(0, begin, length).unsqueeze(0);
    };
    mixed.push_back(by_operations(part(q), part(k), part(v), window));
    begin += length;
  }
  return at::cat(mixed, 1).view({q.size(0), q.size(1), -1});
}

// The result and the gradients of queries, keys and values.
template <typename Attend>
std::vector<Tensor> results_of(const Tensor& qkv, int64_t kv_heads, const Attend& attend) {
  Tensor leaf = qkv.detach().clone();
  leaf.set_requires_grad(true);
  // As a model with one projection has them: views of rows that are wider.
  const std::vector<Tensor> parts =
      leaf.split_with_sizes({kHeads * kDim, kv_heads * kDim, kv_heads * kDim}, 2);
  const auto heads = [](const Tensor& x) { return x.view({kBatch, kTokens, -1, kDim}); };
  const Tensor out = attend(heads(parts[0]), heads(parts[1]), heads(parts[2]));
  compat::backward((out * out).sum(), {});
  return {out.detach(), leaf.grad()};
}

Tensor random_qkv(int64_t kv_heads) {
  at::manual_seed(3);
  return at::randn({kBatch, kTokens, (kHeads + 2 * kv_heads) * kDim}, at::kDouble);
}

// By products as on a GPU in fp32, and in bf16 where there is a window.
constexpr std::pair<at::ScalarType, CausalAttention::By> kWays[] = {
    {at::kDouble, CausalAttention::By::kBlocks},
    {at::kFloat, CausalAttention::By::kBlocks},
    {at::kDouble, CausalAttention::By::kProducts},
    {at::kFloat, CausalAttention::By::kProducts}};

void expect_agreement(const Documents& documents, int64_t window) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    const Tensor qkv = random_qkv(kv_heads);
    const auto expected = results_of(qkv, kv_heads, [&](const auto&... parts) {
      return by_operations(parts..., documents, window);
    });
    for (const auto& [type, by] : kWays) {
      const CausalAttention attention(model_with(kv_heads, window), kTokens, type, at::kCPU,
                                      GpuAttention::kAuto, by);
      const auto found = results_of(qkv.to(type), kv_heads, [&](const auto&... parts) {
        return attention(parts..., documents);
      });
      for (size_t i = 0; i < found.size(); ++i) {
        const double largest = expected[i].abs().max().item<double>();
        const double difference = (found[i] - expected[i]).abs().max().item<double>();
        EXPECT_LT(difference / largest, type == at::kDouble ? 1e-13 : 3e-6)
            << kv_heads << " key heads, " << documents.lengths.size() << " documents, window "
            << window << ", by " << static_cast<int>(by) << ", " << i;
      }
    }
  }
}

TEST(CausalAttention, AgreesWithOperationsOfLibTorch) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{}, std::vector<int64_t>{150, 1, 99, 50, 70, 80}}) {
    for (const int64_t window : {0, 33, 64}) expect_agreement(documents_of(lengths), window);
  }
}

// On a GPU in bf16 and fp16 this is what attends within whole sequences, and within documents where
// no kernel takes them packed. LibTorch has such a kernel for CPUs too.
TEST(CausalAttention, ByLibTorchsFusedCallAgreesWithOperations) {
  if (!compat::kHasFusedAttention) {
    GTEST_SKIP() << "LibTorch " << compat::torch_version() << " has none that we use";
  }
  const std::vector<int64_t> lengths = {150, 1, 99, 50, 70, 80};
  for (const Documents& documents : {documents_of({}), documents_of(lengths)}) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      const Tensor qkv = random_qkv(kv_heads);
      const auto expected = results_of(qkv, kv_heads, [&](const auto&... parts) {
        return by_operations(parts..., documents, 0);
      });
      for (const auto& [type, bound] :
           {std::pair(at::kDouble, 1e-13), std::pair(at::kFloat, 3e-6),
            std::pair(at::kBFloat16, 1.0 / 64), std::pair(at::kHalf, 1.0 / 512)}) {
        const CausalAttention attention(model_with(kv_heads), kTokens, type, at::kCPU,
                                        GpuAttention::kAuto, CausalAttention::By::kFused);
        const testing::CountedOperations calls;
        const auto found = results_of(qkv.to(type), kv_heads, [&](const auto&... parts) {
          return attention(parts..., documents);
        });
        const int attended = documents.empty() ? 1 : static_cast<int>(documents.lengths.size());
        if (kv_heads == kHeads) {  // those that share keys go without a kernel in some releases
          EXPECT_EQ(calls.of("aten::_scaled_dot_product_flash_attention_for_cpu"), attended);
          EXPECT_EQ(calls.of("aten::_scaled_dot_product_flash_attention_for_cpu_backward"),
                    attended);
        }
        for (size_t i = 0; i < found.size(); ++i) {
          const double largest = expected[i].abs().max().item<double>();
          const double difference = (found[i] - expected[i]).abs().max().item<double>();
          EXPECT_LT(difference / largest, bound)
              << kv_heads << " key heads, " << attended << " calls, " << type << ", " << i;
        }
      }
    }
  }
}

// In bf16, of operands that are bf16.
TEST(CausalAttention, OnMatrixUnitsIsWithinItsErrorOfOperations) {
  if (!has_bf16_matrix_units()) GTEST_SKIP() << "this processor has no matrix units";
  const ScopedBf16Products units(Bf16Products::kMatrixUnits);
  const Documents documents = documents_of({150, 1, 99, 50, 70, 80});
  for (const int64_t window : {0, 33}) {
    const Tensor qkv = random_qkv(2).to(at::kBFloat16);
    const auto expected = results_of(qkv.to(at::kDouble), 2, [&](const auto&... parts) {
      return by_operations(parts..., documents, window);
    });
    const CausalAttention attention(model_with(2, window), kTokens, at::kBFloat16);
    const auto found =
        results_of(qkv, 2, [&](const auto&... parts) { return attention(parts..., documents); });
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].scalar_type(), at::kBFloat16);
      const double largest = expected[i].abs().max().item<double>();
      const double difference = (found[i] - expected[i]).abs().max().item<double>();
      EXPECT_LT(difference / largest, 1.0 / 64) << "window " << window << ", " << i;
    }
  }
}

// They are widened, computed like fp32, and rounded once.
TEST(CausalAttention, NarrowTypesAreRoundedOnce) {
  const ScopedBf16Products widened(Bf16Products::kWidened);
  const Documents documents = documents_of({150, 1, 99, 50, 70, 80});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const Tensor qkv = random_qkv(2).to(type);
    const auto results = [&](at::ScalarType compute) {
      const CausalAttention attention(model_with(2), kTokens, compute);
      return results_of(qkv.to(compute), 2,
                        [&](const auto&... parts) { return attention(parts..., documents); });
    };
    const std::vector<Tensor> narrow = results(type);
    const std::vector<Tensor> wide = results(at::kFloat);
    EXPECT_EQ(narrow[0].scalar_type(), type);
    EXPECT_TRUE(at::equal(narrow[0], wide[0].to(type))) << type;
    // What the gradients come from was rounded: the result, twice its size, and each of them.
    const double largest = wide[1].abs().max().item<double>();
    const double difference = (narrow[1].to(at::kFloat) - wide[1]).abs().max().item<double>();
    EXPECT_LT(difference / largest, type == at::kHalf ? 1e-3 : 8e-3) << type;
    EXPECT_GT(difference, 0) << type << ": nothing was rounded";
  }
}

TEST(CausalAttention, HasTheSameBitsWithTwoThreads) {
  const CausalAttention attention(model_with(2), kTokens, at::kFloat);
  const Tensor qkv = random_qkv(2).to(at::kFloat);
  const int before = at::get_num_threads();
  std::vector<std::vector<Tensor>> results;
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    results.push_back(results_of(
        qkv, 2, [&](const auto&... parts) { return attention(parts..., documents_of({})); }));
  }
  at::set_num_threads(before);
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
  }
}

// Validation and the first pass of recomputed layers build no graph.
TEST(CausalAttention, WorksWithoutAGraph) {
  const CausalAttention attention(model_with(4), kTokens, at::kFloat);
  const Tensor qkv = random_qkv(4).to(at::kFloat);
  const auto attend = [&](const auto&... parts) { return attention(parts..., documents_of({})); };
  const Tensor expected = results_of(qkv, 4, attend)[0];
  const c10::NoGradGuard no_grad;
  const std::vector<Tensor> parts = qkv.view({kBatch, kTokens, 3, kHeads, kDim}).unbind(2);
  const Tensor out = attend(parts[0], parts[1], parts[2]);
  EXPECT_TRUE(at::equal(out, expected));
  EXPECT_FALSE(out.requires_grad());
}

}  // namespace
}  // namespace hpctl
