// SPDX-License-Identifier: Apache-2.0
// Each detector: silent a moment before its threshold, there at it, over when its cause is; and
// none says anything of jobs that are well, however they came about.
#include "common/watch/job_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "common/base/file.h"
#include "common/base/rng.h"

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr WallTime kNow(1'795'000'000'000);
constexpr int64_t kHour = 3'600'000;
constexpr int64_t kMinute = 60'000;

JobSnapshot healthy() {
  JobSnapshot snapshot;
  JobSummary& job = snapshot.summary;
  job.job = JobId{3};
  job.name = "tiny";
  job.owner = "1000";
  job.state = "RUNNING";
  job.taken_at = kNow;
  job.submitted_at = kNow.before(kHour / 2);
  job.generation = 2;
  job.step = 100;
  job.step_ms = 500;
  job.spent.start_ms = 5'000;
  JobMargins& margins = job.margins.emplace();
  margins.max_restarts = 20;
  margins.window_ms = kHour;
  margins.spares_wanted = margins.spares_left = 2;
  snapshot.user = "alice";
  snapshot.loss = 2.5;
  return snapshot;
}

std::vector<std::string> words(const std::vector<Finding>& findings) {
  std::vector<std::string> text;
  for (const Finding& found : findings) {
    text.push_back(std::string(to_word(found.severity)) + " " + to_word(found.kind) +
                   (found.node.empty() ? "" : " " + found.node));
  }
  return text;
}

// Of one look, by a watch that has seen nothing before.
std::vector<Finding> look(const JobSnapshot& snapshot, bool tells_old = false) {
  return JobWatch(tells_old).look(snapshot, kNow);
}

TEST(JobWatch, AJobThatIsWellHasNoFindings) { EXPECT_THAT(look(healthy()), IsEmpty()); }

TEST(JobWatch, DeletedDirectoryOfARunningJobIsFound) {
  JobSnapshot job = healthy();
  job.lost_directory = "/home/alice/.hpctl/jobs/3";
  for (const char* state : {"RUNNING", "RECOVERING", "SUSPENDED"}) {
    job.summary.state = state;
    const auto found = look(job);
    ASSERT_THAT(words(found), ElementsAre("critical directory_gone")) << state;
    EXPECT_THAT(found[0].what, HasSubstr("/home/alice/.hpctl/jobs/3 was deleted"));
  }
  for (const char* state : {"STARTING", "FINISHED", "CANCELLED"}) {
    job.summary.state = state;
    EXPECT_THAT(look(job), IsEmpty()) << state;
  }
}

// Slurm would start it, and its batch script would find nothing.
TEST(JobWatch, DeletedDirectoryOfAQueuedJobIsFound) {
  JobSnapshot job = healthy();
  job.summary.state = "PENDING";
  job.lost_directory = "/home/alice/.hpctl/jobs/submit-1";
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("critical directory_gone"));
  EXPECT_THAT(found[0].what, HasSubstr("it cannot start"));
}

TEST(JobWatch, AFailureIsCriticalForAnHour) {
  JobSnapshot job = healthy();
  job.summary.state = "FAILED";
  job.summary.reason = "no restarts left";
  job.summary.ended_at = kNow.before(kHour - 1);
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("critical failed"));
  EXPECT_EQ(found[0].what, "it failed: no restarts left");
  EXPECT_EQ(found[0].since, kNow.before(kHour - 1));
  job.summary.ended_at = kNow.before(kHour);
  EXPECT_THAT(look(job), IsEmpty());
  EXPECT_THAT(words(look(job, true)), ElementsAre("critical failed")) << "who asks for it";
  job.summary.ended_at = WallTime();
  EXPECT_THAT(look(job), IsEmpty()) << "nobody knows how long ago";
  EXPECT_EQ(look(job, true)[0].since, kNow) << "not 1970";
  job.summary.state = "TIMEOUT";
  EXPECT_THAT(look(job, true)[0].what, HasSubstr("its time limit ended it"));
  for (const char* state : {"FINISHED", "CANCELLED"}) {
    job.summary.state = state;
    EXPECT_THAT(look(job, true), IsEmpty()) << state;
  }
}

