// SPDX-License-Identifier: Apache-2.0
// A rank of a real job that is slow on purpose: it is named, and nobody else is; and where the job
// asks for it, its node is left for a spare, and no completed step is done again.
//
// The passes of a step are long, and heartbeats come often: a rank is judged by the steps that its
// agent happened to report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "common/base/file.h"
#include "common/job/lineage.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/promise.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kSteps = 60;
constexpr uint64_t kGlobalBatch = 48;

std::string job_yaml(const std::string& nodes, const std::string& straggler) {
  return "name: slow\n"
         "nodes: " +
         nodes +
         "\n"
         "workload:\n"
         "  train:\n"
         "    model: {preset: tiny}\n"
         "    data: {path: /usr/share/common-licenses/GPL-3, tokenizer: byte, seq_len: 128}\n"
         "    batch: {micro: 4, global: " +
         std::to_string(kGlobalBatch) +
         "}\n"
         "    steps: " +
         std::to_string(kSteps) +
         "\n"
         "    seed: 7\n"
         "checkpoint: {every_steps: 100000}\n"
         "recovery: {heartbeat_timeout: 1s, straggler: " +
         straggler +
         "}\n"
         "debug: {ledger: true, chaos: true}\n";
}

class Straggler : public ::testing::Test {
 protected:
  // What `hpctl chaos` says of slow-worker, done to rank 1 early, when the job has finished.
  json attack(const std::string& yaml) {
    job_ = cluster_.submit(yaml);
    const std::string file = cluster_.directory() + "/plan.yaml";
    EXPECT_TRUE(
        write_file_atomic(file, "faults: [{fault: slow-worker, rank: 1, at_step: 6}]\n").ok());
    const CommandResult chaos =
        cluster_.hpctl({"chaos", to_string(job_), "--plan", file, "--json"}, seconds(180));
    EXPECT_EQ(chaos.exit_code, 0) << chaos.out << chaos.err;
    finish();
    const json report = json::parse(chaos.out, nullptr, false);
    EXPECT_EQ(report["faults"].size(), 1U) << chaos.out << chaos.err;
    return report["faults"][0];
  }

  void finish() {
    const std::string state = cluster_.wait_for_end(job_, seconds(120));
    EXPECT_EQ(state, "FINISHED") << story();
    // An unfinished job has no final state, so it breaks no promise.
    if (state != "FINISHED") throw std::runtime_error("the job has not finished: " + state);
    const std::string directory = cluster_.paths().default_checkpoints(job_);
    const auto ledger = verify_ledger(directory + "/ledger", directory);
    ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
    EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
    EXPECT_EQ(ledger->cursor, kSteps * kGlobalBatch) << broken_promise("ledger");
  }

  std::vector<json> events(const std::string& type) const {
    std::vector<json> found;
    for (const json& event : cluster_.events(job_)) {
      if (event["type"] == type) found.push_back(event);
    }
    return found;
  }

  std::string story() const { return cluster_.hpctl({"events", to_string(job_)}).out; }

  // That rank, and nobody else, however often.
  void expect_only_the_slow_one_is_named() const {
    const std::vector<json> named = events("StragglerFound");
    EXPECT_THAT(named, Not(::testing::IsEmpty())) << story();
    for (const json& event : named) {
      EXPECT_EQ(event["node"], "n1") << event;
      EXPECT_EQ(event["rank"], 1) << event;
    }
  }

  LocalCluster cluster_;
  JobId job_;
};

// The first job only warns of the slow rank. Chaos.WhatIsOnlyLateChangesNoBit... shows that its
// result is that of an undisturbed job.
TEST_F(Straggler, ASlowRankIsNamedAndItsNodeIsLeftForASpare) {
  json fault = attack(job_yaml("3", "warn"));
  EXPECT_TRUE(fault["found"].get<bool>()) << fault.dump(1) << story();
  EXPECT_EQ(fault["blame"], "right") << fault.dump(1);
  EXPECT_EQ(fault["lost_steps"], 0) << fault.dump(1);
  expect_only_the_slow_one_is_named();
  EXPECT_EQ(cluster_.status(job_)["generation"], 1) << "hpctl was to warn only";
  const std::string undisturbed = cluster_.digest(job_);

  fault = attack(job_yaml("{count: 3, spares: 1}", "evict"));
  EXPECT_EQ(cluster_.digest(job_), undisturbed) << broken_promise("digest");
  EXPECT_TRUE(fault["found"].get<bool>()) << fault.dump(1) << story();
  EXPECT_EQ(fault["blame"], "right") << fault.dump(1);
  EXPECT_EQ(fault["lost_steps"], 0) << fault.dump(1);
  expect_only_the_slow_one_is_named();
  const json status = cluster_.status(job_);
  EXPECT_EQ(status["generation"], 2) << story();
  EXPECT_EQ(status["restarts"], 1);
  EXPECT_THAT(cluster_.hpctl({"why", to_string(job_)}).out,
              HasSubstr("n1 is left because it is slow"));
  const std::string directory = cluster_.paths().default_checkpoints(job_);
  const auto record = read_generation(directory, 2);
  ASSERT_TRUE(record.ok()) << record.error().message;
  const std::vector<json> left = events("JobRecovering");
  ASSERT_THAT(left, SizeIs(1)) << story();
  EXPECT_GE(record->start_step, left[0]["step"].get<uint64_t>()) << "done again";
  cluster_.stop_and_expect_no_leftovers(seconds(60));
}

}  // namespace
}  // namespace hpctl::testing
