// SPDX-License-Identifier: Apache-2.0
// Whom a job blames, and what the core makes of machines that other jobs have blamed.
#include "controller/core/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/worker_abi.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Blame : public ::testing::Test {
 protected:
  void begin(JobSpec spec) {
    id = shell.submit(spec);
    shell.settle();
    shell.progress(id, 1);
    ASSERT_EQ(shell.job(id).state, JobState::kRunning);
  }
  static JobSpec with_spares(int32_t spares) {
    JobSpec spec = small_job("demo");
    spec.spares = spares;
    return spec;
  }
  // "n1 worker", in the order of the records.
  std::vector<std::string> blamed() const {
    std::vector<std::string> texts;
    for (const NodeRecord& record : blame_of(shell.state, shell.job(id), 1)) {
      EXPECT_EQ(record.instance, "i-" + record.node);
      EXPECT_EQ(record.job, id.value);
      texts.push_back(record.node + " " + to_string(record.kind));
    }
    return texts;
  }

  FakeShell shell;
  JobId id;
};

TEST_F(Blame, AWorkerThatDiesAndNotItsPeers) {
  begin(small_job("demo"));
  EXPECT_THAT(blamed(), IsEmpty());
  shell.exit_worker(id, 1, kExitPeerLost, 0, 5);
  EXPECT_THAT(blamed(), IsEmpty()) << "a consequence, of which the cause may still come";
  shell.exit_worker(id, 3, 0, 9, 5);
  EXPECT_THAT(blamed(), ElementsAre("n1 worker"));
  const auto before = blame_of(shell.state, shell.job(id), 1);
  shell.settle();
  shell.progress(id, 9);
  EXPECT_EQ(blame_of(shell.state, shell.job(id), 2).front().key, before.front().key)
      << "what was said is recognised";
}

TEST_F(Blame, AHangALossAndAVerdict) {
  begin(with_spares(2));
  shell.feed(HangDetected{id, shell.job(id).generation, "n1", Rank{2}, "why"});
  shell.settle();
  shell.progress(id, 2);
  EXPECT_THAT(blamed(), ElementsAre("n1 hang"));
  shell.feed(NodeLost{id, "n0", shell.node(id, "n0").boot_id, "its holder is gone"});
  EXPECT_THAT(blamed(), ElementsAre("n1 hang", "n0 lost"));
  shell.settle();
  shell.progress(id, 3);
  shell.feed(HardwareFaultFound{id, "n1", shell.node(id, "n1").boot_id, "Xid 79", "", true});
  EXPECT_THAT(blamed(), ElementsAre("n1 hang", "n0 lost", "n1 lost", "n1 hardware"));
}

TEST_F(Blame, NotWhomAPersonOrTheSchedulerTakesOut) {
  begin(with_spares(1));
  shell.feed(QuarantineRequested{id, "n1", 1000, "maintenance", 0});
  shell.settle();
  shell.progress(id, 2);
  EXPECT_THAT(blamed(), IsEmpty());
  shell.feed(NodeLost{id, "n0", shell.node(id, "n0").boot_id, "taken", true, false});
  EXPECT_THAT(blamed(), IsEmpty());
}

TEST_F(Blame, NothingOfAJobWhoseFaultsAreMadeOnPurpose) {
  JobSpec spec = small_job("demo");
  spec.chaos = true;
  begin(spec);
  shell.exit_worker(id, 3, 0, 9, 5);
  EXPECT_THAT(blamed(), IsEmpty());
}

TEST_F(Blame, ASpareThatIsALemonIsTakenLast) {
  shell.lemons = {"n2"};
  begin(with_spares(2));
  EXPECT_TRUE(shell.node(id, "n2").lemon);
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "its holder is gone"});
  shell.settle();
  EXPECT_EQ(shell.slot(id, 3).node, "n3");
  shell.restart();
  EXPECT_TRUE(shell.node(id, "n2").lemon) << "the rows keep it";
}

TEST_F(Blame, ALemonIsBetterThanNoSpare) {
  shell.lemons = {"n2"};
  begin(with_spares(1));
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "its holder is gone"});
  shell.settle();
  EXPECT_EQ(shell.slot(id, 3).node, "n2");
}

}  // namespace
}  // namespace hpctl::core
