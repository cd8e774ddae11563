// SPDX-License-Identifier: Apache-2.0
// Whole workers that train adapters: of any number and strategy, killed and gone on with, exported
// and merged. tests/unit/checkpoint/hf_peer.py reads what is exported as PEFT does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "tests/support/program_output.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/steered_job.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/lora_base.h"
#include "trainer/checkpoint/safetensors.h"

namespace hpctl {
namespace {

using testing::calm_job;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Job;
using testing::SteeredJob;
using testing::WorkerProcess;

std::string base() { return calm_job().workload.checkpoint_dir + "/step-8.g1"; }

void use_lora(Job& job) {
  job.workload.train.lora = {.base = base(), .rank = 4, .alpha = 8};
  job.workload.train.data.path = calm_job().workload.train.data.path;
}

// Every stored parameter by name.
std::map<std::string, std::vector<float>> parameters_of(const std::string& step_dir) {
  auto loader = CheckpointLoader::open(step_dir);
  EXPECT_TRUE(loader.ok()) << loader.error().message;
  std::map<std::string, std::vector<float>> all;
  const std::vector<Block> blocks = loader->manifest().blocks;
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const TensorSlot& slot : blocks[b].tensors) {
      std::vector<float>& values = all[slot.name];
      values.resize(static_cast<size_t>(slot.numel));
      EXPECT_TRUE(loader
                      ->load_range(static_cast<int32_t>(b), StateKind::kParam,
                                   {slot.offset, slot.offset + slot.numel}, values)
                      .ok());
    }
  }
  return all;
}

TEST(WorkerLora, AnyRanksAndStrategiesLearnAlike) {
  const Job one(1, use_lora);
  const auto expected = one.metrics();
  ASSERT_EQ(expected.size(), 8U);
  EXPECT_LT(expected.back()["loss"], expected.front()["loss"]);
  for (const auto& [world, strategy] : {std::pair{2, Strategy::kFull},
                                        {3, Strategy::kFull},
                                        {2, Strategy::kNoShard},
                                        {2, Strategy::kOptimizer},
                                        {2, Strategy::kShardGradOp}}) {
    Job job(world);
    use_lora(job);
    job.workload.train.strategy = strategy;
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    const auto metrics = job.metrics();
    ASSERT_EQ(metrics.size(), 8U);
    for (size_t i = 0; i < 8; ++i) {
      const double loss = expected[i]["loss"];
      const double norm = expected[i]["grad_norm"];
      EXPECT_NEAR(metrics[i]["loss"], loss, 1e-5 * loss) << to_word(strategy) << " step " << i;
      EXPECT_NEAR(metrics[i]["grad_norm"], norm, 1e-3 * norm) << to_word(strategy);
    }
  }
}

bool dies_after_its_seventh_step() {
  return setenv("HPCTL_FAILPOINT", "trainer.step.applied:7", 1) == 0;
}

// Also where the base stays gathered from step to step.
TEST(WorkerLora, GoesOnBitForBitAlsoAfterAKill) {
  const Job calm(2, use_lora);
  for (const Strategy strategy : {Strategy::kFull, Strategy::kShardGradOp}) {
    Job job(2);
    use_lora(job);
    job.workload.train.strategy = strategy;
    job.prepared_rank = 1;
    job.in_child = dies_after_its_seventh_step;
    EXPECT_THAT(job.run(), Each(::testing::Ne(kExitFinished)));
    job.in_child = nullptr;
    job.resume_from_newest();
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    EXPECT_EQ(job.digest("step-8.g2"), calm.digest("step-8.g1"))
        << to_word(strategy) << broken_promise("digest");
  }
  for (const auto recomputed : {Checkpointing::kFull, Checkpointing::kOperations}) {
    Job other(2);
    use_lora(other);
    other.workload.train.memory.activation_checkpointing = recomputed;
    ASSERT_THAT(other.run(), Each(kExitFinished)) << other.messages();
    EXPECT_EQ(other.digest("step-8.g1"), calm.digest("step-8.g1"))
        << to_word(recomputed) << broken_promise("digest");
  }
}

// Ranks that stay have read the base once, and gather it anew with each generation. `full` does it
// in each step.
TEST(WorkerLora, AfterAnAbortTheSameProcessesGoOnBitForBit) {
  SteeredJob calm(2, 100);
  use_lora(calm);
  ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  SteeredJob job(2, 100);
  use_lora(job);
  job.workload.train.strategy = Strategy::kShardGradOp;
  job.start_and_join();
  ASSERT_NO_FATAL_FAILURE(job.go_on_over_aborts({3, 30}));
  for (const auto& worker : job.workers) ASSERT_EQ(worker->wait(), kExitFinished) << job.messages();
  EXPECT_EQ(job.digest("step-100.g3"), calm.digest("step-100.g1"))
      << job.messages() << broken_promise("digest");
  EXPECT_EQ(job.losses(), calm.losses());
}

