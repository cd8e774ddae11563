// SPDX-License-Identifier: Apache-2.0
// Sharded training against the plain model of reference_model.h. Ranks are threads.
#include "trainer/parallel/fsdp.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/reference_model.h"
#include "trainer/comm/communicator.h"
#include "trainer/model/initial_values.h"

namespace hpctl {
namespace {

constexpr int64_t kSequences = 4;
constexpr int64_t kTokens = 24;

ModelSpec small_model() {
  ModelSpec model = *model_preset("tiny");
  model.layers = 3;
  return model;
}

at::Tensor some_tokens(int64_t salt) {
  at::Tensor tokens = at::empty({kSequences, kTokens}, at::kLong);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.data_ptr<int64_t>()[i] = (i * 37 + salt * 11 + i * i % 13) % 256;
  }
  return tokens;
}

struct Gradients {
  double loss = 0;                         // mean over the global batch
  std::vector<std::vector<float>> blocks;  // whole blocks, without padding
  size_t peak_gathered_blocks = 0;
};

// The gradient of the mean loss of the same global batch, at world size W with `micros`
// micro-batches per rank, put together from all ranks' shards.
Gradients sharded_gradients(int world_size, int micros, at::ScalarType compute) {
  signal(SIGPIPE, SIG_IGN);
  const ModelSpec spec = small_model();
  const std::vector<Block> blocks = llama_layout(spec);
  const at::Tensor tokens = some_tokens(1);
  const at::Tensor targets = some_tokens(2);
  Gradients result;
  for (const Block& block : blocks) {
    result.blocks.emplace_back(shard_capacity(block.numel, world_size) * world_size);
  }
  std::vector<double> losses(world_size);
  std::vector<size_t> peaks(world_size);
  const TemporaryDirectory dir;
  const auto rank_main = [&](int rank) {
    at::set_num_threads(1);
    CommunicatorOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.rendezvous_dir = dir / "rdzv";
    const auto comm = make_communicator(options);
    ASSERT_TRUE(comm->connect().ok());
    const Llama model(spec, kTokens, compute);
    FullySharded engine(model, blocks, *comm, compute);
    std::vector<std::vector<float>> shards;
    std::vector<const float*> pointers;
    for (const Block& block : blocks) {
      const int64_t capacity = shard_capacity(block.numel, world_size);
      shards.emplace_back(capacity);
      fill_initial_values(spec, block, 3, {capacity * rank, capacity * (rank + 1)},
                          shards.back().data());
      pointers.push_back(shards.back().data());
    }
    engine.begin_step(pointers);
    const int64_t rows = kSequences / world_size / micros;
    for (int m = 0; m < micros; ++m) {
      const int64_t first = kSequences / world_size * rank + rows * m;
      const auto loss =
          engine.forward_backward(tokens.narrow(0, first, rows), targets.narrow(0, first, rows),
                                  1.0 / (kSequences * kTokens));
      ASSERT_TRUE(loss.ok()) << loss.error().message;
      losses[rank] += *loss;
    }
    for (size_t b = 0; b < blocks.size(); ++b) {
      std::memcpy(result.blocks[b].data() + engine.gradient_elements(b) * rank, engine.gradient(b),
                  engine.gradient_elements(b) * sizeof(float));
    }
    peaks[rank] = engine.peak_gathered_blocks();
    ASSERT_TRUE(comm->barrier().ok());
  };
  std::vector<std::thread> ranks;
  for (int r = 0; r < world_size; ++r) ranks.emplace_back(rank_main, r);
  for (std::thread& t : ranks) t.join();
  for (const double loss : losses) result.loss += loss / (kSequences * kTokens);
  for (size_t b = 0; b < blocks.size(); ++b) result.blocks[b].resize(blocks[b].numel);
  result.peak_gathered_blocks = peaks[0];
  return result;
}

// Largest difference of any element, in units of the largest element of its tensor.
double worst_difference(const Gradients& a, const Gradients& b) {
  double worst = 0;
  const std::vector<Block> blocks = llama_layout(small_model());
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const TensorSlot& tensor : blocks[i].tensors) {
      double largest = 1e-12;
      double difference = 0;
      for (int64_t k = tensor.offset; k < tensor.offset + tensor.numel; ++k) {
        const double x = a.blocks[i][k];
        const double y = b.blocks[i][k];
        largest = std::max(largest, std::abs(x));
        difference = std::max(difference, std::abs(x - y));
      }
      worst = std::max(worst, difference / largest);
    }
  }
  return worst;
}

