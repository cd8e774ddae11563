// SPDX-License-Identifier: Apache-2.0
// hpctl watch in this process, against a scripted controller.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/json.h"
#include "controller/publish/status_files.h"
#include "hpctl/exit_codes.h"
#include "hpctl/watch_report.h"
#include "hpctl/watch_round.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using test::CommandRun;
using test::run_hpctl;
using ::testing::AllOf;
using ::testing::HasSubstr;

class WatchVerb : public ::testing::Test {
 protected:
  WatchVerb() {
    ::setenv("HPCTL_CLUSTER", "", 1);
    controller_.jobs = {running_job(1, "quick"), running_job(2, "other")};
    for (v1::JobStatus& job : controller_.jobs) {
      job.mutable_margins()->set_max_restarts(20);
      job.mutable_margins()->set_window_ms(3'600'000);
    }
  }
  ~WatchVerb() override { ::unsetenv("HPCTL_CLUSTER"); }

  v1::JobMargins& margins(size_t job) { return *controller_.jobs[job].mutable_margins(); }
  std::string beat() const { return home_.directory() + "/beat.json"; }

  ScopedHome home_;
  ScriptedController controller_{home_.paths()};
};

TEST_F(WatchVerb, NothingIsFound) {
  const CommandRun of_one = run_hpctl({"watch", "quick", "--once"});
  EXPECT_EQ(of_one.status, kWatchNothing) << of_one.err;
  EXPECT_EQ(of_one.out, "nothing found (1 job)\n");
  EXPECT_EQ(run_hpctl({"watch", "--once"}).out, "nothing found (2 jobs)\n");
}

TEST_F(WatchVerb, DeletedDirectoryIsTheSameWordsEverywhere) {
  ASSERT_TRUE(make_directories(home_.paths().job(JobId{2})).ok());  // and none of job 1
  const std::string gone = "its directory is gone: " + home_.paths().job(JobId{1});
  const CommandRun watch = run_hpctl({"watch", "--once"});
  EXPECT_EQ(watch.status, kWatchCritical) << watch.err;
  EXPECT_THAT(watch.out, AllOf(HasSubstr("critical  job 1 quick"), HasSubstr(gone)));
  EXPECT_THAT(watch.out, ::testing::Not(HasSubstr("job 2")));
  EXPECT_THAT(run_hpctl({"top", "quick"}).out, HasSubstr("finding: " + gone));
  EXPECT_EQ(run_hpctl({"watch", "other", "--once"}).status, kWatchNothing);
}

// Its controller is about to make it.
TEST_F(WatchVerb, NewLocalJobMayHaveNoDirectoryYet) {
  ASSERT_TRUE(make_directories(home_.paths().job(JobId{2})).ok());
  controller_.jobs[0].set_state("PENDING");
  const CommandRun all = run_hpctl({"watch", "--once"});
  EXPECT_EQ(all.status, kWatchNothing) << all.out << all.err;
  const CommandRun of_one = run_hpctl({"watch", "quick", "--once"});
  EXPECT_EQ(of_one.status, kWatchNothing) << of_one.out << of_one.err;
}

// It listens at a socket on a local disk, so nothing of the directory is needed to find it.
TEST_F(WatchVerb, ControllerOfASlurmJobIsFoundWithoutTheDirectory) {
  const JobId job{static_cast<uint64_t>(::getpid())};  // names a directory in /tmp
  ASSERT_TRUE(make_directories(home_.paths().jobs()).ok());
  ASSERT_EQ(::symlink("submit-k", home_.paths().job(job).c_str()), 0);
  const HomePaths paths = HomePaths::of_job(home_.paths().job(job), job, host_name());
  {
    ScriptedController controller(paths);
    controller.jobs = {running_job(job.value, "slurm")};
    const CommandRun status = run_hpctl({"status", to_string(job)});
    EXPECT_EQ(status.status, kExitOk) << status.err;
    EXPECT_THAT(status.out, AllOf(HasSubstr("34 of 60"), HasSubstr("its directory is gone:")));
    EXPECT_EQ(run_hpctl({"watch", to_string(job), "--once"}).status, kWatchCritical);
    EXPECT_EQ(run_hpctl({"cancel", to_string(job)}).status, kExitOk);
    EXPECT_EQ(controller.cancelled(), std::vector<std::string>{to_string(job)});
  }
  EXPECT_TRUE(remove_tree(paths.socket_directory()).ok());
}

TEST_F(WatchVerb, TheWorstIsTheExitStatus) {
  margins(0).set_spares_wanted(1);
  const CommandRun warn = run_hpctl({"watch", "--once"});
  EXPECT_EQ(warn.status, kWatchWarn);
  EXPECT_THAT(warn.out,
              AllOf(HasSubstr("warn      job 1 quick"), HasSubstr("no spare is left of 1"),
                    HasSubstr("; file:///usr/share/doc/hpctl/runbook.md#spares_exhausted]\n")));
  EXPECT_EQ(run_hpctl({"watch", "other", "--once"}).status, kWatchNothing);
  margins(1).set_recent_restarts(20);
  const CommandRun critical = run_hpctl({"watch", "--once"});
  EXPECT_EQ(critical.status, kWatchCritical);
  EXPECT_THAT(critical.out, HasSubstr("critical  job 2 other"));
}