// One of three is lost with its memory: those that stay have another part of the base.
TEST(WorkerLora, FewerRanksGoOnFromMemoryAndLearnAlike) {
  SteeredJob calm(3, 100);
  use_lora(calm);
  ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  SteeredJob job(3, 100);
  use_lora(job);
  job.workload.train.strategy = Strategy::kShardGradOp;
  job.workload.snapshot.every_steps = 1;
  job.start_and_join();
  job.abort_after_step(10);
  const uint64_t step = job.refill_from_peer(2);
  ASSERT_GT(step, 0U) << job.messages();
  ASSERT_LT(step, 100U) << "the abort came too late to disturb anything";
  job.workers.pop_back();
  job.workload.world_size = 2;
  job.workload.former_parts = 3;
  job.workload.refilled.clear();
  job.join_from(step);
  for (const auto& worker : job.workers) EXPECT_EQ(worker->wait(), kExitFinished) << job.messages();
  const auto expected = calm.losses();
  const auto losses = job.losses();
  ASSERT_EQ(losses.rbegin()->first, 100U);
  for (const auto& [number, loss] : losses) {
    EXPECT_NEAR(loss, expected.at(number), 1e-4 * loss) << "step " << number;
  }
}

bool fifth_loss_is_wrong() { return setenv("HPCTL_FAILPOINT", "trainer.loss:5", 1) == 0; }

// What is gathered anew behind an unfit step is what was gathered before.
TEST(WorkerLora, AnUnfitStepIsLeftOutAlikeWhetherTheBaseIsKeptOrNot) {
  std::vector<std::string> digests;
  for (const Strategy strategy : {Strategy::kFull, Strategy::kShardGradOp}) {
    Job job(2);
    use_lora(job);
    job.workload.train.strategy = strategy;
    job.workload.train.stability.policy = BadStepPolicy::kSkip;
    job.prepared_rank = 1;
    job.in_child = fifth_loss_is_wrong;
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    digests.push_back(job.digest("step-8.g1"));
  }
  EXPECT_EQ(digests[0].size(), 64U) << digests[0];
  EXPECT_EQ(digests[0], digests[1]) << broken_promise("digest");
}

TEST(WorkerLora, CheckpointsHoldAdaptersAlone) {
  const Job job(2, use_lora);
  const auto stored = parameters_of(job.workload.checkpoint_dir + "/step-8.g1");
  const ModelSpec model = job.workload.train.model;
  EXPECT_EQ(stored.size(), static_cast<size_t>(model.layers) * 14);
  int64_t elements = 0;
  for (const auto& [name, values] : stored) {
    EXPECT_TRUE(name.ends_with(kLoraA) || name.ends_with(kLoraB)) << name;
    elements += static_cast<int64_t>(values.size());
    double squares = 0;
    for (const float value : values) squares += value * value;
    EXPECT_GT(squares, 0) << name << " was never updated";
  }
  EXPECT_LT(elements, parameter_count(model_layout(model)) / 2);
}

TEST(WorkerLora, AnotherBaseIsRefused) {
  Job job(1, use_lora);
  // The first of its saves; what is due while one is under way is saved at a later step.
  job.workload.train.lora.base = calm_job().workload.checkpoint_dir + "/step-3.g1";
  job.resume("step-3.g1", 3);
  EXPECT_THAT(job.run(), Each(kExitDoNotRestart)) << job.messages();
  EXPECT_THAT(job.messages(), HasSubstr("trained beside other weights"));
  Job whole(1);
  whole.resume_from(job, "step-3.g1", 3);
  EXPECT_THAT(whole.run(), Each(kExitDoNotRestart));
  EXPECT_THAT(whole.messages(), HasSubstr("it holds adapters"));
  Job of_adapters(1);
  use_lora(of_adapters);
  of_adapters.workload.train.lora.base = job.workload.checkpoint_dir + "/step-3.g1";
  EXPECT_THAT(of_adapters.run(), Each(kExitDoNotRestart));
  EXPECT_THAT(of_adapters.messages(), HasSubstr("is a checkpoint of adapters"));
}

