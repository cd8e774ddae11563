// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/trainer/sharded_training.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "common/base/check.h"
#include "common/layout/sharding.h"
#include "tests/support/temporary_directory.h"
#include "trainer/arch/initial_values.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/model.h"
#include "trainer/arch/registry.h"
#include "trainer/arch/targets.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/process/runtime.h"
#include "trainer/state/training_state.h"

namespace hpctl::test {

std::string name_of(const Setting& s) {
  std::string name = std::string(s.preset) + " " + s.strategy + " x" + std::to_string(s.world_size);
  if (s.shard_group > 0) name += " in groups of " + std::to_string(s.shard_group);
  return name + ", " + std::to_string(s.micros) + " micro-batches, recompute " + s.checkpointing +
         ", chunk " + std::to_string(s.chunk_tokens) + ", reshard " + s.reshard +
         (s.documents ? ", documents" : "") + (s.masked ? ", masked" : "") +
         (s.tensor > 1 ? ", tp " + std::to_string(s.tensor) : "") + (s.tied ? ", tied" : "") +
         (s.lora_rank > 0 ? ", adapters" : "") + (s.gathers_anew ? ", gathered anew" : "");
}

ModelSpec model_of(const Setting& setting) {
  ModelSpec model = *model_preset(setting.preset);
  model.layers = 3;
  model.tied_embeddings = setting.tied;
  if (setting.vocab > 0) model.vocab = setting.vocab;
  return model;
}

at::Tensor some_tokens(int64_t salt) {
  at::Tensor tokens = at::empty({kSequences, kTokens}, at::kLong);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.data_ptr<int64_t>()[i] = (i * 37 + salt * 11 + i * i % 13) % 256;
  }
  return tokens;
}

at::Tensor masked_targets(int64_t salt) {
  at::Tensor targets = some_tokens(salt);
  for (int64_t i = 0; i < targets.numel(); ++i) {
    if (i % 3 == 1 || i / kTokens == 2) targets.data_ptr<int64_t>()[i] = kNotCounted;
  }
  return targets;
}

at::Tensor some_positions() {
  at::Tensor positions = at::empty({kSequences, kTokens}, at::kLong);
  for (int64_t row = 0; row < kSequences; ++row) {
    int64_t* position = positions.data_ptr<int64_t>() + row * kTokens;
    for (int64_t t = 0; t < kTokens; ++t) {
      const bool begins = t == 0 || (row + t * t) % 5 == 0;
      position[t] = begins ? 0 : position[t - 1] + 1;
    }
  }
  return positions;
}

namespace {

Workload workload_of(const Setting& setting) {
  Workload w;
  w.world_size = setting.world_size;
  w.train.model = model_of(setting);
  w.train.data.seq_len = kTokens;
  w.train.seed = 3;
  // Smaller, and an element whose gradient is all rounding would move as far as any other.
  w.train.optimizer.eps = 1e-3;
  w.train.strategy = *from_word<Strategy>(setting.strategy);
  w.train.shard_group = setting.shard_group;
  w.train.reshard_after_forward = *from_word<Reshard>(setting.reshard);
  w.train.memory.activation_checkpointing = *from_word<Checkpointing>(setting.checkpointing);
  w.train.memory.every = setting.every;
  w.train.loss.chunk_tokens = setting.chunk_tokens;
  w.train.lora.rank = setting.lora_rank;
  w.train.degrees.tensor = setting.tensor;
  return w;
}

std::vector<Block> trained_blocks(const Setting& setting) {
  return trained_layout(workload_of(setting).train);
}

// One rank of a training run: what Generation does, without files.
class Rank {
 public:
  Rank(const Setting& setting, int rank, const std::string& rendezvous_dir)
      : setting_(setting), workload_(workload_of(setting)) {
    prepare_runtime();
    workload_.rank = rank;
    CommunicatorOptions options;
    options.rank = rank;
    options.world_size = setting.world_size;
    options.rendezvous_dir = rendezvous_dir;
    options.counts = &counts_;
    const auto sharding = sharding_of(workload_.train, setting.world_size);
    HP_CHECK(sharding.ok());
    data_rank_ = sharding->mesh.data_rank(rank);
    comms_.emplace(options, sharding->mesh);
    HP_CHECK(comms_->connect().ok());
    auto state = TrainingState::create(-1, workload_, {}, {});
    HP_CHECK(state.ok());
    state_.emplace(std::move(state).value());
    model_ = make_model(workload_.train, setting.compute);
    if (setting.lora_rank > 0) freeze_model();
    engine_.emplace(*model_, state_->blocks(), *comms_, workload_.train, *sharding, setting.compute,
                    host_device(), frozen_ ? &*frozen_ : nullptr);
  }

