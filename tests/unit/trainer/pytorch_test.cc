// SPDX-License-Identifier: Apache-2.0
// A hundred steps beside PyTorch (reference/train.py): the same weights, data and settings; losses,
// gradient norms and gradients compared. Whole workers in fp32: real processes, two ranks, several
// micro-batches. And the same model, optimizer, clipping and schedule in fp64 in this process,
// where rounding hides nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "common/base/json.h"
#include "common/job/job_spec_json.h"
#include "common/layout/sharding.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/data/answer_data.h"
#include "tests/unit/trainer/reference_process.h"
#include "tests/unit/trainer/worker_process.h"
#include "trainer/arch/initial_values.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/model.h"
#include "trainer/arch/registry.h"
#include "trainer/data/step_samples.h"
#include "trainer/loop/batch_reader.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/optim/schedule.h"
#include "trainer/parallel/fsdp.h"

namespace hpctl {
namespace {

using ::testing::Each;
using testing::ReferenceProcess;
using testing::WorkerProcess;

constexpr int64_t kSteps = 100;

struct Curve {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> scales;  // fp16, after the step
};

class Comparison {
 public:
  // "Default", "Other": a Llama with every setting that is not the default, "Gpt", "Qwen2", "Qwen3"
  // and "Mistral"; with "Documents" behind it, packed documents; with "Answers", packed pairs of
  // which the answers are learnt; with "Lora", adapters.
  explicit Comparison(const std::string& settings) {
    std::ofstream text(dir_ / "text");
    for (int i = 0; i < 3000; ++i) text << "item " << i << " is " << i * i % 701 << " units\n";
    text.close();
    workload.job = 7;
    workload.name = "pytorch";
    workload.generation = 1;
    workload.world_size = 2;
    workload.checkpoint_dir = dir_ / "checkpoints";
    workload.metrics_path = dir_ / "metrics.jsonl";
    workload.rendezvous_dir = dir_ / "rdzv";
    workload.checkpoint.every_steps = 0;
    workload.checkpoint.every_minutes = 0;
    TrainSpec& train = workload.train;
    train.model = *model_preset("tiny");
    train.data.path = dir_ / "text";
    train.data.seq_len = 32;
    train.batch.micro = 2;
    train.batch.global = 8;
    train.steps = kSteps;
    train.seed = 5;
    train.optimizer.lr = 3e-3;
    train.optimizer.clip = 0.7;
    train.schedule.warmup_steps = kSteps / 10;
    train.precision = Precision::kFp32;
    for (const auto& [name, preset] :
         {std::pair{"Gpt", "tiny-gpt"}, std::pair{"Qwen2", "tiny-qwen2"},
          std::pair{"Qwen3", "tiny-qwen3"}, std::pair{"Mistral", "tiny-mistral"}}) {
      if (settings.starts_with(name)) train.model = *model_preset(preset);
    }
    if (settings.ends_with("Documents") || settings == "Other") use_documents();
    if (settings.ends_with("Answers")) {
      test::put_answers(dir_ / "sums", test::sums(900));
      train.data.path = dir_ / "sums";
      train.data.format = DataFormat::kSft;
    }
    if (settings.ends_with("Lora")) {
      train.lora = {.base = dir_ / "base/step-1.g1", .rank = 4, .alpha = 6};
      train.lora.targets = {LoraTarget::kQProj, LoraTarget::kVProj, LoraTarget::kOProj,
                            LoraTarget::kDownProj};
    }
    if (settings != "Other") return;
    train.model.tied_embeddings = true;
    train.model.rope_scaling = {
        .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_len = 64};
    train.schedule.name = ScheduleShape::kWsd;
    train.schedule.decay_steps = kSteps * 3 / 10;
    train.optimizer.no_decay = {DecayGroup::kNorms, DecayGroup::kEmbeddings};
    train.loss.z_loss = 1e-3;
  }

