// SPDX-License-Identifier: Apache-2.0
// What the plan chooses for keys that are auto, beside a search of our own over all values.
#include "trainer/plan/automatic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"
#include "trainer/plan/advice.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/speed_plan.h"

namespace hpctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kGiB = 1024.0 * 1024 * 1024;

JobSpec job_of(const char* preset, int32_t nodes, int64_t global) {
  JobSpec spec;
  spec.name = "a";
  spec.nodes = nodes;
  spec.min_nodes = nodes;
  spec.workers_per_node = 8;
  TrainSpec& train = spec.train.emplace();
  train.model = *model_preset(preset);
  train.data.path = "/data";
  train.data.seq_len = 8192;
  train.batch.global = global;
  train.steps = 1;
  train.automatic = AutoKeys::all();
  return spec;
}

WorkerMemory gpu(const char* name) {
  const GpuModel* model = find_gpu_model(name);
  return {model, model->memory_bytes, std::string(name) + " of a test"};
}

// What a job trains. The same model's layout every time takes most of a test's time.
const std::vector<Block>& layout_of(const TrainSpec& train) {
  static std::map<std::pair<std::string, int64_t>, std::vector<Block>> known;
  std::vector<Block>& blocks = known[{train.model.preset, train.lora.rank}];
  if (blocks.empty()) blocks = trained_layout(train);
  return blocks;
}

Automatic choose(const JobSpec& spec, const WorkerMemory& memory) {
  return choose_automatic(spec, layout_of(*spec.train), memory);
}

std::map<std::string, ChosenValue> by_key(const Automatic& made) {
  std::map<std::string, ChosenValue> all;
  for (const ChosenValue& value : made.chosen.values) {
    all[value.key.substr(value.key.rfind('.') + 1)] = value;
  }
  return all;
}

double need_on(const JobSpec& spec, const TrainSpec& train, int32_t nodes, bool is_gpu) {
  PlanSetting setting = setting_of(spec, is_gpu);
  setting.train = train;
  setting.nodes = nodes;
  return plan_memory(setting, layout_of(train)).total();
}

double seconds_of(const JobSpec& spec, const TrainSpec& train, const GpuModel& device) {
  PlanSetting setting = setting_of(spec, true);
  setting.train = train;
  return plan_speed(setting, layout_of(train), device).middle_s();
}

// Every value that each key may have, unless it is given.
std::vector<TrainSpec> all_settings(const JobSpec& spec) {
  const TrainSpec& given = *spec.train;
  std::vector<TrainSpec> all;
  for (const Strategy strategy : {Strategy::kFull, Strategy::kShardGradOp, Strategy::kOptimizer,
                                  Strategy::kNoShard, Strategy::kHybrid}) {
    if (!given.automatic.strategy && strategy != given.strategy) continue;
    for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kOperations,
                                              Checkpointing::kSelective, Checkpointing::kFull}) {
      if (!given.automatic.activation_checkpointing &&
          checkpointing != given.memory.activation_checkpointing) {
        continue;
      }
      for (int64_t micro = 1; micro <= given.batch.global; ++micro) {
        if (!given.automatic.micro && micro != given.batch.micro) continue;
        const bool even = given.batch.global % (micro * spec.world_size()) == 0;
        if (given.automatic.micro && micro > 1 && !even) continue;
        for (const int64_t chunk : {0, 1024, 2048, 4096}) {
          if (!given.automatic.chunk_tokens && chunk != given.loss.chunk_tokens) continue;
          JobSpec changed = spec;
          TrainSpec& train = *changed.train;
          train.strategy = strategy;
          train.memory.activation_checkpointing = checkpointing;
          train.batch.micro = micro;
          train.loss.chunk_tokens = chunk;
          train.automatic = {};
          if (find_problems(changed).empty()) all.push_back(train);
        }
      }
    }
  }
  return all;
}

