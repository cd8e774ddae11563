// SPDX-License-Identifier: Apache-2.0
// What hpctl submits where Slurm schedules, leaves on disk and says of a job that has no controller
// yet or any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <sstream>

#include "common/base/json.h"
#include "common/job/exclusion.h"
#include "common/job/job_spec.h"
#include "common/job/lineage.h"
#include "common/job/start_failure.h"
#include "hpctl/exit_codes.h"
#include "hpctl/slurm_record.h"
#include "tests/unit/cli/slurm_submit.h"

namespace hpctl::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(SlurmSubmit, LeavesWhatTheNodesNeed) {
  const CommandResult result = submit();
  ASSERT_EQ(result.exit_code, kExitOk) << result.err;
  EXPECT_THAT(result.out, StartsWith("job 100 c submitted\n"));
  const std::string directory = home_.paths().job(JobId{100});
  const std::string target = std::filesystem::read_symlink(directory).string();
  EXPECT_THAT(target, StartsWith("submit-"));
  EXPECT_EQ(text_of(slurm() + "/jobs"), "100 " + target + "\n");

  struct stat st {};
  ASSERT_EQ(::stat((directory + "/token").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600U);
  const std::string token = text_of(directory + "/token");
  EXPECT_EQ(token.size(), 65U);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), 64U);
  ASSERT_EQ(::stat(directory.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700U);

  const auto document = nlohmann::json::parse(text_of(directory + "/job.json"));
  EXPECT_EQ(document.at("uid"), ::geteuid());
  EXPECT_EQ("submit-" + document.at("submit_key").get<std::string>(), target);
  EXPECT_EQ(job_spec_from_json(document.dump())->nodes, 2);
  EXPECT_THAT(text_of(directory + "/batch.sh"), HasSubstr("#SBATCH --nodes=2\n"));
}

// The job would be ended in the middle of its last checkpoint.
TEST_F(SlurmSubmit, ShortNoticeForTheLastCheckpointIsWarnedOf) {
  const auto errors = [&](const std::string& limit) {
    return submit({"--dry-run", "--set", "limits.last_checkpoint=" + limit}).err;
  };
  EXPECT_THAT(errors("2m"),
              HasSubstr("hpctl: warning: limits.last_checkpoint gives the last "
                        "checkpoint 120 s, and slurm.signal tells the job to end only "
                        "60 s before its time limit; give slurm.signal: B:TERM@155"));
  EXPECT_THAT(errors("60s"), ::testing::Not(HasSubstr("warning")));
  EXPECT_THAT(errors("auto"), ::testing::Not(HasSubstr("warning")));
}

// Slurm 25.11 and newer, where slurm.conf enables it; before, sbatch refuses the word.
TEST_F(SlurmSubmit, ExpeditesTheRequeueWhereSlurmDoes) {
  const auto submission = [&] { return nlohmann::json::parse(text_of(slurm() + "/submission")); };
  ASSERT_EQ(submit().exit_code, kExitOk);
  EXPECT_EQ(submission().at("expedite"), false);
  EXPECT_THAT(submission().at("script").get<std::string>(), HasSubstr("#SBATCH --requeue\n"));
  write(slurm() + "/expedites", "");
  ASSERT_EQ(submit().exit_code, kExitOk);
  EXPECT_EQ(submission().at("expedite"), true);
  EXPECT_THAT(submission().at("script").get<std::string>(),
              HasSubstr("#SBATCH --requeue=expedite\n"));
  EXPECT_THAT(submit({"--dry-run"}).out, HasSubstr("#SBATCH --requeue=expedite\n"));
}

// It started a controller for the home, whose page had no job.
TEST_F(SlurmSubmit, OpenWithoutAJobNamesTheNewestJob) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  ASSERT_EQ(submit().exit_code, kExitOk);
  const CommandResult opened = hpctl({"open"});
  EXPECT_EQ(opened.exit_code, kExitFailed);
  EXPECT_THAT(opened.err, HasSubstr("`hpctl open 101`"));
  EXPECT_FALSE(is_accessible(home_.paths().controller_json())) << "a controller was started";
}

