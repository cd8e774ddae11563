// SPDX-License-Identifier: Apache-2.0
// Attention over packed documents in one call, on a machine without a GPU: a stand-in for
// LibTorch's flash attention computes what that does, from the same operands (borders, the longest
// document, scale, window) and in the same two steps, the second from the numbers per query that
// the first leaves behind. Beside attention document by document, in fp64.
#include "trainer/arch/packed_attention.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/trainer/host_waits.h"
#include "trainer/arch/attention.h"

namespace hpctl {
namespace {

using at::Tensor;
using compat::PackedAttention;
using compat::PackedResult;
using By = CausalAttention::By;

constexpr int64_t kSequences = 3;
constexpr int64_t kSequenceTokens = 150;
constexpr int64_t kQueryHeads = 4;
constexpr int64_t kHeadDim = 16;
const std::vector<int64_t> kLengths = {150, 1, 99, 50, 70, 80};

// What the stand-in was asked last, and how often.
struct Asked {
  int forwards = 0;
  int backwards = 0;
  std::vector<int32_t> borders;
  int64_t longest = 0;
  double scale = 0;
  int64_t window = 0;
};
Asked asked;

// What LibTorch's checks of its operands want, but for the device and the type.
void check_operands(const PackedAttention& of) {
  TORCH_CHECK(of.q.dim() == 3 && of.k.dim() == 3 && of.v.sizes() == of.k.sizes());
  TORCH_CHECK(of.k.size(0) == of.q.size(0) && of.q.size(1) % of.k.size(1) == 0);
  TORCH_CHECK(of.q.size(2) == of.k.size(2) && of.q.size(2) <= 256);
  TORCH_CHECK(of.q.size(2) % 8 == 0, "head_size must be a multiple of 8");
  for (const Tensor& x : {of.q, of.k, of.v}) TORCH_CHECK(x.stride(-1) == 1);
  TORCH_CHECK(of.borders.scalar_type() == at::kInt && of.borders.is_contiguous());
  TORCH_CHECK(of.borders.dim() == 1 && of.borders.size(0) > 1);
}

// work(the part of a tensor that is the document's, [heads, tokens, h], as its key heads for each
// query head; the logarithms of its weights without their sums)
template <typename Work>
void for_documents(const PackedAttention& of, const Work& work) {
  const auto* const border = of.borders.data_ptr<int32_t>();
  for (int64_t d = 0; d + 1 < of.borders.size(0); ++d) {
    const int64_t tokens = border[d + 1] - border[d];
    const auto part = [&](const Tensor& x) {
      return x.narrow(0, border[d], tokens)
          .transpose(0, 1)
          .repeat_interleave(of.q.size(1) / x.size(1), 0);
    };
    const Tensor all = at::ones({tokens, tokens}, at::kBool);
    const Tensor scores = (at::matmul(part(of.q), part(of.k).transpose(1, 2)) * of.scale)
                              .masked_fill(all.triu(1).logical_or(all.tril(-of.window)),
                                           -std::numeric_limits<double>::infinity());
    work(part, scores, int64_t{border[d]}, tokens);
  }
}

PackedResult stand_in_forward(const PackedAttention& of) {
  const at::RecordFunctionGuard as_on_the_gpu(/*is_enabled=*/false);
  check_operands(of);
  ++asked.forwards;
  const auto* const border = of.borders.data_ptr<int32_t>();
  asked.borders.assign(border, border + of.borders.size(0));
  asked.longest = of.longest;
  asked.scale = of.scale;
  asked.window = of.window;
  PackedResult result = {
      at::empty_like(of.q), at::empty({of.q.size(1), of.q.size(0)}, of.q.options()), {}, {}};
  for_documents(of, [&](const auto& part, const Tensor& scores, int64_t begin, int64_t tokens) {
    TORCH_CHECK(tokens <= of.longest);
    const Tensor log_sums = at::logsumexp(scores, -1);
    result.log_sums.narrow(1, begin, tokens).copy_(log_sums);
    const Tensor weights = (scores - log_sums.unsqueeze(-1)).exp();
    result.out.narrow(0, begin, tokens).copy_(at::matmul(weights, part(of.v)).transpose(0, 1));
  });
  return result;
}

std::tuple<Tensor, Tensor, Tensor> stand_in_backward(const Tensor& gradient,
                                                     const PackedAttention& of,
                                                     const PackedResult& result) {
  const at::RecordFunctionGuard as_on_the_gpu(/*is_enabled=*/false);
  check_operands(of);
  ++asked.backwards;
  TORCH_CHECK(gradient.sizes() == of.q.sizes() && gradient.is_contiguous());
  Tensor q = at::empty_like(of.q);
  Tensor k = at::empty_like(of.k);
  Tensor v = at::empty_like(of.v);
  for_documents(of, [&](const auto& part, const Tensor& scores, int64_t begin, int64_t tokens) {
    const auto put = [&](Tensor& to, const Tensor& from) {  // [heads of q, tokens, h]
      const Tensor heads = from.view({to.size(1), -1, tokens, to.size(2)}).sum(1);
      to.narrow(0, begin, tokens).copy_(heads.transpose(0, 1));
    };
    const Tensor weights = (scores - result.log_sums.narrow(1, begin, tokens).unsqueeze(-1)).exp();
    const Tensor slopes = at::matmul(part(gradient), part(of.v).transpose(1, 2));
    const Tensor means = (part(gradient) * part(result.out)).sum(-1, /*keepdim=*/true);
    const Tensor of_scores = weights * (slopes - means) * of.scale;
    put(v, at::matmul(weights.transpose(1, 2), part(gradient)));
    put(q, at::matmul(of_scores, part(of.k)));
    put(k, at::matmul(of_scores.transpose(1, 2), part(of.q)));
  });
  return {q, k, v};
}

constexpr PackedKernels kStandIn = {&stand_in_forward, &stand_in_backward};

// The arguments of a call of LibTorch's under the names that its release has for them.
class Arguments {
 public:
  Arguments(const c10::FunctionSchema& schema, const c10::Stack& stack)
      : schema_(schema), values_(stack.end() - std::ssize(schema.arguments()), stack.end()) {}