JobSpec any_job(Rng& rng) {
  const auto below = [&](uint64_t n) { return static_cast<int32_t>(rng.below(n)); };
  const char* const presets[] = {"llama3-8b", "llama3.2-1b", "gpt3-1.7b", "debugmodel",
                                 "qwen3-0.6b"};
  const int32_t nodes = 1 + below(4);
  JobSpec spec = job_of(presets[below(5)], nodes, 0);
  spec.workers_per_node = 1 << below(4);
  spec.min_nodes = 1 + below(static_cast<uint64_t>(nodes));
  TrainSpec& train = *spec.train;
  train.data.seq_len = int64_t{256} << below(4);
  train.batch.global = spec.world_size() * (1 + below(12)) + below(2);
  if (below(3) == 0) train.precision = Precision::kFp32;
  if (below(3) == 0) train.optimizer.moments = StateType::kBf16;
  if (below(4) == 0) train.memory.offload = {Offload::kOptimizer};
  if (below(6) == 0) train.memory.offload = {Offload::kActivations};
  if (below(6) == 0) train.shard_group = spec.workers_per_node;
  if (below(6) == 0) train.reshard_after_forward = Reshard::kAlways;
  if (below(4) == 0) train.automatic.micro = false;
  if (below(4) == 0) train.automatic.chunk_tokens = false;
  if (train.memory.offload != std::vector{Offload::kActivations} && below(4) == 0) {
    train.automatic.activation_checkpointing = false;
  }
  if (train.shard_group == 0 && below(4) == 0) train.automatic.strategy = false;
  const bool adapts =
      train.model.arch != Arch::gpt && train.memory.offload != std::vector{Offload::kOptimizer};
  if (adapts && below(12) == 0) {
    train.lora = {.base = "/base", .rank = 16};
  }
  return spec;
}

// Of jobs at random: under the sanitizer, which is there for what the plan's code does with its
// memory, an eighth of those that the release preset tries.
#ifdef __SANITIZE_ADDRESS__
constexpr int kFewer = 8;
#else
constexpr int kFewer = 1;
#endif

// Whatever the job and the memory.
TEST(Automatic, NothingFasterFitsThanWhatIsChosen) {
  Rng rng(20261125);
  int fitting = 0;
  int chosen_by_time = 0;
  for (int round = 0; round < 200 / kFewer; ++round) {
    const JobSpec spec = any_job(rng);
    ASSERT_TRUE(find_problems(spec).empty()) << find_problems(spec)[0].message;
    const AutoKeys& keys = spec.train->automatic;
    if (!keys.micro && !keys.chunk_tokens && !keys.strategy && !keys.activation_checkpointing) {
      continue;
    }
    WorkerMemory memory = gpu(rng.below(2) == 0 ? "h100" : "a10g");
    memory.bytes /= static_cast<double>(1 + rng.below(6));
    const Automatic made = choose(spec, memory);
    const std::string what = "round " + std::to_string(round);
    JobSpec chosen = spec;
    chosen.train = made.train;
    EXPECT_TRUE(find_problems(chosen).empty()) << what;
    const auto fits_on = [&](const TrainSpec& train, int32_t nodes) {
      return need_on(spec, train, nodes, true) <= memory.bytes * kUsableMemory;
    };
    const std::vector<TrainSpec> all = all_settings(spec);
    ASSERT_FALSE(all.empty()) << what;
    // On nodes.min where anything fits there.
    const bool any_on_fewest = std::any_of(all.begin(), all.end(), [&](const TrainSpec& train) {
      return fits_on(train, spec.min_nodes) && fits_on(train, spec.nodes);
    });
    const int32_t fewest = any_on_fewest ? spec.min_nodes : spec.nodes;
    bool any = false;
    double least = 0;
    double most = 0;
    for (const TrainSpec& train : all) {
      if (!fits_on(train, spec.nodes) || !fits_on(train, fewest)) continue;
      const double seconds = seconds_of(spec, train, *memory.gpu);
      least = any ? std::min(least, seconds) : seconds;
      most = std::max(most, seconds);
      any = true;
    }
    EXPECT_EQ(made.misfit.empty(), any) << what << ": " << made.misfit;
    if (!any) continue;
    ++fitting;
    if (most > least) ++chosen_by_time;
    EXPECT_TRUE(fits_on(made.train, spec.nodes)) << what;
    EXPECT_TRUE(fits_on(made.train, fewest)) << what;
    EXPECT_EQ(seconds_of(spec, made.train, *memory.gpu), least) << what;
  }
  EXPECT_GT(fitting, 100 / kFewer) << "most of the rounds are about a choice";
  EXPECT_GT(chosen_by_time, 50 / kFewer);
}

