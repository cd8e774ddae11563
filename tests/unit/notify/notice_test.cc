// SPDX-License-Identifier: Apache-2.0
// What is told of a job, once, in which words, and how a flood of it is kept small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json.h"
#include "controller/notify/core/notice_maker.h"

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNow = 1'795'000'000'000;

core::Job running_job() {
  core::Job job;
  job.id = JobId{3};
  job.spec.name = "tiny";
  job.owner_uid = 1000;
  job.state = core::JobState::kRunning;
  job.generation = Generation{2};
  job.furthest_step = 31;
  job.submitted_wall_ms = kNow - 60'000;
  job.restarts = 1;
  core::Fault fault;
  fault.cause = "worker 2 on n1 died of SIGKILL at step 31";
  job.recent_faults = {fault};
  return job;
}

core::LogEntry entry(const std::string& type, const std::string& cause = "") {
  core::LogEntry entry;
  entry.type = type;
  entry.job = JobId{3};
  entry.cause = cause;
  return entry;
}

std::vector<std::string> words(const std::vector<Notice>& notices) {
  std::vector<std::string> text;
  for (const Notice& notice : notices) {
    text.push_back(std::string(to_word(notice.kind)) + (notice.is_over ? " over" : "") + ": " +
                   notice.what);
  }
  return text;
}

Finding finding(FindingKind kind, Severity severity) {
  Finding found;
  found.kind = kind;
  found.severity = severity;
  found.what = "so it is";
  found.action = "do that";
  return found;
}

TEST(NoticeMaker, ARecoveryIsToldWhenItTrainsAgain) {
  NoticeMaker maker;
  const core::Job job = running_job();
  EXPECT_THAT(maker.take(entry("JobRunning", "generation 1 completed step 1"), job, kNow),
              IsEmpty())
      << "its start is no recovery";
  EXPECT_THAT(maker.take(entry("JobRecovering", "worker 3 lost a peer"), job, kNow), IsEmpty());
  EXPECT_THAT(maker.take(entry("JobRecovering", "another fault"), job, kNow + 100), IsEmpty());
  core::LogEntry runs = entry("JobRunning", "generation 2 completed step 32");
  runs.step = 32;
  const auto told = maker.take(runs, job, kNow + 600);
  ASSERT_THAT(words(told),
              ElementsAre("recovery: it trains again, 0.6 s after: worker 2 on n1 died of SIGKILL "
                          "at step 31; generation 2 completed step 32"));
  EXPECT_EQ(told[0].step, 32U);
  EXPECT_THAT(maker.take(entry("JobRunning"), job, kNow + 900), IsEmpty()) << "it has grown";
}

TEST(NoticeMaker, EndsAndQuarantine) {
  core::Job job = running_job();
  core::LogEntry node = entry("NodeQuarantined", "three faults within a day");
  node.node = "n1";
  NoticeMaker maker;
  EXPECT_THAT(words(maker.take(node, job, kNow)),
              ElementsAre("quarantine: n1 is in quarantine: three faults within a day"));
  EXPECT_THAT(words(maker.take(entry("JobFailed", "no restarts left"), job, kNow)),
              ElementsAre("failure: it failed: no restarts left"));
  EXPECT_THAT(words(maker.take(entry("JobTimeout", "at 10 min"), job, kNow)),
              ElementsAre("failure: its time limit ended it: at 10 min"));
  EXPECT_THAT(words(maker.take(entry("JobFinished", "last step 60"), job, kNow)),
              ElementsAre("finished: it finished after 1 min 00 s, restarts: 1; last step 60"));
  EXPECT_THAT(maker.take(entry("JobCancelled"), job, kNow), IsEmpty()) << "somebody wanted it";
  job.spec.notify.on = {NoticeKind::kFinished};
  EXPECT_THAT(maker.take(entry("JobFailed"), job, kNow), IsEmpty()) << "not asked for";
}

