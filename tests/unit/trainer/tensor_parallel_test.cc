// SPDX-License-Identifier: Apache-2.0
// Tensor and sequence parallelism: ranks that have parts of a model compute the loss and the
// gradients of one rank that has all of it, with every architecture. Several tests are defects that
// other trainers had.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "tests/unit/trainer/tensor_ranks.h"
#include "trainer/arch/initial_values.h"
#include "trainer/arch/vocabulary_loss.h"

namespace hpctl::testing {
namespace {

using at::Tensor;

ModelSpec divided_model(Arch arch, int64_t kv_heads) {
  ModelSpec model;
  model.arch = arch;
  model.vocab = 101;
  model.dim = 32;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = kv_heads;
  model.ffn = 48;
  if (arch == Arch::gpt) model.max_positions = kTokens;
  if (arch == Arch::qwen3) model.head_dim = 12;
  if (arch == Arch::mistral) model.sliding_window = 7;
  return model;
}

TensorCase tied(TensorCase c) {
  c.name += "Tied";
  c.model.tied_embeddings = true;
  return c;
}

TensorCase lora_case(std::string name, std::vector<LoraTarget> targets) {
  TensorCase c = {std::move(name), divided_model(Arch::llama, 1)};
  c.lora.rank = 3;
  c.lora.alpha = 6;
  c.lora.targets = std::move(targets);
  return c;
}

std::vector<TensorCase> divided_cases() {
  const TensorCase llama = {"Llama", divided_model(Arch::llama, 2)};
  const TensorCase gpt = {"Gpt", divided_model(Arch::gpt, 4)};
  TensorCase documents = llama;
  documents.name = "Documents";
  documents.documents = true;
  TensorCase gpt_documents = gpt;
  gpt_documents.name = "GptDocuments";
  gpt_documents.documents = true;
  TensorCase chunks = llama;
  chunks.name = "ChunksAndZLoss";
  chunks.chunk_rows = 20;
  chunks.z_loss = 0.01;
  return {llama,
          tied(llama),
          {"LlamaOneKeyHead", divided_model(Arch::llama, 1)},
          {"LlamaEveryKeyHead", divided_model(Arch::llama, 4)},
          gpt,
          tied(gpt),
          {"Qwen2", divided_model(Arch::qwen2, 2)},
          {"Qwen2OneKeyHead", divided_model(Arch::qwen2, 1)},
          {"Qwen3", divided_model(Arch::qwen3, 1)},
          {"Mistral", divided_model(Arch::mistral, 2)},
          documents,
          gpt_documents,
          chunks,
          lora_case("Lora",
                    {LoraTarget::kQProj, LoraTarget::kKProj, LoraTarget::kVProj, LoraTarget::kOProj,
                     LoraTarget::kGateProj, LoraTarget::kUpProj, LoraTarget::kDownProj}),
          lora_case("LoraOfTheLast", {LoraTarget::kDownProj})};
}

TensorCase case_named(const std::string& name) {
  for (TensorCase& c : divided_cases()) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

void expect_parts_of(const StepResult& whole, const StepResult& rank, const std::string& where) {
  EXPECT_NEAR(rank.entropy, whole.entropy, 1e-9 * whole.entropy) << where;
  ASSERT_EQ(rank.gradients.size(), whole.gradients.size()) << where;
  for (const auto& [name, gradient] : rank.gradients) {
    const std::string what = where + name;
    ASSERT_TRUE(gradient.defined()) << what;
    const Tensor expected = part_of(whole.gradients.at(name), rank.locals.at(name));
    ASSERT_EQ(gradient.sizes(), expected.sizes()) << what;
    EXPECT_GT(expected.abs().max().item<double>(), 1e-6) << what << ": too small to compare";
    EXPECT_LE(distance(gradient, expected), 1e-9) << what;
  }
}

class Divided : public ::testing::TestWithParam<TensorCase> {};

TEST_P(Divided, LossAndGradientsAreThoseOfOneRank) {
  const TensorCase& c = GetParam();
  const TensorMap values = random_values(c);
  const StepResult whole = one_rank_step(c, values);
  for (const int ranks : {1, 2, 4}) {
    for (const Keep keep : {Keep::kGraph, Keep::kProducts, Keep::kInput}) {
      const std::vector<StepResult> steps = steps_of_ranks(c, values, ranks, keep);
      for (size_t r = 0; r < steps.size(); ++r) {
        expect_parts_of(whole, steps[r],
                        "rank " + std::to_string(r) + " of " + std::to_string(ranks) + " keep " +
                            std::to_string(static_cast<int>(keep)) + " ");
      }
    }
  }
}

// Every element of a tensor is on one rank, or on as many as the copies are.
TEST_P(Divided, PartsAreTheWhole) {
  const TensorCase& c = GetParam();
  for (const int ranks : {1, 2, 4}) {
    for (const Block& block : all_blocks(c)) {
      for (const TensorSlot& tensor : block.tensors) {
        Tensor owners = at::zeros(tensor.shape, at::kLong);
        for (int rank = 0; rank < ranks; ++rank) {
          const LocalTensor local = local_of(c, tensor, {rank, ranks});
          if (!counts_in_norm(local)) continue;
          for (const PlacedBox& placed : local.boxes) box_of(owners, placed.box).add_(1);
        }
        EXPECT_TRUE(owners.eq(1).all().item<bool>()) << tensor.name << " on " << ranks;
      }
    }
  }
}

// Defect 18: a model begins with the same values whatever the mesh.
TEST_P(Divided, InitialValuesFollowTheGlobalElement) {
  const TensorCase& c = GetParam();
  for (const Block& block : all_blocks(c)) {
    std::vector<float> flat(static_cast<size_t>(block.numel));
    fill_initial_values(c.model, block, 11, {0, block.numel}, flat.data());
    for (const TensorSlot& tensor : block.tensors) {
      const Tensor whole =
          at::from_blob(flat.data() + tensor.offset, tensor.shape, at::kFloat).clone();
      for (int rank = 0; rank < 4; ++rank) {
        const LocalTensor local = local_of(c, tensor, {rank, 4});
        const Tensor own = at::full(local.shape, -7.0, at::kFloat);
        fill_initial_local(c.model, block, tensor, 11, local, own.data_ptr<float>());
        EXPECT_TRUE(at::equal(own, part_of(whole, local))) << tensor.name << " rank " << rank;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Divided, ::testing::ValuesIn(divided_cases()),
                         [](const auto& info) { return info.param.name; });

// The gradient of a tensor with this end is wrong on each rank before its copies are summed.
void expect_sum_is_needed(const std::string& name, const std::string& end) {
  const TensorCase c = case_named(name);
  const TensorMap values = random_values(c);
  const StepResult whole = one_rank_step(c, values);
  size_t found = 0;
  for (const StepResult& rank : steps_of_ranks(c, values, 4, Keep::kGraph, /*sums=*/false)) {
    for (const auto& [tensor, gradient] : rank.gradients) {
      if (!tensor.ends_with(end)) continue;
      ++found;
      EXPECT_GT(rank.locals.at(tensor).copies, 1) << tensor;
      EXPECT_GT(distance(gradient, part_of(whole.gradients.at(tensor), rank.locals.at(tensor))),
                1e-6)
          << tensor;
    }
  }
  EXPECT_EQ(found, 8U) << "two layers on four ranks";
}

// Defect 1: with sequence parallelism each rank has a norm's gradient from its rows only.
TEST(TensorParallel, NormGradientsNeedTheSumOverRanks) {
  expect_sum_is_needed("Llama", "input_layernorm.weight");
  expect_sum_is_needed("Gpt", "ln_2.bias");
}

// Defect 2: norms of queries and keys see the heads of a rank only.
TEST(TensorParallel, HeadNormGradientsNeedTheSumOverRanks) {
  expect_sum_is_needed("Qwen3", "q_norm.weight");
  expect_sum_is_needed("Qwen3", "k_norm.weight");
}

// Defect 13: of ranks that share a key head, each has the gradient from its query heads only.
TEST(TensorParallel, SharedKeyHeadsNeedTheSumOverRanks) {
  expect_sum_is_needed("LlamaOneKeyHead", "k_proj.weight");
  expect_sum_is_needed("Llama", "v_proj.weight");
  expect_sum_is_needed("Qwen2OneKeyHead", "k_proj.bias");
}

// Defect 3: each rank knows the loss of the whole micro-batch, so only one may report it.
TEST(TensorParallel, EveryRankHasTheSameLoss) {
  const TensorCase c = case_named("Llama");
  const TensorMap values = random_values(c);
  const double whole = one_rank_step(c, values).entropy;
  const std::vector<StepResult> steps = steps_of_ranks(c, values, 4);
  for (const StepResult& rank : steps) {
    EXPECT_NEAR(rank.entropy, whole, 1e-9 * whole);
    EXPECT_EQ(rank.entropy, steps.front().entropy) << "the same bits";
  }
}

// Validation reports the loss that training has, whatever the chunks of rows.
TEST(TensorParallel, EvaluationHasTheLossOfTraining) {
  const TensorCase c = case_named("Gpt");
  const TensorMap values = random_values(c);
  const auto model = make_case_model(c, at::kDouble);
  const Tensor x = at::randn({kSequences * kTokens, c.model.dim}, at::kDouble);
  const Tensor targets = random_batch(c).targets.reshape({-1});
  const Tensors whole = RankParameters(c, values, {0, 1}).of("head");
  const double expected = model->loss(model->logits(whole, x), targets).entropy.item<double>();
  on_ranks(4, [&](ThreadExchange& exchange) {
    const Tensors parameters = RankParameters(c, values, exchange.place()).of("head");
    const Share own = own_rows(exchange, x.size(0));
    for (const int64_t chunk : {0, 7, 69, 100}) {
      const HeadCall call = {*model, exchange, parameters, targets, c.model.vocab, chunk};
      const auto result = evaluate_head(call, x.narrow(0, own.begin, own.count));
      ASSERT_TRUE(result.ok());
      EXPECT_NEAR(result->entropy.item<double>(), expected, 1e-9 * expected) << chunk;
      EXPECT_FALSE(result->gradient.defined());
    }
  });
}

// Defect 11: copies count once in the norm of the gradient.
TEST(TensorParallel, CopiesCountOnceInTheNorm) {
  for (const char* name : {"LlamaOneKeyHead", "Gpt", "Qwen3", "Lora"}) {
    const TensorCase c = case_named(name);
    const TensorMap values = random_values(c);
    double whole = 0;
    for (const auto& [tensor, gradient] : one_rank_step(c, values).gradients) {
      whole += gradient.square().sum().item<double>();
    }
    double parts = 0;
    const std::vector<StepResult> steps = steps_of_ranks(c, values, 4);
    for (int rank = 0; rank < 4; ++rank) {
      const StepResult& step = steps[static_cast<size_t>(rank)];
      for (const auto& [tensor, gradient] : step.gradients) {
        if (!counts_in_norm(step.locals.at(tensor))) continue;
        parts += gradient.square().sum().item<double>();
      }
    }
    EXPECT_NEAR(parts, whole, 1e-9 * whole) << name;
  }
}

// Defect 12: the bias of a projection whose columns are divided is added once, not by each rank.
TEST(TensorParallel, BiasAfterASumIsAddedOnce) {
  const TensorCase c = case_named("Gpt");
  TensorMap values = random_values(c);
  for (auto& [name, value] : values) {
    if (name.ends_with("c_proj.bias")) value.fill_(3.0);
  }
  const auto model = make_case_model(c, at::kDouble);
  const Documents documents;
  const Tensor x = at::randn({kSequences, kTokens, c.model.dim}, at::kDouble);
  const c10::NoGradGuard no_grad;
  const Tensor expected = model->layer(RankParameters(c, values, {0, 1}).of_layer(0), x, documents)
                              .view({-1, c.model.dim});
  on_ranks(4, [&](ThreadExchange& exchange) {
    const Share own = own_rows(exchange, kSequences * kTokens);
    LayerTape tape(*model, &exchange, kSequences, kTokens, documents, Keep::kInput);
    const auto result = tape.forward(RankParameters(c, values, exchange.place()).of_layer(0),
                                     x.view({-1, c.model.dim}).narrow(0, own.begin, own.count));
    ASSERT_TRUE(result.ok());
    EXPECT_LE(distance(*result, expected.narrow(0, own.begin, own.count)), 1e-12);
  });
}

// Defect 14: a vocabulary that tp does not divide has no padding, and each token is on one rank.
TEST(TensorParallel, UnevenVocabularyHasNoPadding) {
  const TensorCase c = case_named("Llama");
  const TensorSlot embedding = model_layout(c.model).front().tensors.front();
  std::vector<int64_t> rows;
  for (int rank = 0; rank < 4; ++rank) {
    rows.push_back(local_of(c, embedding, {rank, 4}).shape.front());
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{25, 25, 25, 26}));
  const Tensor table = at::randn({101, 8}, at::kDouble);
  const Tensor tokens = at::arange(101, at::kLong);
  Tensor sum = at::zeros({101, 8}, at::kDouble);
  for (int rank = 0; rank < 4; ++rank) {
    const Share part = share_of(101, rank, 4);
    sum += embed_part(table.narrow(0, part.begin, part.count), tokens, part);
  }
  EXPECT_TRUE(at::equal(sum, table));
}

// Logits so large that their exponentials alone would overflow.
TEST(TensorParallel, LossOfLargeLogitsIsFinite) {
  const Tensor logits = at::randn({5, 101}, at::kDouble) * 1000;
  const Tensor targets = at::tensor({0, 25, 100, static_cast<int>(kNotCounted), 50}, at::kLong);
  std::vector<Tensor> statistics;
  for (int rank = 0; rank < 4; ++rank) {
    const Share part = share_of(101, rank, 4);
    statistics.push_back(row_statistics(logits.narrow(1, part.begin, part.count), targets, part));
  }
  const RowLogits rows = combine_statistics(at::stack(statistics));
  const double expected =
      at::nll_loss(at::log_softmax(logits, -1), targets, {}, at::Reduction::Sum, kNotCounted)
          .item<double>();
  EXPECT_NEAR(entropy_of(rows, targets).item<double>(), expected, 1e-9 * expected);
}

// ---- the tape -----------------------------------------------------------------------------------

// A forward pass has two gathers and two sums, a backward pass their transposes. Recompute repeats
// the gathers and no sum.
TEST(LayerTape, RecomputeRepeatsGathersAlone) {
  const TensorCase c = case_named("Llama");
  const TensorMap values = random_values(c);
  const auto model = make_case_model(c, at::kDouble);
  const Documents documents;
  for (const Keep keep : {Keep::kGraph, Keep::kProducts, Keep::kInput}) {
    on_ranks(2, [&](ThreadExchange& exchange) {
      const Share own = own_rows(exchange, kSequences * kTokens);
      const Tensors parameters = RankParameters(c, values, exchange.place()).of_layer(0);
      LayerTape tape(*model, &exchange, kSequences, kTokens, documents, keep);
      const Tensor x = at::ones({own.count, c.model.dim}, at::kDouble).set_requires_grad(true);
      ASSERT_TRUE(tape.forward(parameters, x).ok());
      EXPECT_EQ(exchange.gathers, 2);
      EXPECT_EQ(exchange.sums, 2);
      ASSERT_TRUE(tape.compute_again(parameters).ok());
      ASSERT_TRUE(tape.backward(at::ones_like(x)).ok());
      EXPECT_EQ(exchange.gathers, keep == Keep::kGraph ? 4 : 6);
      EXPECT_EQ(exchange.sums, 4);
    });
  }
}

// `a` and `b` have the same bits.
void expect_equal_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  EXPECT_EQ(std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), b.nbytes()), 0)
      << what;
}

// On one rank a tape changes no bit of what Model::layer() gives.
TEST(LayerTape, WithoutExchangesIsOneGraph) {
  for (const char* name : {"Llama", "Gpt", "Qwen3", "Lora"}) {
    const TensorCase c = case_named(name);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const auto model = make_case_model(c, type);
      const Documents documents;
      at::manual_seed(9);
      const Tensor rows = at::randn({kSequences, kTokens, c.model.dim}).to(type);
      const Tensor gradient = at::randn({kSequences, kTokens, c.model.dim}).to(type);
      const RankParameters one(c, values_in(c, type), {0, 1});
      const Tensor x = rows.clone().set_requires_grad(true);
      const Tensor out = model->layer(one.of_layer(0), x, documents);
      compat::backward(out, gradient);
      for (const Keep keep : {Keep::kGraph, Keep::kProducts, Keep::kInput}) {
        const RankParameters other(c, values_in(c, type), {0, 1});
        LayerTape tape(*model, nullptr, kSequences, kTokens, documents, keep);
        const auto result = tape.forward(other.of_layer(0), rows.clone().set_requires_grad(true));
        ASSERT_TRUE(result.ok());
        ASSERT_TRUE(tape.compute_again(other.of_layer(0)).ok());
        const auto of_input = tape.backward(gradient);
        ASSERT_TRUE(of_input.ok());
        expect_equal_bits(*result, out, name);
        expect_equal_bits(*of_input, x.grad(), name);
        for (const auto& [tensor, leaf] : one.leaves) {
          if (leaf.grad().defined()) {
            expect_equal_bits(other.leaves.at(tensor).grad(), leaf.grad(), tensor);
          }
        }
      }
    }
  }
}

// On several ranks no bit depends on Keep, or differs between two runs.
TEST(LayerTape, WhatIsKeptChangesNoBit) {
  for (const char* name : {"LlamaOneKeyHead", "Gpt", "Qwen3"}) {
    const TensorCase c = case_named(name);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const TensorMap values = values_in(c, type);
      const StepResult first = steps_of_ranks(c, values, 4).at(1);
      for (const Keep keep : {Keep::kGraph, Keep::kProducts, Keep::kInput}) {
        const StepResult again = steps_of_ranks(c, values, 4, keep).at(1);
        EXPECT_EQ(again.entropy, first.entropy) << name;
        for (const auto& [tensor, gradient] : first.gradients) {
          expect_equal_bits(again.gradients.at(tensor), gradient, tensor);
        }
      }
    }
  }
}