TEST(Automatic, TheAdviceHasNothingToAdd) {
  Rng rng(7);
  const std::vector<Strategy> known = {Strategy::kNoShard, Strategy::kOptimizer,
                                       Strategy::kShardGradOp, Strategy::kFull};
  int seen = 0;
  for (int round = 0; round < 150 / kFewer; ++round) {
    JobSpec spec = any_job(rng);
    spec.train->automatic = AutoKeys::all();
    spec.train->shard_group = 0;
    spec.train->memory.offload.clear();
    spec.train->reshard_after_forward = Reshard::kAuto;
    const WorkerMemory memory = gpu(rng.below(2) == 0 ? "h200" : "a100-40g");
    const std::vector<Block>& blocks = layout_of(*spec.train);
    const Automatic made = choose_automatic(spec, blocks, memory);
    if (!made.misfit.empty()) continue;
    ++seen;
    spec.train = made.train;
    const Advice advice = advise(setting_of(spec, true), blocks, *memory.gpu, memory.bytes, known);
    EXPECT_TRUE(advice.changes.empty()) << round << ": " << advice.changes[0].change;
  }
  EXPECT_GT(seen, 75 / kFewer);
}

// A job with values in place of what is auto, and with some sequences to evaluate.
JobSpec any_given_job(Rng& rng) {
  while (true) {
    JobSpec spec = any_job(rng);
    TrainSpec& train = *spec.train;
    train.automatic = {};
    train.strategy = static_cast<Strategy>(rng.below(words_of(Strategy()).size()));
    train.memory.activation_checkpointing =
        static_cast<Checkpointing>(rng.below(words_of(Checkpointing()).size()));
    train.batch.micro = 1 + static_cast<int64_t>(rng.below(4));
    train.batch.global *= 8;
    train.data.split = {98, 2, 0};
    train.validation = {.every_steps = 10, .sequences = static_cast<int64_t>(rng.below(9))};
    if (rng.below(4) == 0) train.batch.ramp = {{1000, train.batch.global / 8}};
    if (find_problems(spec).empty()) return spec;
  }
}

// On nodes.min wherever anything does that the advice considers.
TEST(Advice, WhatItMakesOfAJobIsAJobThatFits) {
  Rng rng(1311);
  int changed = 0;
  int on_all_nodes = 0;
  for (int round = 0; round < 300 / kFewer; ++round) {
    const JobSpec spec = any_given_job(rng);
    WorkerMemory memory = gpu(rng.below(2) == 0 ? "h100" : "a10g");
    memory.bytes /= static_cast<double>(1 + rng.below(6));
    const Advice advice = advise(setting_of(spec, true), layout_of(*spec.train), *memory.gpu,
                                 memory.bytes, {spec.train->strategy});
    if (!advice.setting) continue;
    if (!advice.changes.empty()) ++changed;
    JobSpec advised = spec;
    advised.nodes = advice.setting->nodes;
    advised.train = advice.setting->train;
    const TrainSpec& train = *advised.train;
    const std::string what = "round " + std::to_string(round);
    const auto problems = find_problems(advised);
    EXPECT_TRUE(problems.empty()) << what << ": " << problems[0].key << problems[0].message;
    const int64_t micro = train.batch.micro;
    EXPECT_TRUE(micro == spec.train->batch.micro || train.validation.sequences % micro == 0)
        << what << ": " << micro;
    const auto fits_on = [&](const JobSpec& job, int32_t nodes) {
      return need_on(job, *job.train, nodes, true) <= memory.bytes * kUsableMemory;
    };
    EXPECT_TRUE(fits_on(advised, advised.nodes)) << what;
    if (!advice.on_all_nodes) {
      EXPECT_TRUE(advised.nodes > spec.nodes || fits_on(advised, spec.min_nodes)) << what;
      continue;
    }
    ++on_all_nodes;
    EXPECT_LT(spec.min_nodes, spec.nodes);
    JobSpec thrifty = spec;
    thrifty.train->batch.micro = 1;
    thrifty.train->memory.activation_checkpointing = Checkpointing::kFull;
    thrifty.train->loss.chunk_tokens = 2048;
    EXPECT_FALSE(fits_on(thrifty, spec.min_nodes)) << what;
  }
  EXPECT_GT(changed, 100 / kFewer);
  EXPECT_GT(on_all_nodes, 10 / kFewer);
}