  // Has train.py train; false when there is no PyTorch. Call before the accessors below.
  bool run_pytorch(const std::string& type) {
    write_job();
    const int code = ReferenceProcess::of_this_program().train(dir_.path(), type);
    if (code == 77 || code == 127) return false;
    EXPECT_EQ(code, 0) << "what train.py said is above";
    std::ifstream file(dir_ / (type + ".json"));
    const auto document = nlohmann::json::parse(file);
    document.at("losses").get_to(reference.losses);
    document.at("norms").get_to(reference.norms);
    document.at("scales").get_to(reference.scales);
    std::ifstream gradient(dir_ / (type + ".gradient"), std::ios::binary);
    const auto elements = static_cast<size_t>(parameter_count(blocks()));
    first_gradient.resize(elements);
    gradient.read(reinterpret_cast<char*>(first_gradient.data()),
                  static_cast<std::streamsize>(elements * sizeof(double)));
    EXPECT_TRUE(gradient.good());
    return true;
  }

  // The checkpoint that adapters are trained beside: a step that changes nothing.
  void make_base() const {
    Workload base = workload;
    base.world_size = 1;
    base.checkpoint_dir = dir_ / "base";
    base.metrics_path = dir_ / "base.jsonl";
    base.rendezvous_dir = dir_ / "base-rdzv";
    base.train.lora = {};
    base.train.steps = 1;
    base.train.optimizer.lr = 0;
    WorkerProcess worker(base);
    EXPECT_EQ(worker.wait(), 0) << worker.message();
  }

  Curve run_workers() {
    if (workload.train.lora.on()) make_base();
    std::vector<std::unique_ptr<WorkerProcess>> workers;
    for (int r = 0; r < workload.world_size; ++r) {
      workload.rank = r;
      workers.push_back(std::make_unique<WorkerProcess>(workload));
    }
    for (const auto& worker : workers) EXPECT_EQ(worker->wait(), 0) << worker->message();
    Curve curve;
    std::ifstream file(workload.metrics_path);
    for (std::string line; std::getline(file, line);) {
      const auto metrics = nlohmann::json::parse(line);
      curve.losses.push_back(metrics.at("loss"));
      curve.norms.push_back(metrics.at("grad_norm"));
      curve.scales.push_back(metrics.value("loss_scale", 0.0));
    }
    return curve;
  }

  // Of what is trained.
  std::vector<Block> blocks() const {
    std::vector<Block> blocks = trained_layout(workload.train);
    set_no_decay(workload.train.model, blocks, workload.train.optimizer.no_decay);
    return blocks;
  }

  std::vector<float> initial(const Block& block) const {
    std::vector<float> flat(static_cast<size_t>(block.numel));
    fill_initial_values(workload.train.model, block, workload.train.seed, {0, block.numel},
                        flat.data());
    return flat;
  }

  // The whole batch of a step (from 1) as one micro-batch.
  MicroBatch batch(uint64_t step) const {
    auto reader =
        SampleReader::open(workload.train.data, workload.train.seed, workload.train.model.vocab);
    HP_CHECK(reader.ok());
    const auto global = static_cast<uint64_t>(workload.train.batch.global);
    const StepSamples samples = take_samples((step - 1) * global, global, {});
    auto batches =
        read_micro_batches(*reader, sample_numbers(samples.ranges), workload.train.batch.global, 1);
    HP_CHECK(batches.ok() && batches->size() == 1);
    return batches->front();
  }

  Workload workload;
  int64_t spare_batches = 0;  // that may be dropped
  Curve reference;
  std::vector<double> first_gradient;  // tensor after tensor, without gaps

 private:
  // From 5 to 80 tokens each: none, one or several borders in a sequence.
  void use_documents() {
    const std::string directory = dir_ / "documents";
    std::filesystem::create_directory(directory);
    for (int i = 0; i < 700; ++i) {
      std::string text;
      for (int j = i; text.size() < 80; ++j) text += std::to_string(j * j % 701) + " units of it\n";
      std::ofstream(directory + "/" + std::to_string(i)) << text.substr(0, 5 + i * i % 76);
    }
    workload.train.data.path = directory;
    workload.train.data.mask = DocumentMask::kDocuments;
  }

