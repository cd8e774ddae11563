// SPDX-License-Identifier: Apache-2.0
// Checkpoint directories of Slurm jobs have one owner (decision 1307): a second job is refused
// while the first one lives or slurmctld is away, and goes on where the first one ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "common/base/file.h"
#include "common/job/directory_owner.h"
#include "common/job/lineage.h"
#include "tests/slurm/slurm_test.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OwnedDirectory : public SlurmTest {
 protected:
  // Job after job with this one directory.
  SlurmJob spec(const std::string& slurm = "{partition: main, exclusive: true}") const {
    return {.slurm = slurm, .checkpoint_dir = dir()};
  }
  std::string dir() const { return home_.directory() + "/shared"; }
  DirectoryOwner owner() const {
    const auto found = read_directory_owner(dir());
    return found.ok() && *found ? **found : DirectoryOwner{};
  }
  CommandResult checkpoint(std::vector<std::string> words) const {
    words.insert(words.begin(), "checkpoint");
    return home_.hpctl(words, kPatience);
  }
  json list() const { return json::parse(checkpoint({"ls", dir(), "--json"}).out); }
  // The words in which hpctl names the owner that lives.
  static std::string name_of(JobId job) {
    return "belongs to Slurm job " + to_string(job) + " \"slurm\"";
  }
  std::unique_ptr<HeldTraining> hold_first_rank(JobId job) const {
    return std::make_unique<HeldTraining>(worker_pid(status(job), 0));
  }
  // Cancelled while it trains, however fast it is.
  void cancel_held(JobId job, std::unique_ptr<HeldTraining>& held) const {
    EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
    held.reset();
    EXPECT_EQ(home_.wait_for_end(job, kPatience), "CANCELLED");
    const auto gone = [&] { return slurm_state(job).empty(); };
    EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(job);
  }
  // What must not change while a job lives, or cannot be asked, says so in these words.
  void expect_untouchable(const std::string& words) const {
    const json before = list();
    const std::string newest = before["resume"];
    for (const auto& refused : {checkpoint({"rm", dir(), newest, "--yes"}),
                                checkpoint({"adopt", dir(), "--chain", "1"})}) {
      EXPECT_EQ(refused.exit_code, 1) << refused.out;
      EXPECT_THAT(refused.err, HasSubstr(words));
    }
    const json after = list();
    EXPECT_EQ(after["owner"], before["owner"]);
    EXPECT_EQ(after["chains"].size(), before["chains"].size());
    EXPECT_EQ(checkpoint({"show", dir() + "/" + newest}).exit_code, 0) << newest << " is gone";
  }
};

TEST_F(OwnedDirectory, SecondJobIsRefusedAndFollowsTheEndedOne) {
  const JobId first = start(spec());
  ASSERT_FALSE(HasFailure());
  auto held = hold_first_rank(first);
  const CommandResult refused = submit(spec());
  EXPECT_EQ(refused.exit_code, 1) << refused.out;
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr(name_of(first)), HasSubstr("it is RUNNING; choose another directory"),
                    HasSubstr("--take-directory")));
  EXPECT_EQ(list()["owner"]["job"], first.value);
  expect_untouchable("it is RUNNING");
  await_saved(first);
  {
    const StoppedDaemon slurmctld("slurmctld");
    expect_untouchable("if it has ended, add --take-directory");
  }
  cancel_held(first, held);
  const JobId second = start(spec(), 1);
  expect_exact_finish(second, spec());
  EXPECT_EQ(owner().former.value_or(JobIdentity{}).job, first.value);
  EXPECT_FALSE(owner().taken);
  EXPECT_THAT(causes(second, "RecordGeneration"), ::testing::Not(HasSubstr("starts at step 0")));
}

// The job that lost its directory ends when it prepares its next generation.
TEST_F(OwnedDirectory, TakenDirectoryEndsTheFormerOwner) {
  const JobId first = start(spec());
  ASSERT_FALSE(HasFailure());
  const std::string uuid = owner().owner.uuid;
  auto held = hold_first_rank(first);
  const CommandResult accepted = submit(spec(), {"--take-directory"});
  ASSERT_EQ(accepted.exit_code, 0) << accepted.err;
  const JobId second{json::parse(accepted.out)["job"].get<uint64_t>()};
  jobs_.push_back(second);
  ASSERT_TRUE(end_process(worker_pid(status(first), 1)));
  held.reset();
  EXPECT_EQ(home_.wait_for_end(first, kPatience), "FAILED");
  EXPECT_THAT(causes(first, "JobFailed"), HasSubstr("by now; this job may not go on there"));
  expect_exact_finish(second, spec());
  EXPECT_TRUE(owner().taken);
  EXPECT_EQ(owner().former.value_or(JobIdentity{}).uuid, uuid);
}

