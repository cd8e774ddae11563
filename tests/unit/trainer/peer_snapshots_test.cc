// SPDX-License-Identifier: Apache-2.0
// Copies at peers between ranks that are threads: the state is sent by a thread of its own while
// steps write the next ones, which is what the thread sanitizer is to see.
#include "trainer/state/peer_snapshots.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <thread>

#include "tests/unit/trainer/comm_world.h"
#include "tests/unit/trainer/stepped_state.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

constexpr uint64_t kManySteps = 500;
constexpr uint64_t kEnough = 4;  // copies, one after another

Workload workload_of(const CommunicatorOptions& options) {
  Workload workload;
  workload.generation = 1;
  workload.rank = options.rank;
  workload.world_size = options.world_size;
  workload.rendezvous_dir = options.rendezvous_dir + "-copies";
  workload.snapshot.every_steps = 1;
  workload.train.model = *model_preset("tiny");
  workload.train.seed = 3;
  return workload;
}

std::vector<float> first_block(TrainingState& state) {
  std::vector<float> values(state.padded_shard(0).size());
  state.begin_read_sealed(StateKind::kParam, 0, state.padded_shard(0),
                          reinterpret_cast<std::byte*>(values.data()));
  return values;
}

// What a rank had after each step, and what it keeps of the other at the end.
struct Told {
  std::map<uint64_t, std::vector<float>> own;
  uint64_t copied_step = 0;
  std::vector<float> copy;
};

// Until the copy that is under way is here.
void await_copy(PeerSnapshots& snapshots) {
  for (bool is_here = false; !is_here; std::this_thread::yield()) {
    const auto news = snapshots.news();
    ASSERT_TRUE(news.ok()) << news.error().message;
    is_here = news->received + news->damaged > 0;
  }
}

void train(const CommunicatorOptions& options, Communicator& world, Told& told) {
  const Workload workload = workload_of(options);
  TrainingState state = test::make_state(workload);
  ASSERT_GT(state.geometry().copies, 0);
  test::Steps steps(state, 0.1F * static_cast<float>(options.rank + 1));
  PeerSnapshots snapshots(workload, state,
                          make_communicator(PeerSnapshots::ring_options(workload)));
  snapshots.start();
  uint64_t newest = 0;
  for (uint64_t copies = 0; copies < kEnough && state.step() < kManySteps;) {
    ASSERT_TRUE(snapshots.make_room().ok());
    const auto news = snapshots.news();
    ASSERT_TRUE(news.ok()) << news.error().message;
    std::array<double, 3> sums = {news->received, news->damaged, news->due};
    ASSERT_TRUE(world.all_reduce(sums).ok());
    const SnapshotNews all = {.received = sums[0], .damaged = sums[1], .due = sums[2]};
    snapshots.conclude(all);
    steps.take();
    told.own[state.step()] = first_block(state);
    snapshots.at_boundary(all);
    // The thread connects before the first one, for which no step waits.
    if (newest == 0) {
      ASSERT_NO_FATAL_FAILURE(await_copy(snapshots));
    }
    if (snapshots.everywhere() > newest) ++copies;
    newest = snapshots.everywhere();
  }
  ASSERT_TRUE(snapshots.forget().ok()) << "so that nothing is under way where the copies lie";
  told.copied_step = newest;
  for (int slot = state.geometry().slots; slot < state.geometry().slots + 2; ++slot) {
    if (state.arena().seal_of(slot).step != newest) continue;
    const float* values = state.arena().state(slot, StateKind::kParam, 0);
    told.copy.assign(values, values + state.padded_shard(0).size());
  }
  ASSERT_TRUE(world.barrier().ok()) << "a thread whose peer has gone ends with an error";
}

TEST(PeerSnapshots, WhileStepsGoOnACopyIsThatOfOneStep) {
  std::array<Told, 2> told;
  test::on_every_rank(2, [&](const CommunicatorOptions& options) {
    const auto world = make_communicator(options);
    test::take_part(*world, [&](Communicator& comm) {
      train(options, comm, told.at(static_cast<size_t>(options.rank)));
    });
  });
  ASSERT_GT(told[0].copied_step, 0U);
  EXPECT_EQ(told[0].copied_step, told[1].copied_step);
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(told.at(rank).copy, told.at(1 - rank).own[told[0].copied_step]) << "at rank " << rank;
    EXPECT_NE(told.at(rank).copy, told.at(rank).own[told[0].copied_step]) << "it is the other's";
  }
}

}  // namespace
}  // namespace hpctl
