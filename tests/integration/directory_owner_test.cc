// SPDX-License-Identifier: Apache-2.0
// Two jobs and one checkpoint directory, with real controllers: the second live job is refused, an
// ended one is followed, and what the first one saved stays. The jobs are commands; the directory
// is the same for them and for the built-in trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/base/file.h"
#include "common/job/directory_owner.h"
#include "common/job/lineage.h"
#include "controller/leadership/ask_owner.h"
#include "controller/leadership/local_submission.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr seconds kLong{120};

class SharedDirectory : public ::testing::Test {
 protected:
  // A job that ends when `gate` is there.
  static std::string yaml(const std::string& name, const std::string& dir,
                          const std::string& checkpoint = "") {
    return "name: " + name +
           "\n"
           "nodes: 1\n"
           "workload: {command: [/bin/sh, -c, 'until [ -e " +
           dir + "/gate ]; do sleep 0.05; done']}\nenv: none\ncheckpoint: {dir: " + dir +
           checkpoint + "}\n";
  }
  static CommandResult submit(const LocalCluster& cluster, const std::string& text,
                              const std::vector<std::string>& more = {}) {
    const std::string file = cluster.directory() + "/job.yaml";
    EXPECT_TRUE(write_file_atomic(file, text).ok());
    std::vector<std::string> args = {"submit", "--local", "--json", file};
    args.insert(args.end(), more.begin(), more.end());
    return cluster.hpctl(args);
  }
  static JobId job_in(const CommandResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    const json answer = json::parse(result.out, nullptr, false);
    return JobId{answer.is_object() ? answer.value("job", uint64_t{0}) : 0};
  }
  static bool is_running(const LocalCluster& cluster, JobId job, uint64_t generation = 1) {
    return wait_until(
        cluster.paths().job(job),
        [&] {
          const json status = cluster.status(job);
          return status["state"] == "RUNNING" && status["generation"] >= generation;
        },
        kLong);
  }
  // A job of `first_` that owns the directory and runs.
  JobId start_first() {
    const JobId job = job_in(submit(first_, yaml("one", dir_)));
    EXPECT_TRUE(is_running(first_, job));
    return job;
  }
  void end_first(JobId job) const {
    EXPECT_EQ(first_.hpctl({"cancel", to_string(job)}).exit_code, 0);
    EXPECT_EQ(first_.wait_for_end(job, kLong), "CANCELLED");
  }
  static std::string told(const LocalCluster& cluster, JobId job) {
    std::string text;
    for (const json& event : cluster.events(job)) text += event["cause"].get<std::string>() + "\n";
    return text;
  }
  static void kill_controller(const LocalCluster& cluster) {
    const json controller = json::parse(read_file(cluster.paths().controller_json()).value());
    const auto pid = controller["pid"].get<pid_t>();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    wait_until(
        cluster.paths().home(), [&] { return ::kill(pid, 0) != 0; }, kLong);
  }
  // What a release before this one left: no owner, and records without the job's UUID.
  void make_older() const {
    ASSERT_TRUE(remove_tree(dir_ + "/owner.json").ok());
    for (GenerationRecord record : read_lineage(dir_).value()) {
      record.job_uuid.clear();
      ASSERT_TRUE(
          write_file_atomic(dir_ + "/generations/" + std::to_string(record.generation) + ".json",
                            to_json_text(record))
              .ok());
    }
  }
  JobIdentity owner() const {
    const auto found = read_directory_owner(dir_);
    return found.ok() && *found ? (*found)->owner : JobIdentity{};
  }

  LocalCluster first_;
  LocalCluster second_;
  const std::string dir_ = first_.directory() + "/shared";
};

TEST_F(SharedDirectory, SecondLiveJobIsRefused) {
  const JobId job = start_first();
  const std::string owner_words = "belongs to job \"one\" of " + owner().user + " (HPCTL_HOME " +
                                  first_.paths().home() + "): job " + to_string(job) +
                                  " there is RUNNING";
  const auto another_home = submit(second_, yaml("two", dir_));
  EXPECT_EQ(another_home.exit_code, 1) << another_home.out;
  EXPECT_THAT(another_home.err, AllOf(HasSubstr(owner_words), HasSubstr("--take-directory")));

  const std::string link = first_.directory() + "/link";
  ASSERT_EQ(::symlink(dir_.c_str(), link.c_str()), 0);
  const auto same_home = submit(first_, yaml("two", link));
  EXPECT_EQ(same_home.exit_code, 1) << same_home.out;
  EXPECT_THAT(same_home.err, HasSubstr(owner_words));

  kill_controller(first_);
  const auto unled = submit(second_, yaml("two", dir_));
  EXPECT_EQ(unled.exit_code, 1) << "its rows say that the job goes on: " << unled.out;
  EXPECT_EQ(read_lineage(dir_)->size(), 1U);
}

