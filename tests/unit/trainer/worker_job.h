// SPDX-License-Identifier: Apache-2.0
// A job of real hptrain processes with small data and a small model, for tests of whole workers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/job/lineage.h"
#include "tests/support/promise.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/worker_process.h"
#include "trainer/checkpoint/inspect.h"

namespace hpctl::testing {

// A small job in a directory of its own.
class Job {
 public:
  explicit Job(int world_size) {
    std::ofstream text(dir_ / "text");
    for (int i = 0; i < 2000; ++i) text << "line " << i << " of " << i * i % 701 << " things\n";
    text.close();
    workload.job = 5;
    workload.name = "test";
    workload.generation = 1;
    workload.world_size = world_size;
    workload.checkpoint_dir = dir_ / "checkpoints";
    workload.ledger_dir = dir_ / "ledger";
    workload.metrics_path = dir_ / "metrics.jsonl";
    workload.checkpoint.every_steps = 3;
    workload.checkpoint.every_minutes = 0;
    workload.train.model = *model_preset("tiny");
    workload.train.data.path = dir_ / "text";
    workload.train.data.seq_len = 32;
    workload.train.batch.global = 4;
    workload.train.steps = 8;
    workload.train.seed = 3;
    workload.train.optimizer.lr = 2e-3;
    workload.train.schedule.warmup_steps = 2;
    workload.train.precision = Precision::kFp32;
  }

  // One that has run undisturbed.
  Job(int world_size, void (*prepare)(Job&)) : Job(world_size) {
    prepare(*this);
    EXPECT_THAT(run(), ::testing::Each(kExitFinished)) << messages();
  }

  // Continues from a checkpoint of this job in a new generation.
  void resume(const std::string& checkpoint, uint64_t step) {
    workload.parent_generation = workload.generation++;
    workload.resume_checkpoint = workload.checkpoint_dir + "/" + checkpoint;
    workload.start_step = step;
  }

  // The same from the newest one that is whole, or from the seed: saves go on beside the steps, and
  // none may have become durable. From which step; 0 = the seed.
  uint64_t resume_from_newest() {
    const auto newest = latest_valid_checkpoint(workload.checkpoint_dir, {});
    EXPECT_TRUE(newest.ok()) << newest.error().message << broken_promise("checkpoint");
    if (!newest.ok() || !*newest) {
      ++workload.generation;
      return 0;
    }
    resume((*newest)->name(), (*newest)->step);
    return (*newest)->step;
  }

  // Continues from one of another job, with its data.
  void resume_from(const Job& other, const std::string& checkpoint, uint64_t step) {
    workload.train.data.path = other.workload.train.data.path;
    workload.parent_generation = other.workload.generation;
    workload.generation = other.workload.generation + 1;
    workload.resume_checkpoint = other.workload.checkpoint_dir + "/" + checkpoint;
    workload.start_step = step;
  }

  void start() {
    workers.clear();
    for (int r = 0; r < workload.world_size; ++r) {
      workload.rank = r;
      workload.rendezvous_dir = dir_ / ("rdzv-g" + std::to_string(workload.generation));
      workers.push_back(std::make_unique<WorkerProcess>(
          workload, WorkerProcess::memory("arena", ""), r == prepared_rank ? in_child : nullptr));
      if (!steered) workers.back()->close_control();
    }
  }

  std::vector<int> run() {
    start();
    std::vector<int> codes;
    for (const auto& worker : workers) codes.push_back(worker->wait());
    return codes;
  }

  std::string messages() const {
    std::string all;
    for (const auto& worker : workers) all += worker->message() + "\n";
    return all;
  }

  std::string digest(const std::string& checkpoint) const {
    const auto result = digest_checkpoint(workload.checkpoint_dir + "/" + checkpoint);
    return result.ok() ? *result : result.error().message;
  }

  std::vector<nlohmann::json> metrics() const {
    std::ifstream file(workload.metrics_path);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  std::string operator/(const std::string& name) const { return dir_ / name; }

  Workload workload;
  int prepared_rank = 0;  // whose process calls in_child before it becomes hptrain
  bool (*in_child)() = nullptr;
  bool steered = false;  // the test says what follows when a peer is lost
  std::vector<std::unique_ptr<WorkerProcess>> workers;

 private:
  TemporaryDirectory dir_;
};

// Two workers, eight steps. Run once per program, for tests to compare with and to go on from:
// starting processes is what these tests spend their time on.
inline const Job& calm_job() {
  static const Job job(2, [](Job&) {});
  return job;
}

}  // namespace hpctl::testing