TEST_F(SlurmSubmit, ALostAnswerDoesNotDoubleTheJob) {
  write(slurm() + "/faults", "submit accept-and-die connection lost\n");
  const CommandResult result = submit();
  EXPECT_EQ(result.exit_code, kExitOk) << result.err;
  EXPECT_THAT(result.out, StartsWith("job 100 c submitted\n"));
  EXPECT_THAT(text_of(slurm() + "/jobs"), ::testing::Not(HasSubstr("101 ")));
}

TEST_F(SlurmSubmit, ARefusalLeavesNothing) {
  write(slurm() + "/faults", "submit refuse invalid_argument Invalid partition name specified\n");
  write(home_.directory() + "/job.yaml",
        std::string(kSlurmJob) + "slurm: {partition: p9, gres: x, mem: 900G}\n");
  const CommandResult result = submit();
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_EQ(result.err,
            "hpctl: Invalid partition name specified (slurm: partition p9, gres x, mem 921600M)\n");
  EXPECT_TRUE(job_directories().empty());
}

// It was asked for 30 s.
TEST_F(SlurmSubmit, WithoutSlurmHereLocalIsNamedAtOnce) {
  write(slurm() + "/faults",
        "version die hpslurm: fatal: Could not establish a configuration source\n");
  const CommandResult result = submit();
  EXPECT_EQ(result.exit_code, kExitNoController);
  EXPECT_THAT(result.err, StartsWith("hpctl: no Slurm on this machine; add --local to run the job "
                                     "here ("));
  EXPECT_EQ(text_of(slurm() + "/calls"), "version\n");
  EXPECT_TRUE(job_directories().empty());
}

TEST_F(SlurmSubmit, AProgramThatIsNotBesideTheJobFileIsRefused) {
  write(home_.directory() + "/job.yaml", "name: c\nworkload: {command: [./nope.py]}\n");
  const CommandResult result = submit();
  EXPECT_EQ(result.exit_code, kExitUsage);
  EXPECT_EQ(result.err, "hpctl: workload.command: " + home_.directory() + "/nope.py is missing\n");
  EXPECT_TRUE(job_directories().empty());
  write(home_.directory() + "/job.yaml", "name: c\nworkload: {command: [/only/on/nodes]}\n");
  EXPECT_EQ(submit().exit_code, kExitOk);
}

TEST_F(SlurmSubmit, AJobThatCouldNeverStartIsRefused) {
  write(home_.directory() + "/job.yaml",
        "name: c\nnodes: {count: 4, spares: 1}\nworkload: {command: [sh, -c, 'true']}\n");
  const CommandResult result = submit();
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_EQ(result.err,
            "hpctl: the job asks for 5 nodes (nodes.count and nodes.spares); the cluster has 4\n");
  EXPECT_FALSE(is_accessible(slurm() + "/jobs"));
}

// Aloud: a person who configured it believes that his job outlives its first node.
TEST_F(SlurmSubmit, AClusterControllerThatDoesNotAnswerIsDoneWithout) {
  ::setenv("HPCTL_CLUSTER", "127.0.0.1:1", 1);
  ::setenv("HPCTL_MUNGE_SOCKET", (home_.directory() + "/no-munged").c_str(), 1);
  const CommandResult result = submit({"--dry-run"});
  EXPECT_EQ(result.exit_code, kExitOk);
  EXPECT_THAT(result.err, HasSubstr("the job's controller will run on its first node instead"));
  EXPECT_THAT(result.out, HasSubstr("export HPCTL_CLUSTER=''"));
  EXPECT_EQ(submit().exit_code, kExitOk);
  ::setenv("HPCTL_CLUSTER", "head", 1);
  const CommandResult wrong = submit();
  EXPECT_NE(wrong.exit_code, kExitOk);
  EXPECT_THAT(wrong.err, HasSubstr("HPCTL_CLUSTER: a cluster controller's address is HOST:PORT"));
  ::unsetenv("HPCTL_CLUSTER");
  ::unsetenv("HPCTL_MUNGE_SOCKET");
}