// Whatever has become of the first job: its claim is there when its submission returns.
TEST_F(SharedDirectory, ClaimIsOlderThanFirstGeneration) {
  const JobId job = job_in(submit(first_, yaml("one", dir_)));
  EXPECT_EQ(owner().name, "one");
  const auto second = submit(second_, yaml("two", dir_));
  EXPECT_EQ(second.exit_code, 1) << second.out;
  EXPECT_THAT(second.err, HasSubstr("belongs to job \"one\""));
  end_first(job);
}

// A submission that has claimed the directory, and that its home does not know yet.
TEST_F(SharedDirectory, JobThatIsBeingSubmittedKeepsItsClaim) {
  ASSERT_TRUE(make_directories(first_.paths().home()).ok());
  const JobIdentity one = identify_local_job(
      first_.paths(), {"0123456789abcdef", "one", static_cast<uint32_t>(::geteuid())});
  {
    const auto submission = LocalSubmission::begin(first_.paths(), one.uuid);
    ASSERT_TRUE(submission.ok()) << submission.error().message;
    ASSERT_TRUE(claim_directory(dir_, one, [](const JobIdentity&) { return OwnerAnswer{}; }).ok());
    const auto refused = submit(second_, yaml("two", dir_));
    EXPECT_EQ(refused.exit_code, 1) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("it is being submitted"));
    EXPECT_EQ(owner().uuid, one.uuid);
  }
  const JobId next = job_in(submit(second_, yaml("two", dir_)));
  ASSERT_TRUE(is_running(second_, next)) << "the first submission was killed";
  EXPECT_EQ(owner().name, "two");
}

// The same job goes on in its directory through a restart of its controller and a recovery.
TEST_F(SharedDirectory, OwnerSurvivesControllerRestart) {
  const JobId job = start_first();
  const std::string uuid = owner().uuid;
  EXPECT_FALSE(uuid.empty());
  kill_controller(first_);
  ASSERT_NE(job_in(submit(first_, yaml("other", dir_ + "-other"))), JobId{}) << "starts another";
  ASSERT_TRUE(is_running(first_, job));
  ASSERT_TRUE(end_process(worker_pid(first_.status(job), 0)));
  ASSERT_TRUE(is_running(first_, job, 2));
  EXPECT_EQ(owner().uuid, uuid);
  EXPECT_EQ(read_generation(dir_, 2)->job_uuid, uuid);
}

// An operator goes back to what an earlier job saved: the next job continues that chain.
TEST_F(SharedDirectory, AdoptedChainIsContinued) {
  end_first(start_first());
  const std::string saved = dir_ + "/step-10.g1";
  ASSERT_TRUE(make_directories(saved).ok());
  ASSERT_TRUE(write_file_atomic(saved + "/manifest.json", "{}").ok());
  const auto fresh = submit(first_, yaml("anew", dir_, ", resume: none"), {"--fresh"});
  const JobId anew = job_in(fresh);
  ASSERT_TRUE(is_running(first_, anew, 2));
  EXPECT_EQ(read_generation(dir_, 2)->parent, 0U);
  const auto refused = second_.hpctl({"checkpoint", "adopt", dir_, "--chain", "1"});
  EXPECT_EQ(refused.exit_code, 1) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("is RUNNING"));
  end_first(anew);

  const auto adopted = second_.hpctl({"checkpoint", "adopt", dir_, "--chain", "1"});
  EXPECT_EQ(adopted.exit_code, 0) << adopted.err;
  const JobId next = job_in(submit(second_, yaml("next", dir_)));
  ASSERT_TRUE(is_running(second_, next, 4));
  EXPECT_EQ(read_generation(dir_, 4)->parent, 3U);
  EXPECT_EQ(read_generation(dir_, 4)->start_step, 10U);
  EXPECT_EQ(read_generation(dir_, 4)->checkpoint, "step-10.g1");
}

TEST_F(SharedDirectory, EndedOwnerIsContinued) {
  end_first(start_first());
  const JobId next = job_in(submit(second_, yaml("two", dir_)));
  ASSERT_TRUE(is_running(second_, next, 2));
  EXPECT_EQ(owner().name, "two");
  EXPECT_EQ(read_generation(dir_, 2)->parent, 1U) << "it continues the chain";
  EXPECT_THAT(told(second_, next), HasSubstr("was that of job \"one\""));
}

