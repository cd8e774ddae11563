// SPDX-License-Identifier: Apache-2.0
// The life of one job of a cluster under its own controller, without Slurm: real controllers and
// agents that find each other through the job's directory.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "common/base/file.h"
#include "common/base/private_directory.h"
#include "common/job/job_files.h"
#include "common/job/start_failure.h"
#include "common/worker/worker_abi.h"
#include "controller/leadership/job_mode.h"
#include "tests/fault/job_cluster.h"
#include "tests/fault/live_controller.h"
#include "tests/support/promise.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr int kPatienceMs = 60'000;

JobSpec job_of(const std::vector<std::string>& command) {
  JobSpec spec;
  spec.name = "cluster";
  spec.nodes = 2;
  spec.workers_per_node = 2;
  spec.command = command;
  return spec;
}

JobSpec gated_pairs() {
  JobSpec spec = test::gated_job();
  spec.workers_per_node = 2;
  return spec;
}

bool is_running(const v1::JobStatus& status) { return status.state() == "RUNNING"; }

// For a controller that the test has started again. After 3 s an agent starts one too. On a busy
// machine that one may come first, and then it ends the job.
void expect_finish(test::JobCluster& cluster, pid_t started_again) {
  const auto code = cluster.wait_for(started_again, kPatienceMs);
  EXPECT_TRUE(code == kVerdictFinished || code == kExitSuperseded) << cluster.logs();
  EXPECT_TRUE(test::eventually([&] { return cluster.verdict().has_value(); }, kPatienceMs));
  EXPECT_EQ(cluster.verdict(), kVerdictFinished) << cluster.logs();
}

TEST(JobController, EndsWithTheJobsVerdictWhenTheNodesHaveGone) {
  test::JobCluster cluster(job_of({"/bin/true"}));
  const pid_t controller = cluster.start_all();
  ASSERT_EQ(cluster.wait_for(controller, kPatienceMs), kVerdictFinished) << cluster.logs();
  EXPECT_EQ(cluster.verdict(), kVerdictFinished);
  EXPECT_TRUE(test::eventually([&] { return cluster.processes().empty(); }, kPatienceMs))
      << broken_promise("leftover");
  const auto status = read_file(cluster.job_dir() + "/status.json");
  ASSERT_TRUE(status.ok());
  EXPECT_NE(status->find("FINISHED"), std::string::npos) << *status;
  EXPECT_NE(status->find("\"n0\""), std::string::npos) << *status;
  EXPECT_EQ(cluster.wait_for(cluster.start_controller("n0"), kPatienceMs), kVerdictFinished)
      << "a job that has ended is not run again";
}

// They dial as soon as the controller has claimed its epoch, while it is still starting.
TEST(JobController, AgentsThatWereThereFirstAreWelcome) {
  test::JobCluster cluster(job_of({"/bin/true"}));
  for (const std::string& node : cluster.nodes()) cluster.start_agent(node);
  const auto waits = [&] {
    return cluster.logs().find("no controller of " + cluster.job_dir()) != std::string::npos;
  };
  ASSERT_TRUE(test::eventually(waits, kPatienceMs));
  const pid_t controller = cluster.start_controller("n0");
  EXPECT_EQ(cluster.wait_for(controller, kPatienceMs), kVerdictFinished) << cluster.logs();
}

// Nobody but the connection that the kernel refuses tells it: there is no scheduler here, and the
// others' workers know nothing of each other.
TEST(JobController, AKilledHolderIsFoundWithoutTheHeartbeatTimeout) {
  JobSpec spec = gated_pairs();
  spec.recovery.heartbeat_timeout_ms = 3'600'000;
  test::JobCluster cluster(spec);
  const pid_t controller = cluster.start_all();
  ASSERT_TRUE(cluster.wait_for_status(is_running, kPatienceMs)) << cluster.logs();
  const auto answers = [&] {  // one that never did proves nothing by a refusal
    return cluster.logs().find("the holder of n1 answers probes") != std::string::npos;
  };
  ASSERT_TRUE(test::eventually(answers, kPatienceMs)) << cluster.logs();
  cluster.kill_holder("n1");
  ASSERT_TRUE(cluster.wait_for_status(
      [](const v1::JobStatus& status) { return status.state() == "RECOVERING"; }, kPatienceMs))
      << cluster.logs();
  EXPECT_NE(cluster.shown().reason().find("a connection to it is refused"), std::string::npos)
      << cluster.shown().reason();
  cluster.start_agent("n1");
  EXPECT_TRUE(cluster.wait_for_status(
      [](const v1::JobStatus& s) { return s.generation() == 2 && is_running(s); }, kPatienceMs))
      << cluster.logs();
  cluster.open_gate();
  EXPECT_EQ(cluster.wait_for(controller, kPatienceMs), kVerdictFinished) << cluster.logs();
}