TEST(NoticeMaker, CriticalFindingsBeginAndEnd) {
  NoticeMaker maker;
  core::Job job = running_job();
  const std::vector<Finding> found = {finding(FindingKind::kBudgetLow, Severity::kCritical),
                                      finding(FindingKind::kNodeSlow, Severity::kWarn),
                                      finding(FindingKind::kFailed, Severity::kCritical)};
  EXPECT_THAT(words(maker.take(found, job, 40, kNow)), ElementsAre("critical: so it is"));
  EXPECT_THAT(maker.take(found, job, 41, kNow + 1'000), IsEmpty()) << "it lasts";
  EXPECT_THAT(words(maker.take({}, job, 42, kNow + 2 * kNoticeQuietMs)),
              ElementsAre("critical over: it is over: budget_low"));
  EXPECT_THAT(words(maker.take(found, job, 43, kNow + 4 * kNoticeQuietMs)),
              ElementsAre("critical: so it is"));
  job.state = core::JobState::kFailed;
  EXPECT_THAT(maker.take({}, job, 43, kNow + 6 * kNoticeQuietMs), IsEmpty()) << "its end was told";
}

TEST(NoticeGate, AStormIsToldInFewWords) {
  NoticeMaker maker;
  core::Job job = running_job();
  std::vector<Notice> told;
  const auto add = [&](std::vector<Notice> more) {
    told.insert(told.end(), more.begin(), more.end());
  };
  for (int i = 0; i < 50; ++i) {  // a restart every two seconds
    add(maker.take(entry("JobRecovering"), job, kNow + i * 2'000));
    add(maker.take(entry("JobRunning", std::to_string(i)), job, kNow + i * 2'000 + 500));
  }
  ASSERT_EQ(told.size(), 2U);
  EXPECT_THAT(told[0].what, HasSubstr("; 0"));
  EXPECT_THAT(told[1].what, HasSubstr("; 29"));
  EXPECT_EQ(told[1].repeats, 28) << "of the minute after the first";
  add(maker.take(std::vector<Finding>{}, job, 40, kNow + 10 * kNoticeQuietMs));
  ASSERT_EQ(told.size(), 3U);
  EXPECT_THAT(told[2].what, HasSubstr("; 49"));
  EXPECT_THAT(notice_json(told[2]), HasSubstr("(and 19 like it just before)"));
}

TEST(NoticeGate, TheEndTakesAlongWhatIsHeldBack) {
  NoticeMaker maker;
  const core::Job job = running_job();
  for (int i = 0; i < 3; ++i) {
    maker.take(entry("JobRecovering"), job, kNow + i);
    maker.take(entry("JobRunning"), job, kNow + i);
  }
  const auto told = maker.take(entry("JobFailed", "why"), job, kNow + 10);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].kind, NoticeKind::kRecovery);
  EXPECT_EQ(told[0].repeats, 1);
  EXPECT_EQ(told[1].kind, NoticeKind::kFailure);
}

TEST(Notice, TheDocument) {
  NoticeMaker maker;
  const core::Job job = running_job();
  const auto told =
      maker.take(entry("JobFailed", "worker 0 said <!channel> & left \xff"), job, kNow);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(notice_json(told[0]),
            R"x({"text":"tiny (job 3): it failed: worker 0 said &lt;!channel&gt; &amp; left )x"
            "\xEF\xBF\xBD"
            R"x(; `hpctl why 3` (file:///usr/share/doc/hpctl/runbook.md#hpctljobfailed)",)x"
            R"x("hpctl":{"version":1,)x"
            R"x("kind":"failure","severity":"critical","finding":"","over":false,"job":3,)x"
            R"x("name":"tiny","uid":"1000","state":"RUNNING","generation":2,"step":31,"node":"",)x"
            R"x("what":"it failed: worker 0 said <!channel> & left )x"
            "\xEF\xBF\xBD"
            R"x(","do":"`hpctl why 3`",)x"
            R"x("runbook":"file:///usr/share/doc/hpctl/runbook.md#hpctljobfailed",)x"
            R"x("time":"2026-11-18T11:06:40.000Z","repeats":0}})x"
            "\n");
}

}  // namespace
}  // namespace hpctl