  const c10::IValue& operator[](const char* name) const { return after(name, 0); }
  // So many behind the one of that name.
  const c10::IValue& after(const char* name, int places) const {
    const auto place = schema_.argumentIndexWithName(name);
    TORCH_CHECK(place.has_value(), schema_, " has no argument ", name);
    return values_.at(static_cast<size_t>(*place + places));
  }

 private:
  const c10::FunctionSchema& schema_;
  const std::vector<c10::IValue> values_;
};

PackedAttention of_call(const Arguments& given) {
  const Tensor borders = given["cum_seq_q"].toTensor();
  const int64_t longest = given["max_q"].toInt();
  TORCH_CHECK(given["cum_seq_k"].toTensor().is_same(borders));
  TORCH_CHECK(given["max_k"].toInt() == longest);
  TORCH_CHECK(given["dropout_p"].toDouble() == 0 && given["is_causal"].toBool());
  const c10::IValue& left = given["window_size_left"];
  const c10::IValue& right = given["window_size_right"];
  TORCH_CHECK(left.isNone() ? right.isNone() : right.toInt() == 0);
  return {given["query"].toTensor(),
          given["key"].toTensor(),
          given["value"].toTensor(),
          borders,
          longest,
          given["scale"].toDouble(),
          left.isNone() ? longest : left.toInt() + 1};
}

constexpr int64_t kSeed = 17;
constexpr int64_t kOffset = 19;

void forward_of_libtorch(const c10::OperatorHandle& operation, c10::Stack* stack) {
  const Arguments given(operation.schema(), *stack);
  TORCH_CHECK(!given["return_debug_mask"].toBool());
  const PackedResult result = stand_in_forward(of_call(given));
  torch::jit::drop(*stack, operation.schema().arguments().size());
  torch::jit::push(*stack, result.out, result.log_sums, at::scalar_tensor(kSeed, at::kLong),
                   at::scalar_tensor(kOffset, at::kLong), Tensor());
}

void backward_of_libtorch(const c10::OperatorHandle& operation, c10::Stack* stack) {
  const Arguments given(operation.schema(), *stack);
  // Releases have two pairs of names for these.
  TORCH_CHECK(given.after("is_causal", 1).toTensor().item<int64_t>() == kSeed);
  TORCH_CHECK(given.after("is_causal", 2).toTensor().item<int64_t>() == kOffset);
  const auto [q, k, v] =
      stand_in_backward(given["grad_out"].toTensor(), of_call(given),
                        {given["out"].toTensor(), given["logsumexp"].toTensor(), {}, {}});
  torch::jit::drop(*stack, operation.schema().arguments().size());
  torch::jit::push(*stack, q, k, v);
}

// LibTorch's own operations, which have kernels for GPUs alone, have the stand-in on the CPU.
class OnTheCpu {
 public:
  OnTheCpu() {
    library_.impl("_flash_attention_forward",
                  torch::CppFunction::makeFromBoxedFunction<&forward_of_libtorch>());
    library_.impl("_flash_attention_backward",
                  torch::CppFunction::makeFromBoxedFunction<&backward_of_libtorch>());
  }

