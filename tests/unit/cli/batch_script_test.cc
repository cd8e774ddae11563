// SPDX-License-Identifier: Apache-2.0
// The batch script, run by a real bash between stand-ins for srun, scontrol and our programs.
#include "hpctl/batch_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/base/file.h"
#include "common/job/container_options.h"
#include "common/job/srun_environment.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class BatchScript : public ::testing::Test {
 protected:
  void SetUp() override {
    // A path that needs quoting.
    settings_.home = directory_ / "home of 'x'";
    settings_.programs = directory_ / "bin";
    settings_.directory = {settings_.home + "/jobs/submit-k", "k"};
    std::filesystem::create_directories(settings_.directory.path);
    std::filesystem::create_directories(settings_.programs);
    program("scontrol", "printf 'n1\\nn2\\n'");
    // Runs the command for both nodes, one after the other.
    program("srun", "echo \"$@\" >> " + log("srun") +
                        "\nwhile [[ $1 == --* ]]; do shift; done\n"
                        "for node in n1 n2; do SLURMD_NODENAME=$node \"$@\"; done");
    program("hpagent", "sleep 0.1");
    std::ofstream(settings_.directory.path + "/token") << "t\n";
    spec_.name = "c";
    spec_.nodes = 2;
    spec_.command = {"true"};
  }

  std::string log(const std::string& name) const { return directory_ / (name + ".log"); }
  std::string log_text(const std::string& name) const {
    const auto text = read_file(log(name));
    return text.ok() ? *text : "";
  }
  void program(const std::string& name, const std::string& body) {
    const std::string path = settings_.programs + "/" + name;
    std::ofstream(path) << "#!/bin/bash\n" << body << "\n";
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }

  static std::string ends(int verdict) {
    const std::string text = std::to_string(verdict);
    return "echo " + text + " 0 > \"$2/verdict\"; exit " + text;
  }
  std::string refusal() const { return read_file(settings_.directory.path + "/refusal").value(); }
  CommandResult run(const std::vector<std::string>& environment = {}) {
    const std::string path = directory_ / "batch.sh";
    std::ofstream(path) << slurm_submission(spec_, settings_).script;
    std::vector<std::string> all = {"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]",
                                    "SLURM_JOB_NUM_NODES=2", "SLURMD_NODENAME=n1"};
    all.insert(all.end(), environment.begin(), environment.end());
    return run_command({"/usr/bin/env", "PATH=" + settings_.programs + ":" + std::getenv("PATH"),
                        "/bin/bash", path},
                       all);
  }

  TemporaryDirectory directory_;
  BatchSettings settings_;
  JobSpec spec_;
};

TEST_F(BatchScript, AsksTheClusterControllerWhereThereIsOne) {
  program("hpcontroller",
          "echo \"$@ in '$HPCTL_CLUSTER'\" > " + log("controller") + "\n" + ends(0));
  ASSERT_EQ(run({"HPCTL_CLUSTER=another:1"}).exit_code, 0);
  EXPECT_THAT(log_text("controller"), HasSubstr("--nodes n1,n2 in ''"));
  settings_.cluster = "head:7300";
  ASSERT_EQ(run({"HPCTL_CLUSTER=another:1"}).exit_code, 0);
  EXPECT_THAT(log_text("controller"), HasSubstr("--nodes n1,n2 --at head:7300 in 'head:7300'"));
}

// Also for the agents, which ask when their controller is lost.
TEST_F(BatchScript, CarriesByWhoseCertificatesItIsKnown) {
  program("hpcontroller", "echo \"'$HPCTL_CLUSTER_CA'\" > " + log("controller") + "\n" + ends(0));
  program("hpagent", "echo \"'$HPCTL_CLUSTER_CA'\" > " + log("agent"));
  settings_.cluster = "head:7301";
  ASSERT_EQ(run({"HPCTL_CLUSTER_CA=/another"}).exit_code, 0);
  EXPECT_EQ(log_text("controller"), "''\n") << "what the node's file says holds";
  settings_.cluster_ca = "/etc/hpctl/c a.pem";
  ASSERT_EQ(run().exit_code, 0);
  EXPECT_EQ(log_text("controller"), "'/etc/hpctl/c a.pem'\n");
  EXPECT_EQ(log_text("agent"), "'/etc/hpctl/c a.pem'\n");
}

