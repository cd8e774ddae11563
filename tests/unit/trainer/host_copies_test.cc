// SPDX-License-Identifier: Apache-2.0
// A GPU's state in host memory that outlives its process: what is sealed there is whole at every
// moment, however slow the copies are and wherever the process dies. Over the stub of the CUDA
// runtime, whose streams are threads (streamed_device.h).
#include "trainer/state/host_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "tests/unit/trainer/comm_world.h"
#include "tests/unit/trainer/stepped_state.h"
#include "tests/unit/trainer/streamed_device.h"
#include "trainer/arch/registry.h"
#include "trainer/state/checkpoint_directory.h"
#include "trainer/state/copy_pace.h"
#include "trainer/state/peer_snapshots.h"
#include "trainer/state/saver.h"

namespace hpctl {
namespace {

using test::StreamedDevice;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kSteps = 6;
constexpr float kGradient = 0.1F;

UniqueFd memory_file() { return UniqueFd(memfd_create("test", MFD_CLOEXEC)); }

Workload small_workload() {
  Workload workload;
  workload.job = 5;
  workload.generation = 1;
  workload.train.model = *model_preset("tiny");
  workload.train.seed = 3;
  return workload;
}

Workload from_memory(Workload workload, uint64_t step) {
  workload.parent_generation = workload.generation++;
  workload.from_memory = true;
  workload.start_step = step;
  return workload;
}

Result<TrainingState> create(int fd, const Workload& workload, Device& device) {
  return TrainingState::create(fd, workload, {.fingerprint = "none", .tokens = 0, .seq_len = 8}, {},
                               device);
}

// The state in place, in the order of a slot.
Bytes bytes_on(Device& device, TrainingState& state) {
  std::vector<std::pair<StateKind, size_t>> parts;
  size_t size = 0;
  for (const StateKind kind : kStateKinds) {
    for (size_t b = 0; b < state.blocks().size(); ++b) {
      size += static_cast<size_t>(state.padded_shard(b).size()) * state.element_bytes(kind);
      parts.emplace_back(kind, b);
    }
  }
  Bytes bytes(size);
  size_t at = 0;
  for (const auto& [kind, b] : parts) {
    state.begin_read_sealed(kind, b, state.padded_shard(b), bytes.data() + at);
    at += static_cast<size_t>(state.padded_shard(b).size()) * state.element_bytes(kind);
  }
  device.await_downloads();
  return bytes;
}

// What the state is after each step, by a CPU.
const std::vector<Bytes>& states_of(const Workload& workload, float gradient = kGradient) {
  static std::map<std::pair<int32_t, int32_t>, std::vector<Bytes>> known;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::vector<Bytes>& states = known[{workload.rank, workload.world_size}];
  if (!states.empty()) return states;
  TrainingState state = test::make_state(workload);
  test::Steps steps(state, gradient);
  for (uint64_t step = 0; step <= 40; ++step) {
    states.push_back(test::bytes_of(state));
    steps.take();
  }
  return states;
}

// The sealed steps in the memory of the descriptor, newest first, as the holder and a successor see
// them. Each must be whole.
std::vector<uint64_t> sealed_steps(int fd, const ArenaGeometry& geometry,
                                   const std::vector<Bytes>& states) {
  std::vector<uint64_t> steps;
  for (const Seal& seal : read_seals(fd).own) steps.push_back(seal.step);
  auto arena = StateArena::open(fd, geometry);
  if (!arena.ok()) {
    ADD_FAILURE() << arena.error().message;
    return {};
  }
  for (int slot = 0; slot < geometry.slots; ++slot) {
    if (!arena->is_sealed(slot)) continue;
    const auto bytes = arena->slot_bytes(slot);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), states[arena->seal_of(slot).step].begin()))
        << "step " << arena->seal_of(slot).step;
  }
  return steps;
}

// A step as Generation takes it, for one rank: its copy, and the wait for the one before.
void step_and_copy(TrainingState& state, test::Steps& steps) {
  state.seal_copy();
  steps.take();
  ASSERT_TRUE(state.begin_copy());
}

class Gate {
 public:
  void pass() {
    reached_.set_value();
    open_.get_future().wait();
  }
  void wait_until_reached() { reached_.get_future().wait(); }
  void open() { open_.set_value(); }

 private:
  std::promise<void> reached_;
  std::promise<void> open_;
};

