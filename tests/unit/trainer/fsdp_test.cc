// SPDX-License-Identifier: Apache-2.0
// Sharded training, every strategy, against the plain model of reference_model.h and against one
// rank. Ranks are threads.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>

#include "tests/unit/trainer/reference_model.h"
#include "tests/unit/trainer/sharded_training.h"
#include "trainer/arch/initial_values.h"
#include "trainer/arch/model.h"
#include "trainer/arch/registry.h"
#include "trainer/arch/targets.h"

namespace hpctl::test {
namespace {

using PlainLoss = std::function<at::Tensor(const ModelSpec&, const testing::ParameterMap&)>;

// The first step of one rank of `setting` beside the plain model in fp64.
void expect_the_plain_model(const Setting& setting, const PlainLoss& plain_loss) {
  const ModelSpec spec = model_of(setting);
  const std::vector<Block> blocks = model_layout(spec);
  testing::ParameterMap parameters;
  for (const Block& block : blocks) {
    std::vector<float> flat(block.numel);
    fill_initial_values(spec, block, 3, {0, block.numel}, flat.data());
    for (const TensorSlot& tensor : block.tensors) {
      at::Tensor leaf =
          at::from_blob(flat.data() + tensor.offset, tensor.shape, at::kFloat).to(at::kDouble);
      parameters[tensor.name] = leaf.set_requires_grad(true);
    }
  }
  const at::Tensor loss = plain_loss(spec, parameters);
  compat::backward(loss, {});
  Blocks expected;
  for (const Block& block : blocks) {
    expected.emplace_back(block.numel);
    for (const TensorSlot& tensor : block.tensors) {
      const at::Tensor gradient = parameters[tensor.name].grad().contiguous();
      for (int64_t k = 0; k < tensor.numel; ++k) {
        expected.back()[tensor.offset + k] = static_cast<float>(gradient.data_ptr<double>()[k]);
      }
    }
  }
  const Training trained = train(setting, 1);
  EXPECT_NEAR(trained.losses[0], loss.item<double>(), 2e-6 * trained.losses[0]);
  EXPECT_LT(worst_difference(trained.gradients, expected, setting), 2e-5);
  EXPECT_GT(trained.norms[0], kClip) << "these tests are meant to clip";
}

TEST(FullySharded, OneRankMatchesThePlainModel) {
  for (const char* preset : {"tiny", "tiny-gpt", "tiny-qwen2", "tiny-qwen3", "tiny-mistral"}) {
    expect_the_plain_model(
        {.preset = preset}, [](const ModelSpec& spec, const testing::ParameterMap& parameters) {
          return testing::reference_loss(spec, parameters, some_tokens(1), some_tokens(8));
        });
  }
}

// A sequence of several documents costs what they cost one by one, each weighted by its tokens.
TEST(FullySharded, PackedDocumentsAreTrainedOnAsIfAlone) {
  const auto one_by_one = [](const ModelSpec& spec, const testing::ParameterMap& parameters) {
    const at::Tensor tokens = some_tokens(1).view({1, -1});
    const at::Tensor targets = some_tokens(8).view({1, -1});
    at::Tensor sum = at::zeros({}, at::kDouble);
    int64_t first = 0;
    for (const int64_t length : documents_at(some_positions()).lengths) {
      sum = sum + testing::reference_loss(spec, parameters, tokens.narrow(1, first, length),
                                          targets.narrow(1, first, length)) *
                      static_cast<double>(length);
      first += length;
    }
    EXPECT_EQ(first, kSequences * kTokens);
    return sum / static_cast<double>(first);
  };
  for (const char* preset : {"tiny", "tiny-gpt", "tiny-qwen2", "tiny-qwen3"}) {
    expect_the_plain_model({.documents = true, .preset = preset}, one_by_one);
  }
  EXPECT_GT(std::abs(train({.documents = true}, 1).losses[0] - one_rank().losses[0]), 1e-4)
      << "documents change the loss";
}

TEST(FullySharded, TargetsThatAreNotCountedAddNothing) {
  const auto counted_part = masked_targets(8).ne(kNotCounted).to(at::kDouble).mean();
  const auto plain = [&](const ModelSpec& spec, const testing::ParameterMap& parameters) {
    return testing::reference_loss(spec, parameters, some_tokens(1), masked_targets(8)) *
           counted_part;
  };
  expect_the_plain_model({.masked = true}, plain);
  expect_the_plain_model({.chunk_tokens = 7, .masked = true, .preset = "tiny-gpt"}, plain);
  const Training one = train({.masked = true});
  for (const Setting& s : {Setting{.world_size = 2, .micros = 2, .masked = true},
                           Setting{.world_size = 4, .chunk_tokens = 7, .masked = true}}) {
    expect_agreement(train(s), one, s);
  }
}

// Every strategy x accumulation x recomputation x chunks of logits, always with clipping.
class Strategies : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Strategies,
                         ::testing::Values("full", "shard_grad_op", "optimizer", "no_shard",
                                           "hybrid"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Strategies, AgreeWithOneRank) {
  const int64_t group = GetParam() == std::string("hybrid") ? 2 : 0;
  for (Setting s :
       {Setting{.world_size = 2}, Setting{.world_size = 2, .micros = 2, .checkpointing = "full"},
        Setting{.world_size = 4, .checkpointing = "full", .chunk_tokens = 7},
        Setting{.world_size = 4, .micros = 2, .checkpointing = "selective"}}) {
    s.strategy = GetParam();
    s.shard_group = group;
    expect_agreement(train(s), one_rank(), s);
  }
}

TEST_P(Strategies, SameBitsEveryTimeAndWhateverIsRecomputed) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    Setting s;
    s.strategy = GetParam();
    s.world_size = s.strategy == std::string("hybrid") ? 4 : 2;
    s.shard_group = s.strategy == std::string("hybrid") ? 2 : 0;
    s.micros = 2;
    s.compute = compute;
    const Training first = train(s);
    expect_same_bits(train(s), first, name_of(s));
    for (const char* checkpointing : {"full", "operations"}) {
      s.checkpointing = checkpointing;
      expect_same_bits(train(s), first, name_of(s));
    }
  }
}

