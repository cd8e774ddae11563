// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's environment tells about bits.
#include "trainer/state/exactness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Manifest written_by(const TrainSpec& train) {
  Manifest manifest;
  manifest.step = 7;
  manifest.world_size = 2;
  manifest.environment = environment_of(train);
  return manifest;
}

// What is said of a run that `change` makes different from the one that wrote the checkpoint.
std::string after(void (*change)(TrainSpec&), const TrainSpec& before = {}) {
  TrainSpec now = before;
  change(now);
  return inexact_reason(written_by(before), 2, environment_of(now));
}

TEST(Exactness, WhatChangesBitsIsSeen) {
  EXPECT_EQ(after([](TrainSpec&) {}), "");
  EXPECT_EQ(after([](TrainSpec& t) { t.batch.micro = 2; }),
            "batch.micro changed from 1 to 2 after step 7");
  const auto expect = [](const char* label, void (*change)(TrainSpec&)) {
    EXPECT_THAT(after(change), StartsWith(std::string(label) + " changed from ")) << label;
  };
  expect("batch.global", [](TrainSpec& t) { t.batch.global = 16; });
  expect("batch.ramp", [](TrainSpec& t) { t.batch.ramp = {{100, 4}}; });
  expect("data.reset_at_documents", [](TrainSpec& t) { t.data.mask = DocumentMask::kDocuments; });
  expect("data.mask", [](TrainSpec& t) { t.data.mask = DocumentMask::kBorders; });
  expect("loss", [](TrainSpec& t) { t.loss.chunk_tokens = 64; });
  expect("loss", [](TrainSpec& t) { t.loss.z_loss = 1e-4; });
  expect("optimizer", [](TrainSpec& t) { t.optimizer.lr = 1; });
  expect("optimizer", [](TrainSpec& t) { t.optimizer.moments = StateType::kBf16; });
  expect("optimizer", [](TrainSpec& t) { t.optimizer.master = StateType::kBf16; });
  expect("precision", [](TrainSpec& t) { t.precision = Precision::kFp32; });
  expect("schedule", [](TrainSpec& t) { t.schedule.warmup_steps = 9; });
  expect("schedule", [](TrainSpec& t) { t.steps = 9; });
  expect("stability", [](TrainSpec& t) { t.stability.spikes = true; });
  expect("strategy", [](TrainSpec& t) { t.strategy = Strategy::kNoShard; });
  expect("strategy", [](TrainSpec& t) {
    t.strategy = Strategy::kHybrid;
    t.shard_group = 2;
  });
}

TEST(Exactness, WhatChangesNoBitsIsNot) {
  EXPECT_EQ(after([](TrainSpec& t) {
              t.memory.activation_checkpointing = Checkpointing::kFull;
              t.memory.offload = {Offload::kOptimizer};
              t.reshard_after_forward = Reshard::kNever;
              t.metrics.tensorboard = false;
              t.validation.every_steps = 5;
              t.stability.policy = BadStepPolicy::kSkip;
              t.loss_scale.initial = 4;
            }),
            "");
  TrainSpec constant;
  constant.schedule.name = ScheduleShape::kConstant;
  EXPECT_EQ(after([](TrainSpec& t) { t.steps = 9; }, constant), "");
}

TEST(Exactness, ALabelOfOneSideAloneIsADifference) {
  Manifest old = written_by({});
  const Environment now = old.environment;
  old.environment["device"] = "cuda sm_90";
  EXPECT_EQ(inexact_reason(old, 2, now),
            "device changed from cuda sm_90 to (not recorded) after step 7");
  old.environment = now;
  old.environment.erase("batch.micro");
  EXPECT_EQ(inexact_reason(old, 2, now),
            "batch.micro changed from (not recorded) to 1 after step 7");
}

TEST(Exactness, OnceLostStaysLost) {
  Manifest loaded = written_by({});
  EXPECT_THAT(inexact_reason(loaded, 4, loaded.environment), HasSubstr("from 2 to 4"));
  loaded.exact = false;
  loaded.inexact_reason = "before";
  EXPECT_EQ(inexact_reason(loaded, 2, loaded.environment), "before");
}

// Those of moments in bf16 that were written when these were rounded to nearest.
TEST(Exactness, StochasticRoundingIsADifferenceForStateInBf16) {
  TrainSpec train;
  train.optimizer.moments = StateType::kBf16;
  Manifest old = written_by(train);
  EXPECT_EQ(inexact_reason(old, 2, environment_of(train)), "");
  old.environment.erase("optimizer.rounding");
  EXPECT_EQ(inexact_reason(old, 2, environment_of(train)),
            "optimizer.rounding changed from (not recorded) to stochastic after step 7");
  EXPECT_FALSE(environment_of({}).contains("optimizer.rounding")) << "fp32 is not rounded";
}

// A key that came later leaves the label of jobs without it as it was.
TEST(Exactness, LabelOfTheOptimizerIsThatOfEarlierReleases) {
  EXPECT_EQ(environment_of({}).at("optimizer"),
            R"({"beta1":0.9,"beta2":0.95,"clip":1.0,"eps":1e-08,"lr":0.0003,"moments":"fp32",)"
            R"("no_decay":["norms","biases"],"weight_decay":0.1})");
}

// Checkpoints that were written when more than three ranks were added one after the other.
TEST(Exactness, AnotherOrderOfSumsIsADifference) {
  const Manifest old = written_by({});
  Environment now = old.environment;
  note_order_of_sums(3, now);
  EXPECT_EQ(inexact_reason(old, 2, now), "");
  note_order_of_sums(4, now);
  EXPECT_EQ(inexact_reason(old, 2, now),
            "sums changed from (not recorded) to in pairs after step 7");
}

