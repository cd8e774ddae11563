// SPDX-License-Identifier: Apache-2.0
// Sharded training, every strategy, against the plain model of reference_model.h and against one
// rank. Ranks are threads.
#include "trainer/parallel/fsdp.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/reference_model.h"
#include "trainer/model/initial_values.h"
#include "trainer/model/model.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/runtime.h"
#include "trainer/training_state.h"

namespace hpctl {
namespace {

constexpr int64_t kSequences = 8;  // per step, over all ranks
constexpr int64_t kTokens = 16;
constexpr double kScale = 1.0 / (kSequences * kTokens);
constexpr double kClip = 0.5;  // below every gradient norm of these tests

// What a test varies; the defaults are plain full sharding.
struct Setting {
  int world_size = 1;
  int micros = 1;
  const char* strategy = "full";
  int64_t shard_group = 0;
  const char* checkpointing = "none";
  int64_t every = 2;
  int64_t chunk_tokens = 0;
  const char* reshard = "auto";
  at::ScalarType compute = at::kFloat;
  bool tied = false;
  bool documents = false;  // attention and positions end with some_positions()
  const char* preset = "tiny";
  double loss_scale = 1;
};

std::string name_of(const Setting& s) {
  std::string name = std::string(s.preset) + " " + s.strategy + " x" + std::to_string(s.world_size);
  if (s.shard_group > 0) name += " in groups of " + std::to_string(s.shard_group);
  return name + ", " + std::to_string(s.micros) + " micro-batches, recompute " + s.checkpointing +
         ", chunk " + std::to_string(s.chunk_tokens) + ", reshard " + s.reshard +
         (s.documents ? ", documents" : "");
}

Workload workload_of(const Setting& setting) {
  Workload w;
  w.world_size = setting.world_size;
  w.train.model = *model_preset(setting.preset);
  w.train.model.layers = 3;
  w.train.model.tied_embeddings = setting.tied;
  w.train.seed = 3;
  // Smaller, and an element whose gradient is all rounding would move as far as any other.
  w.train.optimizer.eps = 1e-3;
  w.train.strategy = setting.strategy;
  w.train.shard_group = setting.shard_group;
  w.train.reshard_after_forward = setting.reshard;
  w.train.memory.activation_checkpointing = setting.checkpointing;
  w.train.memory.every = setting.every;
  w.train.loss.chunk_tokens = setting.chunk_tokens;
  return w;
}

at::Tensor some_tokens(int64_t salt) {
  at::Tensor tokens = at::empty({kSequences, kTokens}, at::kLong);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.data_ptr<int64_t>()[i] = (i * 37 + salt * 11 + i * i % 13) % 256;
  }
  return tokens;
}

// Documents of 1 to 9 tokens, other ones in every sequence.
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

// Whole blocks of floats, without padding.
using Blocks = std::vector<std::vector<float>>;

struct Training {
  std::vector<double> losses;  // mean over the global batch, per step
  std::vector<double> norms;
  Blocks gradients;   // of the last step
  Blocks parameters;  // after it
  size_t peak_gathered_blocks = 0;
  std::vector<ScheduleTrace> traces;  // per rank, of the last step
};

// One rank of a training run: what TrainLoop does, without files.
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
    const auto sharding = sharding_of(workload_.train, setting.world_size);
    HP_CHECK(sharding.ok());
    comms_.emplace(options, sharding->mesh);
    HP_CHECK(comms_->connect().ok());
    auto state = TrainingState::create(-1, workload_, {}, {});
    HP_CHECK(state.ok());
    state_.emplace(std::move(state).value());
    model_ = make_model(workload_.train.model, kTokens, setting.compute);
    engine_.emplace(*model_, state_->blocks(), *comms_, workload_.train, *sharding,
                    setting.compute);
  }

  // Every rank writes its part of `training`; scalars are rank 0's.
  void step(int64_t number, Training& training) {
    engine_->set_trace(&training.traces[workload_.rank]);
    engine_->begin_step(state_->weight_shards(), setting_.micros);
    const int64_t own = kSequences / setting_.world_size;
    const int64_t rows = own / setting_.micros;
    double loss = 0;
    for (int m = 0; m < setting_.micros; ++m) {
      const int64_t first = own * workload_.rank + rows * m;
      const auto sum = engine_->forward_backward(
          some_tokens(number).narrow(0, first, rows),
          some_tokens(number + 7).narrow(0, first, rows), kScale * setting_.loss_scale,
          setting_.documents ? documents_at(some_positions().narrow(0, first, rows)) : Documents());
      ASSERT_TRUE(sum.ok()) << sum.error().message;
      loss += *sum * kScale;
    }
    std::array<double, 2> sums = {engine_->gradient_squares(), loss};
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
    ASSERT_TRUE(comms_->world().barrier().ok());
    if (workload_.rank != 0) return;
    training.losses.push_back(sums[1]);
    training.norms.push_back(norm);
    training.peak_gathered_blocks = engine_->peak_gathered_blocks();
  }

 private:
  // What this rank would write to a checkpoint: together the ranks must cover everything.
  void collect(const std::vector<const float*>& shards, Blocks& blocks) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      const ElementRange part = state_->written(b);
      std::copy_n(shards[b] + (part.begin - state_->padded_shard(b).begin), part.size(),
                  blocks[b].data() + part.begin);
    }
  }

  Setting setting_;
  Workload workload_;
  std::optional<MeshCommunicators> comms_;
  std::optional<TrainingState> state_;
  std::unique_ptr<Model> model_;
  std::optional<FullySharded> engine_;
};