// SRUN_CPUS_PER_TASK of a submitter's shell let no step start, and every node was excluded.
TEST_F(BatchScript, LeavesNoOptionOfSrunInTheEnvironment) {
  program("hpcontroller", "env > " + log("controller") + "\n" + ends(0));
  program("hpagent", "env > " + log("agent"));
  ASSERT_EQ(run({"SRUN_CPUS_PER_TASK=64", "SLURM_NTASKS=9", "SLURM_HINT=nomultithread",
                 "SLURM_CLUSTERS=other", "SLURM_CLUSTER_NAME=c", "SLURM_RESTART_COUNT=0",
                 "SLURM_CONF=/etc/slurm.conf"})
                .exit_code,
            0);
  for (const char* name : {"controller", "agent"}) {
    const std::string environment = "\n" + log_text(name);
    for (const char* gone : {"\nSRUN_", "\nSLURM_NTASKS", "\nSLURM_HINT", "\nSLURM_CLUSTERS"}) {
      EXPECT_THAT(environment, Not(HasSubstr(gone))) << name;
    }
    for (const char* kept : {"\nSLURM_JOB_ID=7\n", "\nSLURM_CLUSTER_NAME=c\n",
                             "\nSLURM_RESTART_COUNT=0\n", "\nSLURM_CONF=/etc/slurm.conf\n"}) {
      EXPECT_THAT(environment, HasSubstr(kept)) << name;
    }
  }
}

// The script and the controller that starts single agents again clear the same.
TEST_F(BatchScript, KnowsTheSameOptionsOfSrunAsTheController) {
  for (const char* name : {"SRUN_EXPORT_ENV", "SLURM_MEM_PER_CPU", "SLURM_CPU_BIND",
                           "SLURM_STEP_ID", "SLURM_CLUSTERS"}) {
    EXPECT_TRUE(is_srun_option(name)) << name;
  }
  for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_CONF", "SLURMD_NODENAME", "PATH"}) {
    EXPECT_FALSE(is_srun_option(name)) << name;
  }
}

TEST_F(BatchScript, EndsWithTheVerdict) {
  for (const int verdict : {0, 1, 93}) {
    program("hpcontroller", "echo \"$@\" > " + log("controller") + "\n" + ends(verdict));
    const CommandResult result = run();
    EXPECT_EQ(result.exit_code, verdict) << result.out << result.err;
  }
  EXPECT_EQ(log_text("controller"),
            "--job-dir " + settings_.directory.path + " --job 7 --nodes n1,n2\n");
  const std::string srun = log_text("srun");
  EXPECT_THAT(srun, HasSubstr("--nodes=2 --ntasks=2 --ntasks-per-node=1 --no-kill "
                              "--kill-on-bad-exit=0"));
  EXPECT_THAT(srun, HasSubstr(settings_.programs + "/hpagent " + settings_.directory.path + " 7"));
  EXPECT_TRUE(std::filesystem::is_empty(settings_.directory.path + "/checkpoints"));
  EXPECT_EQ(std::filesystem::read_symlink(settings_.home + "/jobs/7"), "submit-k");
}

TEST_F(BatchScript, StartsACrashedControllerAgainButTheAgentsOnce) {
  program("hpcontroller", "echo life >> " + log("lives") + "\n[ $(wc -l < " + log("lives") +
                              ") -ge 3 ] || kill -9 $$\n" + ends(0));
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(log_text("lives"), "life\nlife\nlife\n");
  const std::string steps = log_text("srun");
  EXPECT_EQ(steps.find("--holder"), steps.rfind("--holder"));
}

TEST_F(BatchScript, GivesUpAControllerThatNeverWorks) {
  program("hpcontroller", "echo life >> " + log("lives") + "; exit 4");
  EXPECT_EQ(run().exit_code, 1);
  const std::string lives = log_text("lives");
  EXPECT_EQ(std::count(lives.begin(), lives.end(), '\n'), 10);
  EXPECT_THAT(refusal(),
              HasSubstr("every controller ended without a verdict, the last with status 4"));
}

