// SPDX-License-Identifier: Apache-2.0
// Training with tensor parallelism, with and without sharding, against one rank that has all of the
// model: losses, gradient norms, gradients, weights and evaluations. Ranks are threads.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/trainer/sharded_training.h"

namespace hpctl::test {
namespace {

// One rank has the same model and the same sequences.
Setting whole_of(Setting s) {
  s.world_size = 1;
  s.tensor = 1;
  s.strategy = "full";
  s.checkpointing = "none";
  s.micros = 1;
  return s;
}

void expect_whole(const Setting& s, int steps = 3) {
  const Training parts = train(s, steps);
  const Training whole = train(whole_of(s), steps);
  expect_agreement(parts, whole, s);
  ASSERT_EQ(parts.evaluations.size(), whole.evaluations.size());
  for (size_t k = 0; k < whole.evaluations.size(); ++k) {
    EXPECT_NEAR(parts.evaluations[k], whole.evaluations[k], 1e-6 * whole.evaluations[k])
        << name_of(s);
  }
}

// 257 is odd, so ranks have different parts of the vocabulary; "tiny" has two key heads, which
// four ranks share.
Setting divided(int world_size, int64_t tensor) {
  return {.world_size = world_size, .tensor = tensor, .vocab = 257, .evaluates = true};
}

TEST(TensorTraining, LayersAloneAreDivided) {
  expect_whole(divided(2, 2));
  expect_whole(divided(4, 4));
}

TEST(TensorTraining, EveryStrategyDividesTheParts) {
  for (const char* strategy : {"full", "shard_grad_op", "optimizer", "no_shard"}) {
    Setting s = divided(4, 2);
    s.strategy = strategy;
    s.micros = 2;
    expect_whole(s);
  }
}

TEST(TensorTraining, WhateverALayerKeeps) {
  for (const char* checkpointing : {"full", "selective", "operations"}) {
    Setting s = divided(4, 2);
    s.checkpointing = checkpointing;
    expect_whole(s);
  }
}

TEST(TensorTraining, LossInChunksOfDocumentsWithMaskedTargets) {
  Setting s = divided(2, 2);
  s.chunk_tokens = 24;
  s.documents = true;
  s.masked = true;
  s.evaluates = false;
  expect_whole(s);
}

TEST(TensorTraining, EveryArchitectureOfTheFamily) {
  for (const char* preset : {"tiny-qwen2", "tiny-qwen3", "tiny-mistral"}) {
    for (const bool tied : {false, true}) {
      Setting s = divided(4, 2);
      s.preset = preset;
      s.tied = tied;
      expect_whole(s);
    }
  }
}

// The order of a sum depends on the mesh alone.
TEST(TensorTraining, AgainHasTheSameBits) {
  const Setting s = divided(4, 2);
  expect_same_bits(train(s, 3), train(s, 3), name_of(s));
}

}  // namespace
}  // namespace hpctl::test
