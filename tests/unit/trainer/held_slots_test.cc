// SPDX-License-Identifier: Apache-2.0
// A save and a copy for a peer read slots where they lie, alone and the same one together, while
// steps write others (decision 1306). The copy's way is behind a gate, so that a slow peer is one
// that is as slow as a test wants.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tests/unit/trainer/comm_world.h"
#include "tests/unit/trainer/stepped_state.h"
#include "trainer/arch/registry.h"
#include "trainer/state/checkpoint_directory.h"
#include "trainer/state/peer_snapshots.h"
#include "trainer/state/saver.h"

namespace hpctl {
namespace {

using test::bytes_of;
using test::make_state;
using test::Steps;

// However many steps that are: a disk may be slow.
constexpr std::chrono::minutes kPatience{2};
constexpr int kMoreThanSlots = 7;

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

// Remembers where what it sends was read.
class GatedRing final : public Communicator {
 public:
  GatedRing(const CommunicatorOptions& options, Gate& gate)
      : Communicator(options), gate_(gate), ring_(make_communicator(options)) {}

  Outcome connect() override { return ring_->connect(); }
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) override {
    return ring_->begin_all_gather(buffer, chunk_bytes);
  }
  Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                   void* output) override {
    return ring_->begin_sums(type, input, chunk, output);
  }
  Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing, int from,
                                       std::span<std::byte> incoming) override {
    gate_.pass();
    {
      const std::lock_guard lock(mutex_);
      sent_.push_back(outgoing);
    }
    return ring_->begin_exchange(to, outgoing, from, incoming);
  }
  void abort() override {
    ring_->abort();
    gate_.open();
  }

  // Of all that was sent, what lay in `slot` when it was.
  size_t bytes_sent_from(std::span<const std::byte> slot) const {
    const std::lock_guard lock(mutex_);
    size_t bytes = 0;
    for (const std::span<const std::byte> piece : sent_) {
      const bool within =
          piece.data() >= slot.data() && piece.data() + piece.size() <= slot.data() + slot.size();
      if (within) bytes += piece.size();
    }
    return bytes;
  }

 private:
  Gate& gate_;
  std::unique_ptr<Communicator> ring_;
  mutable std::mutex mutex_;
  std::vector<std::span<const std::byte>> sent_;
};

Workload with_copies(const CommunicatorOptions& options, int every_steps = 0) {
  Workload workload;
  workload.generation = 1;
  workload.rank = options.rank;
  workload.world_size = options.world_size;
  workload.rendezvous_dir = options.rendezvous_dir + "-copies";
  workload.checkpoint_dir = options.rendezvous_dir + "-checkpoints";
  workload.snapshot.every_steps = every_steps;
  workload.train.model = *model_preset("tiny");
  workload.train.seed = 3;
  return workload;
}

// One rank of two, as Generation has it, but for the model.
class Rank {
 public:
  Rank(const Workload& of, Communicator& world, Gate& gate)
      : workload(of),
        world_(world),
        state(make_state(workload)),
        steps_(state, 0.1F * static_cast<float>(workload.rank + 1)),
        ring_(new GatedRing(PeerSnapshots::ring_options(workload), gate)),
        snapshots(workload, state, std::unique_ptr<Communicator>(ring_)),
        saver(workload, state, world_) {
    EXPECT_TRUE(prepare_checkpoint_directory(workload).ok());
    snapshots.start();
  }