Gradients reference_gradients() {
  const ModelSpec spec = small_model();
  const std::vector<Block> blocks = llama_layout(spec);
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
  const at::Tensor loss = testing::reference_loss(spec, parameters, some_tokens(1), some_tokens(2));
  compat::backward(loss, {});
  Gradients result;
  result.loss = loss.item<double>();
  for (const Block& block : blocks) {
    std::vector<float> flat(block.numel);
    for (const TensorSlot& tensor : block.tensors) {
      const at::Tensor gradient = parameters[tensor.name].grad().contiguous();
      for (int64_t k = 0; k < tensor.numel; ++k) {
        flat[tensor.offset + k] = static_cast<float>(gradient.data_ptr<double>()[k]);
      }
    }
    result.blocks.push_back(std::move(flat));
  }
  return result;
}

TEST(FullySharded, OneRankMatchesThePlainModel) {
  const Gradients expected = reference_gradients();
  const Gradients sharded = sharded_gradients(1, 1, at::kFloat);
  EXPECT_NEAR(sharded.loss, expected.loss, 2e-6 * expected.loss);
  EXPECT_LT(worst_difference(expected, sharded), 2e-5);
}

TEST(FullySharded, EveryWorldSizeAndMicroBatchGivesTheSameGradient) {
  const Gradients one = sharded_gradients(1, 1, at::kFloat);
  for (const auto& [world, micros] : {std::pair{1, 4}, {2, 1}, {2, 2}, {4, 1}}) {
    const Gradients other = sharded_gradients(world, micros, at::kFloat);
    EXPECT_NEAR(other.loss, one.loss, 1e-6 * one.loss) << world << "x" << micros;
    EXPECT_LT(worst_difference(one, other), 1e-5) << world << "x" << micros;
  }
}

TEST(FullySharded, SameBitsEveryTime) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    const Gradients first = sharded_gradients(2, 2, compute);
    const Gradients second = sharded_gradients(2, 2, compute);
    EXPECT_EQ(first.loss, second.loss);
    EXPECT_EQ(first.blocks, second.blocks);
  }
}

TEST(FullySharded, Bf16IsCloseToFp32) {
  const Gradients wide = sharded_gradients(2, 1, at::kFloat);
  const Gradients narrow = sharded_gradients(2, 1, at::kBFloat16);
  EXPECT_NEAR(narrow.loss, wide.loss, 0.01 * wide.loss);
  const double difference = worst_difference(wide, narrow);
  EXPECT_LT(difference, 0.1);
  EXPECT_GT(difference, 1e-5) << "bf16 was not used at all";
}

TEST(FullySharded, HoldsAtMostTwoWholeBlocks) {
  EXPECT_EQ(sharded_gradients(2, 2, at::kFloat).peak_gathered_blocks, 2U);
}

TEST(ShardedBlock, ReleasedParametersHaveNoMemory) {
  CommunicatorOptions options;
  const auto comm = make_communicator(options);
  const Block block = llama_layout(small_model())[1];
  BufferPool parameters(ShardedBlock::gather_bytes(block, 1, at::kFloat));
  BufferPool gradients(ShardedBlock::gather_bytes(block, 1, at::kFloat));
  ShardedBlock sharded(block, *comm, at::kFloat, parameters, gradients);
  const std::vector<float> shard(sharded.shard_elements(), 2.0F);
  EXPECT_EQ(sharded.parameters()[1].storage().nbytes(), 0U);
  ASSERT_TRUE(sharded.begin_gather(shard.data()).ok());
  ASSERT_TRUE(sharded.finish_gather().ok());
  EXPECT_EQ(sharded.parameters()[1].sum().item<float>(), 2.0F * 64 * 64);
  sharded.release();
  EXPECT_EQ(sharded.parameters()[1].storage().nbytes(), 0U);
}

}  // namespace
}  // namespace hpctl
