// SPDX-License-Identifier: Apache-2.0
// hpslurm and its client against a real Slurm: what each call does, and what is said when a part of
// Slurm is absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <memory>
#include <thread>

#include "common/base/file.h"
#include "common/slurm/hpslurm.h"
#include "tests/slurm/slurm_cluster.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using test::await;
using test::run_command;
using test::SlurmCluster;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Hpslurm : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = std::make_unique<SlurmCluster>("--nodes 3"); }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override {
    if (cluster_->code() == SlurmCluster::kCannotRun) {
      GTEST_SKIP() << "this machine cannot run a Slurm cluster (see above)";
    }
    ASSERT_EQ(cluster_->code(), 0);
  }
  void TearDown() override {
    for (const JobId job : jobs_) EXPECT_TRUE(client_.cancel(job).ok());
  }

  static SlurmClientOptions options() {
    SlurmClientOptions options;
    options.program = std::string(std::getenv("HPCTL_BIN")) + "/hpslurm";
    return options;
  }
  SlurmSubmission batch(const std::string& commands) {
    static int count = 0;
    SlurmSubmission out;
    out.script = "#!/bin/sh\n" + commands + "\n";
    out.name = "hpslurm-test";
    out.comment = "hpctl:key-" + std::to_string(++count);
    out.work_dir = directory_.path();
    out.output = directory_ / "out-%j.log";
    out.environment = {"PATH=/usr/bin:/bin", "COLOUR=blue"};
    return out;
  }
  JobId submit(const SlurmSubmission& submission) {
    const auto job = client_.submit(submission);
    EXPECT_TRUE(job.ok()) << job.error().message;
    if (!job.ok()) return JobId{};
    jobs_.push_back(*job);
    return *job;
  }
  SlurmJob job(JobId id) {
    auto found = client_.job(id);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? *found : SlurmJob{};
  }
  bool await_state(JobId id, const std::string& state) {
    return await([&] { return job(id).state == state && !job(id).has_flag("COMPLETING"); });
  }
  std::string output(JobId id) const {
    const auto text = read_file(directory_ / ("out-" + to_string(id) + ".log"));
    return text.ok() ? *text : text.error().message;
  }
  SlurmNode node(const std::string& name) {
    const auto found = client_.nodes({name});
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() && found->size() == 1 ? found->front() : SlurmNode{};
  }

  inline static std::unique_ptr<SlurmCluster> cluster_;
  TemporaryDirectory directory_;
  SlurmClient client_{options()};
  std::vector<JobId> jobs_;
};

TEST_F(Hpslurm, ASubmittedJobRunsAsItWasDescribed) {
  auto submission =
      batch("pwd; echo $COLOUR $HOME. $SLURM_JOB_NUM_NODES $SLURM_SUBMIT_DIR; exit 7");
  submission.nodes_min = 2;
  submission.nodelist = "n2";
  submission.partition = "other";
  submission.exclusive = true;
  submission.all_memory = true;
  submission.time_minutes = 5;
  const JobId id = submit(submission);
  ASSERT_TRUE(await_state(id, "FAILED")) << job(id).state;
  const SlurmJob ended = job(id);
  EXPECT_EQ(ended.exit_code, 7);
  EXPECT_EQ(ended.exit_signal, 0);
  EXPECT_TRUE(ended.has_ended());
  EXPECT_EQ(ended.reason, "NonZeroExitCode");
  EXPECT_EQ(ended.nodes.size(), 2U);
  EXPECT_THAT(ended.nodes, testing::Contains("n2"));
  EXPECT_EQ(ended.batch_host, ended.nodes.front());
  EXPECT_EQ(ended.comment, submission.comment);
  EXPECT_EQ(output(id), directory_.path() + "\nblue . 2 " + directory_.path() + "\n");
  const std::string shown = run_command("scontrol show job " + to_string(id)).out;
  for (const char* part : {"OverSubscribe=NO", "MinMemoryNode=0", "Partition=other",
                           "TimeLimit=00:05:00", "Requeue=1", "NtasksPerN:B:S:C=1:0:*:*"}) {
    EXPECT_THAT(shown, HasSubstr(part));
  }
  const auto found = client_.jobs_by_comment(submission.comment);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().id, id);
}