 private:
  torch::Library library_{torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__};
};

constexpr PackedKernels kLibTorchs = {&compat::packed_attention,
                                      &compat::packed_attention_backward};

ModelSpec model_of(int64_t kv_heads, int64_t window = 0) {
  ModelSpec model;
  model.arch = Arch::mistral;
  model.dim = 40;  // heads have a width of their own
  model.heads = kQueryHeads;
  model.kv_heads = kv_heads;
  model.head_dim = kHeadDim;
  model.sliding_window = window;
  return model;
}

Documents documents_with(const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return {};
  std::vector<Tensor> positions;
  for (const int64_t length : lengths) positions.push_back(at::arange(length));
  return documents_at(at::cat(positions).view({kSequences, -1}));
}

CausalAttention attention_by(By by, int64_t kv_heads, int64_t window,
                             const PackedKernels& kernels = kStandIn) {
  return {model_of(kv_heads, window),
          kSequenceTokens,
          at::kDouble,
          at::kCPU,
          GpuAttention::kAuto,
          by,
          &kernels};
}

// The result, and the gradient of the rows that queries, keys and values are parts of.
std::vector<Tensor> attended(const CausalAttention& attention, int64_t kv_heads,
                             const Documents& documents) {
  at::manual_seed(3);
  Tensor qkv = at::randn({kSequences, kSequenceTokens, (kQueryHeads + 2 * kv_heads) * kHeadDim},
                         at::kDouble);
  qkv.set_requires_grad(true);
  std::vector<Tensor> parts =
      qkv.split_with_sizes({kQueryHeads * kHeadDim, kv_heads * kHeadDim, kv_heads * kHeadDim}, 2);
  for (Tensor& part : parts) part = part.view({kSequences, kSequenceTokens, -1, kHeadDim});
  const Tensor out = attention(parts[0], parts[1], parts[2], documents);
  // A gradient that is no tensor of its own, and differs from number to number.
  compat::backward((out * out).sum(), {});
  return {out.detach(), qkv.grad()};
}

void expect_agreement(int64_t kv_heads, const std::vector<int64_t>& lengths, int64_t window,
                      const PackedKernels& kernels = kStandIn) {
  const Documents documents = documents_with(lengths);
  const auto expected =
      attended(attention_by(By::kProducts, kv_heads, window), kv_heads, documents);
  const auto found =
      attended(attention_by(By::kPacked, kv_heads, window, kernels), kv_heads, documents);
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes());
    const double largest = expected[i].abs().max().item<double>();
    const double difference = (found[i] - expected[i]).abs().max().item<double>();
    EXPECT_LT(difference / largest, 1e-13) << kv_heads << " key heads, " << lengths.size()
                                           << " documents, window " << window << ", " << i;
  }
}