// A held job waited for ever, and nothing was found.
TEST(JobWatch, AJobThatSlurmNeverStartsIsFound) {
  JobSnapshot job = healthy();
  job.summary.state = "PENDING";
  job.summary.reason = "waits in Slurm's queue: JobHeldUser";
  EXPECT_THAT(look(job), IsEmpty()) << "a queue that only takes time";
  job.summary.queue_remedy = "scontrol release 17";
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("warn queue_blocked"));
  EXPECT_THAT(found[0].what, HasSubstr("JobHeldUser"));
  EXPECT_EQ(found[0].action, "scontrol release 17");
  job.summary.state = "RUNNING";
  EXPECT_THAT(look(job), IsEmpty());
}

TEST(JobWatch, ARecoveryOfAQuarterOfAnHourIsCritical) {
  JobSnapshot job = healthy();
  job.summary.state = "RECOVERING";
  job.summary.reason = "waits for n3";
  job.summary.margins->recovering_ms = kRecoversForLongMs - 1;
  EXPECT_THAT(look(job), IsEmpty());
  job.summary.margins->recovering_ms = kRecoversForLongMs;
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("critical recovers_for_long"));
  EXPECT_EQ(found[0].what, "it has not trained for 15 min 00 s: waits for n3");
  EXPECT_EQ(found[0].since, kNow.before(kRecoversForLongMs));
  // It trains again, and repeats the steps that were lost.
  job.summary.state = "RUNNING";
  EXPECT_THAT(look(job), IsEmpty());
}

TEST(JobWatch, StepsThatStandStill) {
  JobSnapshot job = healthy();
  job.summary.margins->still_ms = kStandsStillMs - 1;
  EXPECT_THAT(look(job), IsEmpty());
  job.summary.margins->still_ms = kStandsStillMs;
  EXPECT_THAT(words(look(job)), ElementsAre("warn stands_still"));
  job.summary.step_ms = 10 * kMinute;  // its steps are long
  EXPECT_THAT(look(job), IsEmpty());
  job.summary.margins->still_ms = 50 * kMinute;
  EXPECT_THAT(words(look(job)), ElementsAre("warn stands_still"));
}

TEST(JobWatch, ASilentController) {
  JobSnapshot job = healthy();
  job.summary.margins->still_ms = kHour;  // what it said last is not judged
  job.silent_ms = kSilentMs;
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("warn controller_silent"));
  EXPECT_EQ(found[0].since, kNow.before(kSilentMs));
  job.silent_ms = kSilentForLongMs;
  EXPECT_THAT(words(look(job)), ElementsAre("critical controller_silent"));
  for (const char* state : {"PENDING", "FINISHED", "CANCELLED", "UNKNOWN"}) {
    job.summary.state = state;
    EXPECT_THAT(look(job), IsEmpty()) << state << ": nobody has to answer for it";
  }
  job.summary.state = "";
  EXPECT_THAT(words(look(job)), ElementsAre("critical controller_silent"))
      << "it has not said anything since somebody asks";
  job.summary.state = "FAILED";
  job.summary.ended_at = kNow.before(kSilentForLongMs);
  EXPECT_THAT(words(look(job)), ElementsAre("critical failed")) << "its controller ended with it";
}

TEST(JobWatch, FewRestartsAreLeft) {
  JobSnapshot job = healthy();
  job.summary.margins->max_restarts = 8;
  job.summary.margins->recent_restarts = 5;
  EXPECT_THAT(look(job), IsEmpty());
  job.summary.margins->recent_restarts = 6;
  EXPECT_THAT(words(look(job)), ElementsAre("warn budget_low"));
  job.summary.margins->recent_restarts = 8;
  job.summary.last_fault = "worker 2 on n1 died of SIGKILL";
  const auto found = look(job);
  EXPECT_THAT(words(found), ElementsAre("critical budget_low"));
  EXPECT_EQ(found[0].what,
            "the next fault fails it: 0 of 8 within 1 h 00 min; last: worker 2 on n1 died of "
            "SIGKILL");
  job.summary.margins->max_restarts = 0;  // none was ever allowed
  job.summary.margins->recent_restarts = 0;
  EXPECT_THAT(look(job), IsEmpty());
}