TEST_F(Hpslurm, OptionsOfSbatchAreWhatSbatchMakesOfThem) {
  ::setenv("SBATCH_PARTITION", "nowhere", 1);  // of the one who submits, and not to count
  auto submission = batch("echo $COLOUR");
  submission.options = {"--nice=7", "--begin=now+1hour", "--mail-type=END", "--hold"};
  submission.environment.push_back("SBATCH_PARTITION=nowhere");
  submission.environment.push_back("SLURM_CONF=" + std::string(std::getenv("SLURM_CONF")));
  const std::string lines = "#SBATCH --job-name=options\n#SBATCH '--comment=" + submission.comment +
                            "'\n#SBATCH --chdir=" + directory_.path() +
                            "\n#SBATCH --output=" + directory_ / "out-%j.log" + "\n";
  submission.script = "#!/bin/sh\n" + lines;
  for (const std::string& option : submission.options) {
    submission.script += "#SBATCH " + option + "\n";
  }
  submission.script += "echo $COLOUR\n";
  const JobId id = submit(submission);
  ::unsetenv("SBATCH_PARTITION");
  const auto found = client_.jobs_by_comment(submission.comment);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().id, id);
  EXPECT_EQ(found->front().name, "options");
  const std::string shown = run_command("scontrol show job " + to_string(id)).out;
  for (const char* part : {"Nice=7", "JobState=PENDING", "MailType=END", "Reason=JobHeldUser"}) {
    EXPECT_THAT(shown, HasSubstr(part));
  }
  EXPECT_EQ(run_command("scontrol update job=" + to_string(id) + " starttime=now").code, 0);
  EXPECT_EQ(run_command("scontrol release " + to_string(id)).code, 0);
  ASSERT_TRUE(await_state(id, "COMPLETED")) << job(id).state;
  EXPECT_EQ(output(id), "blue\n");
}