  void write_job() const {
    const TrainSpec& train = workload.train;
    nlohmann::json document = {
        {"model", train.model},
        {"train",
         {{"steps", train.steps},
          {"sequences", train.batch.global},
          {"micro", train.batch.micro},
          {"seq_len", train.data.seq_len},
          {"optimizer", train.optimizer},
          {"schedule", train.schedule},
          {"z_loss", train.loss.z_loss},
          {"documents", train.data.keeps_apart()},
          {"answers", train.data.has_answers()},
          {"loss_scale", train.loss_scale}}},
        {"tensors", nlohmann::json::array()},
        {"adapters", nlohmann::json::array()},
    };
    if (train.lora.on()) {
      document["train"]["lora"] = train.lora;
      document["adapters"] = write_weights("adapters.bin", blocks());
    }
    document["train"]["optimizer"]["no_decay"] = train.optimizer.no_decay;
    document["tensors"] = write_weights("weights.bin", model_layout(train.model));
    std::ofstream(dir_ / "job.json") << document;
    std::ofstream tokens(dir_ / "tokens.bin", std::ios::binary);
    std::ofstream positions(dir_ / "positions.bin", std::ios::binary);
    for (int64_t step = 1; step <= train.steps + spare_batches; ++step) {
      const MicroBatch rows = batch(static_cast<uint64_t>(step));
      const at::Tensor all =
          at::cat({rows.tokens, rows.targets.narrow(1, train.data.seq_len - 1, 1)}, 1).contiguous();
      write(tokens, all);
      if (train.data.keeps_apart()) write(positions, rows.documents.positions.contiguous());
    }
  }

  // Names and shapes.
  nlohmann::json write_weights(const std::string& name, const std::vector<Block>& blocks) const {
    nlohmann::json tensors = nlohmann::json::array();
    std::ofstream weights(dir_ / name, std::ios::binary);
    for (const Block& block : blocks) {
      const std::vector<float> flat = initial(block);
      for (const TensorSlot& tensor : block.tensors) {
        tensors.push_back({tensor.name, tensor.shape});
        weights.write(reinterpret_cast<const char*>(flat.data() + tensor.offset),
                      tensor.numel * static_cast<int64_t>(sizeof(float)));
      }
    }
    return tensors;
  }

  static void write(std::ofstream& file, const at::Tensor& numbers) {
    file.write(static_cast<const char*>(numbers.data_ptr()),
               numbers.numel() * static_cast<int64_t>(sizeof(int64_t)));
  }

  TemporaryDirectory dir_;
};

double worst_relative(const std::vector<double>& a, const std::vector<double>& b, size_t count) {
  double worst = 0;
  for (size_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::abs(a.at(i) - b.at(i)) / std::abs(b.at(i)));
  }
  return worst;
}

// The largest difference of two gradients, tensor by tensor in units of the tensor's largest value.
double worst_gradient(const std::vector<Block>& blocks, const std::vector<double>& a,
                      const std::vector<double>& b) {
  double worst = 0;
  size_t at = 0;
  for (const Block& block : blocks) {
    for (const TensorSlot& tensor : block.tensors) {
      double largest = 0;
      double difference = 0;
      for (const size_t end = at + static_cast<size_t>(tensor.numel); at < end; ++at) {
        largest = std::max(largest, std::abs(b[at]));
        difference = std::max(difference, std::abs(a[at] - b[at]));
      }
      worst = std::max(worst, difference / largest);
    }
  }
  return worst;
}

// Without gaps, as train.py writes it.
std::vector<double> dense(const std::vector<Block>& blocks, const FullySharded& engine) {
  std::vector<double> all;
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const TensorSlot& tensor : blocks[b].tensors) {
      const float* values = engine.gradient(b) + tensor.offset;
      all.insert(all.end(), values, values + tensor.numel);
    }
  }
  return all;
}

// Training in fp64 in one process: the trainer's model, AdamW, norm, clipping and schedule.
class WideTraining {
 public:
  explicit WideTraining(const Comparison& comparison)
      : comparison_(comparison),
        train_(comparison.workload.train),
        blocks_(comparison.blocks()),
        model_(make_model(train_, at::kDouble)) {
    for (const Block& block : model_layout(train_.model)) {
      if (!train_.lora.on()) break;
      const std::vector<float> flat = comparison.initial(block);
      frozen_.emplace_back();
      for (const TensorSlot& slot : block.tensors) {
        frozen_.back().push_back(
            at::from_blob(const_cast<float*>(flat.data()) + slot.offset, slot.shape, at::kFloat)
                .to(at::kDouble));
      }
    }
    for (const Block& block : blocks_) {
      const std::vector<float> flat = comparison.initial(block);
      states_.push_back({{flat.begin(), flat.end()}, {}, {}, {}});
      for (auto* part : {&states_.back().m, &states_.back().v}) part->resize(flat.size());
    }
  }