// Those that were written when a weight's gradient was rounded before it was added.
TEST(Exactness, GradientsThatProductsAddAreADifferenceWhereTheyAddToSome) {
  const Manifest old = written_by({});
  TrainSpec train;
  train.precision = Precision::kFp32;
  train.batch.micro = 2;
  train.data.seq_len = 256;
  train.loss.chunk_tokens = 512;
  Environment now = old.environment;
  note_weight_gradients(train, /*whole_gradients=*/false, now);
  EXPECT_EQ(inexact_reason(old, 2, now), "");
  train.loss.chunk_tokens = 511;
  note_weight_gradients(train, /*whole_gradients=*/false, now);
  EXPECT_EQ(inexact_reason(old, 2, now),
            "weight_gradients changed from (not recorded) to added by products after step 7");
  now = old.environment;
  note_weight_gradients({}, /*whole_gradients=*/true, now);
  EXPECT_NE(inexact_reason(old, 2, now), "");
}

// A job in bf16 that goes on where the processor has matrix units, or no longer has them, or where
// ONEDNN_MAX_CPU_ISA changed which are used; not one in fp32, whose products are the same.
TEST(Exactness, MatrixUnitsAreADifferenceInBf16) {
  TrainSpec train;
  train.precision = Precision::kBf16;
  Manifest old = written_by(train);
  const auto reason = [&](Bf16Products products) {
    Environment now = environment_of(train);
    note_bf16_products(train, products, now);
    return inexact_reason(old, 2, now);
  };
  EXPECT_EQ(reason(Bf16Products::kWidened),
            "bf16_products changed from (not recorded) to widened after step 7");
  note_bf16_products(train, Bf16Products::kMatrixUnits, old.environment);
  EXPECT_EQ(reason(Bf16Products::kMatrixUnits), "");
  EXPECT_EQ(reason(Bf16Products::kWidened),
            "bf16_products changed from matrix_units to widened after step 7");
  train.precision = Precision::kFp32;
  old = written_by(train);
  EXPECT_EQ(reason(Bf16Products::kMatrixUnits), "");
}

// Checkpoints of GPUs that were written before there was a choice.
TEST(Exactness, WhatAGpuIsToldIsADifferenceWhereItIsNotWhatItDoesUnasked) {
  const Manifest old = written_by({});
  const auto with = [&](const GpuSpec& gpu) {
    Environment now = old.environment;
    note_gpu_keys(gpu, now);
    return now;
  };
  EXPECT_EQ(with({}), old.environment);
  EXPECT_EQ(unrepeatable_reason(with({})), "");
  const Environment flash = with({.attention = GpuAttention::kFlash});
  EXPECT_EQ(inexact_reason(old, 2, flash),
            "gpu.attention changed from (not recorded) to flash after step 7");
  EXPECT_EQ(unrepeatable_reason(flash), "");
  const Environment any_order = with({.deterministic = false});
  EXPECT_EQ(inexact_reason(old, 2, any_order),
            "gpu.deterministic changed from (not recorded) to false after step 7");
  EXPECT_EQ(unrepeatable_reason(any_order),
            "gpu.deterministic is false: the GPU may add in another order each time");
}

// A job that goes on where LibTorch has another kernel for it, or none.
TEST(Exactness, AttentionIsADifferenceWhereAGpuLacksItsKernels) {
  using By = AttentionBackend;
  TrainSpec train;
  train.precision = Precision::kBf16;
  const auto label = [&](By by) {
    Environment environment;
    note_attention(train, by, environment);
    return environment.empty() ? std::string() : environment.at("attention");
  };
  EXPECT_EQ(label(By::kPacked), "");
  EXPECT_EQ(label(By::kFused), "") << "of whole sequences, as if there were more";
  EXPECT_EQ(label(By::kProducts), "products");
  EXPECT_EQ(label(By::kBlocks), "") << "a CPU's";
  train.data.mask = DocumentMask::kDocuments;
  EXPECT_EQ(label(By::kPacked), "");
  EXPECT_EQ(label(By::kFused), "document by document");
  EXPECT_EQ(label(By::kProducts), "products");
  train.data.mask = DocumentMask::kNone;
  train.data.format = DataFormat::kSft;  // answers are documents
  EXPECT_EQ(label(By::kFused), "document by document");

  Manifest old = written_by(train);
  Environment now = old.environment;
  note_attention(train, By::kPacked, now);
  EXPECT_EQ(inexact_reason(old, 2, now), "") << "also of checkpoints from before";
  note_attention(train, By::kFused, now);
  EXPECT_EQ(inexact_reason(old, 2, now),
            "attention changed from (not recorded) to document by document after step 7");
  old.environment = now;
  EXPECT_EQ(inexact_reason(old, 2, now), "");
  note_attention(train, By::kProducts, now);
  EXPECT_EQ(inexact_reason(old, 2, now),
            "attention changed from document by document to products after step 7");

  train.gpu.attention = GpuAttention::kProducts;
  EXPECT_EQ(label(By::kProducts), "") << "gpu.attention says it";
  train.gpu = {};
  train.precision = Precision::kFp32;
  EXPECT_EQ(label(By::kProducts), "") << "there is no other way";
}

TEST(Exactness, NodesCountByTheirShapeAlone) {
  EXPECT_EQ(ranks_by_node({"a", "a", "b", "b"}), "2 2");
  EXPECT_EQ(ranks_by_node({"c", "c", "d", "d"}), "2 2");
  EXPECT_EQ(ranks_by_node({"a", "b", "b", "b"}), "1 3");
}

}  // namespace
}  // namespace hpctl