// Whatever part of the copy is late, also when the thread that seals waits for it already.
TEST(HostCopies, NoSealIsSetBeforeTheCopyHasArrived) {
  const auto& states = states_of(small_workload());
  for (int part = 0; part <= StreamedDevice::kParts; ++part) {
    const UniqueFd fd = memory_file();
    StreamedDevice device;
    auto state = create(fd.get(), small_workload(), device);
    ASSERT_TRUE(state.ok()) << state.error().message;
    test::Steps steps(*state, kGradient);
    for (int i = 0; i < 3; ++i) step_and_copy(*state, steps);
    state->seal_copy();
    ASSERT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(3, 2));
    Gate gate;
    const int held = device.downloads() + 1;
    device.at_part = [&](int download, int at) {
      if (download == held && at == part) gate.pass();
    };
    std::promise<void> waits;
    device.before_waiting = [&] { waits.set_value(); };
    steps.take();
    ASSERT_TRUE(state->begin_copy());
    gate.wait_until_reached();
    EXPECT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(3)) << part;
    std::thread sealing([&] {
      state->seal_copy();
      device.before_waiting = [] {};
    });
    waits.get_future().wait();
    EXPECT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(3)) << part;
    gate.open();
    sealing.join();
    EXPECT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(4, 3)) << part;
  }
}

// The host goes on meanwhile, and the next change of the state comes after the copy.
TEST(HostCopies, TheNextStepsUpdateComesAfterTheCopy) {
  const auto& states = states_of(small_workload());
  const UniqueFd fd = memory_file();
  StreamedDevice device;
  auto state = create(fd.get(), small_workload(), device);
  ASSERT_TRUE(state.ok()) << state.error().message;
  test::Steps steps(*state, kGradient);
  Gate gate;
  const int held = device.downloads() + 1;
  device.at_part = [&](int download, int at) {
    if (download == held && at == 1) gate.pass();
  };
  steps.take();
  ASSERT_TRUE(state->begin_copy());
  gate.wait_until_reached();
  std::promise<void> waits;
  device.before_waiting = [&] {
    waits.set_value();
    device.before_waiting = [] {};
  };
  std::thread updating([&] { steps.take(); });
  waits.get_future().wait();
  gate.open();
  updating.join();
  EXPECT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(1, 0));
  EXPECT_EQ(bytes_on(device, *state), states[2]);
}

// Where a process dies: before a part of its fourth copy, behind the last, or after the host has
// waited for it and before it seals.
constexpr int kAfterWaiting = StreamedDevice::kParts + 1;
[[noreturn]] void train_and_die(int fd, int where) {
  StreamedDevice device;
  auto state = create(fd, small_workload(), device);
  test::Steps steps(*state, kGradient);
  const int last = device.downloads() + 4;
  device.at_part = [=](int download, int part) {
    if (download == last && part == where) raise(SIGKILL);
  };
  device.after_waiting = [&] {
    if (device.downloads() == last && where == kAfterWaiting) raise(SIGKILL);
  };
  for (uint64_t i = 0; i < kSteps; ++i) {
    state->seal_copy();
    steps.take();
    state->begin_copy();
  }
  _exit(0);
}

TEST(HostCopies, AKillBetweenCopyAndSealLeavesTheFormerSlot) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it does not know a fork beside threads";
#endif
  const auto& states = states_of(small_workload());
  for (int where = 0; where <= kAfterWaiting; ++where) {
    const UniqueFd fd = memory_file();
    const pid_t child = fork();
    if (child == 0) train_and_die(fd.get(), where);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << where;
    ASSERT_THAT(read_seals(fd.get()).own, ::testing::SizeIs(1)) << where;
    EXPECT_EQ(read_seals(fd.get()).own.front().step, 3U) << where;

    // Another process, with another GPU.
    StreamedDevice device;
    auto state = create(fd.get(), from_memory(small_workload(), 3), device);
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(3));
    EXPECT_EQ(bytes_on(device, *state), states[3]) << where;
    test::Steps steps(*state, kGradient);
    while (state->step() < kSteps) step_and_copy(*state, steps);
    EXPECT_EQ(bytes_on(device, *state), states[kSteps]) << where;
  }
}