  void step(uint64_t number) {
    const MicroBatch batch = comparison_.batch(number);
    const auto tokens = static_cast<double>(batch.counted);
    const Model::Loss loss = forward(batch);
    compat::backward(loss.objective / tokens, {});
    curve.losses.push_back(loss.entropy.item<double>() / tokens);
    double squares = 0;
    for (State& state : states_) {
      squares += sum_of_squares(state.gradient.data(), static_cast<int64_t>(state.gradient.size()));
    }
    curve.norms.push_back(std::sqrt(squares));
    if (number == 1) collect_gradient();
    const AdamStep adam(train_.optimizer, number, learning_rate(train_, number, 0),
                        clip_factor(curve.norms.back(), train_.optimizer.clip));
    for (size_t b = 0; b < blocks_.size(); ++b) update(adam, blocks_[b], states_[b]);
  }

  Curve curve;
  std::vector<double> first_gradient;

 private:
  struct State {
    std::vector<double> p, m, v, gradient;
  };

  Model::Loss forward(const MicroBatch& batch) {
    const std::vector<at::Tensor> embedding = parameters(0);
    at::Tensor x = model_->embed(embedding, batch.tokens, batch.documents);
    const size_t last = static_cast<size_t>(train_.model.layers) + 1;
    for (size_t b = 1; b < last; ++b) x = model_->layer(parameters(b), x, batch.documents);
    std::vector<at::Tensor> head = parameters(last);
    if (train_.model.tied_embeddings) head.push_back(embedding.front());
    return model_->loss(model_->logits(head, x), batch.targets);
  }

  // Of a block of the model, and behind them those of its adapters.
  std::vector<at::Tensor> parameters(size_t b) {
    if (frozen_.empty()) return leaves(b);
    std::vector<at::Tensor> all = frozen_[b];
    if (b == 0 || b + 1 == frozen_.size()) return all;
    for (at::Tensor& leaf : leaves(b - 1)) all.push_back(leaf);
    return all;
  }

  std::vector<at::Tensor> leaves(size_t b) {
    State& state = states_[b];
    state.gradient.assign(state.p.size(), 0.0);
    std::vector<at::Tensor> tensors;
    for (const TensorSlot& slot : blocks_[b].tensors) {
      at::Tensor leaf = at::from_blob(state.p.data() + slot.offset, slot.shape, at::kDouble);
      leaf.set_requires_grad(true);
      leaf.mutable_grad() =
          at::from_blob(state.gradient.data() + slot.offset, slot.shape, at::kDouble);
      tensors.push_back(leaf);
    }
    return tensors;
  }

  void collect_gradient() {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (const TensorSlot& slot : blocks_[b].tensors) {
        const double* values = states_[b].gradient.data() + slot.offset;
        first_gradient.insert(first_gradient.end(), values, values + slot.numel);
      }
    }
  }

  static void update(const AdamStep& adam, const Block& block, State& state) {
    State next = state;
    for (const TensorSlot& slot : block.tensors) {
      const int64_t at = slot.offset;
      adamw(adam, !slot.no_decay, slot.numel,
            {state.p.data() + at, state.m.data() + at, state.v.data() + at,
             state.gradient.data() + at},
            {next.p.data() + at, next.m.data() + at, next.v.data() + at});
    }
    state = std::move(next);
  }

  const Comparison& comparison_;
  const TrainSpec& train_;
  std::vector<Block> blocks_;
  std::unique_ptr<Model> model_;
  std::vector<std::vector<at::Tensor>> frozen_;  // of each block; with lora
  std::vector<State> states_;
};

#define SKIP_WITHOUT_PYTORCH(found)                                                     \
  if (!(found)) {                                                                       \
    GTEST_SKIP() << "/usr/bin/python3 has no torch; install the package python3-torch"; \
  }