// Neither is submitted, nor shown as what would be.
TEST_F(SlurmSubmit, WhatTheShellSaysOfAnotherJobIsRefused) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"SBATCH_ARRAY_INX=1-4",
       "SBATCH_ARRAY_INX is set, which hpctl submit does not take: hpctl "
       "recovers one job by its id; submit a job for each index"},
      {"SBATCH_DEPENDENCY=afterok:7", "write slurm.dependency in the job file"},
      {"SBATCH_HINT=x", "as slurm.extra: [--NAME=VALUE] (unset SBATCH_HINT"},
      {"SBATCH_TIMELIMIT=soon", "SBATCH_TIMELIMIT=soon is set"},
      {"SBATCH_PARTITION=a b", "slurm.partition: expected one word"},
      {"SLURM_JOB_ID=7", "this shell is inside Slurm job 7"},
  };
  for (const auto& [variable, words] : refused) {
    for (const std::vector<std::string>& options :
         {std::vector<std::string>{}, std::vector<std::string>{"--dry-run"}}) {
      const CommandResult result = submit(options, {variable});
      EXPECT_EQ(result.exit_code, kExitFailed) << variable;
      EXPECT_THAT(result.err, HasSubstr(words));
      EXPECT_EQ(result.out, "");
    }
  }
  EXPECT_FALSE(is_accessible(slurm() + "/jobs"));
}

TEST_F(SlurmSubmit, WhatTheShellSaysOfKeysCountsWhereTheJobFileIsSilent) {
  write(home_.directory() + "/job.yaml",
        std::string(kSlurmJob) + "slurm: {partition: p5, nice: 3, extra: [--wckey=x]}\n");
  const CommandResult result = submit({}, {"SBATCH_ACCOUNT=physics", "SBATCH_PARTITION=p9",
                                           "SBATCH_TIMELIMIT=90", "SBATCH_DEBUG=1", "SBATCH_QOS="});
  ASSERT_EQ(result.exit_code, kExitOk) << result.err;
  EXPECT_EQ(result.err,
            "hpctl: SBATCH_ACCOUNT=physics counts as slurm.account\n"
            "hpctl: SBATCH_PARTITION=p9 does not count: the job file says slurm.partition: p5\n"
            "hpctl: SBATCH_TIMELIMIT=90 counts as slurm.time\n");
  const auto submission = nlohmann::json::parse(text_of(slurm() + "/submission"));
  EXPECT_EQ(submission.at("account"), "physics");
  EXPECT_EQ(submission.at("partition"), "p5");
  EXPECT_EQ(submission.at("time_minutes"), 90);
  EXPECT_EQ(submission.at("options"), (std::vector<std::string>{"--nice=3", "--wckey=x"}));
}

TEST_F(SlurmSubmit, AnIdThatIsTakenEndsTheNewJob) {
  std::filesystem::create_directories(home_.paths().job(JobId{100}));
  const CommandResult result = submit();
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(result.err, AllOf(HasSubstr("Slurm gave the job the id 100"),
                                HasSubstr("it was cancelled"), HasSubstr("HPCTL_HOME")));
  EXPECT_EQ(text_of(slurm() + "/cancelled"), "100\n");
  EXPECT_EQ(job_directories(), std::vector<std::string>{"100"});
}

// slurmctld that lost its newest state gives an id again: the earlier job is history.
TEST_F(SlurmSubmit, AnIdGivenAgainIsTheNewJobs) {
  const std::string jobs = home_.paths().home() + "/jobs/";
  ASSERT_EQ(submit().exit_code, kExitOk);
  const std::string first = std::filesystem::read_symlink(jobs + "100").string();
  std::filesystem::remove(slurm() + "/jobs");  // Slurm forgets
  const CommandResult again = submit();
  ASSERT_EQ(again.exit_code, kExitOk) << again.err;
  const std::string second = std::filesystem::read_symlink(jobs + "100").string();
  EXPECT_NE(first, second);
  EXPECT_TRUE(std::filesystem::exists(jobs + first + "/job.json")) << "kept for who looks for it";
  EXPECT_EQ(job_directories().size(), 3U);
}