TEST_F(WatchVerb, Json) {
  controller_.jobs[0].set_owner("4000000001");
  margins(0).set_quarantined("n[1-2]");
  const CommandRun run = run_hpctl({"watch", "quick", "--once", "--json"});
  EXPECT_EQ(run.status, kWatchWarn);
  json document = json::parse(run.out);
  EXPECT_EQ(document["worst"], "warn");
  EXPECT_EQ(document["jobs"], 1);
  ASSERT_EQ(document["findings"].size(), 2U);
  EXPECT_GT(document["findings"][0]["since_ms"], 0);
  document["findings"][0].erase("since_ms");
  EXPECT_EQ(document["findings"][0],
            json::parse(R"({"kind": "node_quarantined", "severity": "warn", "job": 1,
              "name": "quick", "user": "", "uid": "4000000001", "node": "n1",
              "what": "n1 is in quarantine",
              "do": "`hpctl nodes 1`: why; `hpctl nodes release` when it is repaired",
              "runbook": "file:///usr/share/doc/hpctl/runbook.md#node_quarantined"})"));
}

TEST_F(WatchVerb, OfOneJobItEndsWithIt) {
  controller_.jobs[0].set_state("FAILED");
  controller_.jobs[0].set_ended_wall_ms(1'763'700'065'000);  // long ago
  controller_.jobs[0].set_reason("no restarts left");
  const CommandRun run = run_hpctl({"watch", "quick", "--heartbeat", beat()});
  EXPECT_EQ(run.status, kWatchCritical);
  EXPECT_THAT(run.out, HasSubstr("critical  job 1 quick: it failed: no restarts left"));
  const auto text = read_file(beat());
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(json::parse(*text)["worst"], "critical");
  EXPECT_EQ(run_hpctl({"watch", "--once"}).status, kWatchNothing) << "who asked for all was told";
  const CommandRun lines = run_hpctl({"watch", "quick", "--json"});
  EXPECT_EQ(json::parse(lines.out)["change"], "begins");
  EXPECT_EQ(json::parse(lines.out)["finding"]["kind"], "failed");
}

TEST_F(WatchVerb, ASilentControllerIsFoundByItsRecord) {
  controller_.stop();
  JobView view;
  view.job = 7;
  view.name = "alone";
  view.state = "RUNNING";
  ASSERT_TRUE(make_directories(home_.paths().job(JobId{7})).ok());
  ASSERT_TRUE(write_status(home_.paths(), view).ok());
  EXPECT_EQ(run_hpctl({"watch", "alone", "--once"}).status, kWatchNothing) << "written just now";
  const std::string record = home_.paths().job_status(JobId{7});
  const auto age = [&](int64_t seconds) {
    const int64_t now_s = SystemClock().wall_ms() / 1000;
    const timespec times[] = {{now_s - seconds, 0}, {now_s - seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, record.c_str(), times, 0), 0);
  };
  age(120);
  EXPECT_EQ(run_hpctl({"watch", "alone", "--once"}).status, kWatchWarn);
  EXPECT_EQ(run_hpctl({"watch", "--once"}).status, kWatchWarn);
  age(600);
  const CommandRun run = run_hpctl({"watch", "alone", "--once"});
  EXPECT_EQ(run.status, kWatchCritical);
  EXPECT_THAT(run.out, HasSubstr("its controller has not answered for 10 min 0"));
}

TEST_F(WatchVerb, WhatCannotBeToldIsNoFinding) {
  const auto fails = [](const std::vector<std::string>& words, const std::string& why) {
    const CommandRun run = run_hpctl(words);
    EXPECT_EQ(run.status, kWatchUnknown) << run.out;
    EXPECT_THAT(run.err, HasSubstr(why));
    EXPECT_EQ(run.out, "");
  };
  fails({"watch", "nobody"}, "no job \"nobody\"");
  fails({"watch", "nobody", "--once"}, "no job \"nobody\"");
  fails({"watch", "-A", "--once"}, "set HPCTL_CLUSTER=HOST:PORT");
  fails({"watch", "quick", "-A"}, "either JOB or -A");
  fails({"watch", "quick", "other"}, "unexpected argument");
  fails({"watch", "--forever"}, "unknown option --forever");
  fails({"watch", "--interval", "0"}, "expected a whole number from 1 to 3600");
  fails({"watch", "--once", "--interval", "5"}, "there is no --interval");
  fails({"watch", "--heartbeat="}, "needs a file");
  EXPECT_EQ(run_hpctl({"watch", "quick", "--once", "--heartbeat", "/nowhere/beat"}).status,
            kWatchUnknown);
}

TEST(WatchRound, ARowOfAListIsASnapshot) {
  ListedJob job;
  job.summary.job = JobId{3};
  job.user = "alice";
  job.silent_ms = 17;
  const JobSnapshot snapshot = snapshot_of(job);
  EXPECT_EQ(snapshot.summary.job, JobId{3});
  EXPECT_EQ(snapshot.user, "alice");
  EXPECT_EQ(snapshot.silent_ms, 17);
  EXPECT_TRUE(std::isnan(snapshot.loss));
}

}  // namespace
}  // namespace hpctl::testing