  // A step; a copy begins behind it only where `sends`, a save where `saves`.
  Outcome step(bool sends, bool saves) {
    HP_TRY(snapshots.make_room());
    HP_TRY_ASSIGN(const SnapshotNews own, snapshots.news());
    const SaveNews saved = saver.news();
    std::array<double, 4> sums = {own.received, own.damaged, saved.finished, saved.failed};
    HP_TRY(world_.all_reduce(sums));
    const SnapshotNews all = {sums[0], sums[1], sends ? 1.0 : 0.0};
    snapshots.conclude(all);
    steps_.take();
    snapshots.at_boundary(all);
    return saver.at_boundary({sums[2], sums[3]}, saves);
  }
  // Steps without anything new until `done`, and a step more.
  template <typename Done>
  void step_until(const Done& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (bool last = false; !last;) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      last = done();
      const Outcome stepped = step(false, false);
      ASSERT_TRUE(stepped.ok()) << stepped.error().message;
    }
  }
  // A step, and steps until its copy is everywhere.
  void copy_once() {
    ASSERT_TRUE(step(true, false).ok());
    step_until([&] { return snapshots.everywhere() > 0; });
  }
  // And a step whose copy waits behind the gate. All ranks.
  void copy_once_and_begin_another(Gate& gate) {
    copy_once();
    gate.close();
    ASSERT_TRUE(world_.barrier().ok());
    ASSERT_TRUE(step(true, false).ok());
  }
  // A step that waits until that copy is everywhere. All ranks.
  void step_when_open(Gate& gate) {
    ASSERT_TRUE(world_.barrier().ok());
    gate.open();
    ASSERT_TRUE(step(false, false).ok());
  }
  size_t bytes_sent_from(int slot) {
    return ring_->bytes_sent_from(state.arena().slot_bytes(slot));
  }

  const Workload workload;

 private:
  Communicator& world_;

 public:
  TrainingState state;

 private:
  Steps steps_;
  GatedRing* ring_;  // snapshots has it

 public:
  PeerSnapshots snapshots;
  Saver saver;
};

// The slot of the newest state.
int newest_slot(TrainingState& state) {
  int newest = 0;
  for (int slot = 0; slot < state.geometry().slots; ++slot) {
    const StateArena& arena = state.arena();
    if (arena.is_sealed(slot) && arena.seal_of(slot).step == state.step()) newest = slot;
  }
  return newest;
}

std::vector<std::byte> contents(TrainingState& state, int slot) {
  const auto bytes = state.arena().slot_bytes(slot);
  return {bytes.begin(), bytes.end()};
}

template <typename Body>
void on_two_ranks(int every_steps, const Body& body) {
  Gate gate;
  test::on_every_rank(2, [&](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      Rank rank(with_copies(options, every_steps), world, gate);
      body(rank, world, gate);
      // A thread whose peer has gone ends with an error.
      ASSERT_TRUE(world.barrier().ok());
    });
  });
}

// What the rank's peer keeps of its own step; collective.
void expect_copied(Rank& rank, Communicator& world, uint64_t step,
                   const std::vector<std::byte>& bytes) {
  std::vector<std::byte> copy;
  for (int slot = rank.state.geometry().slots; slot < rank.state.geometry().all_slots(); ++slot) {
    if (rank.state.arena().seal_of(slot).step == step) copy = contents(rank.state, slot);
  }
  const auto texts =
      world.all_gather_text(std::string(reinterpret_cast<const char*>(copy.data()), copy.size()));
  ASSERT_TRUE(texts.ok()) << texts.error().message;
  const std::string& peers = texts->at(static_cast<size_t>(1 - world.rank()));
  ASSERT_EQ(peers.size(), bytes.size()) << "there is no copy of step " << step;
  EXPECT_EQ(std::memcmp(peers.data(), bytes.data(), bytes.size()), 0);
}

void expect_saved(const Workload& like, uint64_t step, const std::vector<std::byte>& bytes) {
  Workload again = like;
  again.start_step = step;
  again.resume_checkpoint = like.checkpoint_dir + "/" + CheckpointRef{step, 1}.name();
  TrainingState loaded = make_state(again);
  EXPECT_EQ(loaded.step(), step);
  EXPECT_TRUE(bytes_of(loaded) == bytes) << "rank " << like.rank;
}