TEST_F(SlurmSubmit, TellsWhatSlurmSaysWhileNoControllerAnswers) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  EXPECT_EQ(state_of("c"), "PENDING waits in Slurm's queue: Resources");
  EXPECT_THAT(hpctl({"ps", "--json"}).out,
              StartsWith(R"({"jobs":[{"job":100,"name":"c","state":"PENDING","user":)"));
  EXPECT_THAT(hpctl({"ps"}).out, HasSubstr("waits in Slurm's queue: Resources"));
  EXPECT_THAT(hpctl({"why", "100"}).out, HasSubstr("PENDING: waits in Slurm's queue: Resources"));
  slurm_says("RUNNING");
  EXPECT_THAT(state_of("100"), StartsWith("STARTING Slurm has started the job"));
  slurm_says("NODE_FAIL", "NodeDown");
  EXPECT_EQ(state_of("100"), "FAILED Slurm ended the job: NODE_FAIL, NodeDown");
  slurm_says("CANCELLED");
  EXPECT_EQ(state_of("100"), "CANCELLED Slurm ended the job: CANCELLED");
}

TEST_F(SlurmSubmit, AHomeThatNodesDoNotSeeIsNamed) {
  SlurmJob job;
  job.state = "FAILED";
  job.reason = "JobLaunchFailure";
  job.exit_signal = 53;
  EXPECT_THAT(with_slurm_state(JobView{}, job).reason,
              HasSubstr("HPCTL_HOME must be on a file system that all nodes see"));
}

TEST_F(SlurmSubmit, AJobThatSlurmNeverStartsComesWithTheCommandThatHelps) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  slurm_says("PENDING", "Resources");
  EXPECT_THAT(hpctl({"status", "100"}).out, Not(HasSubstr("finding")));
  slurm_says("PENDING", "JobHeldUser");
  EXPECT_THAT(hpctl({"status", "100"}).out, HasSubstr("scontrol release 100"));
  EXPECT_THAT(hpctl({"watch", "100", "--once"}).out, HasSubstr("scontrol release 100"));
  slurm_says("PENDING", "BadConstraints");
  EXPECT_THAT(hpctl({"status", "100"}).out, HasSubstr("scontrol update JobId=100"));
  slurm_says("PENDING", "QOSMaxNodePerJobLimit");
  EXPECT_THAT(hpctl({"status", "100"}).out, HasSubstr("sacctmgr show qos"));
}

// `status`, `why` and `top` said that a file could not be opened.
class GoneDirectory : public SlurmSubmit {
 protected:
  void SetUp() override {
    SlurmSubmit::SetUp();
    ASSERT_EQ(submit().exit_code, kExitOk);
    const std::string jobs = home_.paths().jobs();
    directory_ = jobs + "/" + std::filesystem::read_symlink(jobs + "/100").string();
    ASSERT_TRUE(remove_tree(directory_).ok());
    gone_ = "its directory " + directory_ + " is gone";
  }
  void slurm_runs_it() {
    SlurmJob job;
    job.id.value = 100;
    job.name = "c";
    job.state = "RUNNING";
    job.batch_host = "n1";
    write(slurm() + "/job-100.json", nlohmann::json(job).dump());
  }

  // Lines are wrapped.
  static std::string in_one_line(const std::string& text) {
    std::istringstream words(text);
    std::string line;
    for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
    return line;
  }

  std::string directory_;
  std::string gone_;
};

TEST_F(GoneDirectory, OfAQueuedJobIsNamed) {
  EXPECT_EQ(state_of("100"), "PENDING waits in Slurm's queue: Resources; " + gone_ +
                                 ", so it cannot start: `hpctl cancel 100`, and submit it again");
  EXPECT_EQ(hpctl({"watch", "100", "--once"}).exit_code, 2);
  EXPECT_NE(hpctl({"nodes", "release", "n1"}).exit_code, kExitOk) << "nothing to release";
  const CommandResult cancelled = hpctl({"cancel", "100", "--json"});
  EXPECT_EQ(cancelled.exit_code, kExitOk) << cancelled.err;
  EXPECT_EQ(text_of(slurm() + "/cancelled"), "100\n");
}