// EIO of the checkpoint directory at a requeue: ten controllers ended within a second, and the job
// was FAILED for good.
TEST_F(BatchScript, StorageThatHoldsUpTheStartIsWaitedFor) {
  program("sleep", "true");
  program("hpcontroller", "echo life >> " + log("lives") + "\n[ $(wc -l < " + log("lives") +
                              ") -ge 13 ] || { echo 'n1: EIO' > " +
                              "\"$2/start-failure\"; exit 96; }\n" + ends(0));
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("waiting for storage: n1: EIO; trying again in 16 s"));
}

TEST_F(BatchScript, StorageIsWaitedForNoLongerThanItsLimit) {
  spec_.limits.storage_ms = 5'000;
  program("sleep", "true");
  program("hpcontroller", "echo life >> " + log("lives") + "; exit 96");
  EXPECT_EQ(run().exit_code, 1);
  EXPECT_EQ(log_text("lives"), "life\nlife\nlife\nlife\n") << "1 + 2 + 4 s";
}

// Its mount came late on the node of a requeued job: the job was refused, and its mount point made.
TEST_F(BatchScript, RequeuedJobWaitsForItsCheckpointDirectory) {
  std::filesystem::create_directories(settings_.directory.path + "/controllers");
  spec_.checkpoint.dir = directory_ / "ckpt";
  program("sleep", "[ \"$1\" != 2 ] || { mkdir '" + spec_.checkpoint.dir +
                       "'; cp \"$HPCTL_HOME/jobs/submit-k/start-failure\" " + log("shown") + "; }");
  program("hpcontroller", ends(0));
  const CommandResult result = run({"SLURM_RESTART_COUNT=1"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("waiting for storage: node n1 cannot write the checkpoint "
                                    "directory " +
                                    spec_.checkpoint.dir + "; trying again in 2 s"));
  EXPECT_THAT(log_text("shown"), HasSubstr("waits for storage: node n1 cannot write")) << "status";
  EXPECT_FALSE(is_accessible(settings_.directory.path + "/start-failure"));
}

// The whole home was away for more than 10 s, and the job ended with 93.
TEST_F(BatchScript, HomeThatCannotBeListedIsWaitedFor) {
  const std::string jobs = settings_.home + "/jobs";
  program("sleep", "[ \"$1\" != 4 ] || mv '" + (directory_ / "away") + "' \"$HPCTL_HOME/jobs\"");
  program("hpcontroller", ends(0));
  std::filesystem::rename(jobs, directory_ / "away");
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("submit-k cannot be seen; trying again in 4 s"));
}

TEST_F(BatchScript, LinkThatStorageRefusesIsMadeLater) {
  program("sleep", "true");
  program("ln", "[ -e " + log("ln") + " ] && exec /bin/ln \"$@\"\ntouch " + log("ln") + "; exit 1");
  program("hpcontroller", ends(0));
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("jobs/7 cannot be made"));
}

// One node without the mount held up all others for a day.
TEST_F(BatchScript, RequeuedJobStartsWithoutANodeThatSeesNoStorage) {
  std::filesystem::create_directories(settings_.directory.path + "/controllers");
  spec_.checkpoint.dir = directory_ / "ckpt";
  std::filesystem::create_directories(spec_.checkpoint.dir);
  spec_.limits.storage_ms = 310'000;
  program("sleep", "true");
  program("srun", "[[ $* == *--holder* ]] || echo 'node n2 cannot see it'");
  program("hpcontroller", ends(0));
  EXPECT_EQ(run().exit_code, 2) << "it may be the mount point on this node";
  EXPECT_EQ(refusal(), "2 node n2 cannot see it\n");
  std::ofstream(spec_.checkpoint.dir + "/owner.json") << "{}\n";
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("node n2 cannot see it; starting nevertheless"));
}

// Slurm requeues the job, or ends it, while storage keeps its controller from being told.
TEST_F(BatchScript, WaitsForSlurmWhereStorageHoldsUpTheEnd) {
  program("hpcontroller", "[[ $* == *--told-to-end ]] || kill -TERM $PPID\nexit 96");
  program("hpagent", "true");
  program("sleep", "kill -KILL $PPID");  // as Slurm ends the script
  const CommandResult result = run();
  EXPECT_THAT(result.out, HasSubstr("the controller ended with 96 (life 10)"));
  EXPECT_NE(result.exit_code, 1);
  EXPECT_THAT(result.out, Not(HasSubstr("ends with")));
}

