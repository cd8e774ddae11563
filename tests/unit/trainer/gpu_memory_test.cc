// SPDX-License-Identifier: Apache-2.0
// Whole trainings as on GPUs, over the stub of NCCL, whose state is copied to host memory beside
// the steps. A process that dies there costs no step that the others have sealed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <optional>

#include "common/base/fd.h"
#include "common/worker/arena_header.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/torch_on_host.h"

namespace hpctl {
namespace {

using testing::expect_finished;
using testing::Kind;
using testing::losses;
using testing::RankEnd;
using testing::TorchOnHost;
using testing::train;
using testing::Variant;
using testing::VariantJob;

class Arenas {
 public:
  explicit Arenas(int ranks) {
    for (int r = 0; r < ranks; ++r) files_.emplace_back(memfd_create("arena", MFD_CLOEXEC));
  }
  std::vector<int> fds() const {
    std::vector<int> fds;
    for (const UniqueFd& file : files_) fds.push_back(file.get());
    return fds;
  }
  int operator[](int rank) const { return files_[static_cast<size_t>(rank)].get(); }
  // As the controller chooses it; 0 = none.
  uint64_t newest_sealed_everywhere() const {
    std::vector<Seal> common = read_seals(files_.front().get()).own;
    for (const UniqueFd& file : files_) {
      const std::vector<Seal> seals = read_seals(file.get()).own;
      std::erase_if(common, [&](const Seal& seal) {
        return std::find(seals.begin(), seals.end(), seal) == seals.end();
      });
    }
    return common.empty() ? 0 : common.front().step;
  }

 private:
  std::vector<UniqueFd> files_;
};

class CopiedToHost : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Variants, CopiedToHost,
                         ::testing::Values(Variant{"full"}, Variant{"full", "bf16", "bf16"},
                                           Variant{"no_shard", "bf16"}, Variant{"hybrid", "bf16"}));

// The same bits as without, one copy after each step and one of the state that it began with, in
// one call each, and no wait of a step for its GPU beside the one that it has.
TEST_P(CopiedToHost, ATrainingHasTheSameBitsAndCopiesEachStepOnce) {
  const VariantJob without(GetParam());
  VariantJob with(GetParam());
  with.workload.snapshot.every_steps = 1;
  with.workload.workers_per_node = with.workload.world_size;
  const Arenas arenas(with.workload.world_size);
  const std::vector<RankEnd> plain = train(without, Kind::kTorchNccl);
  const std::vector<RankEnd> copied = train(with, Kind::kTorchNccl, -1, arenas.fds());
  expect_finished(plain);
  expect_finished(copied);
  EXPECT_EQ(with.digest("step-8.g1"), without.digest("step-8.g1")) << broken_promise("digest");
  for (const RankEnd& end : copied) {
    EXPECT_EQ(end.copies.begun, 8U + 1U);
    EXPECT_EQ(end.copies.calls, 8U + 1U);
    EXPECT_EQ(end.copies.bytes, 9 * end.slot_bytes);
    EXPECT_EQ(end.host_waits, plain[0].host_waits);
  }
  EXPECT_EQ(arenas.newest_sealed_everywhere(), 8U);
}

// One rank's life: a generation that loses a peer, and the next one. `dies`: its process is another
// one then, with another GPU, and what was under way is lost.
void live_twice(const VariantJob& job, int rank, bool dies, const Arenas& arenas,
                std::barrier<>& meets, std::vector<RankEnd>& ends, uint64_t& start_step) {
  prepare_runtime();
  auto progress = Progress::attach(-1);
  HP_CHECK(progress.ok());
  Workload workload = job.workload;
  workload.rank = workload.local_rank = rank;
  workload.rendezvous_dir = job / "rdzv-g1";
  auto device = std::make_unique<TorchOnHost>(true);
  auto run = std::make_unique<Run>(workload, *progress, arenas[rank], *device);
  {
    Generation generation(*run, workload);
    Outcome ended = generation.start();
    if (ended.ok()) ended = generation.run();
    EXPECT_FALSE(ended.ok());
    if (!ended.ok()) {
      EXPECT_EQ(ended.error().code, kPeerLost) << ended.error().message;
    }
    if (!dies) run->state().begin_copy();
    if (!dies) run->state().seal_copy();
  }
  if (dies) {
    run.reset();
    device = std::make_unique<TorchOnHost>(true);
  }
  meets.arrive_and_wait();
  if (rank == 0) {
    unsetenv("STUB_NCCL_ERROR_AT");
    start_step = arenas.newest_sealed_everywhere();
  }
  meets.arrive_and_wait();
  workload.generation = 2;
  workload.parent_generation = 1;
  workload.from_memory = true;
  workload.start_step = start_step;
  workload.rendezvous_dir = job / "rdzv-g2";
  if (dies) run = std::make_unique<Run>(workload, *progress, arenas[rank], *device);
  Generation generation(*run, workload);
  RankEnd& end = ends[static_cast<size_t>(rank)];
  end.outcome = generation.start();
  if (end.outcome.ok()) end.outcome = generation.run();
}

TEST(GpuMemory, TheNextGenerationGoesOnFromTheLastSealedStep) {
  const VariantJob undisturbed({"full", "bf16"});
  const std::vector<RankEnd> whole = train(undisturbed, Kind::kTorchNccl);
  expect_finished(whole);
  for (const int at : {60, 75, 83}) {
    VariantJob job({"full", "bf16"});
    job.workload.snapshot.every_steps = 1;
    job.workload.workers_per_node = job.workload.world_size;
    job.workload.checkpoint.every_steps = 0;
    const Arenas arenas(2);
    std::vector<RankEnd> ends(2);
    std::barrier<> meets(2);
    uint64_t start_step = 0;
    setenv("STUB_NCCL_ERROR_AT", std::to_string(at).c_str(), 1);
    {
      const std::jthread other([&] { live_twice(job, 1, true, arenas, meets, ends, start_step); });
      live_twice(job, 0, false, arenas, meets, ends, start_step);
    }
    expect_finished(ends);
    // All lines are there: at most the step that was applied, and not sealed by the dead one, is
    // done twice.
    const size_t lines = losses(job).size();
    EXPECT_GT(start_step, 0U) << at;
    EXPECT_GE(lines, 8U) << at;
    EXPECT_LE(lines, 9U) << at;
    EXPECT_EQ(job.digest("step-8.g2"), undisturbed.digest("step-8.g1")) << broken_promise("digest");
    const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
    ASSERT_TRUE(manifest.ok()) << manifest.error().message;
    EXPECT_TRUE(manifest->exact) << manifest->inexact_reason;
  }
}

}  // namespace
}  // namespace hpctl