// One rank whose peers are lost at a given call.
class LostExchange : public RowExchange {
 public:
  explicit LostExchange(int calls) : calls_left_(calls) {}

  TensorPlace place() const override { return {0, 1}; }
  Result<Tensor> gather_rows(const Tensor& own, int64_t) override { return alive(own); }
  Result<Tensor> sum_rows(const Tensor& whole) override { return alive(whole); }
  Result<Tensor> gather_each(const Tensor& own) override { return alive(own.unsqueeze(0)); }

 private:
  Result<Tensor> alive(const Tensor& x) {
    if (calls_left_-- == 0) return Error{kPeerLost, "peer lost"};
    return x.clone();
  }
  int calls_left_;
};

// A lost peer ends a step at whichever exchange it is noticed, with the exchange's own error.
TEST(LayerTape, LostPeerEndsTheStep) {
  const TensorCase c = case_named("Llama");
  const TensorMap values = random_values(c);
  const TensorBatch batch = random_batch(c);
  int calls = 0;
  for (;; ++calls) {
    LostExchange exchange(calls);
    const auto step = rank_step(c, values, batch, Keep::kInput, exchange);
    if (step.ok()) break;
    ASSERT_EQ(step.error().message, "peer lost");
  }
  // Embedding 2, two layers 10 each, head 3; one rank has no copies.
  EXPECT_EQ(calls, 25);
}

}  // namespace
}  // namespace hpctl::testing