TEST_F(Hpslurm, WhatSbatchRefusesIsSaidInItsWords) {
  const auto refusal = [&](const std::string& option) {
    auto submission = batch("true");
    submission.options = {option};
    submission.environment.push_back("SLURM_CONF=" + std::string(std::getenv("SLURM_CONF")));
    submission.script = "#!/bin/sh\n#SBATCH " + option + "\ntrue\n";
    const auto refused = client_.submit(submission);
    if (refused.ok()) return "job " + to_string(*refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    return refused.error().message;
  };
  EXPECT_THAT(refusal("--partition=nowhere"), HasSubstr("Invalid partition name specified"));
  EXPECT_THAT(refusal("--begin=whenever"), HasSubstr("Invalid --begin specification"));
  EXPECT_THAT(refusal("--frobnicate"), HasSubstr("unrecognized option '--frobnicate'"));
}

TEST_F(Hpslurm, WhatSlurmRefusesIsSaidInItsWords) {
  auto unknown = batch("true");
  unknown.partition = "nowhere";
  const auto refused = client_.submit(unknown);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("Invalid partition name specified"));
  auto nowhere = batch("true");
  nowhere.nodelist = "n99";
  const auto unknown_node = client_.submit(nowhere);
  ASSERT_FALSE(unknown_node.ok());
  EXPECT_EQ(unknown_node.error().code, ErrorCode::kInvalidArgument);
  const auto absent = client_.job(JobId{999'999});
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  const auto stranger = client_.nodes({"n99"});
  ASSERT_FALSE(stranger.ok());
  EXPECT_EQ(stranger.error().code, ErrorCode::kNotFound) << stranger.error().message;
}

TEST_F(Hpslurm, ARequeueIsDoneOnceAndKeepsAwayFromTheNode) {
  auto submission = batch("echo run $SLURM_RESTART_COUNT; sleep 600");
  submission.nodelist = "";
  const JobId id = submit(submission);
  ASSERT_TRUE(await_state(id, "RUNNING"));
  ASSERT_TRUE(await([&] { return output(id) == "run\n"; }));
  const std::string bad = job(id).nodes.at(0);
  const auto done = client_.requeue(id, 0, {bad});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto again = client_.requeue(id, 0, {bad});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(again.error().message, HasSubstr("restarted 1 times, not 0"));
  EXPECT_THAT(job(id).excluded_nodes, ElementsAre(bad));
  ASSERT_TRUE(await([&] { return job(id).state == "RUNNING"; }, 60)) << job(id).reason;
  EXPECT_EQ(job(id).restart_count, 1U);
  EXPECT_THAT(job(id).nodes, Not(ElementsAre(bad)));
  ASSERT_TRUE(await([&] { return output(id).find("run 1") != std::string::npos; }));
  EXPECT_EQ(output(id).rfind("run\n", 0), 0U) << "output is appended: " << output(id);
}

TEST_F(Hpslurm, SignalsReachTheBatchScriptOrTheSteps) {
  auto submission = batch(
      "trap 'echo script' USR1; srun sh -c 'trap \"echo step\" USR1; echo ready; "
      "while :; do sleep .1; done' & while :; do sleep .1; done");
  const JobId id = submit(submission);
  ASSERT_TRUE(await_state(id, "RUNNING"));
  ASSERT_TRUE(await([&] { return output(id) == "ready\n"; })) << output(id);
  ASSERT_TRUE(await([&] {
    EXPECT_TRUE(client_.signal(id, SIGUSR1, true).ok());
    return output(id).find("script") != std::string::npos;
  }));
  EXPECT_THAT(output(id), Not(HasSubstr("step")));
  ASSERT_TRUE(await([&] {
    EXPECT_TRUE(client_.signal(id, SIGUSR1).ok());
    return output(id).find("step") != std::string::npos;
  }));
  EXPECT_TRUE(client_.cancel(id).ok());
  ASSERT_TRUE(await_state(id, "CANCELLED"));
  EXPECT_TRUE(client_.cancel(id).ok()) << "twice";
}

TEST_F(Hpslurm, APendingJobSaysWhy) {
  auto submission = batch("true");
  submission.nodes_min = 3;
  submission.exclude = "n1";
  const auto refused = client_.submit(submission);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  auto first = batch("sleep 600");
  first.nodes_min = 3;
  first.exclusive = true;
  const JobId running = submit(first);
  const JobId waiting = submit(first);
  ASSERT_TRUE(await_state(running, "RUNNING"));
  EXPECT_TRUE(await([&] { return job(waiting).reason == "Resources"; })) << job(waiting).reason;
  EXPECT_EQ(job(waiting).state, "PENDING");
  EXPECT_TRUE(job(waiting).nodes.empty());
}

TEST_F(Hpslurm, AJobWithoutKillOutlivesALostNodeAndCanShrink) {
  auto submission = batch("sleep 600");
  submission.nodes_min = 3;
  const JobId id = submit(submission);
  ASSERT_TRUE(await_state(id, "RUNNING"));
  ASSERT_EQ(job(id).batch_host, "n1");
  // First, because without accounting Slurm 22.05 lets nobody change a job that has lost a node.
  const auto kept = client_.keep_nodes(id, {"n1", "n2"});
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  ASSERT_TRUE(await([&] { return job(id).nodes == std::vector<std::string>{"n1", "n2"}; }));
  ASSERT_TRUE(client_.update_node("n2", SlurmNodeState::kDown, "test").ok());
  ASSERT_TRUE(await([&] { return job(id).nodes == std::vector<std::string>{"n1"}; }));
  EXPECT_EQ(job(id).state, "RUNNING");
  EXPECT_EQ(node("n2").state, "DOWN");
  EXPECT_EQ(node("n2").reason, "test");
  EXPECT_TRUE(node("n2").is_unusable());
  ASSERT_TRUE(client_.update_node("n2", SlurmNodeState::kResume, "").ok());
}

TEST_F(Hpslurm, ANodeIsMarkedByteForByte) {
  ASSERT_TRUE(client_.update_node("n3", SlurmNodeState::kFail, "Action:Replace").ok());
  const SlurmNode marked = node("n3");
  EXPECT_TRUE(marked.has_flag("FAIL")) << marked.state_text();
  EXPECT_EQ(marked.reason, "Action:Replace");
  EXPECT_GT(marked.boot_time_s, 0);
  EXPECT_GT(marked.slurmd_start_time_s, 0);
  ASSERT_TRUE(client_.update_node("n3", SlurmNodeState::kResume, "").ok());
  EXPECT_TRUE(await([&] { return !node("n3").is_unusable(); })) << node("n3").state_text();
  const auto all = client_.nodes({});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 3U);
}

TEST_F(Hpslurm, WhoMayNotChangeANodeLearnsWhatToAsk) {
  const SlurmNode before = node("n2");  // Slurm 24.11 still shows the reason of a test before
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) std::_Exit(1);
    SlurmClient nobody(options());
    const auto refused = nobody.update_node("n2", SlurmNodeState::kFail, "Action:Replace");
    const std::string text = refused.ok() ? "done" : refused.error().message;
    std::_Exit(::write(fds[1], text.data(), text.size()) > 0 ? 0 : 1);
  }
  ::close(fds[1]);
  std::string text(4096, '\0');
  const ssize_t n = ::read(fds[0], text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  ::close(fds[0]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(text,
            "only a Slurm operator may change node n2; ask one to run: sudo scontrol update "
            "nodename=n2 state=FAIL reason=\"Action:Replace\"");
  EXPECT_EQ(node("n2").reason, before.reason);
  EXPECT_FALSE(node("n2").has_flag("FAIL"));
}

TEST_F(Hpslurm, ReservationsAreListed) {
  ASSERT_EQ(run_command("scontrol create reservation reservationname=check nodes=n3 "
                        "starttime=now duration=10 users=root flags=maint")
                .code,
            0);
  const auto list = client_.reservations();
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 1U);
  EXPECT_EQ(list->front().name, "check");
  EXPECT_EQ(list->front().nodes, "n3");
  EXPECT_THAT(list->front().flags, ElementsAre("MAINT"));
  EXPECT_EQ(list->front().end_time_s - list->front().start_time_s, 600);
  EXPECT_TRUE(await([&] { return node("n3").has_flag("MAINTENANCE"); }));
  EXPECT_EQ(run_command("scontrol delete reservationname=check").code, 0);
}

