// SPDX-License-Identifier: Apache-2.0
// What `hpctl top` shows at a size, and what its keys do, without a terminal.
#include "hpctl/top_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr WallTime kTopNow(1'763'700'000'000);
constexpr size_t kHeight = 8;
constexpr TopSize kScreen{100, kHeight};

ListedJob listed(uint64_t id, const std::string& state = "RUNNING") {
  ListedJob job;
  job.summary.job = JobId{id};
  job.summary.name = "job-" + std::to_string(id);
  job.summary.state = state;
  job.summary.taken_at = kTopNow;
  job.summary.submitted_at = kTopNow.before(60'000);
  job.summary.nodes = {"p5-" + std::to_string(id)};
  job.summary.step = 1'000 - id;
  job.user = "alice";
  return job;
}

std::vector<ListedJob> many(uint64_t count) {
  std::vector<ListedJob> jobs;
  for (uint64_t id = 1; id <= count; ++id) jobs.push_back(listed(id));
  return jobs;
}

std::string text_of(const TopModel& model, size_t width = 100, size_t height = kHeight) {
  const std::vector<TopLine> lines = model.layout({width, height}, kTopNow);
  EXPECT_LE(lines.size(), height);
  std::string text;
  for (const TopLine& line : lines) {
    EXPECT_LE(columns(line.text), width) << line.text;
    text += line.text + "\n";
  }
  return text;
}

std::string selected(const TopModel& model) {
  const std::vector<TopLine> lines = model.layout(kScreen, kTopNow);
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].inverse) return lines[i].text.substr(0, lines[i].text.find(' '));
  }
  return "";
}

void type(TopModel& model, const std::string& letters) {
  for (const char letter : letters) EXPECT_TRUE(model.type(letter, kTopNow));
}

TEST(TopModel, FindingsAreLinesOfTheJob) {
  TopModel model;
  model.open("3");
  TopJob job;
  job.view.job = 3;
  job.view.state = "RUNNING";
  job.findings = {"storage takes no checkpoints; repair the file system"};
  model.set_job(job);
  EXPECT_THAT(text_of(model), HasSubstr("finding: storage takes no checkpoints; repair"));
}

TEST(TopModel, TheSelectedJobIsInSight) {
  TopModel model;
  EXPECT_THAT(text_of(model), HasSubstr("asking ..."));
  model.set_jobs({}, {});
  EXPECT_THAT(text_of(model), HasSubstr("no jobs"));
  model.set_jobs(many(20), {});
  EXPECT_EQ(selected(model), "1");
  for (int i = 0; i < 9; ++i) model.press(TopKey::kDown, kScreen, kTopNow);
  EXPECT_EQ(selected(model), "10");
  model.press(TopKey::kLast, kScreen, kTopNow);
  EXPECT_EQ(selected(model), "20");
  model.press(TopKey::kDown, kScreen, kTopNow);
  EXPECT_EQ(selected(model), "20");
  model.press(TopKey::kPageUp, kScreen, kTopNow);
  EXPECT_EQ(selected(model), "14");
  model.press(TopKey::kFirst, kScreen, kTopNow);
  EXPECT_EQ(selected(model), "1");
  // It stays the same job when others come and go.
  model.press(TopKey::kDown, kScreen, kTopNow);
  std::vector<ListedJob> fewer = many(20);
  fewer.erase(fewer.begin());
  model.set_jobs(std::move(fewer), {});
  EXPECT_EQ(selected(model), "2");
}

TEST(TopModel, FitsEveryScreen) {
  TopModel model;
  model.set_jobs(many(30), {"jobs may be missing: head2 does not answer"});
  for (size_t width = 1; width < 140; width += 7) {
    for (size_t height = 0; height < 40; height += 3) text_of(model, width, height);
  }
  EXPECT_THAT(text_of(model), HasSubstr("jobs may be missing: head2"));
  model.open("3");
  TopJob job;
  job.view.job = 3;
  job.events.resize(100);
  model.set_job(job);
  for (size_t width = 1; width < 140; width += 7) {
    for (size_t height = 0; height < 40; height += 3) text_of(model, width, height);
  }
}

