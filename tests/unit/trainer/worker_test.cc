// SPDX-License-Identifier: Apache-2.0
// Whole workers: real processes, sockets, checkpoints. What they promise their holder, each other
// and those who read what they leave behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/worker/arena_header.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/arch/registry.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/ledger_check.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/state/state_arena.h"

namespace hpctl {
namespace {

using ::testing::AllOf;
using testing::calm_job;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Lt;

TEST(Worker, KeepsItsContractWithTheHolder) {
  const Job& job = calm_job();
  for (const auto& worker : job.workers) {
    const ProgressPage& page = worker->page();
    EXPECT_EQ(page.magic, kProgressMagic);
    EXPECT_EQ(page.version, kProgressVersion);
    EXPECT_EQ(page.phase, static_cast<uint32_t>(WorkerPhase::kFinished));
    EXPECT_EQ(page.step, 8U);
    EXPECT_EQ(page.checkpoint_step, 8U);
    EXPECT_EQ(page.tokens, 4U * 32U);
    EXPECT_GT(page.collective, 8U);
    EXPECT_GT(page.step_ns, 0U);
    EXPECT_GE(page.first_step_unix_ns, page.start_unix_ns);
    EXPECT_EQ(worker->message(), "");
    // The sealed state outlives the process.
    ArenaHeader header{};
    ASSERT_EQ(pread(worker->arena_fd(), static_cast<void*>(&header), sizeof header, 0),
              static_cast<ssize_t>(sizeof header));
    EXPECT_EQ(header.magic, kArenaMagic);
    EXPECT_EQ(read_seals(worker->arena_fd()).own.front().step, 8U);
  }
  const auto metrics = job.metrics();
  ASSERT_EQ(metrics.size(), 8U);
  EXPECT_EQ(metrics.back()["step"], 8);
  EXPECT_LT(metrics.back()["loss"], metrics.front()["loss"]);
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  EXPECT_EQ(ledger->cursor, 32U) << broken_promise("ledger");
}

class InPrecision : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Types, InPrecision,
                         ::testing::Values(std::pair("tiny", "fp32"), std::pair("tiny", "bf16"),
                                           std::pair("tiny-gpt", "bf16")));

TEST_P(InPrecision, SameBitsAgainAndAfterResume) {
  Job job(2);
  job.workload.train.model = *model_preset(GetParam().first);
  job.workload.train.precision = *from_word<Precision>(GetParam().second);
  job.workload.train.batch.global = 8;  // two micro-batches
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const std::string undisturbed = job.digest("step-8.g1");
  ASSERT_EQ(undisturbed.size(), 64U) << undisturbed;

  Job again(2);
  again.workload.train = job.workload.train;
  ASSERT_THAT(again.run(), Each(kExitFinished)) << again.messages();
  EXPECT_EQ(again.digest("step-8.g1"), undisturbed) << broken_promise("digest");

  job.resume("step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), undisturbed) << broken_promise("digest");
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
  ASSERT_TRUE(manifest.ok());
  EXPECT_TRUE(manifest->exact);
  EXPECT_EQ(manifest->parent, 1U);
}

TEST(Worker, Bf16MomentsTakeLessMemoryAndResumeToTheSameBits) {
  const Job& job = calm_job();
  const double loss = job.metrics().back()["loss"];
  const auto arena_bytes = [](const Job& of) {
    struct stat status {};
    EXPECT_EQ(fstat(of.workers[0]->arena_fd(), &status), 0);
    return status.st_size - static_cast<off_t>(ArenaGeometry().state_at());
  };
  Job narrow(2);
  narrow.workload.train.optimizer.moments = StateType::kBf16;
  ASSERT_THAT(narrow.run(), Each(kExitFinished)) << narrow.messages();
  EXPECT_EQ(arena_bytes(narrow) * 3, arena_bytes(job) * 2);
  EXPECT_NEAR(narrow.metrics().back()["loss"].get<double>(), loss, 0.02 * loss);
  const std::string undisturbed = narrow.digest("step-8.g1");
  EXPECT_NE(undisturbed, job.digest("step-8.g1"));
  narrow.resume("step-3.g1", 3);
  ASSERT_THAT(narrow.run(), Each(kExitFinished)) << narrow.messages();
  EXPECT_EQ(narrow.digest("step-8.g2"), undisturbed) << broken_promise("digest");
  EXPECT_TRUE(read_manifest(narrow.workload.checkpoint_dir + "/step-8.g2")->exact);
}

// With master weights in bf16 the state has half of the bytes; a checkpoint has fp32 numbers.
TEST(Worker, Bf16MasterWeightsResumeToTheSameBits) {
  Job wide(2);
  wide.workload.train.precision = Precision::kBf16;
  ASSERT_THAT(wide.run(), Each(kExitFinished)) << wide.messages();
  const double loss = wide.metrics().back()["loss"];
  const auto arena_bytes = [](const Job& of) {
    struct stat status {};
    EXPECT_EQ(fstat(of.workers[0]->arena_fd(), &status), 0);
    return status.st_size - static_cast<off_t>(ArenaGeometry().state_at());
  };
  Job narrow(2);
  narrow.workload.train.precision = Precision::kBf16;
  narrow.workload.train.optimizer.moments = StateType::kBf16;
  narrow.workload.train.optimizer.master = StateType::kBf16;
  ASSERT_THAT(narrow.run(), Each(kExitFinished)) << narrow.messages();
  EXPECT_EQ(arena_bytes(narrow) * 2, arena_bytes(wide));
  EXPECT_NEAR(narrow.metrics().back()["loss"].get<double>(), loss, 0.02 * loss);
  const std::string undisturbed = narrow.digest("step-8.g1");
  narrow.resume("step-3.g1", 3);
  ASSERT_THAT(narrow.run(), Each(kExitFinished)) << narrow.messages();
  EXPECT_EQ(narrow.digest("step-8.g2"), undisturbed) << broken_promise("digest");
  EXPECT_TRUE(read_manifest(narrow.workload.checkpoint_dir + "/step-8.g2")->exact);
  // Other ranks go on, and so does a job that keeps its state in fp32.
  narrow.resume("step-3.g1", 3);
  narrow.workload.world_size = 4;
  narrow.workload.train.optimizer.master = StateType::kFp32;
  narrow.workload.train.optimizer.moments = StateType::kFp32;
  ASSERT_THAT(narrow.run(), Each(kExitFinished)) << narrow.messages();
  EXPECT_NEAR(narrow.metrics().back()["loss"].get<double>(), loss, 0.02 * loss);
  EXPECT_FALSE(read_manifest(narrow.workload.checkpoint_dir + "/step-8.g3")->exact);
}

TEST(Worker, EveryWorldSizeLearnsTheSame) {
  const double two = calm_job().metrics().back()["loss"];
  for (const int world_size : {1, 4}) {
    Job job(world_size);
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    EXPECT_NEAR(job.metrics().back()["loss"].get<double>(), two, 1e-4) << world_size;
  }
}

TEST(Worker, AGptGoesOnWithOtherRanksAndAnotherStrategy) {
  Job job(2);
  job.workload.train.model = *model_preset("tiny-gpt");
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const double loss = job.metrics().back()["loss"];
  EXPECT_LT(loss, job.metrics().front()["loss"]);
  job.resume("step-3.g1", 3);
  job.workload.world_size = 4;
  job.workload.train.strategy = Strategy::kNoShard;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_NEAR(job.metrics().back()["loss"].get<double>(), loss, 1e-4);
  // A checkpoint of the other architecture is named as such.
  job.resume("step-8.g2", 8);
  job.workload.train.steps = 9;
  job.workload.train.model = *model_preset("tiny");
  job.run();
  EXPECT_THAT(job.messages(), HasSubstr("model.arch is gpt there and llama here"));
}

class Kinds : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(OfLlama, Kinds,
                         ::testing::Values("tiny-qwen2", "tiny-qwen3", "tiny-mistral"));

TEST_P(Kinds, GoOnWithOtherRanksAndAnotherStrategy) {
  Job job(2);
  job.workload.train.model = *model_preset(GetParam());
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const double loss = job.metrics().back()["loss"];
  EXPECT_LT(loss, job.metrics().front()["loss"]);
  const std::string undisturbed = job.digest("step-8.g1");
  job.resume("step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), undisturbed) << broken_promise("digest");
  job.resume("step-3.g1", 3);
  job.workload.world_size = 4;
  job.workload.train.strategy = Strategy::kNoShard;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_NEAR(job.metrics().back()["loss"].get<double>(), loss, 1e-4);
}

TEST(Worker, ACheckpointWithAnotherWindowIsRefused) {
  Job job(1);
  job.workload.train.model = *model_preset("tiny-mistral");
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  job.resume("step-3.g1", 3);
  job.workload.train.model.sliding_window = 12;
  job.run();
  EXPECT_THAT(job.messages(), HasSubstr("model.sliding_window is 11 there and 12 here"));
}

// With a learning rate of zero the first job keeps its first weights; so the second, which begins
// with them by way of a Hugging Face directory, must see the same loss on the same samples.
class Imported : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Weights, Imported,
                         ::testing::Values("tiny", "tiny-gpt", "tiny-qwen2", "tiny-qwen3",
                                           "tiny-mistral"));

TEST_P(Imported, AreABeginning) {
  Job first(1);
  first.workload.train.model = *model_preset(GetParam());
  first.workload.train.steps = 1;
  first.workload.train.optimizer.lr = 0;
  ASSERT_THAT(first.run(), Each(kExitFinished)) << first.messages();
  const std::string saved = first.workload.checkpoint_dir + "/step-1.g1";
  ASSERT_TRUE(export_huggingface(saved, first / "model", {}).ok());
  ASSERT_TRUE(import_huggingface(first / "model", first / "weights").ok());
  Job second(2);
  second.workload.train.model = *model_preset(GetParam());
  second.workload.resume_checkpoint = first / "weights/step-0.g0";
  second.workload.train.steps = 2;
  ASSERT_THAT(second.run(), Each(kExitFinished)) << second.messages();
  ASSERT_EQ(second.metrics().size(), 2U);
  EXPECT_EQ(second.metrics()[0]["step"], 1);
  EXPECT_NEAR(second.metrics()[0]["loss"].get<double>(), first.metrics()[0]["loss"].get<double>(),
              1e-6)
      << "two ranks add in another order than one";
  EXPECT_NE(second.metrics()[0]["loss"], second.metrics()[1]["loss"]);
  const Manifest manifest = read_manifest(second.workload.checkpoint_dir + "/step-2.g1").value();
  EXPECT_TRUE(manifest.exact);
  EXPECT_FALSE(manifest.weights_only);
  const bool gpt = second.workload.train.model.arch == Arch::gpt;
  EXPECT_EQ(manifest.model.max_positions, gpt ? 128 : first.workload.train.data.seq_len)
      << "its export's";
}

// Of rank 0's arena in bytes: slots in which no state was ever sealed. They are reserved, but the
// process has no page of them. The third of its own is needed by saves, the fourth where the disk
// is slow.
double unwritten(const Job& job) {
  const int fd = job.workers[0]->arena_fd();
  ArenaHeader header{};
  EXPECT_EQ(pread(fd, static_cast<void*>(&header), sizeof header, 0),
            static_cast<ssize_t>(sizeof header));
  struct stat status {};
  EXPECT_EQ(fstat(fd, &status), 0);
  const size_t slot_bytes = header.shard_elements * (header.param_bytes + 2 * header.moment_bytes);
  const size_t slots =
      (static_cast<size_t>(status.st_size) - ArenaGeometry().state_at()) / slot_bytes;
  const size_t copies = header.copied_index < 0 ? 0 : kCopySlots;
  const std::span headers(header.slots);
  const auto never = [](std::span<const ArenaSlotHeader> some) {
    return std::count_if(some.begin(), some.end(),
                         [](const ArenaSlotHeader& slot) { return slot.generation == 0; });
  };
  return static_cast<double>(slot_bytes) *
         static_cast<double>(never(headers.first(slots - copies)) + never(headers.last(copies)));
}

// Peak memory of rank 0 in bytes, with the saves, and with copies at peers: a slow disk has one
// last beyond the last step.
double measured_peak(Job& job) {
  EXPECT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  return static_cast<double>(job.workers[0]->peak_memory_bytes()) + unwritten(job);
}

double planned_peak(const Job& job) {
  const PlanSetting setting = setting_of(job.workload, false);
  return plan_memory(setting, model_layout(setting.train.model)).total();
}

struct PeakSetting {
  const char* preset;
  const char* precision;
  const char* checkpointing;
  Strategy strategy = Strategy::kFull;
  int ranks = 2;
};

void prepare_peak(Job& job, const PeakSetting& setting, int64_t layers, int64_t vocab) {
  TrainSpec& train = job.workload.train;
  ModelSpec& model = train.model;
  model = *model_preset(setting.preset);
  model.dim = 256;
  model.layers = layers;
  model.heads = 8;
  model.kv_heads = model.arch == Arch::gpt ? 8 : 4;
  model.ffn = 1024;
  model.vocab = vocab;
  if (model.arch == Arch::gpt) model.max_positions = 384;
  if (model.arch == Arch::qwen3) model.head_dim = 64;  // twice dim / heads
  model.tied_embeddings = model.arch == Arch::gpt;
  train.strategy = setting.strategy;
  if (setting.strategy == Strategy::kHybrid) train.shard_group = 2;
  train.precision = *from_word<Precision>(setting.precision);
  train.loss_scale.initial = 1024;
  train.memory.activation_checkpointing = *from_word<Checkpointing>(setting.checkpointing);
  train.data.seq_len = 384;
  train.batch.micro = 2;
  train.steps = 4;
  job.workload.snapshot.every_steps = 1;
}

struct Peak {
  double measured = 0;
  double planned = 0;
};

// What one layer with few words needs beyond its plan is the program with its libraries, which for
// products of the same shapes take the same work space.
Peak expect_peak_as_planned(const PeakSetting& setting) {
  Job small(setting.ranks);
  prepare_peak(small, setting, 1, 256);
  const double program = measured_peak(small) - planned_peak(small);
  Job job(setting.ranks);
  prepare_peak(job, setting, 6, 4096);
  const Peak peak = {measured_peak(job) - program, planned_peak(job)};
  const double share = peak.measured / peak.planned;
  const std::string what = std::string(setting.preset) + "_" + setting.precision + "_" +
                           setting.checkpointing + "_" + to_word(setting.strategy);
  ::testing::Test::RecordProperty(what, std::to_string(share));
  EXPECT_GT(peak.planned, 2 * planned_peak(small)) << "most of the plan is under test: " << what;
  // In narrow types the plan is too careful, by 7 to 11 %.
  const double least = setting.precision == std::string("fp32") ? 0.9 : 0.87;
  EXPECT_THAT(share, AllOf(Gt(least), Lt(1.1)))
      << what << ": " << peak.measured << " bytes measured, " << peak.planned
      << " planned, program " << program;
  return peak;
}

// The address sanitizer keeps freed memory and pads what is in use.
#ifdef __SANITIZE_ADDRESS__
#define SKIP_WITH_OTHER_ALLOCATOR() GTEST_SKIP() << "the address sanitizer has its own allocator"
#else
#define SKIP_WITH_OTHER_ALLOCATOR() static_cast<void>(0)
#endif

class PeakMemory : public ::testing::TestWithParam<PeakSetting> {};
INSTANTIATE_TEST_SUITE_P(
    Of, PeakMemory,
    ::testing::Values(PeakSetting{"tiny", "bf16", "none"}, PeakSetting{"tiny", "fp16", "none"},
                      PeakSetting{"tiny-gpt", "fp32", "none"},
                      PeakSetting{"tiny-qwen3", "bf16", "none"},
                      PeakSetting{"tiny-qwen3", "fp32", "operations"},
                      // Where other ranks have the same part.
                      PeakSetting{"tiny", "fp32", "none", Strategy::kNoShard},
                      PeakSetting{"tiny", "fp32", "none", Strategy::kHybrid, 4}),
    [](const auto& info) {
      const PeakSetting& setting = info.param;
      std::string name = std::string(setting.preset) + "_" + setting.precision + "_" +
                         setting.checkpointing + "_" + to_word(setting.strategy);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST_P(PeakMemory, IsAsPlanned) {
  SKIP_WITH_OTHER_ALLOCATOR();
  expect_peak_as_planned(GetParam());
}

TEST(Worker, PeakMemoryIsAsPlannedWithRepeatedOperations) {
  SKIP_WITH_OTHER_ALLOCATOR();
  const Peak none = expect_peak_as_planned({"tiny", "fp32", "none"});
  const Peak operations = expect_peak_as_planned({"tiny", "fp32", "operations"});
  EXPECT_LT(operations.planned, 0.95 * none.planned);
  EXPECT_GT(none.measured - operations.measured, 0.5 * (none.planned - operations.planned))
      << "what the plan says it spares";
}

TEST(Worker, TracesAndEventsAreWhereTheDocsSay) {
  Job job(2);
  job.workload.train.metrics = {.tensorboard = true, .trace_from = 7, .trace_steps = 5};
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(list_directory(job / "tensorboard").value().size(), 1U) << "rank 0 alone writes";
  for (const char* rank : {"0", "1"}) {
    const auto trace = nlohmann::json::parse(
        read_file(job / (std::string("trace/g1.r") + rank + ".json")).value());
    std::set<std::string> seen;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      seen.insert(event["name"].get<std::string>() + " " + event["args"]["step"].dump());
    }
    for (const char* span :
         {"gather layers.1", "forward layers.0", "backward head", "reduce embed"}) {
      EXPECT_TRUE(seen.contains(span + std::string(" 8"))) << span;
    }
    for (const char* part : {"data", "compute", "reduce", "optimizer", "save"}) {
      EXPECT_TRUE(seen.contains(part + std::string(" 7"))) << part;
      EXPECT_TRUE(seen.contains(part + std::string(" 8"))) << part << ": the job's last step";
    }
  }
  const auto last = job.metrics().back();
  EXPECT_GT(last["tflops"], last["tflops_causal"]);
  EXPECT_FALSE(last.contains("mfu")) << "a CPU has no peak to compare with";
  EXPECT_GT(last["peak_memory_bytes"], 1 << 20);
}

TEST(Worker, SavesByTheClockToo) {
  Job job(2);
  job.workload.train.steps = 24;
  job.workload.checkpoint.every_steps = 0;
  job.workload.checkpoint.every_minutes = 1e-5;  // at every step that finds no save under way
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const auto checkpoints = list_checkpoints(job.workload.checkpoint_dir);
  ASSERT_TRUE(checkpoints.ok());
  ASSERT_GE(checkpoints->size(), 2U) << "rank 1 agreed to more than the final one";
  EXPECT_EQ(checkpoints->back().step, 24U) << broken_promise("checkpoint");
  const auto entries = list_directory(job.workload.checkpoint_dir);
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(entries->size(), checkpoints->size()) << "nothing half-written stays";
}

// A worker whose generation is over deleted, after a late commit, the checkpoint that the
// controller had chosen for the next one (keep: 1). Only the controller deletes.
TEST(Worker, DeletesNoCheckpoint) {
  Job job(2);
  job.workload.checkpoint.keep = 1;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  std::vector<uint64_t> steps;
  for (const CheckpointRef& ref : list_checkpoints(job.workload.checkpoint_dir).value()) {
    steps.push_back(ref.step);
  }
  EXPECT_GE(steps.size(), 2U) << broken_promise("checkpoint");
  EXPECT_EQ(steps.back(), 8U);
}

TEST(Worker, FinishedJobIsLeftAlone) {
  Job job(1);
  job.resume_from(calm_job(), "step-8.g1", 8);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_FALSE(is_accessible(job.workload.checkpoint_dir + "/step-8.g2"));
}

}  // namespace
}  // namespace hpctl