Training train(const Setting& setting, int steps = 2) {
  signal(SIGPIPE, SIG_IGN);
  Training training;
  training.traces.resize(setting.world_size);
  for (const Block& block : model_layout(workload_of(setting).train.model)) {
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

// Largest difference of any element, in units of the largest element of its tensor; the model is
// that of `setting`.
double worst_difference(const Blocks& a, const Blocks& b, const Setting& setting = {}) {
  double worst = 0;
  const std::vector<Block> blocks = model_layout(workload_of(setting).train.model);
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
}

// `a` is what came of `s`.
void expect_agreement(const Training& a, const Training& b, const Setting& s) {
  const std::string what = name_of(s);
  for (size_t k = 0; k < a.losses.size(); ++k) {
    EXPECT_NEAR(a.losses[k], b.losses[k], 1e-6 * b.losses[k]) << what;
    EXPECT_NEAR(a.norms[k], b.norms[k], 1e-5 * b.norms[k]) << what;
  }
  EXPECT_LT(worst_difference(a.gradients, b.gradients, s), 1e-4) << what;
  EXPECT_LT(worst_difference(a.parameters, b.parameters, s), 1e-4) << what;
}

const Training& one_rank() {
  static const Training training = train({});
  return training;
}

using PlainLoss = std::function<at::Tensor(const ModelSpec&, const testing::ParameterMap&)>;

// The first step of one rank of `setting` beside the plain model in fp64.
void expect_the_plain_model(const Setting& setting, const PlainLoss& plain_loss) {
  const ModelSpec spec = workload_of(setting).train.model;
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
  for (const char* preset : {"tiny", "tiny-gpt"}) {
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
  expect_the_plain_model({.documents = true}, one_by_one);
  expect_the_plain_model({.documents = true, .preset = "tiny-gpt"}, one_by_one);
  EXPECT_GT(std::abs(train({.documents = true}, 1).losses[0] - one_rank().losses[0]), 1e-4)
      << "documents change the loss";
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

// With one micro-batch, every strategy adds the same numbers in rank order.
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

TEST(FullySharded, Bf16IsCloseToFp32) {
  for (const char* preset : {"tiny", "tiny-gpt"}) {
    const Setting s = {.world_size = 2, .preset = preset};
    const Training wide = train(s, 1);
    const Training narrow = train({.world_size = 2, .compute = at::kBFloat16, .preset = preset}, 1);
    EXPECT_NEAR(narrow.losses[0], wide.losses[0], 0.01 * wide.losses[0]);
    const double difference = worst_difference(wide.gradients, narrow.gradients, s);
    EXPECT_LT(difference, 0.1) << preset;
    EXPECT_GT(difference, 1e-5) << "bf16 was not used at all";
  }
}

// Closer than bf16 where the loss scale keeps small gradients out of the range in which fp16 has
// few digits or none.
TEST(FullySharded, Fp16IsCloserToFp32) {
  for (const char* preset : {"tiny", "tiny-gpt"}) {
    const Setting s = {.world_size = 2, .preset = preset};
    const Training wide = train(s, 1);
    const auto narrow = [&](at::ScalarType type, double scale, const char* checkpointing = "none") {
      return train({.world_size = 2,
                    .checkpointing = checkpointing,
                    .compute = type,
                    .preset = preset,
                    .loss_scale = scale},
                   1);
    };
    const auto difference = [&](Training training, float scale) {
      for (std::vector<float>& block : training.gradients) {
        for (float& gradient : block) gradient /= scale;
      }
      return worst_difference(wide.gradients, training.gradients, s);
    };
    const Training half = narrow(at::kHalf, 1);
    const Training scaled = narrow(at::kHalf, 1024);
    EXPECT_NEAR(scaled.losses[0], wide.losses[0], 0.001 * wide.losses[0]) << preset;
    EXPECT_NEAR(scaled.norms[0], wide.norms[0], 0.001 * wide.norms[0]) << preset;
    EXPECT_LT(difference(scaled, 1024), difference(narrow(at::kBFloat16, 1), 1) / 2) << preset;
    EXPECT_LT(difference(scaled, 1024), difference(half, 1)) << preset;
    EXPECT_GT(difference(scaled, 1024), 1e-5) << "fp16 was not used at all";
    expect_same_bits(narrow(at::kHalf, 1024, "full"), scaled, "full");
    expect_same_bits(narrow(at::kHalf, 1024, "operations"), scaled, "operations");
  }
}

TEST(FullySharded, GathersNoMoreBlocksThanTheStrategyKeeps) {
  EXPECT_EQ(train({.world_size = 2, .micros = 2}).peak_gathered_blocks, 2U);
  EXPECT_EQ(train({.world_size = 2, .micros = 2, .checkpointing = "full"}).peak_gathered_blocks,
            2U);
  EXPECT_EQ(train({.world_size = 4, .strategy = "hybrid", .shard_group = 2}).peak_gathered_blocks,
            2U);
  EXPECT_EQ(train({.world_size = 2, .strategy = "shard_grad_op"}).peak_gathered_blocks, 5U);
}

struct Counts {
  size_t gathers = 0;
  size_t hidden = 0;  // behind the computation of the block before
};

// Reads a trace: is the gather of a block under way while the block before it computes?
Counts read_trace(const ScheduleTrace& trace) {
  Counts counts;
  for (const ScheduleSpan& begun : trace) {
    if (begun.event != ScheduleEvent::kGatherBegun) continue;
    ++counts.gathers;
    const auto gathered = std::find_if(trace.begin(), trace.end(), [&](const ScheduleSpan& span) {
      return span.event == ScheduleEvent::kGathered && span.block == begun.block &&
             span.begin >= begun.end;
    });
    const auto hides = [&](const ScheduleSpan& span) {
      const bool computes =
          span.event == ScheduleEvent::kForward || span.event == ScheduleEvent::kBackward;
      return computes && span.begin >= begun.end && span.end <= gathered->begin;
    };
    if (std::any_of(trace.begin(), trace.end(), hides)) ++counts.hidden;
  }
  return counts;
}

TEST(FullySharded, GathersTheNextBlockWhileOneComputes) {
  // 5 blocks forward, layers 2 and 1 again backward; all but the first hide behind a block.
  Counts counts = read_trace(train({.world_size = 2}).traces[1]);
  EXPECT_EQ(counts.gathers, 7U);
  EXPECT_EQ(counts.hidden, 6U);
  // The second micro-batch's first gather hides behind the first one's last block.
  counts = read_trace(train({.world_size = 2, .micros = 2}).traces[1]);
  EXPECT_EQ(counts.gathers, 14U);
  EXPECT_EQ(counts.hidden, 13U);
  // Kept parameters are gathered once a step, whatever the number of micro-batches.
  for (const char* strategy : {"shard_grad_op", "optimizer"}) {
    counts = read_trace(train({.world_size = 2, .micros = 2, .strategy = strategy}).traces[0]);
    EXPECT_EQ(counts.gathers, 5U) << strategy;
    EXPECT_EQ(counts.hidden, 4U) << strategy;
  }
}

TEST(ShardedBlock, ReleasedParametersHaveNoMemory) {
  const Block block = llama_layout(workload_of({}).train.model)[1];
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto comm = make_communicator({});
    BufferPool parameters(ShardedBlock::gather_bytes(block, 1, type));
    ShardedBlock sharded(block, *comm, type, parameters);
    const std::vector<float> shard(sharded.shard_elements(), 2.0F);
    EXPECT_EQ(sharded.parameters()[1].storage().nbytes(), 0U);
    ASSERT_TRUE(sharded.begin_gather({.values = shard.data()}).ok());
    ASSERT_TRUE(sharded.finish_gather().ok());
    EXPECT_EQ(sharded.parameters()[1].sum().item<float>(), 2.0F * 64 * 64);
    EXPECT_EQ(sharded.parameters()[0].data_ptr() == shard.data(), type == at::kFloat)
        << "a shard that is the whole block is used where it lies";
    sharded.release();
    EXPECT_EQ(sharded.parameters()[1].storage().nbytes(), 0U);
  }
}

TEST(Mesh, GroupsAndCoordinates) {
  const Mesh mesh(2, 3);
  EXPECT_EQ(mesh.world_size(), 6);
  EXPECT_EQ(mesh.coordinate(4, MeshDim::kDpReplicate), 1);
  EXPECT_EQ(mesh.coordinate(4, MeshDim::kDpShard), 1);
  EXPECT_EQ(mesh.coordinate(4, MeshDim::kTp), 0);
  EXPECT_EQ(mesh.group(4, MeshDim::kDpShard), (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(mesh.group(4, MeshDim::kDpReplicate), (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(mesh.group(4, MeshDim::kPp), (std::vector<int32_t>{4}));
  TrainSpec hybrid;
  hybrid.strategy = "hybrid";
  hybrid.shard_group = 4;
  const auto impossible = sharding_of(hybrid, 6);
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.error().message,
            "parallelism.shard_group: expected a divisor of the number of workers (6), found 4");
}

}  // namespace
}  // namespace hpctl