// What is on disk says less, and that nobody answers. It stands still for less than agents wait
// before they start another.
TEST(JobController, OneThatIsSlowToAnswerIsAwaited) {
  test::JobCluster cluster(test::gated_job());
  const pid_t controller = cluster.start_all();
  ASSERT_TRUE(cluster.wait_for_status(is_running, kPatienceMs)) << cluster.logs();
  const TemporaryDirectory home;
  const std::string record = home / "jobs/submit-1";
  ASSERT_TRUE(make_directories(home / "jobs").ok());
  ASSERT_EQ(::symlink(cluster.job_dir().c_str(), record.c_str()), 0);
  const std::string job = to_string(cluster.job());
  ASSERT_EQ(::symlink("submit-1", (home / ("jobs/" + job)).c_str()), 0);
  const std::string out = home / "status";
  ASSERT_EQ(::kill(controller, SIGSTOP), 0);
  const pid_t hpctl = cluster.spawn({"/usr/bin/env", "HPCTL_HOME=" + home.path(),
                                     test::program("hpctl"), "status", job, "--json"},
                                    out);
  constexpr int kStillMs = 1'500;
  ::poll(nullptr, 0, kStillMs);
  ASSERT_EQ(::kill(controller, SIGCONT), 0);
  EXPECT_EQ(cluster.wait_for(hpctl, kPatienceMs), 0);
  const std::string said = read_file(out).value();
  EXPECT_NE(said.find(R"("state":"RUNNING",)"), std::string::npos) << said;
  cluster.open_gate();
  EXPECT_EQ(cluster.wait_for(controller, kPatienceMs), kVerdictFinished) << cluster.logs();
}

TEST(JobController, AHopelessJobMustNotBeRequeued) {
  JobSpec spec = job_of({"/bin/sh", "-c", "exit 7"});
  spec.recovery.max_restarts = 1;
  test::JobCluster cluster(spec);
  const pid_t controller = cluster.start_all();
  EXPECT_EQ(cluster.wait_for(controller, kPatienceMs), kVerdictFailedForGood) << cluster.logs();
  EXPECT_EQ(cluster.verdict(), kVerdictFailedForGood);
}

TEST(JobController, ASignalCancelsTheJob) {
  test::JobCluster cluster(gated_pairs());
  const pid_t controller = cluster.start_all();
  ASSERT_TRUE(cluster.wait_for_status(is_running, kPatienceMs)) << cluster.logs();
  ::kill(controller, SIGUSR1);
  ::kill(controller, SIGTERM);
  ASSERT_EQ(cluster.wait_for(controller, kPatienceMs), kVerdictFailed) << cluster.logs();
  EXPECT_TRUE(test::eventually([&] { return cluster.processes().empty(); }, kPatienceMs))
      << broken_promise("leftover");
}

// The thread that takes the signals waited for the file server, so scancel saved no last
// checkpoint. A named pipe without a writer stands for a file on a server that does not answer.
TEST(JobController, SignalIsTakenWhileTheDirectoryIsSilent) {
  test::JobCluster cluster(gated_pairs());
  const pid_t controller = cluster.start_all();
  ASSERT_TRUE(cluster.wait_for_status(is_running, kPatienceMs)) << cluster.logs();
  ASSERT_EQ(::mkfifo(verdict_path(cluster.job_dir()).c_str(), 0600), 0);
  ::kill(controller, SIGTERM);
  ASSERT_EQ(cluster.wait_for(controller, kPatienceMs), kVerdictFailed) << cluster.logs();
  EXPECT_EQ(cluster.verdict(), kVerdictFailed) << "it took the pipe's place";
  EXPECT_TRUE(test::eventually([&] { return cluster.processes().empty(); }, kPatienceMs))
      << broken_promise("leftover");
}

// The batch script was signalled before it.
TEST(JobController, OneThatIsToldToEndFromTheStartCancelsTheJob) {
  test::JobCluster cluster(gated_pairs());
  const pid_t controller = cluster.start_controller("n0", {"--told-to-end"});
  for (const std::string& node : cluster.nodes()) cluster.start_agent(node);
  ASSERT_EQ(cluster.wait_for(controller, kPatienceMs), kVerdictFailed) << cluster.logs();
  EXPECT_TRUE(test::eventually([&] { return cluster.processes().empty(); }, kPatienceMs))
      << broken_promise("leftover");
}