// The copy waits behind the gate while the save of the same step is written and done: the slot
// stays for the copy. No byte of the state is copied in this process, by whichever thread.
TEST(HeldSlots, ASaveAndACopyOfOneStepReadOneSlotAndASlowPeerDelaysNoStep) {
  on_two_ranks(0, [](Rank& rank, Communicator& world, Gate& gate) {
    TrainingState& state = rank.state;
    ASSERT_TRUE(rank.step(false, false).ok());
    gate.close();
    ASSERT_TRUE(world.barrier().ok());
    ASSERT_TRUE(rank.step(true, true).ok());
    const uint64_t step = state.step();
    const int slot = newest_slot(state);
    const std::vector<std::byte> then = contents(state, slot);
    const std::vector<std::byte> saved = bytes_of(state);
    EXPECT_EQ(state.held(StateKind::kParam, 0, {state.padded_shard(0).begin, 0}),
              state.arena().slot_bytes(slot).data());
    for (int i = 0; i < kMoreThanSlots; ++i) ASSERT_TRUE(rank.step(false, false).ok());
    rank.step_until([&] { return rank.saver.committed_step() == step; });
    EXPECT_FALSE(state.holds());
    for (int i = 0; i < kMoreThanSlots; ++i) ASSERT_TRUE(rank.step(false, false).ok());
    EXPECT_EQ(rank.snapshots.everywhere(), 0U);
    EXPECT_EQ(rank.snapshots.waited_seconds(), 0.0);
    EXPECT_TRUE(contents(state, slot) == then) << "the copy was not done with it";
    ASSERT_TRUE(world.barrier().ok());
    gate.open();
    rank.step_until([&] { return rank.snapshots.everywhere() == step; });
    EXPECT_EQ(rank.bytes_sent_from(slot), state.geometry().slot_bytes());
    EXPECT_EQ(rank.saver.copy_bytes(), 0U);
    expect_copied(rank, world, step, then);
    expect_saved(rank.workload, step, saved);
  });
}

// Newest, under way, everywhere and held are four steps: the step behind that has no slot until the
// copy is everywhere, and none before that waits.
TEST(HeldSlots, AStepWaitsForACopyOnlyWhereFourStatesAreToStay) {
  on_two_ranks(0, [](Rank& rank, Communicator&, Gate& gate) {
    rank.copy_once_and_begin_another(gate);
    const uint64_t kept = rank.snapshots.everywhere();
    const uint64_t sent = rank.state.step();
    ASSERT_LT(kept, sent);
    for (int i = 0; i < kMoreThanSlots; ++i) ASSERT_TRUE(rank.step(false, false).ok());
    EXPECT_FALSE(rank.snapshots.must_wait()) << "three slots do for that";
    ASSERT_TRUE(rank.step(false, false).ok());
    ASSERT_TRUE(rank.state.hold_newest());
    ASSERT_FALSE(rank.snapshots.must_wait());
    ASSERT_TRUE(rank.step(false, false).ok());
    EXPECT_TRUE(rank.snapshots.must_wait());
    EXPECT_EQ(rank.snapshots.everywhere(), kept);
    rank.step_when_open(gate);
    EXPECT_EQ(rank.snapshots.everywhere(), sent);
    EXPECT_FALSE(rank.snapshots.must_wait());
    rank.state.release_held();
  });
}

// As it was promised what a lost node costs.
TEST(HeldSlots, WhereStepsAreCountedAStepWaitsForTheCopyBeforeTheNextOne) {
  on_two_ranks(2, [](Rank& rank, Communicator&, Gate& gate) {
    rank.copy_once_and_begin_another(gate);
    const uint64_t sent = rank.state.step();
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(rank.snapshots.must_wait()) << i;
      ASSERT_TRUE(rank.step(false, false).ok());
    }
    EXPECT_TRUE(rank.snapshots.must_wait());
    rank.step_when_open(gate);
    EXPECT_EQ(rank.snapshots.everywhere(), sent);
  });
}

