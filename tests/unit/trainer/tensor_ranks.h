// SPDX-License-Identifier: Apache-2.0
// Threads as the tp ranks of a small model in fp64, and the same model on one rank in one graph, to
// which they are compared.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/arch/lora.h"
#include "trainer/arch/model.h"
#include "trainer/arch/registry.h"
#include "trainer/arch/targets.h"
#include "trainer/comm/communicator.h"
#include "trainer/parallel/copied_gradients.h"
#include "trainer/parallel/layer_tape.h"
#include "trainer/parallel/vocabulary_tape.h"

namespace hpctl::testing {

// A meeting point of the ranks of one process.
class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks) : given_(static_cast<size_t>(ranks)), meeting_(ranks) {}

  int size() const { return static_cast<int>(given_.size()); }
  // Every rank's tensor, by rank; theirs until leave().
  const std::vector<at::Tensor>& meet(int rank, const at::Tensor& own) {
    given_[static_cast<size_t>(rank)] = own.detach();
    meeting_.arrive_and_wait();
    return given_;
  }
  void leave() { meeting_.arrive_and_wait(); }
  // For a rank that makes no further call, so that the others do not wait for it.
  void give_up() { meeting_.arrive_and_drop(); }

 private:
  std::vector<at::Tensor> given_;
  std::barrier<> meeting_;
};

class ThreadExchange : public RowExchange {
 public:
  ThreadExchange(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}

  TensorPlace place() const override { return {rank_, world_.size()}; }
  Result<at::Tensor> gather_rows(const at::Tensor& own, int64_t rows) override {
    ++gathers;
    at::Tensor all = at::cat(world_.meet(rank_, own), 0);
    world_.leave();
    HP_CHECK(all.size(0) == rows);
    return all;
  }
  Result<at::Tensor> sum_rows(const at::Tensor& whole) override {
    ++sums;
    const Share own = share_of(whole.size(0), rank_, world_.size());
    std::vector<at::Tensor> parts;
    for (const at::Tensor& rank : world_.meet(rank_, whole)) {
      parts.push_back(rank.narrow(0, own.begin, own.count));
    }
    at::Tensor sum = add_in_pairs(parts).clone();
    world_.leave();
    return sum;
  }
  Result<at::Tensor> gather_each(const at::Tensor& own) override {
    at::Tensor all = at::stack(world_.meet(rank_, own), 0);
    world_.leave();
    return all;
  }

  int gathers = 0;
  int sums = 0;

 private:
  ThreadWorld& world_;
  int rank_;
};