TEST(Automatic, MoreMemoryIsNeverSlower) {
  Rng rng(11);
  for (int round = 0; round < 30 / kFewer; ++round) {
    const JobSpec spec = any_job(rng);
    double before = 0;
    for (int64_t mib = 1 << 10; mib < 600 << 10; mib = mib * 3 / 2) {
      const double bytes = static_cast<double>(mib) * (1 << 20);
      WorkerMemory memory = gpu("h100");
      memory.bytes = bytes;
      const Automatic made = choose(spec, memory);
      if (!made.misfit.empty() || made.chosen.basis.find("nodes.min") != std::string::npos)
        continue;
      const double seconds = seconds_of(spec, made.train, *memory.gpu);
      if (before > 0) {
        EXPECT_LE(seconds, before) << round << " at " << bytes / kGiB;
      }
      before = seconds;
    }
  }
}

TEST(Automatic, TheSameJobGetsTheSameAgain) {
  const JobSpec spec = job_of("llama3-8b", 4, 512);
  const auto text = [&] {
    JobSpec chosen = spec;
    const Automatic made = choose(spec, gpu("h100"));
    chosen.train = made.train;
    chosen.chosen = made.chosen;
    return to_json_text(chosen);
  };
  const std::string first = text();
  EXPECT_EQ(text(), first);
  // And what was chosen is chosen: nothing is auto in what is stored and read again.
  const auto stored = job_spec_from_json(first);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(stored->chosen.values.size(), 4U);
  const Automatic again = choose(*stored, gpu("a10g"));
  EXPECT_TRUE(again.chosen.values.empty());
  JobSpec kept = *stored;
  kept.train = again.train;
  EXPECT_EQ(to_json_text(kept), first) << "with another memory";
}

// Jobs as the tests have them are what they were before a plan chose.
TEST(Automatic, OnACpuWithRoomNothingIsSavedAndTheLeastIsShared) {
  for (const char* preset : {"tiny", "debugmodel", "tiny-gpt"}) {
    JobSpec spec = job_of(preset, 2, 64);
    spec.workers_per_node = 2;
    spec.train->data.seq_len = 128;
    const Automatic made = choose(spec, {.bytes = kGiB, .source = "a test"});
    const TrainSpec& train = made.train;
    EXPECT_EQ(train.strategy, TrainSpec().strategy) << preset;
    EXPECT_EQ(train.memory.activation_checkpointing, Checkpointing::kNone);
    EXPECT_EQ(train.batch.micro, 1);
    EXPECT_EQ(train.loss.chunk_tokens, 0);
    EXPECT_EQ(made.chosen.basis, "4 workers, each with 90 % of 1.0 GiB (a test)");
    EXPECT_THAT(by_key(made)["micro"].reason, HasSubstr("the plan knows no times"));
  }
}

TEST(Automatic, OnACpuRecomputationIsTheLastResort) {
  JobSpec spec = job_of("llama3.2-1b", 1, 64);
  spec.workers_per_node = 1;
  std::vector<std::string> seen;
  double before = 1e9;
  for (int64_t mib = 400 << 10; mib > 1 << 10; mib = mib * 97 / 100) {
    const double bytes = static_cast<double>(mib) * (1 << 20);
    const Automatic made = choose(spec, {.bytes = bytes, .source = "a test"});
    if (!made.misfit.empty()) break;
    EXPECT_LE(need_on(spec, made.train, 1, false), bytes * kUsableMemory);
    const std::string now = std::string(to_word(made.train.memory.activation_checkpointing)) +
                            (made.train.loss.chunk_tokens > 0 ? " in chunks" : "");
    if (seen.empty() || seen.back() != now) seen.push_back(now);
    const double factor = recompute_factor(
        made.train,
        flops_per_token(made.train.model, layout_of(made.train), made.train.data.seq_len));
    EXPECT_GE(factor, before > 1e8 ? 1 : before) << "with less memory not less recomputation";
    before = factor;
  }
  EXPECT_EQ(seen.front(), "none");
  EXPECT_GE(seen.size(), 3U);
  EXPECT_THAT(seen.back(), HasSubstr("full"));
}