// Whatever the reason is: it is no fault of the job file, nor of the checkpoint of the adapters.
TEST(WorkerLora, BaseThatCannotBeReadMayComeBack) {
  Job job(1);
  use_lora(job);
  job.workload.train.lora.base = job / "nothing";
  EXPECT_THAT(job.run(), Each(1)) << job.messages();
  EXPECT_THAT(job.messages(), HasSubstr("workload.train.lora.base: "));
  std::filesystem::copy(base(), job / "short", std::filesystem::copy_options::recursive);
  std::filesystem::resize_file(job / "short/shard-00000.safetensors", 100);
  job.workload.train.lora.base = job / "short";
  ++job.workload.generation;
  EXPECT_THAT(job.run(), Each(1)) << job.messages();
}

// As a path on local disks may be.
TEST(WorkerLora, RanksThatHaveUnlikeBasesAreRefused) {
  Job job(2);
  use_lora(job);
  job.workload.rendezvous_dir = job / "rdzv";
  for (const int rank : {0, 1}) {
    job.workload.rank = rank;
    if (rank == 1) job.workload.train.lora.base = calm_job().workload.checkpoint_dir + "/step-3.g1";
    job.workers.push_back(std::make_unique<WorkerProcess>(job.workload));
    job.workers.back()->close_control();
  }
  std::vector<int> codes;
  for (const auto& worker : job.workers) codes.push_back(worker->wait());
  // Who is told last may lose its peer first.
  EXPECT_THAT(codes, Each(::testing::AnyOf(kExitDoNotRestart, kExitPeerLost)));
  EXPECT_THAT(codes, ::testing::Contains(kExitDoNotRestart));
  EXPECT_THAT(job.messages(), HasSubstr(" is not the same weights everywhere ("));
  EXPECT_THAT(job.messages(), HasSubstr(" on rank 1); put the same checkpoint"));
}