// A survivor that has applied no step since the seal sends nothing to its GPU; one that has undoes
// that step.
TEST(HostCopies, ASurvivorKeepsWhatItsGpuHas) {
  const auto& states = states_of(small_workload());
  const UniqueFd fd = memory_file();
  StreamedDevice device;
  auto state = create(fd.get(), small_workload(), device);
  ASSERT_TRUE(state.ok()) << state.error().message;
  test::Steps steps(*state, kGradient);
  for (int i = 0; i < 3; ++i) step_and_copy(*state, steps);
  state->seal_copy();
  const int uploads = device.uploads();
  Workload next = from_memory(small_workload(), 3);
  ASSERT_TRUE(state->rejoin(next, {}).ok());
  EXPECT_EQ(device.uploads(), uploads);
  EXPECT_EQ(bytes_on(device, *state), states[3]);
  step_and_copy(*state, steps);
  state->seal_copy();
  ASSERT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(4, 3));
  next = from_memory(next, 3);
  ASSERT_TRUE(state->rejoin(next, {}).ok());
  EXPECT_EQ(device.uploads(), uploads + 1);
  EXPECT_EQ(bytes_on(device, *state), states[3]);
  EXPECT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(3));
  // A step that was applied and not copied is undone as well.
  steps.take();
  ASSERT_TRUE(state->rejoin(from_memory(next, 3), {}).ok());
  EXPECT_EQ(bytes_on(device, *state), states[3]);
}

// A rank that was to be refilled, and lost its peers before: what its GPU has is nothing.
TEST(HostCopies, AStateThatIsNotWholeIsNotSealed) {
  Workload workload = from_memory(small_workload(), 3);
  workload.refilled = {0};
  const UniqueFd fd = memory_file();
  StreamedDevice device;
  auto state = create(fd.get(), workload, device);
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_TRUE(state->begin_copy());
  EXPECT_FALSE(state->seal_copy());
  EXPECT_THAT(read_seals(fd.get()).own, ::testing::IsEmpty());
}

TEST(HostCopies, AStepThatIsNotThereIsAnError) {
  const UniqueFd fd = memory_file();
  StreamedDevice device;
  {
    auto state = create(fd.get(), small_workload(), device);
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_TRUE(device.has_locked());
    EXPECT_EQ(state->rejoin(from_memory(small_workload(), 2), {}).error().code,
              ErrorCode::kDataLoss);
  }
  EXPECT_FALSE(device.has_locked());
  // Without such memory the state ends with the process.
  const auto none = create(-1, from_memory(small_workload(), 0), device);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(none.error().message, HasSubstr("keeps no copy of its GPU's state"));
}

// The values that a benchmark reports: a copy of a step is one pass over the state, in one call
// where it is no larger than a piece; steps that are not copied cost nothing.
TEST(HostCopies, AStepCostsOnePassOverTheState) {
  for (const uint64_t every : {1, 3}) {
    const UniqueFd fd = memory_file();
    StreamedDevice device;
    auto state = create(fd.get(), small_workload(), device);
    ASSERT_TRUE(state.ok()) << state.error().message;
    const int calls = device.downloads();
    const size_t bytes = device.downloaded_bytes();
    const int uploads = device.uploads();
    test::Steps steps(*state, kGradient);
    CopyPace pace(static_cast<int64_t>(every));
    for (uint64_t i = 0; i < kSteps; ++i) {
      state->seal_copy();
      steps.take();
      if (pace.is_due(state->step(), state->copied_step())) state->begin_copy();
    }
    const size_t copies = kSteps / every;
    EXPECT_EQ(static_cast<size_t>(device.downloads() - calls), copies);
    EXPECT_EQ(device.downloaded_bytes() - bytes, copies * state->geometry().slot_bytes());
    EXPECT_EQ(device.uploads(), uploads);
    EXPECT_EQ(state->copies()->counts().begun, copies + 1) << "and the state that it began with";
  }
}

TEST(HostCopies, ALargeStateIsSentInPieces) {
  ArenaGeometry geometry;
  geometry.block_capacity = {1000};
  geometry.slots = 3;
  const UniqueFd fd = memory_file();
  StreamedDevice device;
  StateArena on_gpu = StateArena::create(device, [&] {
    ArenaGeometry one = geometry;
    one.slots = 1;
    return one;
  }());
  auto in_memory = StateArena::create(fd.get(), geometry);
  ASSERT_TRUE(in_memory.ok());
  HostCopies copies(device, std::move(*in_memory), 5000);
  const auto state = on_gpu.slot_bytes(0);
  for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<std::byte>(i * 7 + i / 251);
  copies.begin(on_gpu, 2, {4, 1, 1}, "notes");
  ASSERT_TRUE(copies.finish());
  EXPECT_EQ(copies.counts().calls, 3U);
  EXPECT_EQ(copies.counts().bytes, 12'000U);
  const auto copy = copies.arena().slot_bytes(2);
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), state.begin()));
  EXPECT_EQ(copies.arena().notes(2), "notes");
  std::fill(state.begin(), state.end(), std::byte{0});
  copies.restore(2, on_gpu);
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), state.begin()));
  EXPECT_FALSE([&] {
    copies.begin(on_gpu, 1, {5, 1, 1}, std::string(geometry.notes_bytes + 1, 'x'));
    return copies.finish();
  }()) << "no room for the notes";
  EXPECT_FALSE(copies.arena().is_sealed(1));
}

