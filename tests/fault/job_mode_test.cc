// SPDX-License-Identifier: Apache-2.0
// Who may say the last word on a job, where one controller follows another: every order of the two.
#include "controller/leadership/job_mode.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "common/base/file.h"
#include "tests/fault/job_cluster.h"

namespace hpctl {
namespace {

JobSpec job() {
  JobSpec spec;
  spec.name = "last-word";
  spec.command = {"true"};
  return spec;
}

class LastWord : public testing::Test {
 protected:
  // The job's number is this process's, so what is left would be found by another job of a test.
  ~LastWord() override {
    for (const std::string& state : states_) EXPECT_TRUE(remove_tree(state).ok());
  }
  // A controller on `node`, as far as the job's directory knows it.
  std::unique_ptr<JobMode> controller(const std::string& node) {
    ControllerOptions options;
    options.job_dir = cluster_.job_dir();
    options.job = cluster_.job().value;
    options.node = node;
    options.nodes = cluster_.nodes();
    options.scheduler = kSchedulerNone;
    const std::string state = cluster_.paths(node).state();
    EXPECT_TRUE(make_directories(state, 0700).ok());
    states_.insert(state);
    return std::make_unique<JobMode>(cluster_.paths(node), options);
  }
  std::unique_ptr<JobMode> serving(const std::string& node) {
    auto mode = controller(node);
    EXPECT_TRUE(mode->prepare().ok());
    EXPECT_TRUE(mode->claim("127.0.0.1:1").ok());
    return mode;
  }
  void end(JobMode& mode, core::JobState state) {
    core::Job row;
    row.id = cluster_.job();
    row.state = state;
    JobView view;
    view.job = row.id.value;
    view.state = to_string(state);
    mode.job_ended(row, view);
  }
  static std::optional<int> after_look(JobMode& mode) {
    mode.look([] { return std::set<std::string>(); });
    return mode.wait(-1, 0);
  }
  bool has_record() const { return is_accessible(cluster_.job_dir() + "/status.json"); }

  test::JobCluster cluster_{job()};
  std::set<std::string> states_;
};

TEST_F(LastWord, IsNotOfOneThatWasSucceeded) {
  const auto first = serving("n0");
  const auto second = serving("n1");
  EXPECT_FALSE(first->stands_back());
  end(*first, core::JobState::kFailed);
  EXPECT_TRUE(first->stands_back());
  EXPECT_FALSE(cluster_.verdict());
  EXPECT_FALSE(has_record());
  EXPECT_EQ(after_look(*first), kExitSuperseded);
  EXPECT_EQ(after_look(*second), std::nullopt) << "the job goes on";
}

TEST_F(LastWord, StandsWhoeverFollows) {
  const auto first = serving("n0");
  const auto second = controller("n1");
  ASSERT_TRUE(second->prepare().ok());
  end(*first, core::JobState::kFinished);
  EXPECT_EQ(cluster_.verdict(), kVerdictFinished);
  const Outcome claimed = second->claim("127.0.0.1:1");
  ASSERT_FALSE(claimed.ok()) << "the job ended between its last look and its claim";
  EXPECT_EQ(claimed.error().code, ErrorCode::kAlreadyExists);
  EXPECT_FALSE(first->is_superseded());
  EXPECT_EQ(after_look(*first), std::nullopt) << "its nodes are still to be ended";
  first->nodes_ended(cluster_.job());
  EXPECT_EQ(after_look(*first), kVerdictFinished);
}

TEST_F(LastWord, OfOneThatWasSucceededMeanwhileIsTakenOver) {
  const auto first = serving("n0");
  const auto second = serving("n1");
  ASSERT_TRUE(write_verdict(cluster_.job_dir(), kVerdictFailed, 0).ok());  // was under way
  EXPECT_FALSE(second->may_record());
  EXPECT_EQ(after_look(*second), kVerdictFailed);
}

TEST_F(LastWord, OfAnEarlierStartCountsNoMore) {
  ASSERT_TRUE(write_verdict(cluster_.job_dir(), kVerdictFailed, 0).ok());
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  const auto mode = serving("n0");
  ::unsetenv("SLURM_RESTART_COUNT");
  EXPECT_TRUE(mode->may_record());
  EXPECT_EQ(after_look(*mode), std::nullopt);
}

// A cluster controller that comes back after the job was requeued and runs elsewhere starts what it
// had before.
TEST_F(LastWord, NobodySucceedsTheControllerOfALaterStart) {
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  const auto later = serving("n1");
  ::unsetenv("SLURM_RESTART_COUNT");
  const Outcome prepared = controller("n0")->prepare();
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().code, ErrorCode::kAlreadyExists) << prepared.error().message;
  EXPECT_FALSE(later->is_superseded());
}

// The cluster gave the number of a job again, whose rows are still on this node's disk. The new job
// has its own directory, but the node's is named after the number.
TEST_F(LastWord, RowsOfAnEarlierJobWithTheSameNumberAreNotTakenOver) {
  serving("n1").reset();
  const std::string rows = cluster_.paths("n1").database();
  ASSERT_TRUE(write_file_atomic(rows, "rows of the earlier job").ok());
  ASSERT_TRUE(remove_tree(cluster_.job_dir() + "/controllers").ok());
  serving("n0").reset();
  ASSERT_TRUE(controller("n1")->prepare().ok());
  EXPECT_FALSE(is_accessible(rows)) << "controller 1 of the new job was on n0";
}

TEST_F(LastWord, ItsOwnRowsAreThoseOfTheNewestController) {
  serving("n1").reset();
  const std::string rows = cluster_.paths("n1").database();
  ASSERT_TRUE(write_file_atomic(rows, "rows of this job").ok());
  ASSERT_TRUE(controller("n1")->prepare().ok());
  EXPECT_TRUE(is_accessible(rows)) << "nobody else has decided anything since";
}

// One EIO while the file of the rows' epoch was read had them removed.
TEST_F(LastWord, RowsOfAnUnreadableEpochAreLeftAlone) {
  serving("n1");
  const std::string rows = cluster_.paths("n1").database();
  ASSERT_TRUE(write_file_atomic(rows, "rows of this job").ok());
  const std::string epoch = cluster_.paths("n1").state() + "/epoch";
  ASSERT_EQ(::rename(epoch.c_str(), (epoch + ".away").c_str()), 0);
  ASSERT_EQ(::symlink(epoch.c_str(), epoch.c_str()), 0);  // ELOOP: cannot be looked at
  EXPECT_FALSE(controller("n1")->prepare().ok());
  EXPECT_TRUE(is_accessible(rows));
  ASSERT_EQ(::rename((epoch + ".away").c_str(), epoch.c_str()), 0);
  EXPECT_TRUE(controller("n1")->prepare().ok());
  EXPECT_TRUE(is_accessible(rows));
}

}  // namespace
}  // namespace hpctl