// Labels were the checksum of the checksums of the base's pieces, which is another one for the same
// weights saved by another number of ranks.
TEST(WorkerLora, AdaptersWithALabelOfBeforeGoOnBesideTheirBase) {
  Job job(1, use_lora);
  const std::string step_dir = job.workload.checkpoint_dir + "/step-3.g1";
  auto manifest = read_manifest(step_dir);
  const auto weights = read_manifest(base());
  ASSERT_TRUE(manifest.ok() && weights.ok());
  const std::string label = manifest->environment.at(kBaseLabel);
  EXPECT_EQ(label, base_checksum(*weights));
  uint32_t pieces = 0;
  for (const ShardEntry& entry : weights->shards) {
    if (entry.kind != StateKind::kParam) continue;
    pieces = crc32c(&entry.crc32c, sizeof entry.crc32c, pieces);
  }
  std::array<char, 16> before{};
  std::snprintf(before.data(), before.size(), "%08x", pieces);
  EXPECT_NE(before.data(), label);
  manifest->environment[kBaseLabel] = before.data();
  const auto text = to_manifest_text(*manifest);
  ASSERT_TRUE(text.ok()) << text.error().message;
  ASSERT_TRUE(write_file_atomic(step_dir + "/manifest.json", *text).ok());

  const auto merged = export_huggingface(step_dir, job / "merged", {.merge = true});
  EXPECT_TRUE(merged.ok()) << merged.error().message;
  job.resume("step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const auto last = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
  ASSERT_TRUE(last.ok()) << last.error().message;
  EXPECT_EQ(last->environment.at(kBaseLabel), label);
}

// With a part of the data for validation.
void use_lora_and_validation(Job& job) {
  use_lora(job);
  ASSERT_TRUE(make_directories(job / "texts").ok());
  for (int file = 0; file < 10; ++file) {
    std::ofstream text(job / "texts/" + std::to_string(file));
    for (int i = 0; i < 60; ++i) text << file << " says " << i * file % 17 << " and " << i << "\n";
  }
  job.workload.train.data.path = job / "texts";
  job.workload.train.data.split = {8, 2, 0};
  job.workload.train.validation = {.every_steps = 8, .sequences = 20};
}

TEST(WorkerLora, ExportIsPeftsAndMergedItIsTheModel) {
  const Job job(2, use_lora_and_validation);
  const std::string step_dir = job.workload.checkpoint_dir + "/step-8.g1";
  const auto done = export_huggingface(step_dir, job / "peft", {});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto adapters = parameters_of(step_dir);
  const auto file = SafetensorsFile::open(job / "peft/adapter_model.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), adapters.size());
  for (const auto& [name, values] : adapters) {
    const auto found = file->tensors().find("base_model.model." + name);
    ASSERT_NE(found, file->tensors().end()) << name;
    std::vector<float> read(values.size());
    ASSERT_TRUE(file->read(found->second, 0, read.data(), read.size() * sizeof(float)).ok());
    EXPECT_EQ(read, values);
  }
  const auto config = nlohmann::json::parse(*read_file(job / "peft/adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 8);
  EXPECT_EQ(config["target_modules"].size(), 7U);

  const auto merged = export_huggingface(step_dir, job / "merged", {.merge = true});
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  ASSERT_TRUE(import_huggingface(job / "merged", job / "import").ok());
  const auto before = parameters_of(base());
  const auto after = parameters_of(job / "import/step-0.g0");
  ASSERT_EQ(after.size(), before.size());
  double worst = 0;
  for (const auto& [name, values] : before) {
    const std::string stem = name.substr(0, name.rfind('.'));
    const auto a = adapters.find(stem + std::string(kLoraA));
    if (a == adapters.end()) {
      EXPECT_EQ(after.at(name), values) << name;
      continue;
    }
    const std::vector<float>& b = adapters.at(stem + std::string(kLoraB));
    const size_t columns = a->second.size() / 4;
    for (size_t i = 0; i < values.size(); ++i) {
      double sum = 0;
      for (size_t k = 0; k < 4; ++k) {
        sum += double{b[i / columns * 4 + k]} * double{a->second[k * columns + i % columns]};
      }
      worst = std::max(worst, std::abs(double{after.at(name)[i]} - (double{values[i]} + 2 * sum)));
    }
    EXPECT_NE(after.at(name), values) << name;
  }
  EXPECT_LT(worst, 1e-6);

  // Adapters beside the base, and the merged model, predict alike.
  Job whole(1);
  whole.workload.train.data = job.workload.train.data;
  whole.workload.train.validation = job.workload.train.validation;
  whole.workload.train.optimizer.lr = 0;
  whole.workload.train.steps = 1;
  whole.workload.resume_checkpoint = job / "import/step-0.g0";
  ASSERT_THAT(whole.run(), Each(kExitFinished)) << whole.messages();
  const double expected = job.metrics().back()["validation_loss"];
  EXPECT_NEAR(whole.metrics().back()["validation_loss"], expected, 1e-5 * expected);
  EXPECT_THAT(export_huggingface(base(), job / "none", {.merge = true}).error().message,
              HasSubstr("there is nothing to merge"));
}

constexpr const char* kPython = "/usr/bin/python3";

// Of an independent forward pass in fp64 over exported weights.
std::vector<double> peers_logits(const std::string& directories) {
  const ProgramOutput output =
      run_program(std::string(kPython) +
                  " " HPCTL_SOURCE "/tests/unit/checkpoint/hf_peer.py logits " + directories);
  EXPECT_EQ(output.status, 0);
  std::istringstream text(output.text);
  std::vector<double> values;
  for (double value = 0; text >> value;) values.push_back(value);
  return values;
}

double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double distance = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    distance = std::max(distance, std::abs(a[i] - b[i]));
  }
  return distance;
}

struct Adapters {
  int64_t rank;
  double alpha;
  std::vector<LoraTarget> targets;
};

// What PEFT makes of the exported adapters beside the exported base is the exported merged model.
TEST(WorkerLora, AReaderOfPeftsLayoutPredictsWhatTheMergedModelDoes) {
  if (!is_accessible(kPython)) GTEST_SKIP() << kPython << " is absent: no independent reader";
  const std::string tokens = " 108,105,110,101,32,49,50,32,111,102,32,52 ";  // of the text's kind
  for (const Adapters& adapters :
       {Adapters{4, 8, LoraSpec{}.targets},
        Adapters{3, 4.5, {LoraTarget::kQProj, LoraTarget::kVProj, LoraTarget::kDownProj}}}) {
    Job job(1);
    use_lora(job);
    job.workload.train.lora.rank = adapters.rank;
    job.workload.train.lora.alpha = adapters.alpha;
    job.workload.train.lora.targets = adapters.targets;
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    const std::string step_dir = job.workload.checkpoint_dir + "/step-8.g1";
    ASSERT_TRUE(export_huggingface(step_dir, job / "peft", {}).ok());
    ASSERT_TRUE(export_huggingface(step_dir, job / "merged", {.merge = true}).ok());
    ASSERT_TRUE(export_huggingface(base(), job / "base", {}).ok());
    const std::vector<double> plain = peers_logits(job / "base" + tokens);
    const std::vector<double> beside = peers_logits(job / "base" + tokens + job / "peft");
    const std::vector<double> merged = peers_logits(job / "merged" + tokens);
    ASSERT_EQ(plain.size(), size_t{12} * 256);
    // The merged weights are rounded to fp32, 2^-24 of each; the adapters change far more.
    EXPECT_LT(farthest(beside, merged), 1e-5);
    EXPECT_GT(farthest(beside, plain), 1e-2);
  }
}

}  // namespace
}  // namespace hpctl