// With one micro-batch, every strategy adds the same numbers in the same order.
TEST(FullySharded, StrategiesShareTheBitsOfAGradient) {
  const Training full = train({.world_size = 4}, 1);
  for (const char* strategy : {"shard_grad_op", "optimizer", "no_shard"}) {
    const Training other = train({.world_size = 4, .strategy = strategy}, 1);
    EXPECT_EQ(other.losses, full.losses) << strategy;
    EXPECT_EQ(other.gradients, full.gradients) << strategy;
  }
}

TEST(FullySharded, AccumulationAndUnevenHybridGroupsAgreeWithOneRank) {
  for (const Setting& s :
       {Setting{.micros = 4}, Setting{.micros = 4, .strategy = "no_shard"},
        Setting{.world_size = 4, .strategy = "hybrid", .shard_group = 1},
        Setting{.world_size = 4, .strategy = "hybrid", .shard_group = 4},
        Setting{.world_size = 2, .micros = 2, .reshard = "never"},
        Setting{.world_size = 4, .strategy = "hybrid", .shard_group = 2, .reshard = "never"}}) {
    expect_agreement(train(s), one_rank(), s);
  }
}

TEST(FullySharded, DocumentsAgreeWithOneRank) {
  const Training one = train({.documents = true});
  for (const Setting& s :
       {Setting{.world_size = 2, .micros = 2, .checkpointing = "full", .documents = true},
        Setting{.world_size = 4, .strategy = "hybrid", .shard_group = 2, .documents = true},
        Setting{.world_size = 2, .strategy = "no_shard", .chunk_tokens = 7, .documents = true}}) {
    expect_agreement(train(s), one, s);
  }
  for (const char* checkpointing : {"full", "operations"}) {
    const Setting recomputed = {.checkpointing = checkpointing, .documents = true};
    expect_same_bits(train(recomputed), one, name_of(recomputed));
  }
}

// That one rank is right, pytorch_test.cc tells.
TEST(FullySharded, TiedEmbeddingsAgreeWithOneRank) {
  const Training one = train({.tied = true});
  for (const Setting& s :
       {Setting{.world_size = 2, .micros = 2, .tied = true},
        Setting{.world_size = 2, .strategy = "shard_grad_op", .tied = true},
        Setting{.world_size = 2, .strategy = "optimizer", .chunk_tokens = 7, .tied = true},
        Setting{.world_size = 4, .strategy = "hybrid", .shard_group = 2, .tied = true},
        Setting{.micros = 4, .strategy = "no_shard", .checkpointing = "full", .tied = true}}) {
    expect_agreement(train(s), one, s);
  }
}

TEST_P(Strategies, OfAGptAgreeWithOneRank) {
  const int64_t group = GetParam() == std::string("hybrid") ? 2 : 0;
  for (const bool tied : {true, false}) {
    static const std::array<Training, 2> one = {train({.preset = "tiny-gpt"}),
                                                train({.tied = true, .preset = "tiny-gpt"})};
    for (Setting s : {Setting{.world_size = 2, .micros = 2, .checkpointing = "full"},
                      Setting{.world_size = 4, .checkpointing = "selective", .chunk_tokens = 7}}) {
      s.strategy = GetParam();
      s.shard_group = group;
      s.tied = tied;
      s.preset = "tiny-gpt";
      expect_agreement(train(s), one[tied ? 1 : 0], s);
    }
  }
}

TEST(FullySharded, AGptHasTheSameBitsEveryTimeAndWhateverIsRecomputed) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    Setting s = {.world_size = 2, .micros = 2, .compute = compute, .tied = true};
    s.preset = "tiny-gpt";
    const Training first = train(s);
    expect_same_bits(train(s), first, name_of(s));
    s.checkpointing = "full";
    expect_same_bits(train(s), first, name_of(s));
  }
}

