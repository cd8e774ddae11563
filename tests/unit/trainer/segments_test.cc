// SPDX-License-Identifier: Apache-2.0
// Layers as segments: cut at every boundary they are what they are in one graph, each uses the
// parameters that it declares, and with parts of a layer and of a sequence on several ranks, which
// exchange tensors between segments alone, they compute the same layer.
#include "trainer/arch/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "trainer/arch/lora.h"
#include "trainer/arch/model.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

using at::Tensor;

constexpr int64_t kLayerBatch = 2;
constexpr int64_t kLayerTokens = 24;

struct Case {
  std::string name;
  ModelSpec model;
  LoraSpec lora{};
};

ModelSpec model_of(Arch arch) {
  ModelSpec model;
  model.arch = arch;
  model.vocab = 64;
  model.dim = 32;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = arch == Arch::gpt ? 4 : 2;
  model.ffn = 48;
  model.max_positions = arch == Arch::gpt ? kLayerTokens : 0;
  if (arch == Arch::qwen3) model.head_dim = 12;
  if (arch == Arch::mistral) model.sliding_window = 7;
  return model;
}

std::vector<Case> every_case() {
  std::vector<Case> cases;
  for (size_t arch = 0; arch < kArchitectureTraits.size(); ++arch) {
    const auto which = static_cast<Arch>(arch);
    cases.push_back({words_of(Arch{})[arch], model_of(which)});
  }
  LoraSpec lora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.targets = {LoraTarget::kQProj, LoraTarget::kVProj, LoraTarget::kOProj,
                  LoraTarget::kDownProj};
  cases.push_back({"lora", model_of(Arch::llama), lora});
  return cases;
}

// Leaves of the first layer's parameters, and behind them those of its adapters.
Tensors random_parameters(const Case& c, at::ScalarType type) {
  at::manual_seed(7);
  Tensors parameters;
  const auto add = [&](const Block& block) {
    for (const TensorSlot& tensor : block.tensors) {
      const Tensor values = at::randn(tensor.shape, at::kDouble) * 0.2;
      const bool is_norm = tensor.name.find("norm.weight") != std::string::npos ||
                           tensor.name.find("ln_") != std::string::npos;
      parameters.push_back((is_norm ? values + 1.0 : values).to(type).set_requires_grad(true));
    }
  };
  add(model_layout(c.model)[1]);
  if (c.lora.on()) add(adapter_layout(c.model, c.lora)[0]);
  return parameters;
}

Tensor random_rows(int64_t seed, const ModelSpec& model, at::ScalarType type) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randn({kLayerBatch, kLayerTokens, model.dim}, at::kDouble).to(type);
}

std::unique_ptr<Model> make_layers(const Case& c, at::ScalarType type) {
  TrainSpec train;
  train.model = c.model;
  train.lora = c.lora;
  train.data.seq_len = kLayerTokens;
  return make_model(train, type);
}

struct LayerResult {
  Tensor out;
  Tensor input_gradient;
  Tensors gradients;  // of the parameters
};

Tensors gradients_of(const Tensors& leaves) {
  Tensors gradients;
  for (const Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

LayerResult in_one_graph(const Case& c, at::ScalarType type) {
  const auto model = make_layers(c, type);
  const Tensors parameters = random_parameters(c, type);
  const Tensor x = random_rows(1, c.model, type).set_requires_grad(true);
  const Tensor out = model->layer(parameters, x, {});
  compat::backward(out, random_rows(2, c.model, type));
  return {out.detach(), x.grad(), gradients_of(parameters)};
}

// As an engine does that communicates between all segments: no graph reaches over a boundary.
LayerResult cut_at_every_boundary(const Case& c, at::ScalarType type) {
  const auto model = make_layers(c, type);
  const Tensors parameters = random_parameters(c, type);
  const Documents documents;
  const LayerCall call = {parameters, documents};
  std::vector<Tensors> leaves;  // of each segment
  std::vector<Tensors> results;
  Tensors in = {random_rows(1, c.model, type)};
  for (const Segment& segment : model->segments()) {
    for (Tensor& tensor : in) tensor = tensor.detach().set_requires_grad(true);
    leaves.push_back(in);
    results.push_back(segment.run(call, in));
    in = results.back();
  }
  Tensors gradients = {random_rows(2, c.model, type)};
  for (size_t s = results.size(); s-- > 0;) {
    // What passes by without a node is its own leaf.
    torch::autograd::backward(results[s], gradients);
    gradients = gradients_of(leaves[s]);
  }
  return {in.front().detach(), gradients.front(), gradients_of(parameters)};
}

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const Tensor left = a.contiguous();
  const Tensor right = b.contiguous();
  EXPECT_EQ(std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()), 0) << what;
}