TEST(JobWatch, RestartsWithinAnHour) {
  JobSnapshot job = healthy();
  job.summary.margins->hour_restarts = kRestartsOften - 1;
  EXPECT_THAT(look(job), IsEmpty());
  job.summary.margins->hour_restarts = kRestartsOften;
  EXPECT_THAT(words(look(job)), ElementsAre("warn restarts_often"));
  job.summary.margins->since_restart_ms = 300'000;
  EXPECT_EQ(look(job)[0].since, kNow.before(300'000)) << "not when it was looked at";
}

TEST(JobWatch, StorageThatIsAway) {
  JobSnapshot job = healthy();
  job.summary.state = "RECOVERING";
  job.summary.reason = "waiting for storage: cannot read /data/tokens.bin: Stale file handle";
  job.summary.margins->storage_ms = kStorageAwayMs - 1;
  EXPECT_THAT(look(job), IsEmpty());
  job.summary.margins->storage_ms = kStorageAwayMs;
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("warn storage_away"));
  EXPECT_EQ(found[0].what,
            "storage does not answer: it has waited for 1 min 00 s: waiting for storage: cannot "
            "read /data/tokens.bin: Stale file handle");
  EXPECT_EQ(found[0].since, kNow.before(kStorageAwayMs));
  job.summary.margins->storage_ms = kStorageAwayForLongMs;
  EXPECT_THAT(words(look(job)), ElementsAre("critical storage_away"));
  job.summary.state = "FAILED";
  for (const std::string& word : words(look(job))) EXPECT_THAT(word, Not(HasSubstr("storage")));
}

TEST(JobWatch, MirrorThatLags) {
  JobSnapshot job = healthy();
  job.summary.margins->mirror_behind_ms = kMirrorLagsMs - 1;
  EXPECT_THAT(look(job), IsEmpty());
  job.summary.margins->mirror_behind_ms = kMirrorLagsMs;
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("warn mirror_lags"));
  EXPECT_EQ(found[0].what, "its mirror lags: a copy has been due for 30 min 00 s");
  EXPECT_EQ(found[0].since, kNow.before(kMirrorLagsMs));
}

// With a full disk `status` said "training normally" for the first minute.
TEST(JobWatch, SavesThatFail) {
  JobSnapshot job = healthy();
  job.summary.margins->failed_saves = kFailedSavesWarn - 1;
  EXPECT_THAT(look(job), IsEmpty()) << "it is tried again within seconds";
  job.summary.margins->failed_saves = kFailedSavesWarn;
  EXPECT_THAT(words(look(job)), ElementsAre("warn storage_away"));
  job.summary.margins->failed_saves = kFailedSavesCritical - 1;
  EXPECT_THAT(words(look(job)), ElementsAre("warn storage_away"));
  job.summary.margins->failed_saves = kFailedSavesCritical;
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("critical storage_away"));
  EXPECT_THAT(found[0].what, HasSubstr("5 saves in a row failed; what it computes"));
  job.saves_problem = "/ck has no owner.json";
  EXPECT_THAT(look(job)[0].what, HasSubstr("5 saves in a row failed: /ck has no owner.json; what"));
}

TEST(JobWatch, SparesNodesAndRequeue) {
  JobSnapshot job = healthy();
  job.summary.margins->spares_left = 0;
  job.summary.margins->quarantined = {"n7", "n1"};
  job.summary.margins->slow = {"n2"};
  job.summary.margins->lemons = {"n3"};
  job.summary.margins->requeue_refusal = "the job's Requeue is 0";
  EXPECT_THAT(words(look(job)), ElementsAre("warn spares_exhausted", "warn requeue_refused",
                                            "warn node_quarantined n1", "warn node_quarantined n7",
                                            "warn node_slow n2", "warn node_lemon n3"));
  for (const char* state : {"PENDING", "STARTING", "SUSPENDED", "STOPPING", "FINISHED"}) {
    job.summary.state = state;
    EXPECT_THAT(look(job), IsEmpty()) << state;
  }
  job.summary.state = "RUNNING";
  job.summary.margins->slow.clear();
  job.summary.margins->lemons.clear();
  for (int i = 10; i < 60; ++i) {
    job.summary.margins->quarantined.push_back("n" + std::to_string(i));
  }
  EXPECT_EQ(look(job).size(), 2 + kMostNodesTold);
}

