// SPDX-License-Identifier: Apache-2.0
// A training job of a cluster loses its controllers one after the other, and at the end a worker
// too: no step is lost or trained twice, and not a bit differs from the undisturbed run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "common/base/file.h"
#include "common/job/job_files.h"
#include "common/job/lineage.h"
#include "tests/fault/job_cluster.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/promise.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl::testing {
namespace {

// Long enough for two successions of some 5 s each, also where a second has 300 steps.
constexpr int kSteps = 4000;
constexpr uint64_t kGlobalBatch = 8;
constexpr int kPatienceMs = 120'000;

JobSpec training_spec() {
  TrainingJob job;
  job.name = "succession";
  job.steps = kSteps;
  job.heartbeat_timeout = "10s";  // busy with LibTorch, a machine may leave an agent no time
  return job.spec();
}

class TrainingRun {
 public:
  TrainingRun() { cluster_.start_all(); }
  test::JobCluster& cluster() { return cluster_; }
  bool reached(uint64_t step) const {
    return cluster_.wait_for_status([step](const auto& status) { return status.step() >= step; },
                                    kPatienceMs);
  }
  // The digest, after the job has finished with every sample exactly once.
  std::string finish() {
    EXPECT_TRUE(test::eventually([&] { return cluster_.verdict().has_value(); }, kPatienceMs));
    EXPECT_EQ(cluster_.verdict(), kVerdictFinished) << cluster_.logs();
    // An unfinished job has no final state, so it breaks no promise.
    if (cluster_.verdict() != kVerdictFinished) throw std::runtime_error("it has not finished");
    EXPECT_TRUE(test::eventually([&] { return cluster_.processes().empty(); }, kPatienceMs))
        << cluster_.logs() << broken_promise("leftover");
    const std::string directory = cluster_.checkpoints();
    const auto ledger = verify_ledger(directory + "/ledger", directory);
    EXPECT_TRUE(ledger.ok()) << broken_promise("ledger");
    if (ledger.ok()) {
      EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
      EXPECT_EQ(ledger->cursor, kSteps * kGlobalBatch) << broken_promise("ledger");
    }
    const std::string hpctl = std::string(std::getenv("HPCTL_BIN")) + "/hpctl";
    const auto digest = run_command({hpctl, "checkpoint", "digest", directory}, {});
    EXPECT_EQ(digest.exit_code, 0) << digest.err << broken_promise("digest");
    return digest.out;
  }

 private:
  test::JobCluster cluster_{training_spec()};
};

TEST(SuccessionTraining, LosesNoStepAndNoBit) {
  const std::string expected = TrainingRun().finish();
  ASSERT_EQ(expected.size(), 65U) << expected;

  TrainingRun run;
  ASSERT_TRUE(run.reached(20)) << run.cluster().logs();
  run.cluster().kill_controller(1);
  ASSERT_TRUE(run.cluster().wait_for_epoch(2, kPatienceMs)) << run.cluster().logs();
  ASSERT_TRUE(run.reached(60)) << run.cluster().logs();
  EXPECT_EQ(run.cluster().status()->generation(), 1U) << "training did not notice";
  const auto worker = static_cast<pid_t>(run.cluster().status()->workers(1).pid());
  run.cluster().kill_controller(2);
  end_process(worker);
  ASSERT_TRUE(run.cluster().wait_for_epoch(3, kPatienceMs)) << run.cluster().logs();
  EXPECT_EQ(run.finish(), expected) << broken_promise("digest");
  const auto records = read_lineage(run.cluster().checkpoints());
  ASSERT_TRUE(records.ok());
  EXPECT_EQ(records->size(), 2U);
}

}  // namespace
}  // namespace hpctl::testing
