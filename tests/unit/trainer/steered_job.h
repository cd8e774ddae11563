// SPDX-License-Identifier: Apache-2.0
// A small job of real workers whose agents' part a test plays, over their control sockets.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "common/job/snapshot_peers.h"
#include "common/worker/arena_header.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl::testing {

// The next message, which must be a T.
template <typename T>
T expect(WorkerProcess& worker) {
  const std::optional<control::FromWorker> heard = worker.hear();
  if (!heard) {
    ADD_FAILURE() << "the worker ended: " << worker.message();
    return {};
  }
  EXPECT_TRUE(std::holds_alternative<T>(*heard)) << "kind " << heard->index();
  return std::holds_alternative<T>(*heard) ? std::get<T>(*heard) : T{};
}

// To a standby, which is ready then. The order comes first: without one it loads with the lowest
// priority, which beside other programs takes a minute.
inline void hand_over_arena(WorkerProcess& standby, int arena_fd) {
  standby.tell(control::Take{kArenaFd}, arena_fd);
  expect<control::Ready>(standby);
}

// A job whose agents' part the test plays.
class SteeredJob : public Job {
 public:
  explicit SteeredJob(int world_size, int64_t steps) : Job(world_size) {
    steered = true;
    workload.train.steps = steps;
    workload.train.data.seq_len = 16;
    workload.checkpoint.every_steps = 20;
  }

  void start_and_join() {
    record_generation();
    start();
    for (const auto& worker : workers) {
      expect<control::Ready>(*worker);
      EXPECT_EQ(expect<control::Joined>(*worker).generation, 1U);
    }
  }

  // One rank after the other: who was told does not disturb who was not. The newest step that is
  // sealed on every rank. Where copies at peers are counted in steps there is one by then: for the
  // first one no step waits.
  uint64_t abort_after_step(uint64_t step) {
    const WorkerProcess& first = *workers[0];
    const bool copied =
        workload.snapshot.every_steps > 0 && workload.world_size > workload.workers_per_node;
    EXPECT_TRUE(workers[0]->wait_until([&] {
      return first.page().step.load() >= step && (!copied || first.page().snapshot_step > 0);
    })) << messages();
    for (const auto& worker : workers) {
      worker->tell(control::Abort{workload.generation});
      EXPECT_EQ(expect<control::Aborted>(*worker).generation, workload.generation);
    }
    return newest_sealed_everywhere();
  }

  // Of workers that have died or left their generation; 0 = none.
  uint64_t newest_sealed_everywhere() const {
    std::vector<Seal> common = seals_of(0);
    for (int rank = 1; rank < workload.world_size; ++rank) {
      const std::vector<Seal> seals = seals_of(rank);
      std::erase_if(common, [&](const Seal& seal) {
        return std::find(seals.begin(), seals.end(), seal) == seals.end();
      });
    }
    return common.empty() ? 0 : common.front().step;
  }

  // The newest step that any rank has sealed; those that have not are to be refilled.
  uint64_t refill_from_newest() {
    std::vector<Seal> newest;
    for (int rank = 0; rank < workload.world_size; ++rank) newest.push_back(seals_of(rank).front());
    const auto step = [](const Seal& a, const Seal& b) { return a.step < b.step; };
    const Seal seal = *std::max_element(newest.begin(), newest.end(), step);
    workload.refilled.clear();
    for (int rank = 0; rank < workload.world_size; ++rank) {
      if (newest[static_cast<size_t>(rank)] != seal) workload.refilled.push_back(rank);
    }
    return seal.step;
  }

  // Rank `lost` has nothing: the newest step that the others have, and of which its peer has its
  // part. It is to be refilled.
  uint64_t refill_from_peer(int lost) { return refill_from_peers({lost}); }
  // The same of several ranks, ascending.
  uint64_t refill_from_peers(const std::vector<int>& lost) {
    const auto is_lost = [&](int rank) {
      return std::find(lost.begin(), lost.end(), rank) != lost.end();
    };
    std::vector<std::vector<Seal>> all;
    for (const int rank : lost) {
      const int holder = snapshot_holder(rank, workload.world_size, workload.workers_per_node);
      all.push_back(read_seals(workers[static_cast<size_t>(holder)]->arena_fd()).copies);
    }
    for (int rank = 0; rank < workload.world_size; ++rank) {
      if (!is_lost(rank)) all.push_back(seals_of(rank));
    }
    std::vector<Seal> common = all.front();
    for (const std::vector<Seal>& seals : all) {
      std::erase_if(common, [&](const Seal& seal) {
        return std::find(seals.begin(), seals.end(), seal) == seals.end();
      });
    }
    workload.refilled.assign(lost.begin(), lost.end());
    return common.empty() ? 0 : common.front().step;
  }

  // The ledger of a rank of the first generation ends before that step.
  void lose_lines_from(int rank, uint64_t step) const {
    const std::string path = workload.ledger_dir + "/g1.r" + std::to_string(rank) + ".jsonl";
    const auto text = read_file(path);
    ASSERT_TRUE(text.ok()) << text.error().message;
    const size_t found = text->find("\"step\":" + std::to_string(step) + ",");
    ASSERT_NE(found, std::string::npos) << *text;
    ASSERT_TRUE(write_file_atomic(path, text->substr(0, text->rfind('\n', found) + 1)).ok());
  }