// recovery.hang_rules with action warn.
TEST(JobWatch, ARuleThatWarnsOfAHang) {
  JobSnapshot job = healthy();
  job.summary.margins->hang_warning = "no rank has printed a line that matches \"loss=\" for 60 s";
  const auto found = look(job);
  ASSERT_THAT(words(found), ElementsAre("warn hang_suspected"));
  EXPECT_EQ(found[0].what, job.summary.margins->hang_warning);
  EXPECT_THAT(found[0].action, HasSubstr("hpctl logs 3"));
  job.summary.state = "RECOVERING";
  EXPECT_THAT(look(job), IsEmpty());
}

TEST(JobWatch, ALossThatWasFinite) {
  JobWatch watch(false);
  JobSnapshot job = healthy();
  job.loss = NAN;  // of a command, or not heard yet
  EXPECT_THAT(watch.look(job, kNow), IsEmpty());
  job.loss = 2.5;
  EXPECT_THAT(watch.look(job, kNow), IsEmpty());
  job.loss = NAN;
  EXPECT_THAT(watch.look(job, kNow), IsEmpty()) << "the same step: nothing was computed since";
  job.summary.step = 101;
  const auto found = watch.look(job, kNow);
  EXPECT_THAT(words(found), ElementsAre("critical loss_not_finite"));
  EXPECT_THAT(found[0].what, HasSubstr("it was at step 100"));
  job.summary.generation = 3;  // its ranks have not told anything yet
  EXPECT_THAT(watch.look(job, kNow), IsEmpty());
}

TEST(JobWatch, ARankOfAGenerationThatIsOver) {
  JobWatch watch(false);
  JobSnapshot job = healthy();
  job.orphans = {{4, "n2", 1}, {5, "n2", 1}};
  EXPECT_THAT(watch.look(job, kNow), IsEmpty()) << "it may just be ending";
  EXPECT_THAT(watch.look(job, kNow.after(kOrphanMs - 1)), IsEmpty());
  const auto found = watch.look(job, kNow.after(kOrphanMs));
  ASSERT_THAT(words(found), ElementsAre("warn generation_orphaned"));
  EXPECT_EQ(found[0].what, "rank 4 on n2 runs in generation 1, and the job in 2; 1 more like it");
  EXPECT_EQ(found[0].since, kNow);
  job.orphans.clear();
  EXPECT_THAT(watch.look(job, kNow.after(2 * kOrphanMs)), IsEmpty());
}

// A day of a job, looked at each minute, of which so many ms are lost in the minute.
class Day {
 public:
  std::vector<std::string> minute(int64_t lost_ms) {
    now_ = now_.after(kMinute);
    job_.summary.spent.restart_ms += lost_ms;
    job_.summary.taken_at = now_;
    return words(watch_.look(job_, now_));
  }
  void age(int64_t ms) { job_.summary.submitted_at = job_.summary.submitted_at.before(ms); }