  // Every rank writes its part of `training`; scalars are rank 0's.
  void step(int64_t number, Training& training) {
    const uint64_t begun = counts_.front().begun;
    engine_->set_trace(&training.traces[workload_.rank]);
    if (setting_.gathers_anew) engine_->gather_anew();
    engine_->begin_step(state_->weight_shards(), setting_.micros);
    const int64_t own = kSequences / data_rank_.count;
    const int64_t rows = own / setting_.micros;
    for (int m = 0; m < setting_.micros; ++m) {
      const int64_t first = own * data_rank_.index + rows * m;
      const Outcome done = engine_->forward_backward(
          some_tokens(number).narrow(0, first, rows),
          (setting_.masked ? masked_targets : some_tokens)(number + 7).narrow(0, first, rows),
          kScale * setting_.loss_scale,
          setting_.documents ? documents_at(some_positions().narrow(0, first, rows)) : Documents());
      ASSERT_TRUE(done.ok()) << done.error().message;
    }
    const auto own_sums = engine_->finish_step();
    ASSERT_TRUE(own_sums.ok()) << own_sums.error().message;
    const double share = data_rank_.shares_loss ? kScale : 0;
    std::array<double, 2> sums = {own_sums->gradient_squares, own_sums->loss * share};
    ASSERT_TRUE(comms_->world().all_reduce(sums).ok());
    const double norm = std::sqrt(sums[0]) / setting_.loss_scale;
    std::vector<const float*> gradients;
    for (size_t b = 0; b < state_->blocks().size(); ++b) gradients.push_back(engine_->gradient(b));
    state_->apply(AdamStep(workload_.train.optimizer, static_cast<uint64_t>(number), 1e-3,
                           clip_factor(norm, kClip) / setting_.loss_scale),
                  gradients, 0);
    collect(gradients, training.gradients);
    std::vector<const float*> parameters;
    for (const WeightShard& shard : state_->weight_shards()) {
      parameters.push_back(static_cast<const float*>(shard.values));
    }
    collect(parameters, training.parameters);
    if (setting_.evaluates) evaluate(number, training);
    ASSERT_TRUE(comms_->world().barrier().ok());
    if (workload_.rank != 0) return;
    training.collectives.push_back(counts_.front().begun - begun);
    training.losses.push_back(sums[1]);
    training.norms.push_back(norm);
    training.peak_gathered_blocks = engine_->peak_gathered_blocks();
  }

 private:
  // One that is as good as any other; this rank has its shard of it.
  void freeze_model() {
    frozen_.emplace();
    frozen_->blocks = model_layout(workload_.train.model);
    const int32_t shards = comms_->shard().world_size();
    for (const Block& block : frozen_->blocks) {
      auto& values = base_.emplace_back(shard_capacity(block.numel, shards));
      fill_initial_values(workload_.train.model, block, 5,
                          shard_range(block.numel, comms_->shard().rank(), shards), values.data());
      frozen_->shards.push_back({.values = values.data()});
    }
  }

  // Of the sequences of step `number`.
  void evaluate(int64_t number, Training& training) {
    engine_->set_trace(nullptr);
    engine_->begin_evaluation(state_->weight_shards());
    const int64_t rows = kSequences / data_rank_.count;
    const int64_t first = rows * data_rank_.index;
    const Outcome done = engine_->evaluate(some_tokens(number).narrow(0, first, rows),
                                           some_tokens(number + 7).narrow(0, first, rows),
                                           Documents(), /*counts=*/true);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const auto own = engine_->finish_evaluation();
    ASSERT_TRUE(own.ok()) << own.error().message;
    std::array<double, 1> sum = {data_rank_.shares_loss ? *own * kScale : 0};
    ASSERT_TRUE(comms_->world().all_reduce(sum).ok());
    if (workload_.rank == 0) training.evaluations.push_back(sum[0]);
  }