// work(exchange) as each of `ranks`, on threads of their own.
template <typename Work>
void on_ranks(int ranks, const Work& work) {
  ThreadWorld world(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&world, &work, rank] {
      ThreadExchange exchange(world, rank);
      try {
        work(exchange);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      world.give_up();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct TensorCase {
  std::string name;
  ModelSpec model;
  LoraSpec lora{};
  bool documents = false;
  double z_loss = 0;
  int64_t chunk_rows = 0;
};

constexpr int64_t kSequences = 3;
constexpr int64_t kTokens = 23;  // 69 rows, which neither 2 nor 4 divides
constexpr double kScale = 0.02;  // of the objective

using TensorMap = std::map<std::string, at::Tensor>;

inline std::vector<Block> all_blocks(const TensorCase& c) {
  std::vector<Block> blocks = model_layout(c.model);
  if (!c.lora.on()) return blocks;
  for (Block& adapter : adapter_layout(c.model, c.lora)) blocks.push_back(std::move(adapter));
  return blocks;
}

inline TensorMap random_values(const TensorCase& c) {
  at::manual_seed(5);
  TensorMap values;
  for (const Block& block : all_blocks(c)) {
    for (const TensorSlot& tensor : block.tensors) {
      const bool is_norm = tensor.name.find("norm.weight") != std::string::npos ||
                           tensor.name.find("ln_") != std::string::npos;
      const at::Tensor value = at::randn(tensor.shape, at::kDouble) * 0.2;
      values[tensor.name] = is_norm ? value + 1.0 : value;
    }
  }
  return values;
}

struct TensorBatch {
  at::Tensor tokens;   // [B, T]
  at::Tensor targets;  // [B, T]
  Documents documents;
};

inline TensorBatch random_batch(const TensorCase& c) {
  at::manual_seed(6);
  TensorBatch batch;
  batch.tokens = at::randint(c.model.vocab, {kSequences, kTokens}, at::kLong);
  batch.targets = at::randint(c.model.vocab, {kSequences, kTokens}, at::kLong);
  batch.targets.select(1, 4).fill_(kNotCounted);
  if (c.documents) {
    const at::Tensor position = at::arange(kTokens, at::kLong);
    const at::Tensor second = position.ge(9).to(at::kLong);
    batch.documents = documents_at((position - second * 9).repeat({kSequences, 1}));
  }
  return batch;
}

inline std::unique_ptr<Model> make_case_model(const TensorCase& c, at::ScalarType type) {
  TrainSpec train;
  train.model = c.model;
  train.lora = c.lora;
  train.loss.z_loss = c.z_loss;
  train.data.seq_len = kTokens;
  return make_model(train, type);
}

inline at::Tensor box_of(at::Tensor whole, const Box& box) {
  for (size_t d = 0; d < box.offsets.size(); ++d) {
    whole = whole.narrow(static_cast<int64_t>(d), box.offsets[d], box.lengths[d]);
  }
  return whole;
}

inline LocalTensor local_of(const TensorCase& c, const TensorSlot& tensor, TensorPlace place) {
  return local_tensor(tensor, cutting_rule(c.model, tensor.name), place);
}

// The part of a global tensor that a rank has.
inline at::Tensor part_of(const at::Tensor& whole, const LocalTensor& local) {
  at::Tensor own = at::empty(local.shape, whole.options());
  for (const PlacedBox& placed : local.boxes) {
    const int64_t length = placed.box.lengths.at(static_cast<size_t>(local.dim));
    own.narrow(local.dim, placed.local_begin, length).copy_(box_of(whole, placed.box));
  }
  return own;
}

// The parameters of a rank as leaves, and of its blocks in the order of a forward pass.
class RankParameters {
 public:
  RankParameters(const TensorCase& c, const TensorMap& values, TensorPlace place) : case_(c) {
    for (const Block& block : all_blocks(c)) {
      for (const TensorSlot& tensor : block.tensors) {
        const bool is_adapter = tensor.name.ends_with(kLoraA) || tensor.name.ends_with(kLoraB);
        const LocalTensor local = local_of(c, tensor, place);
        locals.emplace(tensor.name, local);
        leaves[tensor.name] = part_of(values.at(tensor.name), local)
                                  .detach()
                                  .clone()
                                  .set_requires_grad(is_adapter || !c.lora.on());
      }
    }
  }

  // Of "embed", "layers.i" with its adapters, or "head" with a tied embedding.
  Tensors of(const std::string& block) const {
    Tensors parameters;
    for (const Block& each : all_blocks(case_)) {
      if (each.name != block) continue;
      for (const TensorSlot& tensor : each.tensors) parameters.push_back(leaves.at(tensor.name));
    }
    if (block == "head" && case_.model.tied_embeddings) parameters.push_back(of("embed").front());
    return parameters;
  }
  Tensors of_layer(int64_t layer) const { return of("layers." + std::to_string(layer)); }

  TensorMap gradients() const {
    TensorMap found;
    for (const auto& [name, leaf] : leaves) {
      if (leaf.requires_grad()) found[name] = leaf.grad();
    }
    return found;
  }

  TensorMap leaves;
  std::map<std::string, LocalTensor> locals;

 private:
  TensorCase case_;
};

struct StepResult {
  double entropy = 0;
  TensorMap gradients;  // of what the rank has
  std::map<std::string, LocalTensor> locals;
};

// On one rank, in one graph.
inline StepResult one_rank_step(const TensorCase& c, const TensorMap& values) {
  const auto model = make_case_model(c, at::kDouble);
  const TensorBatch batch = random_batch(c);
  const RankParameters parameters(c, values, {0, 1});
  at::Tensor x = model->embed(parameters.of("embed"), batch.tokens, batch.documents);
  for (int64_t i = 0; i < c.model.layers; ++i) {
    x = model->layer(parameters.of_layer(i), x, batch.documents);
  }
  const Model::Loss loss = model->loss(model->logits(parameters.of("head"), x), batch.targets);
  compat::backward(loss.objective * kScale, {});
  return {loss.entropy.item<double>(), parameters.gradients(), parameters.locals};
}

inline Outcome sum_copies_of(RowExchange& exchange, const StepResult& step) {
  std::vector<CopiedGradient> copied;
  for (const auto& [name, gradient] : step.gradients) {
    const LocalTensor& local = step.locals.at(name);
    if (local.copies > 1) copied.push_back({gradient, local.copies, local.copy});
  }
  return sum_copies(exchange, copied);
}

inline TensorMap values_in(const TensorCase& c, at::ScalarType type) {
  TensorMap values = random_values(c);
  for (auto& [name, value] : values) value = value.to(type);
  return values;
}

// As one of several ranks, in the type of the values. Gradients of copies are summed where `sums`.
inline Result<StepResult> rank_step(const TensorCase& c, const TensorMap& values,
                                    const TensorBatch& batch, Keep keep, RowExchange& exchange,
                                    bool sums = true) {
  const auto model = make_case_model(c, values.begin()->second.scalar_type());
  const RankParameters parameters(c, values, exchange.place());
  EmbeddingTape embedding(*model, exchange, c.model.vocab);
  HP_TRY_ASSIGN(at::Tensor x,
                embedding.forward(parameters.of("embed"), batch.tokens, batch.documents));
  x.set_requires_grad(!c.lora.on());
  std::vector<std::unique_ptr<LayerTape>> layers;
  for (int64_t i = 0; i < c.model.layers; ++i) {
    layers.push_back(
        std::make_unique<LayerTape>(*model, &exchange, kSequences, kTokens, batch.documents, keep));
    HP_TRY_ASSIGN(x, layers.back()->forward(parameters.of_layer(i), x));
    x.set_requires_grad(true);
  }
  const Tensors head = parameters.of("head");
  const at::Tensor targets = batch.targets.reshape({-1});
  const HeadCall call = {*model, exchange, head, targets, c.model.vocab, c.chunk_rows};
  HP_TRY_ASSIGN(const HeadResult result, backward_head(call, x, kScale));
  at::Tensor gradient = result.gradient;
  for (int64_t i = c.model.layers; i-- > 0;) {
    LayerTape& layer = *layers[static_cast<size_t>(i)];
    HP_TRY(layer.compute_again(parameters.of_layer(i)));
    HP_TRY_ASSIGN(gradient, layer.backward(gradient));
  }
  if (!c.lora.on()) HP_TRY(embedding.backward(gradient));
  StepResult step = {result.entropy.item<double>(), parameters.gradients(), parameters.locals};
  if (sums) HP_TRY(sum_copies_of(exchange, step));
  return step;
}

inline std::vector<StepResult> steps_of_ranks(const TensorCase& c, const TensorMap& values,
                                              int ranks, Keep keep = Keep::kGraph,
                                              bool sums = true) {
  // Here, since threads would share the generator of random numbers.
  const TensorBatch batch = random_batch(c);
  std::vector<StepResult> steps(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](ThreadExchange& exchange) {
    Result<StepResult> step = rank_step(c, values, batch, keep, exchange, sums);
    ASSERT_TRUE(step.ok()) << step.error().message;
    steps[static_cast<size_t>(exchange.place().rank)] = std::move(*step);
  });
  return steps;
}

}  // namespace hpctl::testing