TEST(Automatic, WithoutKnownMemoryAJobGetsWhatItGotBefore) {
  const JobSpec spec = job_of("llama3-70b", 1, 512);
  const Automatic made = choose(spec, {.source = "nobody tells"});
  EXPECT_EQ(made.misfit, "");
  JobSpec before = spec;
  before.train->automatic = {};
  JobSpec chosen = spec;
  chosen.train = made.train;
  EXPECT_EQ(to_json_text(chosen), to_json_text(before));
  EXPECT_EQ(made.chosen.basis, "memory that is not known (nobody tells)");
  EXPECT_EQ(made.chosen.values.size(), 4U);
  // Where that would disagree with other keys, the first that does not.
  JobSpec offloading = job_of("llama3-8b", 1, 8);
  offloading.train->memory.offload = {Offload::kActivations};
  ASSERT_TRUE(find_problems(offloading).empty());
  EXPECT_EQ(choose(offloading, {}).train.memory.activation_checkpointing,
            Checkpointing::kSelective);
  JobSpec grouped = job_of("llama3-8b", 1, 8);
  grouped.train->shard_group = 4;
  ASSERT_TRUE(find_problems(grouped).empty());
  EXPECT_EQ(choose(grouped, {}).train.strategy, Strategy::kHybrid);
}

TEST(Automatic, EachValueIsToldWithItsReason) {
  const Automatic made = choose(job_of("llama3-8b", 1, 64), gpu("h100"));
  EXPECT_EQ(made.misfit, "");
  EXPECT_EQ(made.chosen.basis, "8 workers, each with 90 % of 80.0 GiB (h100 of a test)");
  const auto all = by_key(made);
  ASSERT_EQ(all.size(), 4U);
  for (const auto& [key, value] : all) {
    EXPECT_THAT(value.key, StartsWith("workload.train.")) << key;
    EXPECT_NE(value.reason, "") << key;
  }
  EXPECT_EQ(all.at("activation_checkpointing").value,
            to_word(made.train.memory.activation_checkpointing));
}

TEST(Automatic, WhatIsGivenStays) {
  JobSpec spec = job_of("llama3-8b", 4, 512);
  spec.train->automatic = {.micro = true};
  spec.train->strategy = Strategy::kShardGradOp;
  spec.train->memory.activation_checkpointing = Checkpointing::kFull;
  spec.train->loss.chunk_tokens = 333;
  const Automatic made = choose(spec, gpu("h100"));
  ASSERT_EQ(made.chosen.values.size(), 1U);
  EXPECT_EQ(made.chosen.values[0].key, "workload.train.batch.micro");
  EXPECT_GT(made.train.batch.micro, 1);
  EXPECT_EQ(made.train.strategy, Strategy::kShardGradOp);
  EXPECT_EQ(made.train.memory.activation_checkpointing, Checkpointing::kFull);
  EXPECT_EQ(made.train.loss.chunk_tokens, 333);
  // A job that leaves nothing open is not judged.
  spec.train->automatic = {};
  spec.train->batch.micro = 16;
  EXPECT_EQ(choose(spec, gpu("a10g")).misfit, "");
}

TEST(Automatic, SequencesOfValidationAreSharedOutToo) {
  JobSpec spec = job_of("llama3.2-1b", 1, 512);
  spec.train->data.seq_len = 512;
  const int64_t free = choose(spec, gpu("h200")).train.batch.micro;
  ASSERT_GT(free, 4);
  spec.train->data.split = {98, 2, 0};
  spec.train->validation = {.every_steps = 10, .sequences = 20};
  const int64_t micro = choose(spec, gpu("h200")).train.batch.micro;
  EXPECT_EQ(20 % micro, 0);
  EXPECT_EQ(micro, 4) << "of 1, 2, 4 and larger ones";
}