  // What this rank would write to a checkpoint: together the ranks must cover everything.
  void collect(const std::vector<const float*>& shards, Blocks& blocks) {
    for (const WrittenPart& part : state_->written_parts()) {
      const auto b = static_cast<size_t>(part.block);
      const float* from = shards[b] + (part.range.begin - state_->padded_shard(b).begin);
      if (!part.slice) {
        std::copy_n(from, part.range.size(), blocks[b].data() + part.range.begin);
        continue;
      }
      const TensorSlot& tensor =
          state_->whole_blocks()[b].tensors[static_cast<size_t>(part.slice->tensor)];
      for_each_run(tensor, *part.slice, {0, part.range.size()},
                   [&](int64_t place, int64_t at, int64_t count) {
                     std::copy_n(from + at, count, blocks[b].data() + place);
                   });
    }
  }

  Setting setting_;
  Workload workload_;
  CollectiveCounts counts_{};
  DataRank data_rank_;
  std::optional<MeshCommunicators> comms_;
  std::optional<TrainingState> state_;
  std::unique_ptr<Model> model_;
  std::deque<std::vector<float>> base_;  // of each block of frozen_
  std::optional<FrozenModel> frozen_;
  std::optional<FullySharded> engine_;
};

}  // namespace

Training train(const Setting& setting, int steps) {
  signal(SIGPIPE, SIG_IGN);
  Training training;
  training.traces.resize(setting.world_size);
  for (const Block& block : trained_blocks(setting)) {
    training.gradients.emplace_back(block.numel, -1.0F);
    training.parameters.emplace_back(block.numel, -1.0F);
  }
  const TemporaryDirectory dir;
  std::vector<std::thread> ranks;
  for (int r = 0; r < setting.world_size; ++r) {
    ranks.emplace_back([&, r] {
      Rank rank(setting, r, dir / "rdzv");
      for (int k = 1; k <= steps; ++k) {
        training.traces[r].clear();
        rank.step(k, training);
      }
    });
  }
  for (std::thread& t : ranks) t.join();
  return training;
}

const Training& one_rank() {
  static const Training training = train({});
  return training;
}

double worst_difference(const Blocks& a, const Blocks& b, const Setting& setting) {
  double worst = 0;
  const std::vector<Block> blocks = trained_blocks(setting);
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const TensorSlot& tensor : blocks[i].tensors) {
      double largest = 1e-12;
      double difference = 0;
      for (int64_t k = tensor.offset; k < tensor.offset + tensor.numel; ++k) {
        const double x = a[i][k];
        const double y = b[i][k];
        largest = std::max(largest, std::abs(x));
        difference = std::max(difference, std::abs(x - y));
      }
      worst = std::max(worst, difference / largest);
    }
  }
  return worst;
}

void expect_same_bits(const Training& a, const Training& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.gradients, b.gradients) << what;
  EXPECT_EQ(a.parameters, b.parameters) << what;
  EXPECT_EQ(a.evaluations, b.evaluations) << what;
}

void expect_agreement(const Training& a, const Training& b, const Setting& s) {
  const std::string what = name_of(s);
  for (size_t k = 0; k < a.losses.size(); ++k) {
    EXPECT_NEAR(a.losses[k], b.losses[k], 1e-6 * b.losses[k]) << what;
    EXPECT_NEAR(a.norms[k], b.norms[k], 1e-5 * b.norms[k]) << what;
  }
  EXPECT_LT(worst_difference(a.gradients, b.gradients, s), 1e-4) << what;
  EXPECT_LT(worst_difference(a.parameters, b.parameters, s), 1e-4) << what;
}

}  // namespace hpctl::test