TEST_F(GoneDirectory, OfARunningJobIsNamedWithWhatSlurmSays) {
  slurm_runs_it();
  const std::string words = "Slurm runs it on n1; " + gone_;
  EXPECT_THAT(state_of("100"), StartsWith("RUNNING " + words));
  const std::string finding = "its directory is gone: " + directory_;
  for (const char* verb : {"status", "why", "top"}) {
    const CommandResult shown = hpctl({verb, "100"});
    EXPECT_EQ(shown.exit_code, kExitOk) << verb << shown.err;
    EXPECT_THAT(in_one_line(shown.out), HasSubstr(finding)) << verb;
  }
  EXPECT_THAT(hpctl({"status", "c"}).err, HasSubstr("this is what Slurm says of it"));
  EXPECT_THAT(in_one_line(hpctl({"why", "100"}).out),
              HasSubstr("RUNNING: Slurm runs it on n1; its directory " +
                        home_.paths().job(JobId{100}) + " is gone"));
  EXPECT_THAT(hpctl({"watch", "--once"}).out, HasSubstr(finding));
  EXPECT_THAT(hpctl({"ps"}).out, HasSubstr(gone_));
}

TEST_F(GoneDirectory, OfAnEndedJobIsNamedAndItsLinkIsRemoved) {
  slurm_says("NODE_FAIL", "NodeDown");
  EXPECT_EQ(state_of("100"), "FAILED Slurm ended the job: NODE_FAIL, NodeDown; " + gone_);
  slurm_says("COMPLETED");
  EXPECT_EQ(state_of("100"), "FINISHED " + gone_);
  write(slurm() + "/faults", "job refuse not_found no such job\n");
  EXPECT_THAT(state_of("100"), StartsWith("FAILED Slurm does not know the job any more, and " +
                                          gone_ + ": how it ended is not known"));
  const CommandResult removed = hpctl({"rm", "100"});
  EXPECT_EQ(removed.exit_code, kExitOk) << removed.err;
  EXPECT_TRUE(job_directories().empty());
}

TEST_F(GoneDirectory, IsNamedWhereSlurmIsSilent) {
  write(slurm() + "/faults", "job refuse unavailable slurmctld does not answer\n");
  const CommandResult silent = hpctl({"status", "100"});
  EXPECT_EQ(silent.exit_code, kExitNoController);
  EXPECT_THAT(silent.err, HasSubstr(gone_ + ", and slurmctld at ctl1,ctl2 does not answer"));
}

// Without a controller there was nobody to ask, and the next one took the quarantine over.
TEST_F(SlurmSubmit, ANodeOfAQueuedJobIsReleased) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  SlurmJob job;
  job.id.value = 100;
  job.state = "PENDING";
  job.restart_count = 1;
  job.excluded_nodes = {"n1", "n2"};
  write(slurm() + "/job-100.json", nlohmann::json(job).dump());
  const std::string job_dir = home_.paths().job(JobId{100});
  ASSERT_TRUE(write_quarantined(job_dir, 0, {{"n1", "i-1", "uid 0", "link flaps"}}).ok());
  ASSERT_TRUE(write_exclusion(job_dir, 0, {{"n1", "n2"}, 1}).ok());
  EXPECT_NE(hpctl({"nodes", "release", "n7"}).exit_code, kExitOk);
  const auto released = hpctl({"nodes", "release", "n1"});
  EXPECT_EQ(released.exit_code, kExitOk) << released.err;
  EXPECT_THAT(released.out, HasSubstr("n1 of job 100 is released"));
  EXPECT_THAT(released.out, HasSubstr("scontrol update JobId=100 ExcNodeList=n2"));
  const auto left = read_quarantined(job_dir, 0);
  ASSERT_TRUE(left.ok() && left->size() == 1);
  EXPECT_EQ(left->front().by, "");
  EXPECT_EQ(read_exclusion(job_dir, 0)->nodes, std::vector<std::string>{"n2"});
}

