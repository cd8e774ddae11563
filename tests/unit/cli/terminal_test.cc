// SPDX-License-Identifier: Apache-2.0
#include "hpctl/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "hpctl/event_text.h"
#include "hpctl/progress_display.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Text, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(950), "950");
  EXPECT_EQ(short_number(999.6), "1.00k");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(4.56e6), "4.56M");
  EXPECT_EQ(short_number(123e9), "123G");
  EXPECT_EQ(short_number(NAN), "-");
}

TEST(Text, DurationsForPeople) {
  EXPECT_EQ(format_duration(-5), "0.0 s");
  EXPECT_EQ(format_duration(1234), "1.2 s");
  EXPECT_EQ(format_duration(42'400), "42 s");
  EXPECT_EQ(format_duration(200'000), "3 min 20 s");
  EXPECT_EQ(format_duration(2 * 3'600'000 + 5 * 60'000), "2 h 05 min");
}

TEST(Text, PrintableTakesTheTeethOut) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\tc\n"), "a?[31mb? c ");
  EXPECT_EQ(printable("\xc3\xa4\xff\xc2\x9b"), "\xc3\xa4??");
  EXPECT_EQ(columns("\xc3\xa4"
                    "b"),
            2U);
}

TEST(Text, ShortensAndWraps) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdefg", 6), "abc...");
  EXPECT_EQ(shorten("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", 4), "\xc3\xa4...");
  EXPECT_EQ(wrap("one two three", 8, 0), "one two\nthree");
  EXPECT_EQ(wrap("one two three", 10, 2), "one two\n  three");
  EXPECT_EQ(wrap("averyverylongword x", 6, 2), "averyverylongword\n  x");
}

TEST(Table, AlignsAndFits) {
  std::ostringstream out;
  Terminal terminal{out, out};
  terminal.width = 24;
  terminal.live = true;
  Table table({"A", "STATE", "DETAIL"});
  table.add({"1", "RUNNING", "short"}, Colour::kGreen);
  table.add({"1000", "UP", "much too long for this"});
  table.print(terminal);
  EXPECT_EQ(out.str(),
            "A     STATE    DETAIL\n"
            "1     RUNNING  short\n"
            "1000  UP       much t...\n");
}

TEST(Table, APipeGetsAllOfIt) {
  std::ostringstream out;
  Terminal terminal{out, out};
  terminal.width = 24;
  Table table({"A", "DETAIL"});
  table.add({"1000", "much too long for this"});
  table.print(terminal);
  EXPECT_EQ(out.str(), "A     DETAIL\n1000  much too long for this\n");
}

TEST(Table, ColourOnlyWhereItIsSeen) {
  std::ostringstream out;
  Terminal terminal{out, out};
  terminal.colour = true;
  Table table({"STATE"});
  table.add({"UP"}, Colour::kGreen);
  table.print(terminal);
  EXPECT_EQ(out.str(), "STATE\n\x1b[32mUP\x1b[0m\n");
}

JobView running() {
  JobView job;
  job.job = 1;
  job.name = "q";
  job.state = "RUNNING";
  job.generation = 1;
  job.step = 30;
  job.total_steps = 60;
  job.loss = 2.5;
  return job;
}

TEST(Progress, RewritesOneLineOnATerminal) {
  std::ostringstream out;
  Terminal terminal{out, out};
  terminal.live = true;
  ProgressDisplay display(terminal);
  display.update(running(), 0);
  display.update(running(), 1);  // nothing new, nothing written
  display.tell(EventView{1, 0, "JobRecovering", 1, 1, "", -1, "died", 0});
  display.finish();
  EXPECT_EQ(out.str(),
            "\r\x1b[Kstep 30/60 [==========>         ]  loss 2.5000  gen 1  RUNNING"
            "\r\x1b[K1970-01-01T00:00:00.000Z  JobRecovering         died\n");
}

TEST(Progress, FitsANarrowTerminal) {
  std::ostringstream out;
  Terminal terminal{out, out};
  terminal.live = true;
  terminal.width = 30;
  EXPECT_EQ(progress_line(terminal, running()), "step 30/60  loss 2.5000  g...");
}

TEST(Progress, ACommandThatHasNoStepYetKeepsItsParts) {
  std::ostringstream out;
  Terminal terminal{out, out};
  JobView job = running();
  job.step = 0;
  job.total_steps = 0;
  job.loss = std::nan("");
  EXPECT_EQ(progress_line(terminal, job), "gen 1  RUNNING");
  job.tokens_per_second = 3850;
  EXPECT_EQ(progress_line(terminal, job), "3.85k tokens/s  gen 1  RUNNING");
}

TEST(Progress, PlainLinesAreSpaced) {
  std::ostringstream out;
  Terminal terminal{out, out};
  ProgressDisplay display(terminal);
  JobView job = running();
  display.update(job, 100);
  job.step = 31;
  display.update(job, 200);
  job.step = 32;
  display.update(job, 5100);
  EXPECT_EQ(out.str(),
            "step 30/60  loss 2.5000  gen 1  RUNNING\n"
            "step 32/60  loss 2.5000  gen 1  RUNNING\n");
}

// "FAILED: 400 steps" was told of a job whose checkpoint another job had made.
TEST(Progress, TheEndOfAFailedJobTellsWhereItStood) {
  std::ostringstream out;
  const Terminal terminal{out, out};
  JobView job = running();
  job.state = "FAILED";
  job.step = 400;
  job.total_steps = 1000;
  print_end(terminal, job, "logs", "");
  EXPECT_THAT(out.str(), HasSubstr(" at step 400 of 1000"));
  EXPECT_THAT(out.str(), Not(HasSubstr("400 steps")));
}

TEST(Progress, TheEndTellsTheEvaluationsOfTheLastStep) {
  const TemporaryDirectory dir;
  const std::string metrics = dir / "metrics.jsonl";
  std::ofstream(metrics)
      << R"({"step":20,"generation":1,"test_loss":9.0,"perplexity":9,"sequences":9})"
      << "\n"
      << R"({"step":30,"generation":1,"loss":2.5})"
      << "\n"
      << R"({"step":30,"generation":1,"validation_loss":2.25,"perplexity":9.4877,"sequences":12})"
      << "\n";
  std::ostringstream out;
  const Terminal terminal{out, out};
  JobView job = running();
  job.state = "FINISHED";
  print_end(terminal, job, "logs", metrics);
  EXPECT_THAT(out.str(),
              HasSubstr("\n  validation   loss 2.2500, perplexity 9.49 over 12 sequences\n"));
  EXPECT_THAT(out.str(), Not(HasSubstr("test "))) << "that was another step's";
  std::ofstream(metrics, std::ios::app)
      << R"({"step":30,"generation":2,"test_loss":2.5,"perplexity":12.18,"sequences":8})"
      << "\n{";
  print_end(terminal, job, "logs", metrics);
  EXPECT_THAT(out.str(), HasSubstr("\n  test         loss 2.5000, perplexity 12.18 over 8"));
}

}  // namespace
}  // namespace hpctl
