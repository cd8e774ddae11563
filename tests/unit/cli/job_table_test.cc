// SPDX-License-Identifier: Apache-2.0
// Lists of jobs: what is shown, in which order, and what there is room for.
#include "hpctl/job_table.h"
#include "common/job/time_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "common/rpc/job_summary_wire.h"
#include "hpctl/fleet.h"
#include "hpctl/terminal.h"

namespace hpctl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr WallTime kNow(1'763'700'000'000);
constexpr int64_t kHour = 3'600'000;

ListedJob training(uint64_t id, const std::string& name) {
  ListedJob job;
  JobSummary& s = job.summary;
  s.job = JobId{id};
  s.name = name;
  s.state = "RUNNING";
  s.taken_at = kNow;
  s.owner = "1000";
  s.step = 400;
  s.total_steps = 1'000;
  s.tokens_per_second = 12'345;
  s.step_ms = 1'500;
  s.nodes = {"p5-1", "p5-2"};
  s.ranks = 16;
  s.submitted_at = kNow.before(10 * kHour);
  s.spent.start_ms = kHour;
  s.spent.restart_ms = kHour;
  job.user = "alice";
  return job;
}

ListedJob told_little(uint64_t id) {
  ListedJob job;
  job.summary.job = JobId{id};
  job.summary.name = "old";
  job.summary.state = "RUNNING";
  return job;
}

std::vector<uint64_t> ids(const std::vector<ListedJob>& jobs) {
  std::vector<uint64_t> ids;
  for (const ListedJob& job : jobs) ids.push_back(job.summary.job.value);
  return ids;
}

TEST(JobTable, AJobInOneRow) {
  ListedJob job = training(17, "llama");
  job.summary.restarts = 3;
  job.summary.last_fault = "worker 2 on p5-1 died of SIGKILL at step 31";
  const JobTable table = job_rows({job, told_little(2)}, SIZE_MAX, kNow);
  EXPECT_THAT(table.header, ElementsAre("JOB", "NAME", "USER", "STATE", "NODES", "STEP", "TOK/S",
                                        "ETA", "RESTARTS", "GOODPUT", "AGE", "REASON"));
  EXPECT_THAT(table.rows[0], ElementsAre("17", "llama", "alice", "RUNNING", "2", "400/1000",
                                         "12.3k", "15m", "3", "88%", "10h00m",
                                         "recovered: worker 2 on p5-1 died of SIGKILL at step 31"));
  // An older controller says no more than this.
  EXPECT_THAT(table.rows[1],
              ElementsAre("2", "old", "-", "RUNNING", "-", "-", "-", "-", "-", "-", "-", ""));
}

TEST(JobTable, UnknownTimeOfSubmissionHasNoAge) {
  ListedJob job = training(17, "llama");
  job.summary.submitted_at = WallTime();
  EXPECT_EQ(job_rows({job}, SIZE_MAX, kNow).rows[0][10], "-");
  EXPECT_EQ(elapsed_ms(WallTime(), kNow), std::nullopt);
  EXPECT_EQ(elapsed_ms(kNow, WallTime()), std::nullopt);
  EXPECT_EQ(elapsed_ms(kNow, kNow.before(1)), 0) << "the clock went back";
  EXPECT_EQ(elapsed_ms(kNow, kNow.after(7)), 7);
}

TEST(JobTable, GoodputIsNotKnownOfACommandThatToldNoStep) {
  ListedJob job = training(17, "sh");
  job.summary.total_steps = 0;
  const auto goodput = [&] { return job_rows({job}, SIZE_MAX, kNow).rows[0][9]; };
  EXPECT_EQ(goodput(), "88%") << "it told steps";
  job.summary.step = 0;
  EXPECT_EQ(goodput(), "-");
  job.summary.state = "FINISHED";
  job.summary.ended_at = kNow;
  EXPECT_EQ(goodput(), "-");
}

TEST(JobTable, ReasonSaysWhyAJobDoesNotRun) {
  ListedJob job = training(1, "a");
  job.summary.state = "PENDING";
  job.summary.reason = "waits in Slurm's queue: Resources";
  EXPECT_EQ(job_rows({job}, SIZE_MAX, kNow).rows[0].back(), job.summary.reason);
  EXPECT_EQ(job_rows({job}, SIZE_MAX, kNow).rows[0][7], "-") << "it does not train";
  job.doubt = "its controller has not answered for 40s";
  EXPECT_EQ(job_rows({job}, SIZE_MAX, kNow).rows[0].back(), job.doubt);
  job = training(1, "a");
  job.summary.state = "FINISHED";
  job.summary.reason = "every worker finished; last step 60";
  EXPECT_EQ(job_rows({job}, SIZE_MAX, kNow).rows[0].back(), "");
}