TEST_F(Hpslurm, SubmissionWaitsForSlurmctldAndLeavesOneJob) {
  ASSERT_TRUE(client_.ping().ok());
  SlurmCluster::must("stop slurmctld");
  std::thread starter([] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    SlurmCluster::must("start slurmctld");
  });
  const auto submission = batch("true");
  const JobId id = submit(submission);
  starter.join();
  ASSERT_TRUE(await([&] { return job(id).has_ended(); }));
  const auto copies = client_.jobs_by_comment(submission.comment);
  ASSERT_TRUE(copies.ok());
  EXPECT_EQ(copies->size(), 1U);
}

TEST_F(Hpslurm, AnAbsentSlurmctldIsNamed) {
  SlurmCluster::must("stop slurmctld");
  SlurmClientOptions few = options();
  few.submit_attempts = 1;
  SlurmClient client(few);
  const auto failed = client.submit(batch("true"));
  SlurmCluster::must("start slurmctld");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size());
  EXPECT_THAT(failed.error().message, HasSubstr("slurmctld at " + std::string(host.data()) +
                                                " does not answer; check with scontrol ping"));
  EXPECT_TRUE(client.ping().ok()) << "and the same client works again";
}

TEST_F(Hpslurm, AnAbsentMungedIsNamedAtOnce) {
  SlurmCluster::must("stop munged");
  SlurmClientOptions short_deadline = options();
  short_deadline.call_deadline_ms = 15'000;  // a busy machine's, too
  SlurmClient client(short_deadline);
  const auto failed = client.job(JobId{1});
  SlurmCluster::must("start munged");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(failed.error().message,
              HasSubstr("munged does not answer on this machine: systemctl status munge"));
  EXPECT_THAT(failed.error().message, HasSubstr("Connection refused"));
  EXPECT_TRUE(client.nodes({}).ok()) << "and the same client works again";
}

TEST_F(Hpslurm, AFatalConfigurationIsAnErrorAndNotOurEnd) {
  const std::string good = std::getenv("SLURM_CONF");
  const std::string bad = directory_ / "slurm.conf";
  ASSERT_TRUE(write_file_atomic(bad, "ClusterName=x\nSlurmctldHost=y\nNonsense=1\n").ok());
  ::setenv("SLURM_CONF", bad.c_str(), 1);
  const auto failed = SlurmClient(options()).ping();
  ::setenv("SLURM_CONF", good.c_str(), 1);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("check " + bad + " and SLURM_CONF"));
  EXPECT_THAT(failed.error().message, HasSubstr("fatal"));
}

}  // namespace
}  // namespace hpctl
