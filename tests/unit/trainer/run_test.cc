// SPDX-License-Identifier: Apache-2.0
// A process that lives through several generations: Generations one after another over the same
// Run. The ranks are threads.
#include "trainer/loop/run.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/promise.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/device/device.h"
#include "trainer/loop/generation.h"
#include "trainer/process/runtime.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using testing::Job;

struct Variant {
  const char* name;
  int world_size = 2;
  const char* strategy = "full";
  const char* precision = "fp32";
};

// So many steps that an abort comes in the middle of them.
class ManySteps : public Job {
 public:
  explicit ManySteps(const Variant& variant) : Job(variant.world_size) {
    workload.train.steps = 60;
    workload.train.strategy = *from_word<Strategy>(variant.strategy);
    workload.train.precision = *from_word<Precision>(variant.precision);
    // In fp16 it overflows at first and whenever it has grown.
    workload.train.loss_scale = {
        .initial = 1 << 24, .growth_interval = 3, .hysteresis = 2, .min = 1};
    workload.checkpoint.every_steps = 10;
    workload.train.data.seq_len = 16;
  }
};

// The ranks of a job, as one process each would have them.
class Ranks {
 public:
  explicit Ranks(Job& job) : job_(job) {
    signal(SIGPIPE, SIG_IGN);
    for (int r = 0; r < job.workload.world_size; ++r) {
      pages_.push_back(std::make_unique<Progress>(std::move(Progress::attach(-1)).value()));
      runs_.push_back(std::make_unique<Run>(of_rank(r), *pages_.back(), -1, host_device()));
    }
  }

  // Makes the job's generation in place of the one before, and trains; `meanwhile` in this thread.
  std::vector<Outcome> train(const std::function<void()>& meanwhile = [] {}) {
    generations_.clear();
    for (size_t r = 0; r < runs_.size(); ++r) {
      EXPECT_TRUE(pages_[r]->turn_page(-1).ok());
      generations_.push_back(std::make_unique<Generation>(*runs_[r], of_rank(static_cast<int>(r))));
    }
    std::vector<Outcome> outcomes(runs_.size(), Ok{});
    std::vector<std::thread> threads;
    training_ = static_cast<int>(runs_.size());
    for (size_t r = 0; r < runs_.size(); ++r) {
      threads.emplace_back([this, r, &outcomes] {
        prepare_runtime();
        outcomes[r] = generations_[r]->start();
        if (outcomes[r].ok()) outcomes[r] = generations_[r]->run();
        --training_;
      });
    }
    meanwhile();
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  void abort_after_step(uint64_t step) {
    while (training_ > 0 && pages_[0]->page().step.load() < step) usleep(200);
    for (const auto& generation : generations_) generation->abort();
  }

  // The newest step that is sealed on every rank.
  uint64_t common_step() {
    uint64_t common = UINT64_MAX;
    for (const auto& run : runs_) common = std::min(common, run->state().step());
    return common;
  }

  Run& run(size_t rank) { return *runs_[rank]; }

 private:
  Workload of_rank(int rank) const {
    Workload workload = job_.workload;
    workload.rank = workload.local_rank = rank;
    workload.rendezvous_dir = job_ / ("rdzv-g" + std::to_string(workload.generation));
    return workload;
  }

  Job& job_;
  std::atomic<int> training_{0};  // ranks
  std::vector<std::unique_ptr<Progress>> pages_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<std::unique_ptr<Generation>> generations_;
};

void expect_ok(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
}

void expect_aborted(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    ASSERT_FALSE(outcome.ok()) << "all steps were done before the abort came";
    EXPECT_EQ(outcome.error().code, kPeerLost) << outcome.error().message;
  }
}

// The last line of a step counts.
std::map<uint64_t, double> losses(const Job& job) {
  std::map<uint64_t, double> by_step;
  for (const auto& line : job.metrics()) by_step[line["step"]] = line["loss"];
  return by_step;
}