TEST_F(BatchScript, LinkThatCannotBeMadeIsNoOtherJobs) {
  spec_.limits.storage_ms = 1'000;
  program("sleep", "true");
  program("ln", "exit 1");
  program("hpcontroller", ends(0));
  EXPECT_EQ(run().exit_code, 93);
  EXPECT_THAT(refusal(), HasSubstr("jobs/7 cannot be made; see that node n1 can write"));
}

TEST_F(BatchScript, WaitsForASuccessorOnAnotherNode) {
  // The agents' step ends when the job does, and the successor has left the verdict.
  program("hpagent", "sleep 0.2; echo 0 0 > \"$3/verdict\"");
  program("hpcontroller", "exit 3");
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("under a controller on another node"));
}

TEST_F(BatchScript, HandsSignalsToTheController) {
  program("hpcontroller", "trap 'echo TERM > \"" + log("signal") + "\"; " +
                              "echo 1 0 > \"$2/verdict\"; exit 1' TERM\nkill -TERM $PPID\n" +
                              "while :; do sleep 0.05; done");
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_EQ(log_text("signal"), "TERM\n");
}

// During the look at the shared directories, and as the controller's process begins.
TEST_F(BatchScript, ASignalBeforeTheControllerIsHandedToItWhenItStarts) {
  program("hpcontroller", "echo \"$@\" >> " + log("controller") + "\n" + ends(1));
  program("mkdir", "kill -TERM $PPID; exec /bin/mkdir \"$@\"");
  EXPECT_EQ(run().exit_code, 1);
  EXPECT_THAT(log_text("controller"), EndsWith(" --nodes n1,n2 --told-to-end\n"));
}

TEST_F(BatchScript, AControllerThatASignalKillsIsFollowedByOneThatIsTold) {
  program("hpcontroller", "echo \"$@\" >> " + log("controller") +
                              "\n[[ $* == *--told-to-end ]] && { " + ends(1) +
                              "; }\nkill -TERM $PPID; exec sleep 60");
  EXPECT_EQ(run().exit_code, 1);
  EXPECT_THAT(log_text("controller"), EndsWith(" --nodes n1,n2 --told-to-end\n"));
}

// The controller could write its verdict nowhere, and the job was FAILED though it had finished.
TEST_F(BatchScript, EndsWithTheExitStatusWhereTheDirectoryIsGone) {
  for (const int verdict : {0, 93}) {
    std::filesystem::create_directories(settings_.directory.path);
    std::ofstream(settings_.directory.path + "/token") << "t\n";
    program("hpcontroller", "rm -rf \"$2\"; exit " + std::to_string(verdict));
    program("sleep", "true");
    const CommandResult result = run();
    EXPECT_EQ(result.exit_code, verdict) << result.out << result.err;
    EXPECT_FALSE(is_accessible(settings_.directory.path));
  }
}

TEST_F(BatchScript, AwaitsADirectoryThatIsAwayForAMoment) {
  const std::string away = directory_ / "away";
  program("sleep", "[ \"$1\" != 1 ] || mv '" + away + "' \"$HPCTL_HOME/jobs/submit-k\"");
  program("hpcontroller", ends(0));
  std::filesystem::rename(settings_.directory.path, away);
  const CommandResult late = run();
  EXPECT_EQ(late.exit_code, 0) << late.out << late.err;
  EXPECT_FALSE(is_accessible(away));
  std::filesystem::remove(settings_.directory.path + "/verdict");
  program("hpcontroller", "echo life >> " + log("lives") + "\n[ $(wc -l < " + log("lives") +
                              ") -ge 2 ] || { mv \"$2\" '" + away + "'; exit 4; }\n" + ends(0));
  const CommandResult back = run();
  EXPECT_EQ(back.exit_code, 0) << back.out << back.err;
  EXPECT_EQ(log_text("lives"), "life\nlife\n");
}

