// SPDX-License-Identifier: Apache-2.0
// Processes that wait for a part: on nodes with ranks, and on spares, which have none yet.
#include <filesystem>
#include <set>

#include "common/base/file.h"
#include "common/worker/worker_abi.h"
#include "common/worker/worker_origin.h"
#include "tests/unit/agent/node_under_test.h"

namespace hpctl::agent {
namespace {

using test::eventually;
using test::kJob;
using test::text_of;

class WithStandbys : public ::testing::Test, public test::NodeUnderTest {
 protected:
  WithStandbys() {
    EXPECT_TRUE(write_file_atomic(program("hptrain"), "#!/bin/sh\nexec " +
                                                          test::test_program("probe_worker") +
                                                          " ready map step 1 obey\n")
                    .ok());
    std::filesystem::permissions(program("hptrain"), std::filesystem::perms::owner_all);
    connect();
  }
  v1::ControllerMessage train(uint64_t seq, uint64_t generation) const {
    v1::ControllerMessage message = start_workers(seq, generation, {0, 1}, {});
    message.mutable_start_workers()->clear_command();
    message.mutable_start_workers()->set_standbys(1);
    return message;
  }
  v1::ActionDone start_trainer(uint64_t seq, uint64_t generation) {
    controller_.send(train(seq, generation));
    return done(seq);
  }
  // The next heartbeat that tells of so many.
  v1::Standbys told(uint32_t ready) {
    return controller_
        .take([ready](const v1::AgentMessage& message) {
          return message.has_heartbeat() && message.heartbeat().has_standbys() &&
                 message.heartbeat().standbys().ready() == ready;
        })
        .heartbeat()
        .standbys();
  }
  // Of the standbys, in the order in which they were started.
  std::vector<uint64_t> standbys() const {
    const std::string log = text_of(home_.paths().job_logs(kJob) + "/standby-n0.log");
    std::vector<uint64_t> pids;
    for (size_t at = log.find("standby"); at != std::string::npos;
         at = log.find("standby", at + 1)) {
      pids.push_back(std::stoull(log.substr(log.find(" pid ", at) + 5)));
    }
    return pids;
  }
};

// A spare has its processes before it has ranks.
TEST_F(WithStandbys, ASpareIsPreparedAndItsProcessesWait) {
  v1::ControllerMessage spare;
  spare.set_job(kJob.value);
  v1::StartWorkers& like = *spare.mutable_stand_by()->mutable_like();
  like = train(0, 1).start_workers();
  like.clear_ranks();
  like.set_standbys(2);
  like.mutable_preparation()->add_hooks("echo prepared >> " + marker("hooks"));
  like.mutable_preparation()->set_hook_timeout_ms(60'000);
  controller_.send(spare);
  EXPECT_EQ(told(2).loading(), 0U);
  ASSERT_TRUE(eventually([&] { return standbys().size() == 2; }));
  EXPECT_EQ(text_of(marker("hooks")), "prepared\n");
  v1::ControllerMessage stop = stop_workers(1, 1, 0);  // a recovery: all nodes are told
  stop.mutable_stop_workers()->set_abort_ms(600'000);
  controller_.send(stop);
  done(1);
  controller_.send(spare);  // and when the job trains again: all of them are there

  v1::ControllerMessage start = train(2, 2);
  *start.mutable_start_workers()->mutable_preparation() = like.preparation();
  controller_.send(start);
  const v1::ActionDone first = done(2);
  ASSERT_EQ(first.workers_size(), 2);
  for (const v1::RunningWorker& worker : first.workers()) {
    EXPECT_EQ(known_origin(worker.origin()), WorkerOrigin::kStandby);
  }
  EXPECT_EQ((std::set<uint64_t>{first.workers(0).pid(), first.workers(1).pid()}),
            (std::set<uint64_t>{standbys()[0], standbys()[1]}));
  EXPECT_EQ(text_of(marker("hooks")), "prepared\n") << "once in a life of the node";
  EXPECT_TRUE(eventually([&] { return standbys().size() == 3; })) << "it has one, as all have";
}

// It is found out before anybody waits for it, and said.
TEST_F(WithStandbys, ASpareThatIsUnfitSaysSo) {
  v1::ControllerMessage spare;
  spare.set_job(kJob.value);
  v1::StartWorkers& like = *spare.mutable_stand_by()->mutable_like();
  like = train(0, 1).start_workers();
  like.clear_ranks();
  like.mutable_preparation()->add_hooks("echo no room on /scratch; exit 3");
  like.mutable_preparation()->set_hook_timeout_ms(60'000);
  controller_.send(spare);
  const v1::AgentMessage unfit = controller_.take(v1::AgentMessage::kSpareUnfit);
  EXPECT_EQ(unfit.report_seq(), 0U) << "the next stream has it found again";
  EXPECT_EQ(unfit.spare_unfit().reason(), "hooks.pre 1: exit code 3: no room on /scratch");
  EXPECT_FALSE(unfit.spare_unfit().hardware());
  EXPECT_TRUE(standbys().empty());
}

// A fault costs the process that died; another was ready.
TEST_F(WithStandbys, SurvivorsStayAndAStandbyTakesThePlaceOfTheDead) {
  const v1::ActionDone first = start_trainer(1, 1);
  EXPECT_GT(told(1).memory_bytes(), 0U);
  ASSERT_TRUE(eventually([&] { return !standbys().empty(); }));
  const uint64_t standby = standbys().front();
  ::kill(static_cast<pid_t>(first.workers(1).pid()), SIGKILL);
  EXPECT_EQ(exited().signal(), SIGKILL);
  v1::ControllerMessage stop = stop_workers(2, 1, 0);
  stop.mutable_stop_workers()->set_abort_ms(600'000);
  controller_.send(stop);
  done(2);
  const v1::WorkerExited left = exited();
  EXPECT_EQ(left.rank(), 0);
  EXPECT_EQ(left.exit_code(), kExitPeerLost);
  EXPECT_TRUE(left.by_request());

  const v1::ActionDone second = start_trainer(3, 2);
  EXPECT_EQ(second.workers(0).pid(), first.workers(0).pid());
  EXPECT_EQ(second.workers(1).pid(), standby);
  EXPECT_EQ(known_origin(first.workers(0).origin()), WorkerOrigin::kStarted);
  EXPECT_EQ(known_origin(second.workers(0).origin()), WorkerOrigin::kStayed);
  EXPECT_EQ(known_origin(second.workers(1).origin()), WorkerOrigin::kStandby);
  EXPECT_TRUE(eventually([&] { return standbys().size() == 2; })) << "there is one again";
  kill_agent();
  ASSERT_EQ(registration_.register_agent().workers_size(), 2);
  EXPECT_EQ(registration_.register_agent().workers(1).pid(), standby);
  EXPECT_EQ(registration_.register_agent().workers(1).generation(), 2U);
}

}  // namespace
}  // namespace hpctl::agent