TEST(PackedAttention, IsAttentionDocumentByDocument) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const int64_t window : {0, 1, 33, 64}) expect_agreement(kv_heads, kLengths, window);
    for (const int64_t window : {33, 64}) expect_agreement(kv_heads, {}, window);
  }
}

// Its schema and dispatcher are real, the kernel behind them is ours.
TEST(PackedAttention, LibTorchsCallTakesTheArgumentsUnderTheirNames) {
  if (!compat::kHasPackedAttention) {
    GTEST_SKIP() << "LibTorch " << compat::torch_version() << " has no such call";
  }
  EXPECT_FALSE(takes(kLibTorchs, model_of(2), at::kDouble, at::kCPU)) << "it has a kernel there";
  const OnTheCpu kernels;
  EXPECT_TRUE(takes(kLibTorchs, model_of(2), at::kDouble, at::kCPU));
  asked = {};
  for (const int64_t window : {0, 1, 33}) expect_agreement(2, kLengths, window, kLibTorchs);
  expect_agreement(2, {}, 33, kLibTorchs);
  EXPECT_EQ(asked.forwards, 4);
  EXPECT_EQ(asked.backwards, 4);
}

// Which kernel LibTorch takes for generating text would be the one for documents of a token each.
TEST(PackedAttention, DocumentsOfOneTokenAreToldAsOfTwo) {
  if (!compat::kHasPackedAttention) {
    GTEST_SKIP() << "LibTorch " << compat::torch_version() << " has no such call";
  }
  const OnTheCpu kernels;
  expect_agreement(2, std::vector<int64_t>(kSequences * kSequenceTokens, 1), 0, kLibTorchs);
  EXPECT_EQ(asked.longest, 2);
}

TEST(PackedAttention, IsOneCallThatIsToldTheBorders) {
  asked = {};
  attended(attention_by(By::kPacked, 2, 0), 2, documents_with(kLengths));
  EXPECT_EQ(asked.forwards, 1);
  EXPECT_EQ(asked.backwards, 1);
  EXPECT_EQ(asked.borders, (std::vector<int32_t>{0, 150, 151, 250, 300, 370, 450}));
  EXPECT_EQ(asked.longest, 150);
  EXPECT_EQ(asked.scale, 0.25);
  EXPECT_EQ(asked.window, kSequenceTokens) << "none";
  // With a window alone, every sequence is a document.
  asked = {};
  attended(attention_by(By::kPacked, 2, 33), 2, {});
  EXPECT_EQ(asked.forwards, 1);
  EXPECT_EQ(asked.borders, (std::vector<int32_t>{0, 150, 300, 450}));
  EXPECT_EQ(asked.longest, kSequenceTokens);
  EXPECT_EQ(asked.window, 33);
}

TEST(PackedAttention, WaitsForNothing) {
  const CausalAttention attention = attention_by(By::kPacked, 2, 33);
  const Documents documents = documents_with(kLengths);
  const testing::HostWaits waits;
  attended(attention, 2, documents.on("cpu"));
  attended(attention, 2, {});
  EXPECT_EQ(waits.count(), 0);
}

// Evaluation, and the first pass of recomputed layers.
TEST(PackedAttention, WorksWithoutAGraph) {
  const CausalAttention attention = attention_by(By::kPacked, 4, 0);
  const Documents documents = documents_with(kLengths);
  const Tensor expected = attended(attention, 4, documents)[0];
  const c10::NoGradGuard no_grad;
  at::manual_seed(3);
  const Tensor qkv =
      at::randn({kSequences, kSequenceTokens, 3, kQueryHeads, kHeadDim}, at::kDouble);
  const std::vector<Tensor> parts = qkv.unbind(2);
  asked = {};
  const Tensor out = attention(parts[0], parts[1], parts[2], documents);
  EXPECT_TRUE(at::equal(out, expected));
  EXPECT_FALSE(out.requires_grad());
  EXPECT_EQ(asked.forwards, 1);
}