TEST(Segments, CutAtEveryBoundaryALayerHasTheSameBits) {
  for (const Case& c : every_case()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const LayerResult whole = in_one_graph(c, type);
      const LayerResult cut = cut_at_every_boundary(c, type);
      const std::string name = c.name + " " + at::toString(type) + " ";
      expect_same_bits(whole.out, cut.out, name + "result");
      expect_same_bits(whole.input_gradient, cut.input_gradient, name + "input");
      ASSERT_EQ(whole.gradients.size(), cut.gradients.size());
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        ASSERT_TRUE(whole.gradients[i].defined()) << name << i;
        expect_same_bits(whole.gradients[i], cut.gradients[i], name + std::to_string(i));
      }
    }
  }
}

TEST(Segments, UseTheParametersThatTheyDeclare) {
  for (const Case& c : every_case()) {
    const auto model = make_layers(c, at::kDouble);
    const Tensors all = random_parameters(c, at::kDouble);
    const Documents documents;
    std::vector<int> declared(all.size(), 0);
    Tensors in = {random_rows(1, c.model, at::kDouble)};
    for (const Segment& segment : model->segments()) {
      Tensors own(all.size());
      for (const size_t i : segment.parameters) {
        own.at(i) = all[i];
        ++declared[i];
      }
      in = segment.run({own, documents}, in);
    }
    EXPECT_EQ(declared, std::vector<int>(all.size(), 1)) << c.name << ": each in one segment";
    expect_same_bits(in.front(), in_one_graph(c, at::kDouble).out, c.name);
  }
}

// ---- a layer divided by hand, in one graph of one process ---------------------------------------

std::vector<TensorSlot> parameter_slots(const Case& c) {
  std::vector<Block> blocks = {model_layout(c.model)[1]};
  if (c.lora.on()) blocks.push_back(adapter_layout(c.model, c.lora)[0]);
  std::vector<TensorSlot> slots;
  for (const Block& block : blocks) {
    slots.insert(slots.end(), block.tensors.begin(), block.tensors.end());
  }
  return slots;
}

// The part of a rank. Of copies of a bias that comes after a sum, the first has it and the others
// have zeros.
Tensor part_of(const Case& c, const TensorSlot& slot, const Tensor& whole, TensorPlace place) {
  const LocalTensor local = local_tensor(slot, cutting_rule(c.model, slot.name), place);
  if (local.copy > 0 && slot.name.ends_with("c_proj.bias")) return at::zeros_like(whole);
  Tensors parts;
  for (const PlacedBox& placed : local.boxes) {
    const auto d = static_cast<size_t>(local.dim);
    parts.push_back(whole.narrow(local.dim, placed.box.offsets[d], placed.box.lengths[d]));
  }
  return at::cat(parts, local.dim);
}

// Of a rank, made by operations with gradients: those gather in the whole parameters.
Tensors parts_of(const Case& c, const Tensors& whole, TensorPlace place) {
  const std::vector<TensorSlot> slots = parameter_slots(c);
  Tensors own;
  for (size_t i = 0; i < whole.size(); ++i) {
    own.push_back(part_of(c, slots[i], whole[i], place));
  }
  return own;
}