  // The next generation, from a step in the workers' memory.
  void join_from(uint64_t step) {
    begin_from(step);
    join();
  }

  void begin_from(uint64_t step) {
    workload.parent_generation = workload.generation++;
    workload.start_step = step;
    workload.from_memory = true;
    record_generation();
  }

  // Behind each of these steps all ranks leave, and go on from memory.
  void go_on_over_aborts(std::initializer_list<uint64_t> steps) {
    for (const uint64_t step : steps) {
      const uint64_t common = abort_after_step(step);
      ASSERT_GE(common + 1, step) << messages();
      ASSERT_LT(common, 100U) << "the abort came too late to disturb anything";
      join_from(common);
    }
  }

  // Goes on from the newest checkpoint, or from the seed.
  void join_from_disk() {
    go_back_to_disk();
    join();
  }

  void go_back_to_disk() {
    resume_from_newest();
    workload.from_memory = false;
    record_generation();
  }

  void send_join(int rank, uint64_t generation) {
    workload.rank = rank;
    const UniqueFd document = WorkerProcess::memory("workload", to_json_text(workload));
    WorkerProcess& worker = *workers[static_cast<size_t>(rank)];
    worker.hand_over_page();
    worker.tell(control::Join{generation}, document.get());
  }

  // The last line of a step counts; within a generation there is one.
  std::map<uint64_t, double> losses() const {
    std::map<uint64_t, double> by_step;
    std::map<std::pair<uint64_t, uint64_t>, int> lines;
    for (const auto& line : metrics()) {
      by_step[line["step"]] = line["loss"];
      EXPECT_EQ(++lines[std::pair(line["generation"], line["step"])], 1) << line;
    }
    return by_step;
  }

  // A hundred steps; the bits are the same as in an undisturbed job.
  void expect_ends_as_calm() {
    static std::map<int, std::unique_ptr<SteeredJob>> by_ranks;
    std::unique_ptr<SteeredJob>& kept = by_ranks[workload.world_size];
    if (!kept) {
      kept = std::make_unique<SteeredJob>(workload.world_size, 100);
      EXPECT_THAT(kept->run(), ::testing::Each(kExitFinished)) << kept->messages();
    }
    const SteeredJob& calm = *kept;
    for (const auto& worker : workers) ASSERT_EQ(worker->wait(), kExitFinished) << messages();
    const std::string undisturbed = calm.digest("step-100.g1");
    ASSERT_EQ(undisturbed.size(), 64U) << undisturbed;
    const std::string name = "step-100.g" + std::to_string(workload.generation);
    EXPECT_EQ(digest(name), undisturbed) << messages() << broken_promise("digest");
    EXPECT_EQ(losses(), calm.losses());
    const auto manifest = read_manifest(workload.checkpoint_dir + "/" + name);
    ASSERT_TRUE(manifest.ok()) << manifest.error().message;
    EXPECT_TRUE(manifest->exact) << manifest->inexact_reason;
    const auto ledger = verify_ledger(workload.ledger_dir, workload.checkpoint_dir);
    ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
    EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
    EXPECT_EQ(ledger->cursor, 400U) << broken_promise("ledger");
  }

  // A rank that has nothing in memory, the third.
  void add_third() { add_ranks(1); }
  void add_ranks(int count) {
    for (int i = 0; i < count; ++i) workers.push_back(without_memory());
    workload.world_size = static_cast<int>(workers.size());
  }
  // Another process with nothing in memory becomes that rank.
  void replace(int rank) { workers[static_cast<size_t>(rank)] = without_memory(); }

  // Of three generations, with three, two and three ranks.
  void expect_shrunk_and_exact(uint64_t step) const {
    const auto manifest = read_manifest(workload.checkpoint_dir + "/step-100.g3");
    ASSERT_TRUE(manifest.ok()) << manifest.error().message;
    EXPECT_EQ(manifest->inexact_reason,
              "world size changed from 3 to 2 after step " + std::to_string(step));
    const auto ledger = verify_ledger(workload.ledger_dir, workload.checkpoint_dir);
    ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
    EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  }

 private:
  static std::unique_ptr<WorkerProcess> without_memory() {
    auto worker = std::make_unique<WorkerProcess>("");
    hand_over_arena(*worker, WorkerProcess::memory("arena", "").get());
    return worker;
  }

  std::vector<Seal> seals_of(int rank) const {
    return read_seals(workers[static_cast<size_t>(rank)]->arena_fd()).own;
  }

  void join() {
    for (int r = 0; r < workload.world_size; ++r) send_join(r, workload.generation);
    for (const auto& worker : workers) {
      EXPECT_EQ(expect<control::Joined>(*worker).generation, workload.generation);
    }
  }

  void record_generation() {
    workload.rendezvous_dir = *this / ("rdzv-g" + std::to_string(workload.generation));
    GenerationRecord record;
    record.generation = workload.generation;
    record.parent = workload.parent_generation;
    record.start_step = workload.start_step;
    ASSERT_TRUE(create_generation(workload.checkpoint_dir, record).ok());
  }
};

}  // namespace hpctl::testing