TEST(PackedAttention, BordersAreThoseOfTheDocuments) {
  const Documents documents = documents_with(kLengths);
  EXPECT_EQ(documents.lengths, kLengths);
  EXPECT_EQ(documents.longest, 150);
  EXPECT_EQ(documents.borders.scalar_type(), at::kInt);
  EXPECT_TRUE(
      at::equal(documents.borders, at::tensor({0, 150, 151, 250, 300, 370, 450}, at::kInt)));
  EXPECT_TRUE(documents.on("cpu").borders.is_same(documents.borders)) << "they are there";
  EXPECT_FALSE(Documents().on("cpu").borders.defined());
}

TEST(PackedAttention, IsForGpusInNarrowTypesWhereKernelsTakeTheModel) {
  const at::Device gpu(at::kCUDA, 0);
  for (const bool windowed : {false, true}) {
    for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) {
      EXPECT_EQ(CausalAttention::choose(narrow, gpu, windowed, true), By::kPacked);
      EXPECT_EQ(CausalAttention::choose(narrow, gpu, windowed, false),
                compat::kHasFusedAttention && !windowed ? By::kFused : By::kProducts);
    }
    EXPECT_EQ(CausalAttention::choose(at::kFloat, gpu, windowed, true), By::kProducts);
    EXPECT_EQ(CausalAttention::choose(at::kBFloat16, at::kCPU, windowed, true), By::kBlocks);
  }
  EXPECT_EQ(packed_kernels(model_of(2), at::kBFloat16, at::kCPU), nullptr);
}

TEST(PackedAttention, IsOfOneKernelWhereTheJobNamesIt) {
  const at::Device gpu(at::kCUDA, 0);
  const auto chosen = [&](GpuAttention asked, bool windowed, bool packed) {
    return CausalAttention::choose(at::kBFloat16, gpu, windowed, packed, asked);
  };
  for (const bool windowed : {false, true}) {
    EXPECT_EQ(chosen(GpuAttention::kFlash, windowed, true), By::kPacked);
    for (const bool packed : {false, true}) {
      EXPECT_EQ(chosen(GpuAttention::kProducts, windowed, packed), By::kProducts);
      EXPECT_EQ(chosen(GpuAttention::kCudnn, windowed, packed), By::kFused);
    }
  }
  EXPECT_EQ(CausalAttention::choose(at::kBFloat16, at::kCPU, false, false, GpuAttention::kProducts),
            By::kBlocks);
}

TEST(PackedAttention, KernelsAreAskedForwardAndBackward) {
  asked = {};
  EXPECT_TRUE(takes(kStandIn, model_of(2, 33), at::kDouble, at::kCPU));
  EXPECT_EQ(asked.forwards, 1);
  EXPECT_EQ(asked.backwards, 1);
  EXPECT_EQ(asked.borders, (std::vector<int32_t>{0, 2}));
  EXPECT_LT(asked.window, asked.longest) << "a window that is one";
  ModelSpec odd = model_of(2);
  odd.head_dim = 20;
  EXPECT_FALSE(takes(kStandIn, odd, at::kDouble, at::kCPU));
  const PackedKernels forward_alone = {
      &stand_in_forward,
      [](const Tensor&, const PackedAttention&,
         const PackedResult&) -> std::tuple<Tensor, Tensor, Tensor> {
        TORCH_CHECK(false, "backward takes heads up to 192");
      }};
  EXPECT_FALSE(takes(forward_alone, model_of(2), at::kDouble, at::kCPU));
}

}  // namespace
}  // namespace hpctl