// A step that waits for a peer which is gone ends; what is held stays sealed for who comes next.
TEST(HeldSlots, AStepThatWaitsForALostPeerEndsAndWhatWasHeldIsThere) {
  on_two_ranks(0, [](Rank& rank, Communicator& world, Gate& gate) {
    rank.copy_once_and_begin_another(gate);
    ASSERT_TRUE(rank.step(false, false).ok());
    ASSERT_TRUE(rank.state.hold_newest());
    const uint64_t held = rank.state.step();
    const int slot = newest_slot(rank.state);
    const std::vector<std::byte> then = contents(rank.state, slot);
    ASSERT_TRUE(rank.step(false, false).ok());
    ASSERT_TRUE(rank.snapshots.must_wait());
    ASSERT_TRUE(world.barrier().ok());
    rank.snapshots.abort();
    const Outcome waited = rank.snapshots.make_room();
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, kPeerLost);
    EXPECT_EQ(rank.state.arena().seal_of(slot).step, held);
    EXPECT_TRUE(contents(rank.state, slot) == then);
    rank.state.release_held();
  });
}

// Rank 0's clock says when a copy is due; then a save begins.
TEST(HeldSlots, WithAutoNoCopyBeginsBesideASaveOfAnotherStep) {
  on_two_ranks(0, [](Rank& rank, Communicator& world, Gate&) {
    rank.copy_once();
    if (world.rank() != 0) return;
    const auto is_due = [&] {
      const auto news = rank.snapshots.news();
      EXPECT_TRUE(news.ok());
      return news.ok() && news->due > 0;
    };
    while (!is_due()) std::this_thread::yield();
    ASSERT_TRUE(rank.state.hold_newest());
    EXPECT_FALSE(is_due());
    rank.state.release_held();
    EXPECT_TRUE(is_due());
  });
}

// Without ranks that meet: what is free follows from who reads what.
// The notes did not fit, every state stayed unsealed, and no log said so: after any fault such a
// job began at its checkpoint.
TEST(Seals, LargeStabilityWindowHasRoom) {
  CommunicatorOptions options;
  options.world_size = 2;
  Workload workload = with_copies(options);
  workload.train.stability.window = 100'000;
  TrainingState state = make_state(workload);
  state.stability().losses.assign(100'000, 2.5);
  state.stability().grad_norms.assign(100'000, 0.5);
  Steps(state).take();
  const int slot = newest_slot(state);
  ASSERT_NE(slot, kNoSlot);
  EXPECT_TRUE(state.arena().is_sealed(slot));
  EXPECT_EQ(state.arena().seal_of(slot).step, 1U);
  EXPECT_GT(state.arena().notes(slot).size(), size_t{1'600'000});
}

TEST(HeldSlots, ASlotIsFreeWhenNobodyReadsIt) {
  CommunicatorOptions options;
  options.world_size = 2;
  TrainingState state = make_state(with_copies(options));
  Steps steps(state);
  steps.take();
  const int slot = newest_slot(state);
  const std::vector<std::byte> then = contents(state, slot);
  const auto stays = [&] {
    for (int i = 0; i < kMoreThanSlots; ++i) {
      EXPECT_TRUE(state.has_room());
      steps.take();
    }
    return contents(state, slot) == then;
  };
  ASSERT_TRUE(state.hold_newest());
  EXPECT_EQ(state.begin_snapshot(), slot);
  EXPECT_TRUE(stays()) << "read by both";
  state.release_held();
  EXPECT_TRUE(stays()) << "read by the copy";
  state.end_snapshot(true);
  EXPECT_TRUE(stays()) << "the step that is everywhere";
  ASSERT_TRUE(state.hold_newest());
  state.begin_snapshot();
  state.end_snapshot(true);
  EXPECT_FALSE(stays()) << "a newer one is everywhere";
  state.release_held();
}

}  // namespace
}  // namespace hpctl
