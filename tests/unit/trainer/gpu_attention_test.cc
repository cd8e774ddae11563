// SPDX-License-Identifier: Apache-2.0
// What workload.train.gpu.attention asks for is had or refused, never replaced. The one kernel is a
// stand-in here, which refuses as LibTorch does.
#include "trainer/arch/gpu_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/job/job_spec.h"
#include "trainer/arch/model.h"
#include "trainer/device/torch_device.h"

namespace hpctl {
namespace {

using at::Tensor;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TrainSpec asking_for(GpuAttention attention) {
  TrainSpec train;
  train.model.dim = 64;
  train.model.heads = 4;
  train.model.kv_heads = 2;
  train.data.seq_len = 24;
  train.gpu.attention = attention;
  return train;
}

// Sizes of what the stand-in was given last.
std::vector<int64_t> seen_queries;
std::vector<int64_t> seen_keys;

Tensor takes_all(const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  seen_queries = q.sizes().vec();
  seen_keys = k.sizes().vec();
  const Tensor weights =
      at::softmax(at::matmul(q.transpose(1, 2), k.permute({0, 2, 3, 1})) * scale, -1);
  return at::matmul(weights, v.transpose(1, 2)).transpose(1, 2);
}
Tensor refuses(const Tensor&, const Tensor&, const Tensor&, double) {
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}
Tensor refuses_backward(const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  const Tensor out = takes_all(q, k, v, scale);
  out.register_hook([](const Tensor&) { TORCH_CHECK(false, "backward takes heads up to 192"); });
  return out;
}
Tensor is_out_of_memory(const Tensor&, const Tensor&, const Tensor&, double) {
  TORCH_CHECK_WITH(OutOfMemoryError, false, "tried to allocate 2 GiB");
}

Outcome checked(const TrainSpec& train, AttendByOneKernel* attend) {
  return check_gpu_attention(train, at::kFloat, at::kCPU, attend);
}

TEST(GpuAttention, IsAskedForwardAndBackwardOnASequenceOfTheJobs) {
  for (const GpuAttention asked : {GpuAttention::kFlash, GpuAttention::kCudnn}) {
    EXPECT_TRUE(checked(asking_for(asked), takes_all).ok());
    EXPECT_EQ(seen_queries, (std::vector<int64_t>{1, 24, 2, 16}));
    EXPECT_EQ(seen_keys, (std::vector<int64_t>{1, 24, 1, 16}));
  }
}

TEST(GpuAttention, WhatIsRefusedNamesKeyCauseAndRemedy) {
  const auto reason = [](GpuAttention asked, AttendByOneKernel* attend) {
    const Outcome outcome = checked(asking_for(asked), attend);
    EXPECT_FALSE(outcome.ok());
    if (outcome.ok()) return std::string();
    EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument) << "a restart would not help";
    EXPECT_THAT(outcome.error().message, HasSubstr("; leave it auto, or say products"));
    return outcome.error().message;
  };
  const std::string forward = reason(GpuAttention::kCudnn, refuses);
  EXPECT_THAT(forward, StartsWith("workload.train.gpu.attention: cudnn is not to be had: "));
  EXPECT_THAT(forward, HasSubstr(" does not take heads of 16 in bf16 on cpu: No available kernel"));
  EXPECT_THAT(reason(GpuAttention::kFlash, refuses_backward),
              HasSubstr("backward takes heads up to 192"));
  EXPECT_THAT(reason(GpuAttention::kFlash, nullptr), HasSubstr("cannot choose one kernel"));
}

// It threw in the backward pass of the first step, and again after each restart.
TEST(GpuAttention, WideHeadsNeedABackwardPassInAFixedOrder) {
  TrainSpec train = asking_for(GpuAttention::kAuto);
  train.model.dim = 4 * 288;
  train.data.seq_len = 8;
  EXPECT_TRUE(checked(train, takes_all).ok());
  EXPECT_TRUE(checked(train, nullptr).ok()) << "an old LibTorch attends by products";
  const Outcome outcome = checked(train, refuses_backward);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(outcome.error().message, StartsWith("workload.train.gpu.deterministic: LibTorch "));
  EXPECT_THAT(outcome.error().message,
              HasSubstr("no attention in a fixed order for heads of 288 on cpu: backward takes"));
  train.gpu.deterministic = false;
  EXPECT_TRUE(checked(train, refuses_backward).ok());
  train.gpu = {.attention = GpuAttention::kProducts};
  EXPECT_TRUE(checked(train, refuses_backward).ok());
  train.gpu = {};
  train.model.dim = 4 * 256;
  EXPECT_TRUE(checked(train, refuses_backward).ok()) << "FlashAttention takes these";
}

TEST(GpuAttention, AWindowIsRefusedWhereNoKernelHasOne) {
  TrainSpec train = asking_for(GpuAttention::kFlash);
  train.model.sliding_window = 24;
  EXPECT_TRUE(checked(train, takes_all).ok()) << "none, as the sequence is no longer";
  train.model.sliding_window = 8;
  const Outcome outcome = checked(train, takes_all);  // LibTorch has none for CPUs
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("has no window for heads of 16"));
}

TEST(GpuAttention, AutoAndProductsAskNobody) {
  EXPECT_TRUE(checked(asking_for(GpuAttention::kAuto), refuses).ok());
  EXPECT_TRUE(checked(asking_for(GpuAttention::kProducts), nullptr).ok());
}

TEST(GpuAttention, MemoryThatIsNotThereIsNoRefusal) {
  EXPECT_THROW(static_cast<void>(checked(asking_for(GpuAttention::kFlash), is_out_of_memory)),
               c10::OutOfMemoryError);
}

TEST(GpuAttention, ReleasesWithoutAChoiceHaveNone) {
  EXPECT_EQ(pinned_attention() != nullptr, compat::kHasPinnedAttention);
}

// On a device that is none, and so has none of a GPU's kernels.
TEST(GpuAttention, AModelSaysWhichWayItGoes) {
  for (const char* preset : {"tiny", "tiny-gpt", "tiny-mistral"}) {
    TrainSpec train;
    ModelSpec& model = train.model = *model_preset(preset);
    if (model.arch == Arch::mistral) model.sliding_window = 8;
    train.data.seq_len = 24;
    const auto by = [&](at::ScalarType type, at::Device device, GpuAttention asked) {
      train.gpu.attention = asked;
      return make_model(train, type, device)->attention_by();
    };
    const bool fused = compat::kHasFusedAttention && model.arch != Arch::mistral;
    EXPECT_EQ(by(at::kBFloat16, at::kMeta, GpuAttention::kAuto),
              fused ? AttentionBackend::kFused : AttentionBackend::kProducts);
    EXPECT_EQ(by(at::kBFloat16, at::kMeta, GpuAttention::kCudnn), AttentionBackend::kFused);
    EXPECT_EQ(by(at::kFloat, at::kMeta, GpuAttention::kAuto), AttentionBackend::kProducts);
    EXPECT_EQ(by(at::kBFloat16, at::kCPU, GpuAttention::kCudnn), AttentionBackend::kBlocks);
  }
}

TEST(GpuKeys, LibTorchIsToldWhetherToBeDeterministic) {
  const at::Context& context = at::globalContext();
  tell_libtorch({});
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
#if !HP_TORCH_AT_LEAST(2, 9)  // of another type from there on
  EXPECT_FALSE(context.allowFP16ReductionCuBLAS()) << "partial sums stay in fp32";
#endif
  tell_libtorch({.deterministic = false});
  EXPECT_FALSE(context.deterministicAlgorithms());
}

}  // namespace
}  // namespace hpctl
