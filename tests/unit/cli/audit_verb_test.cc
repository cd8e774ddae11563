// SPDX-License-Identifier: Apache-2.0
// hpctl audit in this process, of logs that a controller's own AuditLog has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "common/base/file.h"
#include "common/base/json.h"
#include "controller/publish/audit_log.h"
#include "hpctl/audit_file.h"
#include "tests/support/command_run.h"
#include "tests/support/hand_clock.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using test::CommandRun;
using test::HandClock;
using test::run_hpctl;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kUnknown = 3'999'999'999U;  // nobody has it

constexpr int64_t kBeginMs = 1'800'000'000'000;  // 2027-01-15

AuditEntry order(const std::string& call, uid_t uid, uint64_t job, const std::string& arguments) {
  return {call, uid, "operator", "ipv4:10.0.0.7:4711", job, arguments, "OK", "", false};
}
AuditEntry refusal(const std::string& call, uid_t uid, uint64_t job) {
  return {call, uid, "reader", "local socket", job, "", "PERMISSION_DENIED", "a reader may not",
          true};
}

class AuditVerb : public ::testing::Test {
 protected:
  AuditVerb() { ::setenv("HPCTL_CLUSTER", "", 1); }
  ~AuditVerb() override {
    ::unsetenv("HPCTL_CLUSTER");
    ::unsetenv("HPCTL_SYSROOT");
  }
  // Each a second after the one before.
  void write(const std::string& path, const std::vector<AuditEntry>& entries) {
    const std::string directory = path.substr(0, path.rfind('/'));
    EXPECT_TRUE(make_directories(directory).ok());
    for (const AuditEntry& entry : entries) {
      clock_.now_ms += 1'000;
      AuditLog log(directory, path, false, clock_);
      log.record(entry);
      EXPECT_TRUE(log.stop().empty());
    }
  }
  std::string home_log() const { return home_.paths().audit_log(); }
  static size_t lines_of(const std::string& text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  ScopedHome home_;
  HandClock clock_{kBeginMs};
};

TEST_F(AuditVerb, SaysInWordsWhoDidWhat) {
  ScriptedController controller(home_.paths());
  controller.jobs = {running_job(1, "quick"), running_job(2, "other")};
  write(home_log(), {order("QuarantineNode", 0, 1, "node=n1 reason=link flaps"),
                     refusal("Cancel", kUnknown, 2), order("Submit", 0, 2, "")});
  const CommandRun run = run_hpctl({"audit"});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_EQ(run.out,
            "TIME                      WHO         AS        FROM          OUTCOME  WHAT\n"
            "2027-01-15T08:00:01.000Z  root        operator  10.0.0.7      done     "
            "put a node into quarantine (job 1): node=n1 reason=link flaps\n"
            "2027-01-15T08:00:02.000Z  3999999999  reader    local socket  refused  "
            "cancel the job (job 2); a reader may not\n"
            "2027-01-15T08:00:03.000Z  root        operator  10.0.0.7      done     "
            "submit a job (job 2)\n");
  const CommandRun of_job = run_hpctl({"audit", "other"});
  EXPECT_EQ(lines_of(of_job.out), 3U) << of_job.out;
  EXPECT_THAT(of_job.out, Not(HasSubstr("quarantine")));
  EXPECT_THAT(run_hpctl({"audit", "another"}).err, HasSubstr("no job \"another\""));
}

TEST(AuditLine, WhereACallCameFromIsAMachine) {
  const auto from = [](const char* text) { return where_from({0, {{"from", text}}}); };
  EXPECT_EQ(from("ipv4:10.0.0.7:4711"), "10.0.0.7");
  EXPECT_EQ(from("ipv4:10.0.0.7"), "10.0.0.7") << "of calls that were only counted";
  EXPECT_EQ(from("ipv6:%5B2001:db8::1%5D:4711"), "[2001:db8::1]");
  EXPECT_EQ(from("ipv6:[2001:db8::1]"), "[2001:db8::1]");
  EXPECT_EQ(from("local socket"), "local socket");
}

TEST_F(AuditVerb, FiltersAreAnds) {
  write(home_log(), {order("Cancel", 0, 1, ""), refusal("Cancel", kUnknown, 1),
                     refusal("Cancel", 0, 1), order("Inject", kUnknown, 1, "")});
  const auto shown = [](std::vector<std::string> words) {
    words.insert(words.begin(), "audit");
    words.emplace_back("--json");
    const CommandRun run = run_hpctl(words);
    EXPECT_EQ(run.status, kExitOk) << run.err;
    return lines_of(run.out);
  };
  EXPECT_EQ(shown({}), 4U);
  EXPECT_EQ(shown({"--who", "root"}), 2U);
  EXPECT_EQ(shown({"--who", "0"}), 2U);
  EXPECT_EQ(shown({"--who", "3999999999"}), 2U);
  EXPECT_EQ(shown({"--who", "nobody-at-all"}), 0U);
  EXPECT_EQ(shown({"--refused"}), 2U);
  EXPECT_EQ(shown({"--refused", "--who", "root"}), 1U);
  EXPECT_EQ(shown({"--since", "2027-01-15T08:00:03Z"}), 2U);
  EXPECT_EQ(shown({"--since", "2027-01-15T08:00:03Z", "--refused"}), 1U);
  EXPECT_EQ(shown({"--tail", "3"}), 3U);
  const CommandRun last = run_hpctl({"audit", "--tail", "1", "--json"});
  EXPECT_EQ(last.out, R"({"time":"2027-01-15T08:00:04.000Z","call":"Inject","uid":3999999999,)"
                      R"("role":"operator","from":"ipv4:10.0.0.7:4711","job":1,"outcome":"OK"})"
                      "\n");
  EXPECT_THAT(run_hpctl({"audit", "--since", "soon"}).err, HasSubstr("--since: expected"));
  EXPECT_THAT(run_hpctl({"audit", "-A", "--file", "x"}).err, HasSubstr("either -A or --file"));
  EXPECT_THAT(run_hpctl({"audit", "quick", "-A"}).err, HasSubstr("JOB is a number"));
  EXPECT_EQ(run_hpctl({"audit", "quick", "-A"}).status, kExitUsage);
}

TEST_F(AuditVerb, OfAJobOfSlurmEachMachineThatHadItsController) {
  const std::string directory = home_.paths().jobs() + "/submit-key";
  ASSERT_TRUE(make_directories(directory, 0700).ok());
  ASSERT_EQ(::symlink("submit-key", (home_.paths().jobs() + "/17").c_str()), 0);
  write(directory + "/nodes/n0/audit.jsonl", {order("Cancel", 0, 17, "first")});
  write(directory + "/nodes/n1/audit.jsonl", {order("Cancel", 0, 17, "second")});
  write(directory + "/nodes/n0/audit.jsonl", {order("Cancel", 0, 17, "third")});
  write(home_log(), {order("Submit", 0, 1, "local")});
  const std::string text = run_hpctl({"audit"}).out;
  EXPECT_EQ(lines_of(text), 5U) << text;
  EXPECT_LT(text.find("first"), text.find("second")) << "in order of time";
  EXPECT_LT(text.find("second"), text.find("third"));
  EXPECT_THAT(text, HasSubstr("local"));
}

TEST_F(AuditVerb, OfTheClusterController) {
  ::setenv("HPCTL_SYSROOT", home_.directory().c_str(), 1);
  const CommandRun none = run_hpctl({"audit", "-A"});
  EXPECT_EQ(none.status, kExitFailed);
  EXPECT_THAT(none.err, AllOf(HasSubstr("/var/lib/hpctl/audit.jsonl"),
                              HasSubstr("no cluster controller has run on this machine")));
  write(home_.directory() + "/var/lib/hpctl/audit.jsonl",
        {order("OpenJob", 0, 17, "token of operator"), order("Admit", kUnknown, 18, "")});
  EXPECT_EQ(lines_of(run_hpctl({"audit", "-A"}).out), 3U);
  const CommandRun of_job = run_hpctl({"audit", "-A", "17"});
  EXPECT_EQ(lines_of(of_job.out), 2U);
  EXPECT_THAT(of_job.out, HasSubstr("open somebody's job (job 17): token of operator"));
  const CommandRun copy =
      run_hpctl({"audit", "--file", home_.directory() + "/var/lib/hpctl/audit.jsonl"});
  EXPECT_EQ(lines_of(copy.out), 3U);
  EXPECT_EQ(run_hpctl({"audit", "--file", "/nowhere"}).status, kExitFailed);
}

TEST_F(AuditVerb, OlderFilesComeFirst) {
  write(home_log(), {order("Cancel", 0, 1, "oldest")});
  ASSERT_EQ(::rename(home_log().c_str(), (home_log() + ".2").c_str()), 0);
  write(home_log(), {order("Cancel", 0, 1, "old")});
  ASSERT_EQ(::rename(home_log().c_str(), (home_log() + ".1").c_str()), 0);
  write(home_log(), {order("Cancel", 0, 1, "new")});
  // The same file under two names, as while they are renamed.
  ASSERT_EQ(::link(home_log().c_str(), (home_log() + ".3").c_str()), 0);
  const std::string text = run_hpctl({"audit", "--json"}).out;
  EXPECT_EQ(lines_of(text), 3U) << text;
  EXPECT_LT(text.find("oldest"), text.find("\"old\""));
  EXPECT_LT(text.find("\"old\""), text.find("\"new\""));
}

// The job's user has written it: nothing of it bends the terminal, waits, or is taken for a line.
TEST_F(AuditVerb, WhatIsNoLineIsLeftOut) {
  write(home_log(), {order("Cancel", 0, 1, "good")});
  std::string text = read_file(home_log()).value();
  text += "nonsense\n[]\n{\"time\":1,\"call\":\"x\",\"outcome\":\"OK\"}\n";
  text += R"({"time":"2027-01-15T08:00:01.000Z","call":"\u001b[2Jx","outcome":"OK","uid":-1,)"
          R"("job":"x","count":[]})";
  text += "\n";
  ASSERT_TRUE(write_file_atomic(home_log(), text).ok());
  const CommandRun run = run_hpctl({"audit"});
  EXPECT_EQ(run.status, kExitOk);
  EXPECT_THAT(run.err, HasSubstr("3 lines left out that no controller has written"));
  EXPECT_THAT(run.out, AllOf(HasSubstr("good"), HasSubstr("?[2Jx")));
  ASSERT_EQ(::unlink(home_log().c_str()), 0);
  ASSERT_EQ(::mkfifo(home_log().c_str(), 0600), 0);
  EXPECT_THAT(run_hpctl({"audit"}).err, HasSubstr("is not a file"));
  ASSERT_EQ(::unlink(home_log().c_str()), 0);
  ASSERT_EQ(::symlink("/etc/passwd", home_log().c_str()), 0);
  EXPECT_EQ(run_hpctl({"audit"}).status, kExitFailed);
}

TEST_F(AuditVerb, RefusalsThatWereOnlyCounted) {
  HandClock clock{kBeginMs};
  {
    AuditLog log(home_.paths().home(), home_log(), false, clock);
    for (int i = 0; i < 100; ++i) log.record(refusal("Cancel", kUnknown, 1));
    EXPECT_TRUE(log.stop().empty());
  }
  const CommandRun run = run_hpctl({"audit", "--refused"});
  EXPECT_THAT(run.out, HasSubstr("80 more calls like those before"));
  EXPECT_EQ(lines_of(run.out), 22U) << run.out;
}

TEST_F(AuditVerb, NothingWasWrittenDown) {
  const CommandRun run = run_hpctl({"audit"});
  EXPECT_EQ(run.status, kExitOk);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "nothing was written down\n");
}

}  // namespace
}  // namespace hpctl::testing