// As the batch script does it.
TEST(JobController, StartedAgainOnItsNodeItGoesOnWithItsRows) {
  test::JobCluster cluster(gated_pairs());
  cluster.start_all();
  ASSERT_TRUE(cluster.wait_for_status(is_running, kPatienceMs)) << cluster.logs();
  const auto workers = cluster.shown().workers();
  cluster.kill_controller(1);
  const pid_t second = cluster.start_controller("n0");
  ASSERT_TRUE(cluster.wait_for_epoch(2, kPatienceMs));
  ASSERT_TRUE(cluster.wait_for_status(
      [](const v1::JobStatus& now) { return now.nodes(0).state() == "up" && is_running(now); },
      kPatienceMs))
      << cluster.logs();
  EXPECT_EQ(cluster.shown().generation(), 1U);
  EXPECT_EQ(cluster.shown().controller_node(), "n0");
  for (int i = 0; i < workers.size(); ++i) {
    EXPECT_EQ(cluster.shown().workers(i).pid(), workers[i].pid()) << "workers are not disturbed";
  }
  cluster.open_gate();
  expect_finish(cluster, second);
}

// The address is right where the job was submitted, and of no other machine.
TEST(JobController, ASuccessorNeedsNoMetrics) {
  const std::vector<std::string> metrics = {"--metrics", "203.0.113.1:9400"};
  test::JobCluster cluster(gated_pairs());
  cluster.start_controller("n0", metrics);
  for (const std::string& node : cluster.nodes()) cluster.start_agent(node);
  ASSERT_TRUE(cluster.wait_for_status(is_running, kPatienceMs)) << cluster.logs();
  cluster.kill_controller(1);
  const pid_t second = cluster.start_controller("n0", metrics);
  ASSERT_TRUE(cluster.wait_for_epoch(2, kPatienceMs)) << cluster.logs();
  cluster.open_gate();
  expect_finish(cluster, second);
  const auto history = read_file(cluster.job_dir() + "/events.jsonl");
  ASSERT_TRUE(history.ok());
  EXPECT_NE(history->find("there are no metrics: 203.0.113.1"), std::string::npos) << *history;
}

// What the verbs read where no controller answers, until one serves.
TEST(JobController, AStartThatFailsLeavesItsReasonInTheJobsDirectory) {
  test::JobCluster cluster(job_of({"/bin/true"}));
  const pid_t first = cluster.start_controller("n0", {"--listen", "203.0.113.1:0"});
  EXPECT_EQ(cluster.wait_for(first, kPatienceMs), 4);
  const std::string failure = read_start_failure(cluster.job_dir());
  EXPECT_NE(failure.find("did not start on n0"), std::string::npos) << failure;
  EXPECT_NE(failure.find("cannot listen on 203.0.113.1:0"), std::string::npos) << failure;
  const pid_t second = cluster.start_all();
  EXPECT_EQ(cluster.wait_for(second, kPatienceMs), kVerdictFinished) << cluster.logs();
  EXPECT_EQ(read_start_failure(cluster.job_dir()), "");
}

// The batch script waits after this exit status, for as long as limits.storage.
TEST(JobController, StartThatStorageHoldsUpSaysSo) {
  test::JobCluster cluster(job_of({"/bin/true"}));
  const std::string record = cluster.checkpoints() + "/generations/1.json";
  ASSERT_TRUE(make_directories(cluster.checkpoints() + "/generations").ok());
  ASSERT_TRUE(write_file_atomic(record, "").ok());
  const pid_t first = cluster.start_controller("n0");
  EXPECT_EQ(cluster.wait_for(first, kPatienceMs), kExitStorage) << cluster.logs();
  EXPECT_NE(read_start_failure(cluster.job_dir()).find(record), std::string::npos);
  ASSERT_EQ(::unlink(record.c_str()), 0);
  const pid_t second = cluster.start_all();
  EXPECT_EQ(cluster.wait_for(second, kPatienceMs), kVerdictFinished) << cluster.logs();
}

// All nodes of the job would wait for the disk of one.
TEST(JobController, StartThatItsOwnDiskHoldsUpIsNotForStorage) {
  test::JobCluster cluster(job_of({"/bin/true"}));
  const std::string state = cluster.paths("n0").state();
  ASSERT_TRUE(own_private_directory(user_directory()).ok());
  ASSERT_TRUE(write_file_atomic(state, "").ok());
  const pid_t first = cluster.start_controller("n0");
  EXPECT_EQ(cluster.wait_for(first, kPatienceMs), kExitFault) << cluster.logs();
  EXPECT_NE(read_start_failure(cluster.job_dir()).find(state), std::string::npos);
  ASSERT_EQ(::unlink(state.c_str()), 0);
}

}  // namespace
}  // namespace hpctl