TEST_F(SlurmSubmit, ARecordIsCorrectedBySlurm) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  controller_says("RUNNING");
  slurm_says("RUNNING");
  EXPECT_THAT(state_of("100"), StartsWith("RECOVERING its controller does not answer"));
  EXPECT_THAT(hpctl({"ps"}).out, HasSubstr("RUNNING")) << "its controller was not asked";
  slurm_says("PENDING", "BeginTime");
  EXPECT_EQ(state_of("100"), "PENDING waits in Slurm's queue: BeginTime");
  slurm_says("TIMEOUT", "TimeLimit");
  EXPECT_EQ(state_of("100"), "TIMEOUT Slurm ended the job: TIMEOUT, TimeLimit");
  write(slurm() + "/faults", "job refuse not_found no such job\n");
  EXPECT_EQ(state_of("100"),
            "FAILED Slurm does not know the job any more; its last recorded state was RUNNING");
  controller_says("FINISHED");
  EXPECT_EQ(state_of("100"), "FINISHED ");
}

TEST_F(SlurmSubmit, WhatIsPastIsNotShownOfAJobInTheQueue) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  JobView view;
  view.job = 100;
  view.name = "c";
  view.state = "RECOVERING";
  view.reason = "the job is requeued without n1";
  view.faults = 2;
  view.tokens_per_second = 1'234;
  view.nodes.push_back({"n0", "active", "up", "i-0", "b-0", 10, 11, ""});
  view.workers.push_back({0, "n0", 12, 1, "running", "training", 7});
  ASSERT_TRUE(write_status(home_.paths(), view).ok());
  EventView requeued;
  requeued.seq = 9;
  requeued.job = 100;
  requeued.type = "RequeueJob";
  requeued.cause = view.reason;
  ASSERT_TRUE(append_events(home_.paths().job_events(JobId{100}), {requeued}).ok());
  slurm_says("PENDING", "BeginTime");
  const auto status = nlohmann::json::parse(hpctl({"status", "100", "--json"}).out);
  EXPECT_EQ(status.at("state"), "PENDING");
  EXPECT_EQ(status.at("tokens_per_second"), 0);
  EXPECT_TRUE(status.at("nodes").empty());
  EXPECT_TRUE(status.at("workers").empty());
  EXPECT_EQ(status.at("faults"), 2) << "what the job's life came to stays true";
  EXPECT_THAT(hpctl({"why", "100"}).out, HasSubstr("PENDING: waits in Slurm's queue: BeginTime"));
  EXPECT_THAT(hpctl({"why", "100"}).out, HasSubstr("requeued without n1"));
}

// The controller records the end, Slurm learns of it, and both are after hpctl has read the record.
TEST_F(SlurmSubmit, AJobThatEndsWhileSlurmIsAskedHasEndedAsItsControllerSays) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  controller_says("CANCELLED", "cancelled by its owner or an operator");
  const std::string record = home_.paths().job_status(JobId{100});
  std::filesystem::rename(record, record + ".final");
  controller_says("RUNNING");
  slurm_says("FAILED", "NonZeroExitCode");
  write(slurm() + "/faults", "job meanwhile mv " + record + ".final " + record + "\n");
  EXPECT_EQ(state_of("100"), "CANCELLED cancelled by its owner or an operator");
}

// A job that had no controller yet was an error, and one of state UNKNOWN in lists.
TEST_F(SlurmSubmit, SilentSlurmLeavesTheLastRecord) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  const auto fall_silent = [&] {
    write(slurm() + "/faults", "job refuse unavailable slurmctld does not answer\n");
  };
  const std::string silence = "slurmctld at ctl1,ctl2 does not answer";
  for (const char* verb : {"status", "why"}) {
    fall_silent();
    const CommandResult submitted = hpctl({verb, "100"});
    EXPECT_EQ(submitted.exit_code, kExitOk) << verb;
    EXPECT_THAT(submitted.out, HasSubstr("PENDING")) << verb;
    EXPECT_THAT(submitted.out, HasSubstr("whether it has started is not known")) << verb;
    EXPECT_THAT(submitted.err, HasSubstr(silence)) << verb;
  }
  for (const char* verb : {"ps", "top", "watch"}) {
    fall_silent();
    const CommandResult listed =
        verb == std::string("watch") ? hpctl({verb, "--once"}) : hpctl({verb});
    EXPECT_EQ(listed.exit_code, kExitOk) << verb;
    EXPECT_THAT(listed.err, HasSubstr(silence)) << verb;
    if (verb != std::string("watch")) {
      EXPECT_THAT(listed.out, HasSubstr("PENDING")) << verb;
    }
  }
  controller_says("RUNNING");
  fall_silent();
  const CommandResult recorded = hpctl({"status", "100"});
  EXPECT_EQ(recorded.exit_code, kExitOk);
  EXPECT_THAT(recorded.err, HasSubstr("Slurm does not answer, this is the last record"));
}

