// SPDX-License-Identifier: Apache-2.0
// A job that trains and has a mirror, for tests of the core.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/worker/worker_abi.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {

inline constexpr int64_t kAfterMs = 60'000;

// checkpoint.mirror.after is kAfterMs.
class Mirrored : public ::testing::Test {
 protected:
  void SetUp() override {
    JobSpec spec = small_job("demo");
    spec.checkpoint.dir = "/ckpt";
    spec.checkpoint.mirror = {"/mirror", 0, kAfterMs};
    adjust(spec);
    id_ = shell_.submit(spec);
    shell_.settle();
    shell_.progress(id_, 1);
    ASSERT_EQ(job().state, JobState::kRunning);
    shell_.settle();  // the generation's record
  }
  virtual void adjust(JobSpec&) {}
  const Job& job() const { return shell_.job(id_); }
  void commit(uint64_t step) { shell_.feed(CheckpointCommitted{id_, job().generation, step}); }
  void hold(uint64_t in_first, uint64_t in_mirror) {
    shell_.checkpoint = in_first == 0 ? "" : "step-" + std::to_string(in_first) + ".g1";
    shell_.checkpoint_step = in_first;
    shell_.mirror_checkpoint =
        in_mirror == 0 ? "" : "/mirror/step-" + std::to_string(in_mirror) + ".g1";
    shell_.mirror_step = in_mirror;
  }
  // Both places have step 20.
  void mirror_two() {
    hold(20, 20);
    commit(20);
    shell_.settle();
    ASSERT_EQ(job().mirror.step, 20U);
  }
  void kill_worker() {
    shell_.exit_worker(id_, 3, 0, 9, job().furthest_step);
    shell_.settle_kind("StopWorkers");
  }
  // All workers end, and leave this step in their nodes' memory.
  void end_workers_with(uint64_t sealed) {
    shell_.seals.own = {{sealed, 7, job().generation.value}};
    for (const int32_t rank : {3, 2, 1, 0}) {
      shell_.exit_worker(id_, rank, rank == 3 ? 1 : kExitPeerLost, 0, sealed);
    }
    shell_.settle_kind("StopWorkers");
  }
  // The `number`th rollback of the generation.
  void roll_back(uint64_t number, uint64_t resumed_step) {
    BadStepFound bad;
    bad.job = id_;
    bad.node = "n0";
    bad.generation = job().generation;
    bad.number = number;
    bad.step = 25;
    bad.resumed_step = resumed_step;
    bad.outcome = BadStepOutcome::kRolledBack;
    shell_.feed(bad);
  }
  const MirrorCheckpoint& order() const { return std::get<MirrorCheckpoint>(orders().at(0)->body); }
  bool is_told(const std::string& type) const {
    return std::any_of(shell_.log.begin(), shell_.log.end(),
                       [&](const LogEntry& entry) { return entry.type == type; });
  }
  // Every search of checkpoint.dir fails until `ms` have passed.
  void away_for(int64_t ms) {
    const int64_t end = shell_.now_ms + ms;
    while (shell_.now_ms < end && !searches().empty() && !search().in_mirror) {
      shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
      if (!searches().empty()) return;
      shell_.pass(30'000);
    }
  }
  std::vector<const Action*> orders() const { return shell_.open(ActionKind::kMirrorCheckpoint); }
  std::vector<const Action*> searches() const { return shell_.open(ActionKind::kFindCheckpoint); }
  const FindCheckpoint& search() const { return std::get<FindCheckpoint>(searches().at(0)->body); }
  const RecordGeneration& record() const {
    return std::get<RecordGeneration>(shell_.open(ActionKind::kRecordGeneration).at(0)->body);
  }

  FakeShell shell_;
  JobId id_;
};

}  // namespace hpctl::core