class Generations : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Of, Generations,
                         ::testing::Values(Variant{"OneRank", 1}, Variant{"Full"},
                                           Variant{"ShardGradOpBf16", 2, "shard_grad_op", "bf16"},
                                           Variant{"NoShardFp16", 2, "no_shard", "fp16"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Generations, TheNextGoesOnFromMemoryWithTheBitsOfOneAlone) {
  ManySteps calm(GetParam());
  expect_ok(Ranks(calm).train());

  ManySteps job(GetParam());
  Ranks ranks(job);
  uint64_t before = 0;
  for (const uint64_t step : {3, 20}) {
    expect_aborted(ranks.train([&] { ranks.abort_after_step(std::max(step, before + 1)); }));
    const uint64_t common = ranks.common_step();
    ASSERT_GE(common, std::max(step, before + 1) - 1);
    before = common;
    job.workload.parent_generation = job.workload.generation++;
    job.workload.start_step = common;
    job.workload.from_memory = true;
  }
  expect_ok(ranks.train());
  const std::string digest = calm.digest("step-60.g1");
  ASSERT_EQ(digest.size(), 64U) << digest;
  EXPECT_EQ(job.digest("step-60.g3"), digest) << broken_promise("digest");
  EXPECT_EQ(losses(job), losses(calm));
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-60.g3");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_TRUE(manifest->exact) << manifest->inexact_reason;
  EXPECT_EQ(manifest->parent, 2U);
}

// Memory is as lasting as its node, so what was not made durable is made up for at once.
TEST(Run, WhatTheGenerationBeforeWasToSaveIsSavedFirst) {
  for (const bool is_durable : {false, true}) {
    ManySteps job(Variant{"OneRank", 1});
    job.workload.checkpoint.keep = 100;
    Ranks ranks(job);
    expect_aborted(ranks.train([&] { ranks.abort_after_step(12); }));
    const uint64_t step = ranks.common_step();
    job.workload.parent_generation = job.workload.generation++;
    job.workload.start_step = step;
    job.workload.from_memory = true;
    job.workload.durable_step = is_durable ? step / 10 * 10 : 0;
    expect_ok(ranks.train());
    const std::string name = CheckpointRef{step + 1, 2}.name();
    const bool in_turn = (step + 1) % 10 == 0;
    EXPECT_EQ(read_manifest(job.workload.checkpoint_dir + "/" + name).ok(), in_turn || !is_durable)
        << name << broken_promise("checkpoint");
  }
}

TEST(Run, TheNextGenerationMayStartFromACheckpoint) {
  Job calm(2);
  expect_ok(Ranks(calm).train());
  Job job(2);
  Ranks ranks(job);
  expect_ok(ranks.train());
  job.resume("step-3.g1", 3);
  job.workload.train.seed = 9;  // of another job: it ends before it has a state
  EXPECT_FALSE(ranks.train().front().ok());
  EXPECT_FALSE(ranks.run(0).has_state()) << "steps 8 and 7 are of a history that ended at step 3";
  job.workload.train.seed = 3;
  expect_ok(ranks.train());
  EXPECT_EQ(job.digest("step-8.g2"), calm.digest("step-8.g1")) << broken_promise("digest");
  EXPECT_EQ(ranks.run(0).progress().page().checkpoint_step, 8U);
}

TEST(Run, StartsFromNoStepThatIsNotSealedAndForNoOtherJob) {
  Job job(1);
  Ranks ranks(job);
  expect_ok(ranks.train());
  EXPECT_EQ(ranks.run(0).state().step(), 8U);
  job.workload.generation = 2;
  job.workload.from_memory = true;
  job.workload.start_step = 9;
  Outcome refused = ranks.train().front();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("step 9 is not sealed"));
  job.workload.generation = 3;
  job.workload.train.seed = 4;
  refused = ranks.train().front();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("generation 3 of job 5 is not of the job"));
}

// Another release of OpenBLAS may add in another order.
TEST(Runtime, TheLabelOfOpenBlasHasItsReleaseAndCore) {
  void* const library = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) GTEST_SKIP() << "this LibTorch has another BLAS";
  auto* const core = reinterpret_cast<const char* (*)()>(dlsym(library, "openblas_get_corename"));
  ASSERT_NE(core, nullptr);
  const std::string blas = runtime_environment(Precision::kFp32, host_device()).at("blas");
  EXPECT_THAT(blas, ::testing::ContainsRegex("^OpenBLAS [0-9]+\\.[0-9]+\\.[0-9]+ "));
  EXPECT_THAT(blas, HasSubstr(core()));
  dlclose(library);
}

TEST(Run, AGenerationThatIsAbortedBeforeItBeginsWaitsForNoPeer) {
  Job job(2);  // of which rank 1 never comes
  Progress progress = std::move(Progress::attach(-1)).value();
  job.workload.rendezvous_dir = job / "rdzv";
  hpctl::Run run(job.workload, progress, -1, host_device());
  Generation generation(run, job.workload);
  generation.abort();
  const Outcome outcome = generation.start();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, kPeerLost);
  EXPECT_THAT(outcome.error().message, HasSubstr("was told to end"));
}

}  // namespace
}  // namespace hpctl