// A save reads the slot of its step, which it waits for; steps go on, and nothing more is copied
// for it.
TEST(HostCopies, ASaveReadsASlotWhileStepsGoOn) {
  test::on_every_rank(1, [](const CommunicatorOptions& options) {
    const auto world = make_communicator(options);
    ASSERT_TRUE(world->connect().ok());
    for (const bool copied_before : {true, false}) {
      Workload workload = small_workload();
      workload.checkpoint_dir = options.rendezvous_dir + (copied_before ? "-a" : "-b");
      ASSERT_TRUE(prepare_checkpoint_directory(workload).ok());
      const UniqueFd fd = memory_file();
      StreamedDevice device;
      auto state = create(fd.get(), workload, device);
      ASSERT_TRUE(state.ok()) << state.error().message;
      test::Steps steps(*state, kGradient);
      step_and_copy(*state, steps);
      state->seal_copy();
      steps.take();
      const int before = device.downloads();
      if (copied_before) {
        ASSERT_TRUE(state->begin_copy());
      }
      Saver saver(workload, *state, *world);
      ASSERT_TRUE(saver.at_boundary({}, true).ok());
      EXPECT_EQ(device.downloads(), before + 1);
      for (uint64_t step = 3; step < 12; ++step) step_and_copy(*state, steps);
      ASSERT_TRUE(saver.settle().ok());
      EXPECT_EQ(saver.committed_step(), 2U);
      EXPECT_EQ(saver.copy_bytes(), 0U);
      Workload again = workload;
      again.start_step = 2;
      again.resume_checkpoint = workload.checkpoint_dir + "/" + CheckpointRef{2, 1}.name();
      TrainingState loaded = test::make_state(again);
      EXPECT_TRUE(test::bytes_of(loaded) == states_of(small_workload())[2]);
    }
  });
}

// To the seed: neither what was sealed nor what was under way counts any more.
TEST(HostCopies, GoingBackSealsTheStateThatItGoesTo) {
  const auto& states = states_of(small_workload());
  const UniqueFd fd = memory_file();
  StreamedDevice device;
  auto state = create(fd.get(), small_workload(), device);
  ASSERT_TRUE(state.ok()) << state.error().message;
  test::Steps steps(*state, kGradient);
  for (int i = 0; i < 3; ++i) step_and_copy(*state, steps);
  ASSERT_TRUE(state->go_back("").ok());
  EXPECT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(0));
  EXPECT_EQ(bytes_on(device, *state), states[0]);
  step_and_copy(*state, steps);
  state->seal_copy();
  EXPECT_THAT(sealed_steps(fd.get(), state->geometry(), states), ElementsAre(1, 0));
}

Workload of_rank(const CommunicatorOptions& options) {
  Workload workload = small_workload();
  workload.rank = options.rank;
  workload.world_size = options.world_size;
  workload.rendezvous_dir = options.rendezvous_dir + "-copies";
  return workload;
}