 private:
  JobSnapshot job_ = [] {
    JobSnapshot job = healthy();
    job.summary.submitted_at = kNow.before(5'000);
    return job;
  }();
  JobWatch watch_{false};
  WallTime now_ = kNow;
};

TEST(JobWatch, GoodputOfTheLastHours) {
  Day day;
  for (int i = 0; i < 59; ++i) EXPECT_THAT(day.minute(kMinute / 2), IsEmpty()) << "too young";
  EXPECT_THAT(day.minute(kMinute / 2), ElementsAre("warn goodput_fell"));
  // Two bad hours at its beginning are told as long as they are within the window.
  for (int i = 0; i < 60; ++i)
    EXPECT_THAT(day.minute(kMinute / 2), ElementsAre("warn goodput_fell"));
  int minutes = 0;
  while (!day.minute(0).empty() && minutes < 1'000) ++minutes;
  EXPECT_GE(minutes, 5 * 60);
  EXPECT_LE(minutes, 6 * 60);
  for (int i = 0; i < 600; ++i) EXPECT_THAT(day.minute(2'000), IsEmpty());
}

TEST(JobWatch, AWatcherThatComesLateJudgesWhatItHasSeen) {
  Day day;
  day.age(100 * kHour);
  for (int i = 0; i < 60; ++i) EXPECT_THAT(day.minute(kMinute / 2), IsEmpty());
  EXPECT_THAT(day.minute(kMinute / 2), ElementsAre("warn goodput_fell"));
}

TEST(JobWatch, WhatAnOlderControllerDoesNotTellIsNotJudged) {
  JobSnapshot job = healthy();
  job.summary.margins.reset();
  job.summary.state = "RECOVERING";
  EXPECT_THAT(look(job), IsEmpty());
  job.summary.taken_at = WallTime();
  job.summary.state = "FAILED";
  EXPECT_THAT(look(job), IsEmpty());
}

// A life of a job: faults that are made good, a few in an hour, values that jump about within what
// is well.
TEST(JobWatch, RandomHealthyHistoriesAreNeverTold) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    JobWatch watch(false);
    JobSnapshot job = healthy();
    JobSummary& s = job.summary;
    s.submitted_at = kNow;
    s.state = "PENDING";
    s.step = 0;
    s.spent = {};
    job.loss = NAN;
    int64_t now_ms = kNow.unix_ms();
    std::vector<int64_t> restarts_ms;
    for (int round = 0; round < 400; ++round) {
      const auto passed_ms = static_cast<int64_t>(rng.below(120'000));
      now_ms += passed_ms;
      s.taken_at = WallTime(now_ms);
      JobMargins& margins = *s.margins;
      std::erase_if(restarts_ms, [&](int64_t at_ms) { return now_ms - at_ms >= kHour; });
      margins.still_ms = margins.recovering_ms = 0;
      if (s.state == "PENDING" || s.state == "STARTING") {
        s.state = rng.below(4) == 0 ? "RUNNING" : "STARTING";
        if (s.state == "RUNNING") s.spent.start_ms = now_ms - kNow.unix_ms();
      } else if (s.state == "RUNNING") {
        s.step += 1 + rng.below(100);
        job.loss = rng.below(10) == 0 ? 1e30 : 3.0;
        margins.still_ms = static_cast<int64_t>(rng.below(kStandsStillMs));
        const bool may_fail = restarts_ms.size() + 1 < static_cast<size_t>(kRestartsOften);
        if (may_fail && rng.below(40) == 0) {
          s.state = "RECOVERING";
          restarts_ms.push_back(now_ms);
          ++s.restarts;
        }
      } else {
        margins.recovering_ms = static_cast<int64_t>(rng.below(60'000));
        s.spent.restart_ms += std::min<int64_t>(passed_ms, 30'000);
        s.state = "RUNNING";
        ++s.generation;
      }
      margins.recent_restarts = margins.hour_restarts = static_cast<int64_t>(restarts_ms.size());
      margins.spares_left = 1 + static_cast<uint32_t>(rng.below(2));
      job.silent_ms = static_cast<int64_t>(rng.below(kSilentMs));
      ASSERT_THAT(words(watch.look(job, WallTime(now_ms))), IsEmpty())
          << "seed " << seed << ", round " << round;
    }
  }
}

TEST(FleetWatch, TellsWhatBeginsAndEndsOnce) {
  FleetWatch watch(false);
  JobSnapshot one = healthy();
  JobSnapshot two = healthy();
  two.summary.job = JobId{4};
  EXPECT_THAT(watch.look({one, two}, kNow).begun, IsEmpty());
  EXPECT_EQ(watch.worst(), std::nullopt);

  two.summary.margins->spares_left = 0;
  EXPECT_THAT(words(watch.look({one, two}, kNow.after(1)).begun),
              ElementsAre("warn spares_exhausted"));
  EXPECT_EQ(watch.worst(), Severity::kWarn);
  EXPECT_THAT(watch.look({one, two}, kNow.after(2)).begun, IsEmpty()) << "it lasts";
  EXPECT_EQ(watch.present()[0].since, kNow.after(1));

  one.silent_ms = kSilentMs;
  EXPECT_THAT(words(watch.look({one, two}, kNow.after(3)).begun),
              ElementsAre("warn controller_silent"));
  one.silent_ms = kSilentForLongMs;
  EXPECT_THAT(words(watch.look({one, two}, kNow.after(4)).begun),
              ElementsAre("critical controller_silent"))
      << "it got worse";
  EXPECT_EQ(watch.worst(), Severity::kCritical);
  EXPECT_THAT(words(watch.present()),
              ElementsAre("critical controller_silent", "warn spares_exhausted"));

  one.silent_ms = 0;
  const WatchChanges changes = watch.look({one}, kNow.after(5));
  EXPECT_THAT(changes.begun, IsEmpty());
  EXPECT_THAT(words(changes.ended),
              ElementsAre("critical controller_silent", "warn spares_exhausted"))
      << "one answers again, one is not listed any more";
  EXPECT_EQ(watch.worst(), std::nullopt);
}

TEST(FleetWatch, JobsOfTwoUsersMayHaveOneId) {
  FleetWatch watch(false);
  JobSnapshot one = healthy();
  JobSnapshot two = healthy();
  two.summary.owner = "1001";
  two.summary.margins->spares_left = 0;
  EXPECT_EQ(watch.look({one, two}, kNow).begun.size(), 1U);
  EXPECT_EQ(watch.look({two, one}, kNow).begun.size(), 0U);
}

TEST(Findings, EachKindHasASectionOfTheRunbook) {
  const auto text = read_file(std::string(std::getenv("HPCTL_SOURCE")) + "/docs/runbook.md");
  ASSERT_TRUE(text.ok()) << text.error().message;
  std::string headings = *text;
  std::transform(headings.begin(), headings.end(), headings.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (size_t i = 0; i < words_of(FindingKind{}).size(); ++i) {
    const std::string link = runbook_of(static_cast<FindingKind>(i));
    const std::string page = std::string(kRunbook) + "#";
    ASSERT_TRUE(link.starts_with(page)) << link;
    EXPECT_THAT(headings, HasSubstr("\n## " + link.substr(page.size()) + "\n"));
  }
}

// A kind that has an alert of its own leads to the section of that alert, and the rules for all
// others leave it out; theirs lead to a section named as the kind is.
TEST(Findings, EachKindHasOneAlert) {
  const std::string source = std::getenv("HPCTL_SOURCE");
  const auto rules = read_file(source + "/deploy/prometheus/hpctl-rules.yml");
  ASSERT_TRUE(rules.ok()) << rules.error().message;
  std::string with_their_own;
  for (size_t i = 0; i < words_of(FindingKind{}).size(); ++i) {
    const auto kind = static_cast<FindingKind>(i);
    const std::string section = runbook_of(kind).substr(runbook_of(kind).find('#') + 1);
    if (!section.starts_with("hpctl")) {
      EXPECT_EQ(section, to_word(kind));
      continue;
    }
    EXPECT_THAT(*rules, HasSubstr("runbook_url: \"" + runbook_of(kind) + "\""));
    with_their_own += (with_their_own.empty() ? "" : "|") + std::string(to_word(kind));
  }
  const std::string left_out = "kind!~\"" + with_their_own + "\"";
  size_t found = 0;
  for (size_t at = rules->find("kind!~"); at != std::string::npos;
       at = rules->find("kind!~", at + 1)) {
    EXPECT_EQ(rules->substr(at, left_out.size()), left_out);
    ++found;
  }
  EXPECT_EQ(found, 4U) << "critical and warn, of a job's controller and of a cluster's";
}

}  // namespace
}  // namespace hpctl