TEST(JobTable, FitsTheTerminal) {
  ListedJob job = training(12'345, "a-very-long-name-of-a-job-of-somebody");
  job.summary.state = "RECOVERING";
  job.summary.reason = std::string(300, 'r');
  for (size_t width = 20; width <= 200; ++width) {
    const JobTable table = job_rows({job}, width, kNow);
    ASSERT_EQ(table.rows[0].size(), table.header.size());
    const bool has_reason = table.header.back() == "REASON";
    size_t used = 2 * (table.header.size() - 1);
    for (size_t c = 0; c < table.header.size(); ++c) {
      const bool is_cut = has_reason && c + 1 == table.header.size();
      used += is_cut ? 16 : std::max(columns(table.header[c]), columns(table.rows[0][c]));
    }
    if (width >= 40) {
      EXPECT_LE(used, width);
    }
    EXPECT_THAT(table.header, Contains("JOB"));
  }
  EXPECT_THAT(job_rows({job}, 80, kNow).header,
              ElementsAre("JOB", "NAME", "USER", "STATE", "STEP", "REASON"))
      << "the reason goes last";
  EXPECT_EQ(job_rows({job}, SIZE_MAX, kNow).rows[0][1], job.summary.name) << "a pipe gets it whole";
  const JobTable wide = job_rows({job}, std::nullopt, kNow);
  EXPECT_EQ(wide.rows[0][1], job.summary.name) << "nothing is cut";
  EXPECT_EQ(wide.header.back(), "NODELIST");
  EXPECT_EQ(wide.rows[0].back(), "p5-[1-2]");
}

TEST(JobTable, WhatAJobIsNamedDoesNotReachTheTerminal) {
  const JobTable table = job_rows({training(1, "\x1b[2J\nx")}, 200, kNow);
  EXPECT_EQ(table.rows[0][1], "?[2J x");
}

TEST(JobTable, Filters) {
  const ListedJob job = training(1, "llama-70b");
  EXPECT_TRUE(JobFilter{}.matches(job));
  EXPECT_TRUE((JobFilter{{"PENDING", "RUNNING"}, "", "", ""}.matches(job)));
  EXPECT_FALSE((JobFilter{{"PENDING"}, "", "", ""}.matches(job)));
  EXPECT_TRUE((JobFilter{{}, "alice", "", ""}.matches(job)));
  EXPECT_TRUE((JobFilter{{}, "1000", "", ""}.matches(job)));
  EXPECT_FALSE((JobFilter{{}, "bob", "", ""}.matches(job)));
  EXPECT_TRUE((JobFilter{{}, "", "p5-2", ""}.matches(job)));
  EXPECT_TRUE((JobFilter{{}, "", "p5-?", ""}.matches(job)));
  EXPECT_FALSE((JobFilter{{}, "", "p5", ""}.matches(job)));
  EXPECT_TRUE((JobFilter{{}, "", "", "llama*"}.matches(job)));
  EXPECT_FALSE((JobFilter{{}, "", "", "llama"}.matches(job)));
}

TEST(JobTable, States) {
  EXPECT_THAT(*parse_states("running,Failed"), ElementsAre("RUNNING", "FAILED"));
  EXPECT_THAT(*parse_states("live"), Contains("PENDING"));
  EXPECT_THAT(*parse_states("live"), Not(Contains("FINISHED")));
  EXPECT_THAT(*parse_states("ended"), ElementsAre("FINISHED", "FAILED", "CANCELLED", "TIMEOUT"));
  EXPECT_THAT(parse_states("runing").error().message, HasSubstr("did you mean RUNNING?"));
  EXPECT_FALSE(parse_states("").ok());
  EXPECT_FALSE(parse_states("running,").ok());
}

TEST(JobTable, SortsByWhatIsShownTheUnknownLast) {
  std::vector<ListedJob> jobs = {told_little(1), training(9, "b"), training(10, "a")};
  jobs[1].summary.spent.restart_ms = 3 * kHour;
  jobs[2].summary.step_ms = 10;
  sort_jobs(jobs, *parse_order("goodput"));
  EXPECT_THAT(ids(jobs), ElementsAre(9, 10, 1));
  sort_jobs(jobs, *parse_order("-goodput"));
  EXPECT_THAT(ids(jobs), ElementsAre(10, 9, 1));
  sort_jobs(jobs, *parse_order("eta"));
  EXPECT_THAT(ids(jobs), ElementsAre(10, 9, 1));
  sort_jobs(jobs, *parse_order("job"));
  EXPECT_THAT(ids(jobs), ElementsAre(1, 9, 10)) << "by number";
  sort_jobs(jobs, *parse_order("name"));
  EXPECT_THAT(ids(jobs), ElementsAre(10, 9, 1));
  sort_jobs(jobs, *parse_order("nodes"));
  EXPECT_THAT(ids(jobs), ElementsAre(9, 10, 1)) << "equal ones by job";
  for (const std::string& key : order_keys()) EXPECT_TRUE(parse_order(key).ok()) << key;
  EXPECT_THAT(parse_order("gdput").error().message, HasSubstr("goodput, age"));
  EXPECT_FALSE(parse_order("").ok());
}

TEST(JobTable, Durations) {
  EXPECT_EQ(short_duration(-5), "0s");
  EXPECT_EQ(short_duration(59'999), "59s");
  EXPECT_EQ(short_duration(60'000), "1m");
  EXPECT_EQ(short_duration(3'600'000 + 5 * 60'000), "1h05m");
  EXPECT_EQ(short_duration(51 * kHour), "2d03h");
  EXPECT_EQ(short_duration(128 * 24 * kHour), "128d");
}

TEST(JobSummaryWire, ComesBackAndIsBounded) {
  const JobSummary summary = training(7, "x").summary;
  v1::JobSummary wire;
  fill(summary, wire);
  const JobSummary back = to_job_summary(wire);
  EXPECT_EQ(back.nodes, summary.nodes);
  EXPECT_EQ(back.spent, summary.spent);
  EXPECT_EQ(back.step_ms, summary.step_ms);
  EXPECT_EQ(back.owner, summary.owner);

  EXPECT_FALSE(back.margins) << "an older release";
  JobSummary told = summary;
  told.margins = JobMargins{20,   3'600'000,    3,  2, 4, 1, {"n1", "n2"}, {"n9"}, 17, 18,
                            "no", {"n3", "n4"}, 19, 5};
  told.margins->hang_warning = "silent";
  v1::JobSummary wire_told;
  fill(told, wire_told);
  const JobMargins margins = to_job_summary(wire_told).margins.value();
  EXPECT_EQ(margins.max_restarts, 20);
  EXPECT_EQ(margins.window_ms, 3'600'000);
  EXPECT_EQ(margins.recent_restarts, 3);
  EXPECT_EQ(margins.hour_restarts, 2);
  EXPECT_EQ(margins.spares_wanted, 4U);
  EXPECT_EQ(margins.spares_left, 1U);
  EXPECT_EQ(margins.quarantined, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(margins.slow, std::vector<std::string>{"n9"});
  EXPECT_EQ(margins.still_ms, 17);
  EXPECT_EQ(margins.recovering_ms, 18);
  EXPECT_EQ(margins.requeue_refusal, "no");
  EXPECT_EQ(margins.lemons, (std::vector<std::string>{"n3", "n4"}));
  EXPECT_EQ(margins.storage_ms, 19);
  EXPECT_EQ(margins.failed_saves, 5U);
  EXPECT_EQ(margins.hang_warning, "silent");
  wire_told.mutable_margins()->set_recent_restarts(-1);
  wire_told.mutable_margins()->set_still_ms(INT64_MIN);
  wire_told.mutable_margins()->set_quarantined(std::string(1U << 20, ','));
  const JobMargins plausible = to_job_summary(wire_told).margins.value();
  EXPECT_EQ(plausible.recent_restarts, 0);
  EXPECT_EQ(plausible.still_ms, 0);
  EXPECT_TRUE(plausible.quarantined.empty());

  wire.set_step(UINT64_MAX);
  wire.set_step_ms(INFINITY);
  wire.set_submitted_wall_ms(INT64_MIN);
  wire.set_restarts(INT64_MAX);
  wire.mutable_spent()->set_wait_ms(INT64_MAX);
  wire.set_nodes(std::string(1U << 20, ','));
  wire.set_reason(std::string(299, 'x') + "\xc3\xa4" + std::string(1'000, 'x'));
  const JobSummary bounded = to_job_summary(wire);
  EXPECT_GT(goodput_of(bounded).value_or(0), -1) << "nothing overflows";
  EXPECT_EQ(bounded.step_ms, 0);
  EXPECT_TRUE(bounded.nodes.empty());
  EXPECT_EQ(bounded.reason, std::string(299, 'x')) << "not within a character";
}

ClusterListing listing(const std::string& address, bool all_users,
                       const std::vector<v1::ClusterJob>& jobs) {
  v1::ClusterJobs answer;
  answer.set_all_users(all_users);
  for (const v1::ClusterJob& job : jobs) *answer.add_jobs() = job;
  return {address, std::move(answer)};
}

v1::ClusterJob cluster_job(uint32_t uid, uint64_t id, uint64_t heard_ms) {
  v1::ClusterJob job;
  job.set_uid(uid);
  job.set_job(id);
  job.set_pid(42);
  job.set_heard_ms(heard_ms);
  fill(training(id, "at-" + std::to_string(heard_ms)).summary, *job.mutable_summary());
  return job;
}

TEST(Fleet, OfTwoHeadsTheOneThatHeardLast) {
  v1::ClusterJob gone = cluster_job(4'000'000'001U, 7, 0);
  gone.set_pid(0);
  const Fleet fleet = join_listings(
      {listing("head1:1", true, {gone, cluster_job(4'000'000'001U, 8, 900)}),
       listing("head2:1", true,
               {cluster_job(4'000'000'001U, 7, 500), cluster_job(4'000'000'001U, 8, 90'000),
                cluster_job(4'000'000'002U, 7, 20'000)})},
      0);
  ASSERT_EQ(ids(fleet.jobs), (std::vector<uint64_t>{7, 7, 8}));
  EXPECT_EQ(fleet.jobs[0].summary.name, "at-500");
  EXPECT_EQ(fleet.jobs[0].user, "4000000001") << "nobody is known by it";
  EXPECT_EQ(fleet.jobs[0].doubt, "");
  EXPECT_EQ(fleet.jobs[1].doubt, "its controller has not answered for 20s");
  EXPECT_EQ(fleet.jobs[2].summary.name, "at-900");
  EXPECT_TRUE(fleet.all_users);
}

// How a job ended is known of its life before, too.
TEST(Fleet, AJobThatIsThereComesBeforeOneThatHasEnded) {
  const auto ended = [](uint64_t id, uint64_t heard_ms) {
    v1::ClusterJob job = cluster_job(4'000'000'001U, id, heard_ms);
    job.set_pid(0);
    job.mutable_summary()->set_state("FAILED");
    job.mutable_summary()->set_ended_wall_ms(1);
    return job;
  };
  v1::ClusterJob untold = cluster_job(4'000'000'001U, 7, 0);
  untold.clear_summary();
  untold.set_heard_ms(20'000);
  const Fleet fleet = join_listings({listing("head1:1", true, {ended(7, 100), ended(8, 90'000)}),
                                     listing("head2:1", true, {untold})},
                                    0);
  ASSERT_EQ(ids(fleet.jobs), (std::vector<uint64_t>{7, 8}));
  EXPECT_FALSE(fleet.jobs[0].summary.is_told()) << "it runs again";
  EXPECT_EQ(fleet.jobs[0].doubt, "its controller has not answered for 20s");
  EXPECT_EQ(fleet.jobs[1].summary.state, "FAILED");
  EXPECT_EQ(fleet.jobs[1].doubt, "") << "nobody has to answer for it";
}

TEST(Fleet, AnOldServiceAndOneThatIsAway) {
  v1::ClusterJob old;
  old.set_job(7);
  old.set_pid(1);
  const Fleet fleet = join_listings(
      {listing("old:1", false, {old}),
       {"away:1", Error{ErrorCode::kUnavailable, "the cluster controller at away:1 is away"}}},
      4'000'000'003U);
  ASSERT_EQ(fleet.jobs.size(), 1U);
  EXPECT_EQ(fleet.jobs[0].summary.owner, "4000000003") << "it lists the caller's";
  EXPECT_FALSE(fleet.jobs[0].summary.is_told());
  EXPECT_FALSE(fleet.all_users);
  EXPECT_THAT(fleet.notes, ElementsAre(HasSubstr("away:1 is away")));
}

}  // namespace
}  // namespace hpctl