TEST_F(BatchScript, DoesNotMakeItsDirectoryAgain) {
  program("hpcontroller", ends(0));
  program("sleep", "true");
  std::filesystem::remove_all(settings_.directory.path);
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 93);
  EXPECT_THAT(result.out, HasSubstr(settings_.directory.path + " is gone"));
  EXPECT_FALSE(is_accessible(settings_.directory.path));
}

// sacct said FAILED of every job that a person had cancelled.
TEST_F(BatchScript, CancelsItsOwnJobAfterACancellation) {
  program("scancel", "echo \"$@\" >> " + log("scancel") + "; exit 1");
  program("hpcontroller", ends(1));
  std::ofstream(settings_.directory.path + "/cancelled") << "3\n";
  EXPECT_EQ(run().exit_code, 1);
  EXPECT_EQ(log_text("scancel"), "") << "that was an earlier start";
  program("hpcontroller", "echo 0 > \"$2/cancelled\"; " + ends(1));
  EXPECT_EQ(run().exit_code, 1) << "Slurm refuses";
  EXPECT_EQ(log_text("scancel"), "7\n");
}

// Slurm would put the failed job back into the queue, held.
TEST_F(BatchScript, AFailureAfterAnExpeditedSubmissionIsNotRequeued) {
  program("scontrol", "[ \"$1\" = show ] && { printf 'n1\\nn2\\n'; exit; }\necho \"$@\" >> " +
                          log("scontrol") + "\n[ $(wc -l < " + log("scontrol") + ") -ge 2 ]");
  program("sleep", "true");
  program("hpcontroller", ends(1));
  EXPECT_EQ(run().exit_code, 1);
  EXPECT_EQ(log_text("scontrol"), "") << "submitted without it";
  settings_.expedite = true;
  program("hpcontroller", ends(0));
  EXPECT_EQ(run().exit_code, 0);
  EXPECT_EQ(log_text("scontrol"), "");
  program("hpcontroller", ends(1));
  EXPECT_EQ(run().exit_code, 1);
  EXPECT_EQ(log_text("scontrol"), "update JobId=7 Requeue=0\nupdate JobId=7 Requeue=0\n")
      << "slurmctld was silent at first";
  std::filesystem::remove(log("scontrol"));
  std::filesystem::remove(settings_.programs + "/hpcontroller");
  EXPECT_EQ(run().exit_code, 2) << "refused before anything ran";
  EXPECT_THAT(log_text("scontrol"), HasSubstr("update JobId=7 Requeue=0\n"));
  std::filesystem::remove(log("scontrol"));
  std::filesystem::remove_all(settings_.directory.path);
  EXPECT_EQ(run().exit_code, 93) << "nothing to start with";
  EXPECT_THAT(log_text("scontrol"), HasSubstr("update JobId=7 Requeue=0\n"));
}

// A script that ends first ends the job, and Slurm requeues nothing.
TEST_F(BatchScript, WaitsForSlurmWhereSlurmPreemptsTheJob) {
  program("hpcontroller", "echo 0 > \"$2/preempted\"; " + ends(1));
  program("hpagent", "true");
  program("sleep", "kill -KILL $PPID");  // as Slurm ends the script
  const CommandResult result = run();
  EXPECT_THAT(result.out, HasSubstr("Slurm preempts job 7"));
  EXPECT_NE(result.exit_code, 1);
  EXPECT_THAT(result.out, Not(HasSubstr("ends with")));
}

TEST_F(BatchScript, AFailureBeforeARequeueCountsForNothing) {
  std::ofstream(settings_.directory.path + "/verdict") << "1 1\n";
  program("hpcontroller", "echo life >> " + log("lives") + "\n[ $(wc -l < " + log("lives") +
                              ") -ge 2 ] || exit 4\necho 0 2 > \"$2/verdict\"; exit 0");
  const CommandResult result = run({"SLURM_RESTART_COUNT=2"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("job 7, start 3, on n1,n2"));
}

TEST_F(BatchScript, AnEndThatNoRequeueChangesStands) {
  std::ofstream(settings_.directory.path + "/verdict") << "93 0\n";
  program("hpcontroller", "exit 93");
  EXPECT_EQ(run({"SLURM_RESTART_COUNT=1"}).exit_code, 93);
}

TEST_F(BatchScript, RefusesAnIdOfAnotherJob) {
  program("hpcontroller", ends(0));
  std::filesystem::create_directories(settings_.home + "/jobs/7");
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 93);
  EXPECT_THAT(result.out, HasSubstr("jobs/7 belongs to another job"));
  EXPECT_THAT(log_text("srun"), IsEmpty());
  EXPECT_THAT(refusal(), HasSubstr("belongs to another job"));
  EXPECT_TRUE(std::filesystem::is_empty(settings_.home + "/jobs/7"));
}