using ByRank = std::vector<Tensors>;

// What ranks of a tensor dimension exchange. With sequence parallelism each holds a part of the
// tokens between the sum behind a branch and the gather before the next.
void exchange(Exchange kind, bool sequence_parallel, ByRank& ranks) {
  const auto last_of_all = [&] {
    Tensors last;
    for (const Tensors& rank : ranks) last.push_back(rank.back());
    return last;
  };
  if (kind == Exchange::kGather && sequence_parallel) {
    const Tensor whole = at::cat(last_of_all(), 1);
    for (Tensors& rank : ranks) rank.back() = whole;
  }
  if (kind == Exchange::kSum) {
    const Tensor sum = at::stack(last_of_all()).sum(0);
    const auto parts = static_cast<int64_t>(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].back() = sequence_parallel ? sum.chunk(parts, 1).at(r) : sum;
    }
  }
}

LayerResult on_several_ranks(const Case& c, int32_t ranks, bool sequence_parallel) {
  const auto model = make_layers(c, at::kDouble);
  const Tensors parameters = random_parameters(c, at::kDouble);
  const Tensor x = random_rows(1, c.model, at::kDouble).set_requires_grad(true);
  const Documents documents;
  ByRank tensors;
  ByRank own;
  for (int32_t r = 0; r < ranks; ++r) {
    own.push_back(parts_of(c, parameters, {r, ranks}));
    tensors.push_back({sequence_parallel ? x.chunk(ranks, 1).at(r) : x});
  }
  for (const Segment& segment : model->segments()) {
    for (size_t r = 0; r < own.size(); ++r) {
      tensors[r] = segment.run({own[r], documents}, tensors[r]);
    }
    exchange(segment.after, sequence_parallel, tensors);
  }
  Tensors outs;
  for (const Tensors& rank : tensors) outs.push_back(rank.front());
  const Tensor out = sequence_parallel ? at::cat(outs, 1) : outs.front();
  if (!sequence_parallel) {
    for (const Tensor& other : outs) EXPECT_TRUE(at::equal(other, out)) << "all ranks have it";
  }
  compat::backward(out, random_rows(2, c.model, at::kDouble));
  return {out.detach(), x.grad(), gradients_of(parameters)};
}

void expect_near(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const double largest = std::max(1.0, b.abs().max().item<double>());
  EXPECT_LE((a - b).abs().max().item<double>(), 1e-12 * largest) << what;
}

TEST(Segments, PartsOfALayerOnTwoRanksAreTheLayer) {
  for (const Case& c : every_case()) {
    const LayerResult one = in_one_graph(c, at::kDouble);
    const std::vector<TensorSlot> slots = parameter_slots(c);
    for (const bool sequence_parallel : {false, true}) {
      const LayerResult two = on_several_ranks(c, 2, sequence_parallel);
      const std::string name = c.name + (sequence_parallel ? " sequence " : " tensor ");
      expect_near(two.out, one.out, name + "result");
      expect_near(two.input_gradient, one.input_gradient, name + "input");
      for (size_t i = 0; i < slots.size(); ++i) {
        ASSERT_TRUE(two.gradients[i].defined()) << name << slots[i].name;
        expect_near(two.gradients[i], one.gradients[i], name + slots[i].name);
      }
    }
  }
}

// A test of the tests: with a rank's part of a sum left out, the numbers above are others.
TEST(Segments, EachRanksPartIsNeeded) {
  const Case c = every_case().front();
  const auto model = make_layers(c, at::kDouble);
  const Tensors first = parts_of(c, random_parameters(c, at::kDouble), {0, 2});
  const Tensor alone = model->layer(first, random_rows(1, c.model, at::kDouble), {});
  EXPECT_GT((alone - in_one_graph(c, at::kDouble).out).abs().max().item<double>(), 1e-2);
}

}  // namespace
}  // namespace hpctl