TEST_F(OwnedDirectory, RequeuedJobKeepsIt) {
  const JobId job = start(spec());
  ASSERT_FALSE(HasFailure());
  const std::string uuid = owner().owner.uuid;
  ASSERT_EQ(slurm({"scontrol", "requeue", to_string(job)}).exit_code, 0);
  const CommandResult other = submit(spec());
  EXPECT_EQ(other.exit_code, 1) << other.out;
  EXPECT_THAT(other.err, HasSubstr(name_of(job)));
  expect_exact_finish(job, spec());
  EXPECT_EQ(owner().owner.uuid, uuid);
  EXPECT_FALSE(owner().former) << "it follows itself";
  EXPECT_GT(read_lineage(dir()).value().size(), 1U);
}

TEST_F(OwnedDirectory, DependentJobFollowsWhenItStarts) {
  const JobId first = start(spec());
  ASSERT_FALSE(HasFailure());
  auto held = hold_first_rank(first);
  const SlurmJob next =
      spec("{partition: main, exclusive: true, dependency: 'afterany:" + to_string(first) + "'}");
  const CommandResult accepted = submit(next);
  ASSERT_EQ(accepted.exit_code, 0) << accepted.err;
  const JobId second{json::parse(accepted.out)["job"].get<uint64_t>()};
  jobs_.push_back(second);
  EXPECT_EQ(owner().owner.job, first.value) << "it waits, and has claimed nothing";
  cancel_held(first, held);
  expect_exact_finish(second, next);
  EXPECT_EQ(owner().former.value_or(JobIdentity{}).job, first.value);
}

// The directory of the job itself, not the one of its checkpoints.
TEST_F(OwnedDirectory, JobTrainsOnWithoutItsOwnDirectory) {
  const JobId job = start(spec());
  ASSERT_FALSE(HasFailure());
  auto held = hold_first_rank(job);
  const std::string directory = std::filesystem::canonical(home_.paths().job(job)).string();
  ASSERT_EQ(std::rename(directory.c_str(), (directory + ".away").c_str()), 0);
  const CommandResult shown = home_.hpctl({"status", to_string(job), "--json"}, kPatience);
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr(R"("state":"RUNNING")"),
                               HasSubstr("its directory " + directory + " is gone")));
  // Its controller writes there every few seconds.
  const auto is_back = [&] { return is_accessible(directory); };
  EXPECT_FALSE(wait_until(home_.directory(), is_back, std::chrono::seconds(6)));
  ASSERT_EQ(std::rename((directory + ".away").c_str(), directory.c_str()), 0);
  EXPECT_EQ(status(job)["generation"], 1) << causes(job, "JobRecovering");
  held.reset();
  expect_exact_finish(job, spec());
  EXPECT_THAT(causes(job, "ControllerNoted"), HasSubstr(directory + " is gone"));
}

// hpctl has no array jobs: each index is a job of its own, with a UUID and a directory of its own.
TEST_F(OwnedDirectory, JobOfEachIndexHasItsOwn) {
  ::setenv("SBATCH_ARRAY_INX", "0-1", 1);
  const CommandResult array = submit(spec());
  ::unsetenv("SBATCH_ARRAY_INX");
  EXPECT_NE(array.exit_code, 0);
  EXPECT_THAT(array.err, HasSubstr("submit a job for each index"));
  SlurmJob one = spec();
  SlurmJob two = spec();
  one.checkpoint_dir += "-0";
  two.checkpoint_dir += "-1";
  const JobId first = start(one, 1);
  ASSERT_FALSE(HasFailure());
  const auto held = hold_first_rank(first);
  const JobId second = start(two, 1);
  const CommandResult same = submit(one);
  EXPECT_EQ(same.exit_code, 1) << same.out;
  EXPECT_THAT(same.err, HasSubstr(name_of(first)));
  expect_exact_finish(second, two);
  expect_owner(first, one);
}

}  // namespace
}  // namespace hpctl::testing