// The state of a rank whose node is gone, from the copies that its peer keeps of its copies.
TEST(HostCopies, ALostNodesPartComesFromItsPeersMemory) {
  test::on_every_rank(2, [](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      Workload workload = of_rank(options);
      workload.snapshot.every_steps = 2;
      const auto& states = states_of(workload);
      const UniqueFd fd = memory_file();
      StreamedDevice device;
      auto state = create(fd.get(), workload, device);
      ASSERT_TRUE(state.ok()) << state.error().message;
      ASSERT_EQ(state->geometry().copies, static_cast<int32_t>(kCopySlots));
      uint64_t everywhere = 0;
      {
        test::Steps steps(*state, kGradient);
        PeerSnapshots snapshots(workload, *state,
                                make_communicator(PeerSnapshots::ring_options(workload)));
        snapshots.start();
        bool has_met = false;
        while (state->step() < 40 && snapshots.everywhere() < 4) {
          state->seal_copy();
          ASSERT_TRUE(snapshots.make_room().ok());
          const auto news = snapshots.news();
          ASSERT_TRUE(news.ok()) << news.error().message;
          std::array<double, 3> sums = {news->received, news->damaged, news->due};
          ASSERT_TRUE(world.all_reduce(sums).ok());
          const SnapshotNews all = {.received = sums[0], .damaged = sums[1], .due = sums[2]};
          snapshots.conclude(all);
          steps.take();
          ASSERT_TRUE(state->begin_copy());
          snapshots.at_boundary(all);
          // The first one waits for the connection; no step does.
          while (!has_met && snapshots.news()->received == 0) std::this_thread::yield();
          has_met = true;
        }
        state->seal_copy();
        everywhere = snapshots.everywhere();
        ASSERT_TRUE(snapshots.forget().ok());
        ASSERT_TRUE(world.barrier().ok());
      }
      ASSERT_GE(everywhere, 4U);
      // Rank 1's node is gone, and another one has nothing.
      Workload next = from_memory(workload, everywhere);
      next.rendezvous_dir += "-next";
      next.refilled = {1};
      const UniqueFd other = memory_file();
      std::optional<TrainingState> renewed;
      if (options.rank == 1) {
        auto made = create(other.get(), next, device);
        ASSERT_TRUE(made.ok()) << made.error().message;
        renewed.emplace(std::move(made).value());
      } else {
        ASSERT_TRUE(state->rejoin(next, {}).ok());
      }
      TrainingState& now = renewed ? *renewed : *state;
      PeerSnapshots snapshots(next, now, make_communicator(PeerSnapshots::ring_options(next)));
      const Outcome restored = snapshots.restore();
      ASSERT_TRUE(restored.ok()) << restored.error().message;
      EXPECT_EQ(now.step(), everywhere);
      EXPECT_TRUE(bytes_on(device, now) == states[everywhere]) << "rank " << options.rank;
      ASSERT_TRUE(world.barrier().ok());
    });
  });
}

TEST(HostCopies, AReplicaRefillsARankThatHasNothing) {
  test::on_every_rank(2, [](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      Workload workload = of_rank(options);
      workload.train.strategy = Strategy::kNoShard;
      const UniqueFd fd = memory_file();
      StreamedDevice device;
      auto state = create(fd.get(), workload, device);
      ASSERT_TRUE(state.ok()) << state.error().message;
      test::Steps steps(*state, kGradient);
      for (int i = 0; i < 3; ++i) step_and_copy(*state, steps);
      state->seal_copy();
      const Bytes expected = bytes_on(device, *state);
      Workload next = from_memory(workload, 3);
      next.refilled = {0};
      std::optional<TrainingState> renewed;
      const UniqueFd other = memory_file();
      if (options.rank == 0) {
        auto made = create(other.get(), next, device);
        ASSERT_TRUE(made.ok()) << made.error().message;
        renewed.emplace(std::move(made).value());
      } else {
        ASSERT_TRUE(state->rejoin(next, {}).ok());
      }
      TrainingState& now = renewed ? *renewed : *state;
      const Outcome refilled = now.refill(world);
      ASSERT_TRUE(refilled.ok()) << refilled.error().message;
      EXPECT_EQ(now.step(), 3U);
      EXPECT_TRUE(bytes_on(device, now) == expected) << "rank " << options.rank;
    });
  });
}

// One rank becomes two: on GPUs the parts are those of CPUs.
TEST(HostCopies, PartsAreDividedAnewFromHostMemory) {
  const auto divide = [](Device& device, const CommunicatorOptions& options, Communicator& world) {
    Workload workload = small_workload();
    const UniqueFd fd = memory_file();
    std::optional<TrainingState> former;
    if (options.rank == 0) {
      auto made = create(fd.get(), workload, device);
      EXPECT_TRUE(made.ok()) << made.error().message;
      former.emplace(std::move(made).value());
      test::Steps steps(*former, kGradient);
      for (int i = 0; i < 3; ++i) step_and_copy(*former, steps);
      former->seal_copy();
    }
    Workload next = from_memory(workload, 3);
    next.rank = options.rank;
    next.world_size = 2;
    next.former_parts = 1;
    auto divided = TrainingState::create_from_parts(fd.get(), next, {}, {}, device, world, former);
    EXPECT_TRUE(divided.ok()) << divided.error().message;
    return divided.ok() ? bytes_on(device, *divided) : Bytes();
  };
  test::on_every_rank(2, [&](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      StreamedDevice device;
      const Bytes on_gpu = divide(device, options, world);
      EXPECT_FALSE(on_gpu.empty());
      EXPECT_TRUE(on_gpu == divide(host_device(), options, world)) << "rank " << options.rank;
    });
  });
}

}  // namespace
}  // namespace hpctl