TEST(Automatic, ItFitsOnNodesMinToo) {
  JobSpec spec = job_of("llama3-8b", 4, 128);
  const Automatic many = choose(spec, gpu("h100"));
  spec.min_nodes = 1;
  spec.workers_per_node = 4;
  const Automatic few = choose(spec, gpu("h100"));
  EXPECT_THAT(few.chosen.basis, StartsWith("4 to 16 workers, each with "));
  EXPECT_LE(need_on(spec, few.train, 1, true), 80 * kGiB * kUsableMemory);
  EXPECT_GT(need_on(spec, many.train, 1, true), 80 * kGiB * kUsableMemory);
  // Where nothing does, it is chosen for all of them and said.
  spec.workers_per_node = 1;
  spec.train->optimizer.moments = StateType::kFp32;
  const Automatic all = choose(spec, gpu("h100"));
  EXPECT_EQ(all.misfit, "");
  EXPECT_THAT(all.chosen.basis, HasSubstr("nothing fits on nodes.min, 1"));
}

TEST(Automatic, AMisfitNamesTheSmallestNeedAndWhatToDo) {
  const JobSpec spec = job_of("llama3-70b", 1, 512);
  const Automatic made = choose(spec, gpu("h100"));
  EXPECT_THAT(made.misfit, AllOf(StartsWith("out of memory: 8 workers need "),
                                 HasSubstr(" GiB each with micro 1"), HasSubstr("strategy full"),
                                 HasSubstr("activation_checkpointing full"),
                                 HasSubstr("90 % of 80.0 GiB (h100 of a test); most of it is "),
                                 HasSubstr("; it fits with "), HasSubstr("nodes: ")));
  JobSpec shrinking = job_of("llama3-70b", 2, 512);
  shrinking.min_nodes = 1;
  EXPECT_THAT(choose(shrinking, gpu("h100")).misfit,
              HasSubstr("; on all nodes it fits with nodes: "));
  double least = 0;
  for (const TrainSpec& train : all_settings(spec)) {
    const double need = need_on(spec, train, 1, true);
    least = least == 0 ? need : std::min(least, need);
  }
  EXPECT_EQ(need_on(spec, made.train, 1, true), least);
  const Automatic cpu = choose(job_of("llama3-70b", 1, 512), {.bytes = kGiB, .source = "a test"});
  EXPECT_THAT(cpu.misfit, AllOf(HasSubstr("90 % of 1.0 GiB (a test)"), HasSubstr("smaller")));
}

// The weights beside adapters are gathered for each micro-batch: over the node's border in 7.3 s,
// within it in 1.1.
TEST(Automatic, FrozenWeightsAreGatheredWhereLinksAreFast) {
  JobSpec spec = job_of("llama3-70b", 4, 128);
  spec.train->data.seq_len = 512;
  spec.train->lora = {.base = "/base", .rank = 16};
  ASSERT_TRUE(find_problems(spec).empty());
  const Automatic made = choose(spec, gpu("a100"));
  EXPECT_EQ(made.misfit, "");
  EXPECT_EQ(made.train.strategy, Strategy::kHybrid);
  EXPECT_THAT(by_key(made)["strategy"].reason, HasSubstr("a step takes "));
  // A model that fits whole into each GPU is gathered once, and adapters in bf16 are less than
  // their gradients in fp32, which no_shard sends twice.
  spec.train->model = *model_preset("llama3-8b");
  const Automatic whole = choose(spec, gpu("a100"));
  EXPECT_EQ(whole.train.strategy, Strategy::kShardGradOp);
  EXPECT_THAT(by_key(whole)["strategy"].reason, HasSubstr("as fast as "));
}

// A batch that could be cut in more ways than can be tried is chosen for at once.
TEST(Automatic, AHugeBatchIsNoHugeSearch) {
  JobSpec spec = job_of("tiny", 1, int64_t{1} << 40);
  spec.train->data.seq_len = 64;
  const Automatic made = choose(spec, gpu("h100"));
  EXPECT_EQ(made.misfit, "");
  EXPECT_LE(made.train.batch.micro, 1 << 20);
  TrainSpec& train = *spec.train;
  train.batch.global = 12;
  EXPECT_EQ(even_micros(train, 2), (std::vector<int64_t>{1, 2, 3, 6}));
  train.validation = {.every_steps = 5, .sequences = 9};
  EXPECT_EQ(even_micros(train, 2), (std::vector<int64_t>{1, 3}));
  train.validation.every_steps = 0;
  train.batch.global = 13;
  EXPECT_EQ(even_micros(train, 2), (std::vector<int64_t>{1}));
}

}  // namespace
}  // namespace hpctl