// The architectures of Llama's kind: what they have besides is in every shard and every recomputed
// layer.
class Kinds : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(OfLlama, Kinds,
                         ::testing::Values("tiny-qwen2", "tiny-qwen3", "tiny-mistral"));

TEST_P(Kinds, AgreeWithOneRankByEveryStrategy) {
  for (const bool tied : {false, true}) {
    const Training one = train({.tied = tied, .preset = GetParam()});
    for (const char* strategy : {"full", "shard_grad_op", "optimizer", "no_shard", "hybrid"}) {
      Setting s = {
          .world_size = 4, .micros = 2, .strategy = strategy, .checkpointing = "selective"};
      s.shard_group = s.strategy == std::string("hybrid") ? 2 : 0;
      s.chunk_tokens = tied ? 7 : 0;
      s.tied = tied;
      s.preset = GetParam();
      expect_agreement(train(s), one, s);
    }
  }
}

TEST_P(Kinds, HaveTheSameBitsWhateverIsRecomputed) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    Setting s = {.world_size = 2, .micros = 2, .compute = compute};
    s.documents = compute == at::kBFloat16;
    s.preset = GetParam();
    const Training first = train(s);
    expect_same_bits(train(s), first, name_of(s));
    for (const char* checkpointing : {"full", "operations"}) {
      s.checkpointing = checkpointing;
      expect_same_bits(train(s), first, name_of(s));
    }
  }
}

TEST(FullySharded, Bf16IsCloseToFp32) {
  for (const char* preset : {"tiny", "tiny-gpt", "tiny-qwen2", "tiny-qwen3", "tiny-mistral"}) {
    const Setting s = {.world_size = 2, .preset = preset};
    const Training wide = train(s, 1);
    const Training narrow = train({.world_size = 2, .compute = at::kBFloat16, .preset = preset}, 1);
    EXPECT_NEAR(narrow.losses[0], wide.losses[0], 0.01 * wide.losses[0]);
    const double difference = worst_difference(wide.gradients, narrow.gradients, s);
    EXPECT_LT(difference, 0.1) << preset;
    EXPECT_GT(difference, 1e-5) << "bf16 was not used at all";
  }
}

// Of one step of two ranks beside the same in fp32, which is 8,192 times finer than fp16.
class InFp16 : public ::testing::TestWithParam<const char*> {
 protected:
  Training narrow(at::ScalarType type, double scale, const char* checkpointing = "none") const {
    return train({.world_size = 2,
                  .checkpointing = checkpointing,
                  .compute = type,
                  .preset = GetParam(),
                  .loss_scale = scale},
                 1);
  }
  // Largest error of a gradient.
  double error(at::ScalarType type, double scale) const {
    return difference(narrow(type, scale), scale);
  }
  double difference(Training training, double scale) const {
    for (std::vector<float>& block : training.gradients) {
      for (float& gradient : block) gradient /= static_cast<float>(scale);
    }
    return worst_difference(wide_.gradients, training.gradients, setting_);
  }

  const Setting setting_ = {.world_size = 2, .preset = GetParam()};
  const Training wide_ = train(setting_, 1);
};
INSTANTIATE_TEST_SUITE_P(Models, InFp16,
                         ::testing::Values("tiny", "tiny-gpt", "tiny-qwen2", "tiny-qwen3",
                                           "tiny-mistral"));

// fp16 has three bits more, where a loss scale keeps the gradients in its range: an eighth of the
// error. Half is asked for, because the largest of thousands of errors is a matter of chance, and
// of the order in which a BLAS adds. Within the range the scale itself is no matter.
TEST_P(InFp16, ErrorsAreAFractionOfThoseInBf16) {
  const Training scaled = narrow(at::kHalf, 1024);
  EXPECT_NEAR(scaled.losses[0], wide_.losses[0], 0.001 * wide_.losses[0]);
  EXPECT_NEAR(scaled.norms[0], wide_.norms[0], 0.001 * wide_.norms[0]);
  const double in_bf16 = error(at::kBFloat16, 1);
  EXPECT_LT(difference(scaled, 1024), in_bf16 / 2);
  EXPECT_LT(error(at::kHalf, 8192), in_bf16 / 2);
  EXPECT_GT(difference(scaled, 1024), 1e-5) << "fp16 was not used at all";
  expect_same_bits(narrow(at::kHalf, 1024, "full"), scaled, "full");
  expect_same_bits(narrow(at::kHalf, 1024, "operations"), scaled, "operations");
}

// With 1 / 256 most gradients of logits are two units of fp16's least number, 2^-24, or less: of
// eleven bits one is left, and errors of a quarter come in place of some 2^-9. (With 1 they are
// 2^-15, where fp16 has lost a bit: which of two errors of some 2^-9 is larger says nothing then.)
TEST_P(InFp16, ALossScaleKeepsWhatWouldVanish) {
  EXPECT_GT(error(at::kHalf, 1.0 / 256), 16 * error(at::kHalf, 1024));
}

}  // namespace
}  // namespace hpctl::test
