// SPDX-License-Identifier: Apache-2.0
// A job that may shrink goes on without a node, and takes it back at a step boundary when it may be
// used again: nothing is done twice, and it is no restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "common/base/file.h"
#include "common/job/lineage.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/promise.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uint64_t kGlobalBatch = 12;

std::string job_yaml(const std::string& strategy, const std::string& more = "") {
  return "name: elastic\n"
         "nodes: {count: 3, min: 2}\n"
         "workers_per_node: 1\n"
         "workload:\n"
         "  train:\n"
         "    model: {preset: tiny}\n"
         "    data: {path: /usr/share/common-licenses/GPL-3, tokenizer: byte, seq_len: 32}\n"
         "    batch: {micro: 1, global: " +
         std::to_string(kGlobalBatch) +
         "}\n"
         "    steps: 1000000\n"
         "    parallelism: {strategy: " +
         strategy +
         "}\n"
         "checkpoint: {every_steps: 100000}\n"
         "debug: {ledger: true}\n" +
         more;
}

class Elastic : public ::testing::TestWithParam<const char*> {
 protected:
  // Of the newest event of that type; fails the test where none comes.
  nlohmann::json wait_for_event(JobId job, const std::string& type) {
    nlohmann::json found;
    const bool came = wait_until(
        cluster_.paths().job(job),
        [&] {
          for (const auto& event : cluster_.events(job)) {
            if (event["type"] == type) found = event;
          }
          return !found.is_null();
        },
        seconds(60));
    EXPECT_TRUE(came) << type << "\n" << cluster_.hpctl({"events", to_string(job)}).out;
    return found;
  }

  LocalCluster cluster_;
};

TEST_P(Elastic, ANodeThatIsBackIsTakenAtAStepBoundary) {
  const JobId job = cluster_.submit(job_yaml(GetParam()));
  ASSERT_TRUE(cluster_.wait_for_step(job, 20, seconds(60)));
  const std::string name = to_string(job);
  ASSERT_EQ(
      cluster_.hpctl({"nodes", "quarantine", "n1", "--job", name, "--reason", "a test"}).exit_code,
      0);
  wait_for_event(job, "WorldShrunk");
  const uint64_t shrunk_at = cluster_.status(job)["step"];
  ASSERT_TRUE(cluster_.wait_for_step(job, shrunk_at + 20, seconds(60)));
  ASSERT_EQ(cluster_.hpctl({"nodes", "release", "n1", "--job", name}).exit_code, 0);
  const auto interrupted = wait_for_event(job, "JobGrows");
  const auto grown = wait_for_event(job, "WorldGrown");
  const std::string directory = cluster_.paths().default_checkpoints(job);
  const uint64_t newest = grown["generation"].get<uint64_t>() + 1;
  ASSERT_TRUE(wait_until(
      directory, [&] { return cluster_.status(job)["generation"] == newest; }, seconds(60)));
  const auto record = read_generation(directory, newest);
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_GE(record->start_step, interrupted["step"]) << "a completed step was done again";
  EXPECT_TRUE(record->from_memory) << "divided anew, or had from a replica";
  ASSERT_TRUE(cluster_.wait_for_step(job, record->start_step + 20, seconds(60)));
  EXPECT_EQ(cluster_.status(job)["restarts"], 1) << "to leave the node; not to take it back";
  ASSERT_EQ(cluster_.hpctl({"cancel", name}).exit_code, 0);
  ASSERT_EQ(cluster_.wait_for_end(job, seconds(60)), "CANCELLED");
  const auto ledger = verify_ledger(directory + "/ledger", directory);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  EXPECT_EQ(ledger->cursor, ledger->step * kGlobalBatch) << broken_promise("ledger");
  cluster_.stop_and_expect_no_leftovers(seconds(60));
}

// Its memory is destroyed, and the machine is of no use any more when it is up again: what of the
// state is in the memory of the others is divided anew. Nothing is on disk before.
TEST_P(Elastic, ANodeThatIsGoneForGoodCostsAFewStepsAndTheOthersGoOnFromMemory) {
  const std::string broken = cluster_.directory() + "/broken";
  const JobId job =
      cluster_.submit(job_yaml(GetParam(),
                               "recovery: {on_node_loss: [shrink], snapshot: {every_steps: 1}}\n"
                               "hooks: {pre: '[ $HPCTL_NODE != n1 ] || [ ! -e " +
                                   broken + " ]'}\n"));
  ASSERT_TRUE(cluster_.wait_for_step(job, 20, seconds(60)));
  const auto before = cluster_.status(job);
  ASSERT_TRUE(write_file_atomic(broken, "").ok());
  ASSERT_TRUE(end_process(node_pid(before, 1, "holder_pid")));
  const auto shrunk = wait_for_event(job, "WorldShrunk");
  const std::string directory = cluster_.paths().default_checkpoints(job);
  const uint64_t newest = shrunk["generation"].get<uint64_t>() + 1;
  ASSERT_TRUE(wait_until(
      directory, [&] { return read_generation(directory, newest).ok(); }, seconds(60)));
  EXPECT_THAT(shrunk["cause"].get<std::string>(), HasSubstr("goes on with 2 of 3 nodes"));
  const auto record = read_generation(directory, newest);
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_TRUE(record->from_memory) << cluster_.hpctl({"events", to_string(job)}).out;
  // Copies are up to three steps old, and the status that was read before as much as it is.
  EXPECT_GE(record->start_step + 3, before["step"].get<uint64_t>());
  ASSERT_TRUE(cluster_.wait_for_step(job, record->start_step + 20, seconds(60)));
  const std::string origin = wait_for_event(job, "RecordGeneration")["cause"];
  EXPECT_THAT(origin, HasSubstr("from the memory of generation"));
  if (std::string(GetParam()) == "full") {
    EXPECT_THAT(origin, HasSubstr("3 parts become 2"));
  }
  EXPECT_EQ(cluster_.status(job)["restarts"], 2) << "the lost node, and that it is unfit";
  ASSERT_EQ(cluster_.hpctl({"cancel", to_string(job)}).exit_code, 0);
  ASSERT_EQ(cluster_.wait_for_end(job, seconds(60)), "CANCELLED");
  const auto ledger = verify_ledger(directory + "/ledger", directory);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  EXPECT_EQ(ledger->cursor, ledger->step * kGlobalBatch) << broken_promise("ledger");
  cluster_.stop_and_expect_no_leftovers(seconds(60));
}

INSTANTIATE_TEST_SUITE_P(Strategies, Elastic, ::testing::Values("full", "no_shard"),
                         [](const auto& strategy) { return std::string(strategy.param); });

}  // namespace
}  // namespace hpctl::testing