// A slurmctld that did not answer made `status NAME` wait for each of its questions, 20 s together.
TEST_F(SlurmSubmit, SilentSlurmIsAskedOnceByACommand) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  controller_says("RUNNING");
  write(slurm() + "/faults", "job hang\njob hang\njob hang\n");
  write(slurm() + "/calls", "");
  const CommandResult recorded = hpctl({"status", "c"});
  EXPECT_EQ(recorded.exit_code, kExitOk) << recorded.err;
  EXPECT_THAT(recorded.err, HasSubstr("Slurm does not answer, this is the last record"));
  EXPECT_EQ(text_of(slurm() + "/calls"), "version\njob\n");
}

TEST_F(SlurmSubmit, CancelOfAWaitingJobIsSlurms) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  const CommandResult result = hpctl({"cancel", "c", "--json"});
  EXPECT_EQ(result.exit_code, kExitOk) << result.err;
  EXPECT_EQ(text_of(slurm() + "/cancelled"), "100\n");
  slurm_says("CANCELLED");
  EXPECT_EQ(hpctl({"cancel", "c", "--json"}).out, "{\"job\":100,\"state\":\"CANCELLED\"}\n");
}

TEST_F(SlurmSubmit, AJobThatWasRefusedSaysWhy) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  slurm_says("FAILED", "NonZeroExitCode");
  write(home_.paths().job(JobId{100}) + "/refusal", "2 node n2 cannot see the directory\n");
  EXPECT_EQ(state_of("100"), "FAILED node n2 cannot see the directory");
  EXPECT_EQ(hpctl({"wait", "100"}).exit_code, kExitUsage);
  write(home_.paths().job(JobId{100}) + "/refusal", "93 the id is taken\n");
  EXPECT_EQ(hpctl({"wait", "100"}).exit_code, kExitFailed);
}

TEST_F(SlurmSubmit, AJobWhoseControllersDidNotStartSaysWhy) {
  ASSERT_EQ(submit().exit_code, kExitOk);
  const std::string job_dir = home_.paths().job(JobId{100});
  ASSERT_TRUE(note_start_failure(job_dir, "n1", "the disk of /tmp is full").ok());
  slurm_says("FAILED", "NonZeroExitCode");
  EXPECT_THAT(state_of("100"), StartsWith("FAILED the controller did not start on n1 ("));
  EXPECT_THAT(hpctl({"why", "100"}).out, HasSubstr("the disk of /tmp is full"));
  EXPECT_THAT(hpctl({"wait", "100", "--json"}).out, HasSubstr("the disk of /tmp is full"));
  slurm_says("PENDING", "Priority");
  EXPECT_EQ(state_of("100").find("did not start"), std::string::npos) << "that was before";
}

TEST_F(SlurmSubmit, WaitEndsWithTheJob) {
  slurm_says("CANCELLED");
  const CommandResult waited = submit({"--wait", "--json"});
  EXPECT_EQ(waited.exit_code, kExitFailed);
  EXPECT_EQ(nlohmann::json::parse(waited.out).at("state"), "CANCELLED");
  slurm_says("COMPLETED");
  EXPECT_EQ(hpctl({"wait", "100"}).exit_code, kExitOk);
}

}  // namespace
}  // namespace hpctl::testing