TEST_F(SharedDirectory, TakenDirectoryEndsFormerOwner) {
  const JobId former = start_first();
  const JobId taker = job_in(submit(second_, yaml("two", dir_), {"--take-directory"}));
  ASSERT_TRUE(is_running(second_, taker, 2));
  EXPECT_THAT(told(second_, taker),
              AllOf(HasSubstr("was taken from job \"one\""), HasSubstr("with --take-directory")));
  // Its next generation would begin in a directory that is another's.
  ASSERT_TRUE(end_process(worker_pid(first_.status(former), 0)));
  EXPECT_EQ(first_.wait_for_end(former, kLong), "FAILED");
  EXPECT_THAT(first_.status(former)["reason"].get<std::string>(),
              HasSubstr("belongs to job \"two\""));
  EXPECT_EQ(read_lineage(dir_)->size(), 2U);
}

// A crash of its server left it empty. One read ended the job for good.
TEST_F(SharedDirectory, DamagedOwnerFileIsWaitedFor) {
  const JobId job = start_first();
  const std::string path = dir_ + "/owner.json";
  const std::string text = read_file(path).value();
  ASSERT_TRUE(write_file_atomic(path, "").ok());
  ASSERT_TRUE(end_process(worker_pid(first_.status(job), 0)));
  ASSERT_TRUE(wait_until(
      dir_, [&] { return told(first_, job).find("owner.json is damaged") != std::string::npos; },
      kLong));
  ASSERT_TRUE(write_file_atomic(path, text).ok());
  EXPECT_TRUE(is_running(first_, job, 2)) << told(first_, job);
}

TEST_F(SharedDirectory, OlderDirectoryBelongsToNewestRecord) {
  const JobId job = start_first();
  make_older();
  const auto same_home = submit(first_, yaml("two", dir_));
  EXPECT_EQ(same_home.exit_code, 1) << same_home.out;
  EXPECT_THAT(same_home.err, HasSubstr("job " + to_string(job) + " there is RUNNING"));
  const auto another_home = submit(second_, yaml("two", dir_));
  EXPECT_THAT(another_home.err, HasSubstr("does not know it; if that job has ended, submit with "
                                          "--take-directory"));
  end_first(job);
  const JobId next = job_in(submit(first_, yaml("two", dir_)));
  ASSERT_TRUE(is_running(first_, next, 2));
  EXPECT_EQ(owner().name, "two");
}

// A controller of this release goes on with a job of the release before.
TEST_F(SharedDirectory, OlderLiveJobBecomesOwner) {
  const JobId job = start_first();
  make_older();
  ASSERT_TRUE(end_process(worker_pid(first_.status(job), 0)));
  ASSERT_TRUE(is_running(first_, job, 2));
  EXPECT_EQ(owner().name, "one");
}

TEST_F(SharedDirectory, ToBeginAnewNeedsFresh) {
  end_first(start_first());
  const std::string manifest = dir_ + "/step-7.g1/manifest.json";
  ASSERT_TRUE(make_directories(dir_ + "/step-7.g1").ok());
  ASSERT_TRUE(write_file_atomic(manifest, "{}").ok());
  const std::string anew = yaml("two", dir_, ", resume: none");
  const auto refused = submit(first_, anew);
  EXPECT_EQ(refused.exit_code, 2) << refused.out;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("has 1 checkpoints of earlier jobs"),
                                 HasSubstr("step-7.g1"), HasSubstr("--fresh")));
  const JobId next = job_in(submit(first_, anew, {"--fresh"}));
  ASSERT_TRUE(is_running(first_, next, 2));
  EXPECT_EQ(read_generation(dir_, 2)->parent, 0U);
  EXPECT_TRUE(is_accessible(manifest));
}

// A submission that the controller refuses leaves the directory as it was.
TEST_F(SharedDirectory, RefusedJobLeavesNoClaim) {
  const JobId job = job_in(submit(first_, yaml("one", first_.directory() + "/own")));
  ASSERT_TRUE(is_running(first_, job));
  const auto refused = submit(first_, yaml("one", dir_));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("has not ended; choose another name"));
  EXPECT_THAT(refused.err, Not(HasSubstr("belongs to")));
  EXPECT_TRUE(list_directory(dir_).value().empty());
  for (const std::string& name : list_directory(first_.paths().home()).value()) {
    EXPECT_THAT(name, Not(HasSubstr("submitting-")));
  }
}

}  // namespace
}  // namespace hpctl::testing
