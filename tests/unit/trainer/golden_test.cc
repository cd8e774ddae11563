// SPDX-License-Identifier: Apache-2.0
// Five steps of training against PyTorch's own AdamW, clipping and an independently written model
// (reference/generate.py): losses, gradient norms and final weights.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "common/layout/sharding.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/reference/golden_training.h"
#include "trainer/arch/model.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/optim/schedule.h"
#include "trainer/parallel/fsdp.h"
#include "trainer/state/training_state.h"

namespace hpctl {
namespace {

constexpr int64_t kBatch = 4;
constexpr int64_t kLength = 24;

// As in generate.py.
at::Tensor window(int64_t step) {
  at::Tensor rows = at::empty({kBatch, kLength + 1}, at::kLong);
  for (int64_t i = 0; i < rows.numel(); ++i) {
    rows.data_ptr<int64_t>()[i] = (i * 37 + step * 101 + i * i % 13) % 256;
  }
  return rows;
}

Workload golden_workload() {
  Workload w;
  w.generation = 1;
  w.train.model = *model_preset("tiny");
  w.train.data.seq_len = kLength;
  w.train.steps = static_cast<int64_t>(testing::kGoldenLosses.size());
  w.train.seed = 11;
  w.train.optimizer.lr = 5e-3;
  w.train.optimizer.clip = 0.5;
  w.train.schedule.warmup_steps = 2;
  return w;
}

TEST(Golden, FiveStepsAgreeWithPyTorch) {
  at::set_num_threads(1);
  const Workload workload = golden_workload();
  auto created = TrainingState::create(-1, workload, {}, {});
  ASSERT_TRUE(created.ok()) << created.error().message;
  TrainingState state = std::move(created).value();
  MeshCommunicators comms({}, Mesh());
  const auto model = make_model(workload.train, at::kFloat);
  FullySharded engine(*model, state.blocks(), comms, workload.train,
                      *sharding_of(workload.train, 1), at::kFloat);
  for (size_t i = 0; i < testing::kGoldenLosses.size(); ++i) {
    const uint64_t step = i + 1;
    engine.begin_step(state.weight_shards(), 1);
    const at::Tensor rows = window(static_cast<int64_t>(step));
    const Outcome done = engine.forward_backward(
        rows.narrow(1, 0, kLength), rows.narrow(1, 1, kLength), 1.0 / (kBatch * kLength));
    ASSERT_TRUE(done.ok());
    const auto sums_of_step = engine.finish_step();
    ASSERT_TRUE(sums_of_step.ok());
    std::vector<const float*> gradients;
    for (size_t b = 0; b < state.blocks().size(); ++b) {
      gradients.push_back(engine.gradient(b));
    }
    const double norm = std::sqrt(sums_of_step->gradient_squares);
    EXPECT_NEAR(sums_of_step->loss / (kBatch * kLength), testing::kGoldenLosses[i], 1e-5)
        << "step " << step;
    EXPECT_NEAR(norm, testing::kGoldenNorms[i], 1e-5) << "step " << step;
    const OptimizerSpec& optimizer = workload.train.optimizer;
    state.apply(AdamStep(optimizer, step, learning_rate(workload.train, step, step * kBatch),
                         clip_factor(norm, optimizer.clip)),
                gradients, step * kBatch);
  }
  std::map<std::string, double> sums;
  const WeightShards shards = state.weight_shards();
  for (size_t b = 0; b < shards.size(); ++b) {
    const auto* const values = static_cast<const float*>(shards[b].values);
    for (const TensorSlot& tensor : state.blocks()[b].tensors) {
      double& sum = sums[tensor.name];
      for (int64_t k = 0; k < tensor.numel; ++k) sum += std::abs(values[tensor.offset + k]);
    }
  }
  for (const auto& [name, expected] : testing::kGoldenSums) {
    EXPECT_NEAR(sums.at(name), expected, 1e-5 * expected) << name;
  }
}

}  // namespace
}  // namespace hpctl