TEST(TopModel, FilterAndOrder) {
  TopModel model;
  model.set_jobs(many(20), {});
  type(model, "/P5-7q");
  EXPECT_THAT(text_of(model), HasSubstr("none of 20 jobs is shown"));
  EXPECT_THAT(text_of(model), HasSubstr("/P5-7q_")) << "letters of a filter are no commands";
  model.press(TopKey::kErase, kScreen, kTopNow);
  model.press(TopKey::kEnter, kScreen, kTopNow);
  EXPECT_EQ(selected(model), "7");
  EXPECT_EQ(model.opened(), std::nullopt) << "that was for the filter";
  type(model, "/");
  model.press(TopKey::kBack, kScreen, kTopNow);
  EXPECT_THAT(text_of(model), HasSubstr("job-1 "));
  type(model, "ssssssr");  // rate, and so on: step is the sixth column
  EXPECT_THAT(text_of(model), HasSubstr("greatest first"));
  type(model, "r");
  while (text_of(model).find("sort by step") == std::string::npos) type(model, "s");
  EXPECT_THAT(text_of(model), Not(HasSubstr("job-1 "))) << "it is the furthest";
  EXPECT_FALSE(model.type('q', kTopNow));
}

TEST(TopModel, EndedJobsAreShownForAWhile) {
  TopModel model;
  ListedJob ended = listed(1, "FAILED");
  ended.summary.ended_at = kTopNow.before(5'000);
  ListedJob past = listed(2, "FINISHED");
  past.summary.ended_at = kTopNow.before(TopModel::kEndedMs + 1);
  model.set_jobs({ended, past, listed(3)}, {});
  EXPECT_THAT(text_of(model), HasSubstr("job-1"));
  EXPECT_THAT(text_of(model), Not(HasSubstr("job-2")));
  type(model, "e");
  EXPECT_THAT(text_of(model), HasSubstr("job-2"));
}

TopJob opened_job() {
  TopJob job;
  job.view.job = 3;
  job.view.name = "job-3";
  job.view.state = "RUNNING";
  job.view.step = 34;
  job.view.total_steps = 60;
  job.view.step_ms = 1'000;
  job.view.submitted_at = kTopNow.before(100'000);
  job.view.spent.start_ms = 10'000;
  job.view.last_fault = "worker 2 on n1 died of SIGKILL";
  NodeView node;
  node.name = "n0";
  node.role = "active";
  node.state = "up";
  job.view.nodes = {node};
  job.view.workers = {{0, "n0", 13, 2, "running", "training", 34}};
  for (uint64_t seq = 1; seq <= 50; ++seq) {
    EventView event;
    event.seq = seq;
    event.type = "Event" + std::to_string(seq);
    job.events.push_back(event);
  }
  return job;
}

TEST(TopModel, AJobIsOpenedAndLeft) {
  TopModel model;
  model.set_jobs(many(5), {});
  model.press(TopKey::kDown, kScreen, kTopNow);
  model.press(TopKey::kDown, kScreen, kTopNow);
  model.press(TopKey::kEnter, kScreen, kTopNow);
  EXPECT_EQ(model.opened(), "3");
  EXPECT_THAT(text_of(model), HasSubstr("asking about job 3"));
  model.set_job(opened_job());
  const std::string text = text_of(model, 100, 200);
  EXPECT_THAT(text, HasSubstr("job 3 job-3  RUNNING"));
  EXPECT_THAT(text, HasSubstr("step 34 of 60  ETA 26s  goodput 100.00 %"));
  EXPECT_THAT(text, HasSubstr("time: start 10 s (10 %), train 1 min 30 s (90 %)"));
  EXPECT_THAT(text, HasSubstr("last fault: worker 2 on n1 died of SIGKILL"));
  EXPECT_THAT(text, HasSubstr("0     n0    13   running  training  34"));
  model.press(TopKey::kLast, kScreen, kTopNow);
  EXPECT_THAT(text_of(model), HasSubstr("Event1 ")) << "the newest come first";
  model.press(TopKey::kUp, kScreen, kTopNow);
  EXPECT_THAT(text_of(model), Not(HasSubstr("Event1 "))) << "the last line is the furthest";
  model.set_trouble("the controller does not answer");
  EXPECT_THAT(text_of(model), HasSubstr("the controller does not answer"));
  EXPECT_THAT(text_of(model), HasSubstr("Event2 ")) << "what was known stays";
  model.press(TopKey::kBack, kScreen, kTopNow);
  EXPECT_EQ(model.opened(), std::nullopt);
  EXPECT_EQ(selected(model), "3");
}

TEST(TopModel, LogsAndWhyOfAJob) {
  TopModel model;
  model.set_jobs(many(5), {});
  EXPECT_THAT(text_of(model), HasSubstr("l: logs   w: why"));
  type(model, "l");
  EXPECT_EQ(model.subject(), (TopSubject{"1", TopPart::kLogs})) << "the first one is selected";
  model.press(TopKey::kBack, kScreen, kTopNow);
  model.press(TopKey::kDown, kScreen, kTopNow);
  type(model, "l");
  EXPECT_EQ(model.subject(), (TopSubject{"2", TopPart::kLogs}));
  TopJob job = opened_job();
  for (int i = 1; i <= 50; ++i) job.logs.push_back("rank 0 | line " + std::to_string(i));
  job.why = {"RUNNING: it began with: worker 3 died", ""};
  model.set_job(job);
  EXPECT_THAT(text_of(model), HasSubstr("rank 0 | line 50\n")) << "the end comes first";
  model.press(TopKey::kUp, kScreen, kTopNow);
  EXPECT_THAT(text_of(model), Not(HasSubstr("line 50\n")));
  type(model, "w");
  EXPECT_EQ(model.subject(), (TopSubject{"2", TopPart::kWhy}));
  EXPECT_THAT(text_of(model, 100, 20), HasSubstr("RUNNING: it began with: worker 3 died"));
  type(model, "w");
  EXPECT_EQ(model.subject(), (TopSubject{"2", TopPart::kJob}));
  model.press(TopKey::kBack, kScreen, kTopNow);
  EXPECT_EQ(model.subject(), std::nullopt);
}

TEST(TopModel, WhatIsSaidOfAJobIsWrappedOnANarrowScreen) {
  TopModel model;
  model.open("3");
  TopJob job = opened_job();
  job.view.reason = "waiting for n1, whose holder does not answer, and for a spare to take over";
  job.view.last_fault = "n1 was lost: /a/path/that/is/longer/than/the/screen/is/wide is not there";
  job.notice = "as of 12 s ago: the controller does not answer";
  model.set_job(job);
  const std::string text = text_of(model, 40, 200);
  EXPECT_THAT(text_of(model, 36, 200), HasSubstr("step 34 of 60  ETA 26s\n  goodput 100.00 %\n"));
  EXPECT_THAT(text, HasSubstr("time: start 10 s (10 %),\n  train 1 min 30 s (90 %)\n"));
  EXPECT_THAT(text, HasSubstr("because: waiting for n1, whose holder\n"
                              "  does not answer, and for a spare to\n"
                              "  take over\n"));
  EXPECT_THAT(text, HasSubstr("\n  /a/path/that/is/longer/than/the/scr...\n")) << "no space";
  EXPECT_THAT(text, HasSubstr("as of 12 s ago: the controller does\n  not answer\n"));
  EXPECT_THAT(text_of(model, 200, 200), HasSubstr("a spare to take over\n"));
  // The end can be scrolled to, by the lines that there are at this width.
  model.press(TopKey::kLast, {40, kHeight}, kTopNow);
  EXPECT_THAT(text_of(model, 40), HasSubstr("Event1 "));
  model.press(TopKey::kUp, {40, kHeight}, kTopNow);
  EXPECT_THAT(text_of(model, 40), Not(HasSubstr("Event1 ")));
  for (size_t width = 1; width < 30; ++width) text_of(model, width, 200);
}

TEST(TopModel, WhoStandsByIsShownWhereThereIsSomebody) {
  TopModel model;
  model.open("3");
  TopJob job = opened_job();
  model.set_job(job);
  EXPECT_THAT(text_of(model, 100, 200), Not(HasSubstr("STANDBYS")));
  job.view.nodes[0].standbys = StandbyView{2, 1, 1, 96U << 20};
  model.set_job(job);
  const std::string text = text_of(model, 100, 200);
  EXPECT_THAT(text, HasSubstr("STATE  STANDBYS"));
  EXPECT_THAT(text, HasSubstr("up     1 of 2, 1 loading, 96 MiB"));
}

TEST(TopModel, WhatJobsSayDoesNotReachTheTerminal) {
  TopModel model;
  model.open("3");
  TopJob job = opened_job();
  job.view.reason = "\x1b[2J";
  job.view.nodes[0].note = "\x1b]0;title\x07";
  job.events[0].cause = "a\rb";
  model.set_job(job);
  EXPECT_THAT(text_of(model, 200, 200), Not(HasSubstr("\x1b")));
  EXPECT_THAT(text_of(model, 200, 200), Not(HasSubstr("\r")));
}

}  // namespace
}  // namespace hpctl