// slurmctld that lost its newest state gives an id again.
TEST_F(BatchScript, TakesAnIdThatTheClusterGaveAgain) {
  program("hpcontroller", ends(0));
  const std::string jobs = settings_.home + "/jobs/";
  std::filesystem::create_directories(jobs + "submit-old");
  std::filesystem::create_symlink("submit-old", jobs + "7");
  std::ofstream(jobs + "submit-old/cluster") << "c1\n";
  std::ofstream(settings_.directory.path + "/cluster") << "c2\n";
  EXPECT_EQ(run().exit_code, 93) << "a job of another cluster keeps its id";
  EXPECT_EQ(std::filesystem::read_symlink(jobs + "7"), "submit-old");
  std::ofstream(settings_.directory.path + "/cluster") << "c1\n";
  const CommandResult result = run();
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(std::filesystem::read_symlink(jobs + "7"), "submit-k");
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(jobs + "submit-k/link")));
}

TEST_F(BatchScript, NamesTheNodeWithoutPrograms) {
  EXPECT_EQ(run().exit_code, 2);
  EXPECT_THAT(refusal(), HasSubstr("node n1 has no " + settings_.programs + "/hpcontroller"));
}

TEST_F(BatchScript, NamesTheNodesThatDoNotShareTheCheckpointDirectory) {
  program("hpcontroller", ends(0));
  program("sleep", "");
  program("cat", "[[ $SLURMD_NODENAME != n2 || $1 != *hpctl-shared* ]] && exec /bin/cat \"$@\"");
  spec_.checkpoint.dir = directory_ / "ckpt";
  EXPECT_EQ(run().exit_code, 2);
  EXPECT_EQ(refusal(), "2 node n2 cannot see in the checkpoint directory " + spec_.checkpoint.dir +
                           " what another node wrote (checkpoint.dir must be on a file system that "
                           "all nodes share)\n");
  EXPECT_THAT(log_text("srun"), Not(HasSubstr("--holder")));
  EXPECT_TRUE(std::filesystem::is_empty(spec_.checkpoint.dir));
}

TEST_F(BatchScript, NamesACheckpointDirectoryThatCannotBeWritten) {
  program("hpcontroller", ends(0));
  spec_.checkpoint.dir = log("file") + "/ckpt";
  std::ofstream(log("file")) << "not a directory";
  EXPECT_EQ(run().exit_code, 2);
  EXPECT_THAT(refusal(), HasSubstr("node n1 cannot write the checkpoint directory"));
}

TEST_F(BatchScript, SaysThatItRunsOnHyperPod) {
  program("hpcontroller", ends(0));
  EXPECT_THAT(run({"HPCTL_SYSROOT=" + directory_.path()}).out, Not(HasSubstr("HyperPod")));
  std::filesystem::create_directories(directory_ / "opt/sagemaker_cluster");
  EXPECT_THAT(run({"HPCTL_SYSROOT=" + directory_.path()}).out,
              HasSubstr("HyperPod cluster detected: auto-resume is on"));
}