class PyTorch : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Settings, PyTorch,
                         ::testing::Values("Default", "Other", "Answers", "Lora", "Gpt",
                                           "GptDocuments", "Qwen2", "Qwen3", "Qwen3Documents",
                                           "Qwen2Lora", "Mistral", "MistralDocuments"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(PyTorch, WorkersInFp32Agree) {
  Comparison comparison(GetParam());
  SKIP_WITHOUT_PYTORCH(comparison.run_pytorch("float32"));
  const Curve curve = comparison.run_workers();
  ASSERT_EQ(curve.losses.size(), size_t{kSteps});
  EXPECT_LT(worst_relative(curve.losses, comparison.reference.losses, 1), 1e-5);
  EXPECT_LT(worst_relative(curve.losses, comparison.reference.losses, kSteps), 1e-3);
  EXPECT_LT(worst_relative(curve.norms, comparison.reference.norms, 1), 1e-5);
  const TrainSpec& train = comparison.workload.train;
  // Adapters beside weights that were never trained learn little.
  const double learnt = train.lora.on() ? 0.95 : 0.8;
  EXPECT_LT(curve.losses.back(), learnt * curve.losses.front()) << "it learns";

  MeshCommunicators comms({}, Mesh());
  const std::vector<Block> blocks = comparison.blocks();
  const auto model = make_model(train, at::kFloat);
  std::deque<std::vector<float>> weights;
  const auto shards_of = [&](const std::vector<Block>& of) {
    WeightShards shards;
    for (const Block& block : of) {
      shards.push_back({.values = weights.emplace_back(comparison.initial(block)).data()});
    }
    return shards;
  };
  FrozenModel frozen{.blocks = model_layout(train.model), .shards = {}};
  frozen.shards = shards_of(frozen.blocks);
  FullySharded engine(*model, blocks, comms, train, *sharding_of(train, 1), at::kFloat,
                      host_device(), train.lora.on() ? &frozen : nullptr);
  const WeightShards shards = shards_of(blocks);
  engine.begin_step(shards, 1);
  const MicroBatch batch = comparison.batch(1);
  const double scale = 1.0 / static_cast<double>(batch.counted);
  ASSERT_TRUE(engine.forward_backward(batch.tokens, batch.targets, scale, batch.documents).ok());
  EXPECT_LT(worst_gradient(blocks, dense(blocks, engine), comparison.first_gradient), 1e-5);
}

// Both sum the rounded gradients of the same micro-batches; the order within them is not the same.
TEST(PyTorchFp16, WorkersAgreeOverOverflowsAndGrowth) {
  Comparison comparison("Default");
  TrainSpec& train = comparison.workload.train;
  train.precision = Precision::kFp16;
  train.loss_scale = {.initial = 1 << 26, .growth_interval = 20, .hysteresis = 2, .min = 1};
  comparison.spare_batches = 40;
  SKIP_WITHOUT_PYTORCH(comparison.run_pytorch("float16"));
  const Curve curve = comparison.run_workers();
  ASSERT_EQ(curve.losses.size(), size_t{kSteps});
  EXPECT_LT(worst_relative(curve.losses, comparison.reference.losses, 1), 1e-4);
  EXPECT_LT(worst_relative(curve.losses, comparison.reference.losses, kSteps), 5e-3);
  EXPECT_LT(worst_relative(curve.norms, comparison.reference.norms, 1), 1e-3);
  EXPECT_EQ(curve.scales, comparison.reference.scales);
  EXPECT_LT(curve.scales.front(), 1 << 26);
  EXPECT_LT(curve.losses.back(), 0.8 * curve.losses.front()) << "it learns";
}

TEST_P(PyTorch, Fp64AgreesToTheLastDigits) {
  at::set_num_threads(1);
  Comparison comparison(GetParam());
  SKIP_WITHOUT_PYTORCH(comparison.run_pytorch("float64"));
  WideTraining wide(comparison);
  for (uint64_t step = 1; step <= kSteps; ++step) wide.step(step);
  EXPECT_LT(worst_relative(wide.curve.losses, comparison.reference.losses, kSteps), 1e-9);
  EXPECT_LT(worst_relative(wide.curve.norms, comparison.reference.norms, kSteps), 1e-8);
  EXPECT_LT(worst_gradient(comparison.blocks(), wide.first_gradient, comparison.first_gradient),
            1e-11);
}

}  // namespace
}  // namespace hpctl