TEST_F(BatchScript, AsksSlurmForWhatTheJobFileSays) {
  spec_.spares = 1;
  spec_.workers_per_node = 4;
  spec_.slurm.exclusive = false;
  spec_.slurm.partition = "p5";
  spec_.slurm.time_minutes = 90;
  spec_.slurm.gres = "gpu:8";
  spec_.slurm.mem_mb = 512;
  const SlurmSubmission s = slurm_submission(spec_, settings_);
  EXPECT_EQ(s.nodes_min, 3U);
  EXPECT_EQ(s.cpus_per_task, 4U);
  EXPECT_EQ(s.memory_mb, 512U);
  EXPECT_FALSE(s.all_memory);
  EXPECT_TRUE(s.requeue);
  EXPECT_TRUE(s.no_kill);
  for (const char* line : {"--partition=p5\n", "--time=0-01:30:00\n", "--gres=gpu:8\n",
                           "--mem=512M\n", "--nodes=3\n", "--signal=B:TERM@60\n"}) {
    EXPECT_THAT(s.script, HasSubstr(std::string("#SBATCH ") + line));
  }
  EXPECT_THAT(s.script, Not(HasSubstr("--exclusive")));
  spec_.slurm = {};
  EXPECT_TRUE(slurm_submission(spec_, settings_).all_memory);
}

// A requeue opens the same file again.
TEST_F(BatchScript, ARequeueDoesNotTruncateTheOutput) {
  EXPECT_THAT(slurm_submission(spec_, settings_).script, HasSubstr("#SBATCH --open-mode=append\n"));
}

TEST_F(BatchScript, AsksSlurmForItsOwnOptionsInItsOwnWords) {
  spec_.workers_per_node = 2;
  SlurmSpec& slurm = spec_.slurm;
  EXPECT_THAT(slurm_submission(spec_, settings_).options, IsEmpty());
  slurm.cpus_per_task = 3;
  slurm.warning_seconds = 300;
  slurm.dependency = "afterok:12";
  slurm.begin = "now+1hour";
  slurm.mail_user = "a@b.c";
  slurm.mail_type = "END,FAIL";
  slurm.nice = 5;
  slurm.licenses = "fast:2";
  slurm.comment = "for the paper #3";
  slurm.extra = {"--wckey=x", "--hold"};
  const SlurmSubmission s = slurm_submission(spec_, settings_);
  EXPECT_THAT(s.options, ElementsAre("--dependency=afterok:12", "--begin=now+1hour",
                                     "--mail-user=a@b.c", "--mail-type=END,FAIL", "--nice=5",
                                     "--licenses=fast:2", "--wckey=x", "--hold"));
  EXPECT_EQ(s.cpus_per_task, 6U);
  EXPECT_EQ(s.warning_seconds, 300U);
  EXPECT_EQ(s.comment, "submit-k for the paper #3");
  for (const std::string& option : s.options) {
    EXPECT_THAT(s.script, HasSubstr("\n#SBATCH " + option + "\n"));
  }
  for (const char* line :
       {"--cpus-per-task=6", "--signal=B:TERM@300", "'--comment=submit-k for the paper #3'"}) {
    EXPECT_THAT(s.script, HasSubstr(std::string("\n#SBATCH ") + line + "\n"));
  }
}

TEST_F(BatchScript, HandsContainersToPyxis) {
  const auto options = [&] { return container_options(spec_, settings_.programs, settings_.home); };
  EXPECT_THAT(options(), IsEmpty());
  spec_.slurm.container = {"/fsx/a b.sqsh", {"/fsx", "/data:/data:ro"}};
  spec_.checkpoint.dir = "/ckpt";
  EXPECT_THAT(options(), ElementsAre("--container-image=/fsx/a b.sqsh",
                                     "--container-mounts=" + settings_.programs + ":" +
                                         settings_.programs + "," + settings_.home + ":" +
                                         settings_.home + ",/ckpt:/ckpt,/fsx:/fsx,/data:/data:ro"));
  program("hpcontroller", ends(0));
  EXPECT_EQ(run().exit_code, 0);
  EXPECT_THAT(log_text("srun"), HasSubstr("--container-image=/fsx/a b.sqsh --container-mounts="));
  const std::string bundle = settings_.home + "/bundle";
  ASSERT_TRUE(make_directories(bundle + "/libexec").ok());
  ASSERT_TRUE(write_file_atomic(bundle + "/libexec/hpagent", "").ok());
  EXPECT_THAT(container_options(spec_, bundle + "/bin", "/home").back(),
              HasSubstr("-mounts=" + bundle + ":" + bundle + ",/home:/home,"));
}

}  // namespace
}  // namespace hpctl::testing
