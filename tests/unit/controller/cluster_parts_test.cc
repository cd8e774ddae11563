// SPDX-License-Identifier: Apache-2.0
// The cluster controller's parts, without processes and without munged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#if __has_include(<munge.h>)
#include <munge.h>
#endif

#include <array>
#include <type_traits>

#include "common/base/file.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/cluster_conf.h"
#include "controller/cluster/ended_jobs.h"
#include "controller/cluster/identity.h"
#include "controller/cluster/job_reports.h"
#include "controller/cluster/job_row.h"
#include "controller/cluster/life_policy.h"
#include "controller/cluster/operator_acl.h"
#include "controller/cluster/service.h"
#include "controller/leadership/child_protocol.h"
#include "tests/support/hand_clock.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

#if __has_include(<munge.h>)
// What common/rpc/munge.cc declares for itself.
static_assert(MUNGE_OPT_SOCKET == 8 && MUNGE_OPT_UID_RESTRICTION == 9);
static_assert(EMUNGE_SUCCESS == 0 && EMUNGE_SOCKET == 6 && EMUNGE_TIMEOUT == 7 &&
              EMUNGE_BAD_CRED == 8 && EMUNGE_CRED_EXPIRED == 15 && EMUNGE_CRED_REWOUND == 16 &&
              EMUNGE_CRED_REPLAYED == 17);
static_assert(std::is_pointer_v<munge_ctx_t> && sizeof(munge_err_t) == sizeof(int));
static_assert(
    std::is_same_v<decltype(munge_encode), munge_err_t(char**, munge_ctx_t, const void*, int)>);
static_assert(std::is_same_v<decltype(munge_decode),
                             munge_err_t(const char*, munge_ctx_t, void**, int*, uid_t*, gid_t*)>);
#endif

v1::JobSummary summary_of(const std::string& state, int64_t ended_wall_ms) {
  v1::JobSummary summary;
  summary.set_state(state);
  summary.set_ended_wall_ms(ended_wall_ms);
  return summary;
}

TEST(JobReports, HowAJobEndedStaysForAnHour) {
  JobReports heard;
  const JobKey failed{1000, 7};
  const JobKey cut{1000, 8};
  heard.hear(failed, summary_of("RUNNING", 0), 100);
  heard.hear(failed, summary_of("FAILED", 5), 200);
  heard.hear(cut, summary_of("RUNNING", 0), 200);
  heard.retain({failed, cut}, 300);
  ASSERT_EQ(heard.ended().size(), 1U) << "also while it is there";
  ASSERT_NE(heard.find(failed), nullptr);
  EXPECT_EQ(heard.find(failed)->at_ms, 200);
  heard.retain({}, 400);
  EXPECT_EQ(heard.find(failed), nullptr) << "nobody is to be asked about it";
  EXPECT_EQ(heard.ended().at(0).summary.state(), "FAILED");
  const auto all = heard.all();
  ASSERT_EQ(all.size(), 1U) << "how the other went on nobody knows";
  EXPECT_EQ(all[0].summary.state(), "FAILED");
  heard.retain({}, 399 + JobReports::kEndedMs);
  EXPECT_EQ(heard.all().size(), 1U);
  heard.retain({}, 400 + JobReports::kEndedMs);
  EXPECT_TRUE(heard.all().empty());
}

TEST(JobReports, WhoNeverAnswersIsSilentSinceItIsThere) {
  JobReports heard;
  const JobKey key{1000, 7};
  EXPECT_EQ(heard.silent_ms(key, 100), 0) << "nobody has asked it";
  heard.retain({key}, 100);
  heard.retain({key}, 200);
  EXPECT_EQ(heard.silent_ms(key, 300), 200);
  heard.hear(key, summary_of("RUNNING", 0), 350);
  EXPECT_EQ(heard.silent_ms(key, 400), 50);
  heard.retain({}, 500);
  heard.retain({key}, 600);
  EXPECT_EQ(heard.silent_ms(key, 700), 100) << "another life";
}

TEST(JobReports, AnotherLifeOfAJobTakesThePlaceOfTheFormer) {
  JobReports heard;
  const JobKey key{1000, 7};
  heard.hear(key, summary_of("FAILED", 5), 100);
  heard.retain({}, 200);
  heard.retain({key}, 300);
  EXPECT_TRUE(heard.all().empty()) << "it has not said anything yet";
  heard.hear(key, summary_of("RUNNING", 0), 400);
  ASSERT_EQ(heard.all().size(), 1U);
  EXPECT_EQ(heard.all()[0].summary.state(), "RUNNING");
}

TEST(JobReports, OfThoseThatEndedTheNewestStay) {
  JobReports heard;
  const JobKey live{1000, 1};
  const auto ended = static_cast<uint64_t>(JobReports::kMostEnded) + 3;
  for (uint64_t job = 2; job < 2 + ended; ++job) {
    heard.hear(live, summary_of("RUNNING", 0), 100);
    heard.hear({1000, job}, summary_of("FINISHED", 5), 100);
    heard.retain({live}, 100 + static_cast<int64_t>(job));
  }
  EXPECT_EQ(heard.ended().size(), JobReports::kMostEnded);
  EXPECT_EQ(heard.ended()[0].key.job, 5U) << "by key";
  const auto all = heard.all();
  ASSERT_EQ(all.size(), 1 + JobReports::kMostEnded);
  EXPECT_EQ(all[0].key, live);
  EXPECT_EQ(all[1].key.job, 1 + ended) << "the newest first";
  EXPECT_EQ(all.back().key.job, 5U);
}

class EndedJobsTest : public testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "ended.json";
};

TEST_F(EndedJobsTest, AreThereForTheRestOfTheirHourWhenTheServiceIsStartedAgain) {
  const JobKey failed{1000, 7};
  test::HandClock first(5'000);
  first.ahead_ms = 1'000'000'000'000;
  JobReports before;
  v1::JobSummary summary = summary_of("FAILED", 999'999'999'000);
  summary.set_taken_wall_ms(summary.ended_wall_ms());
  summary.set_name("a \"name\"");
  summary.set_reason("rank 3 died");
  EXPECT_TRUE(before.hear(failed, summary, 4'000));
  EXPECT_FALSE(before.hear(failed, summary, 4'100)) << "kept already";
  EXPECT_FALSE(before.retain({failed}, 4'500));
  EXPECT_TRUE(before.retain({}, 5'000));
  EXPECT_FALSE(before.retain({}, 5'100)) << "nothing to write";
  const EndedJobs kept(path_, first);
  EXPECT_TRUE(kept.load().value().empty()) << "no file yet";
  ASSERT_TRUE(kept.write(before.kept(5'100)).ok());

  test::HandClock second(10);  // of a machine that was started again
  second.ahead_ms = first.wall_ms() + 60'000 - second.now_ms;
  JobReports after;
  after.restore(EndedJobs(path_, second).load().value());
  const auto restored = after.kept(10);
  ASSERT_EQ(restored.size(), 1U);
  EXPECT_EQ(restored[0].heard.key, failed);
  const v1::JobSummary& read = restored[0].heard.summary;
  EXPECT_EQ(read.state(), summary.state());
  EXPECT_EQ(read.name(), summary.name());
  EXPECT_EQ(read.reason(), summary.reason());
  EXPECT_EQ(read.ended_wall_ms(), summary.ended_wall_ms());
  const int64_t rest = JobReports::kEndedMs - 60'000;
  EXPECT_FALSE(after.retain({}, 9 + rest));
  EXPECT_EQ(after.all().size(), 1U);
  EXPECT_TRUE(after.retain({}, 10 + rest));
  EXPECT_TRUE(after.all().empty());
}

// The service was killed while the controller of a failed job still lived. It had shown the end,
// and the next service did not know it (seen as a failure of ClusterWatch on a busy machine).
TEST_F(EndedJobsTest, EndBeforeTheControllerIsGoneIsKept) {
  const JobKey failed{1000, 7};
  const JobKey running{1000, 8};
  test::HandClock clock(5'000);
  clock.ahead_ms = 1'000'000'000'000;
  JobReports before;
  EXPECT_FALSE(before.hear(running, summary_of("RUNNING", 0), 4'000));
  v1::JobSummary end = summary_of("FAILED", 999'999'999'000);
  end.set_taken_wall_ms(end.ended_wall_ms());
  ASSERT_TRUE(before.hear(failed, end, 4'000));
  ASSERT_TRUE(EndedJobs(path_, clock).write(before.kept(4'000)).ok());

  JobReports after;
  after.restore(EndedJobs(path_, clock).load().value());
  after.retain({failed, running}, 5'000);
  ASSERT_NE(after.find(failed), nullptr) << "its controller is still there";
  EXPECT_EQ(after.find(failed)->summary.state(), "FAILED");
  after.retain({running}, 5'100);
  ASSERT_EQ(after.ended().size(), 1U);
  EXPECT_EQ(after.ended()[0].summary.state(), "FAILED");
  after.retain({failed, running}, 5'200);
  EXPECT_TRUE(after.ended().empty()) << "another incarnation, which has not said anything";
}

TEST_F(EndedJobsTest, AClockThatWasSetBackKeepsNoneForLongerThanAnHour) {
  test::HandClock clock;
  clock.ahead_ms = 1'000'000'000'000;
  const EndedJobs kept(path_, clock);
  JobReports::Ended ended;
  ended.heard.key = {1, 2};
  ended.gone_ms = 0;
  ASSERT_TRUE(kept.write({ended}).ok());
  clock.ahead_ms -= 10 * JobReports::kEndedMs;
  EXPECT_EQ(kept.load().value().at(0).gone_ms, clock.monotonic_ms());
}

TEST_F(EndedJobsTest, DamageIsTold) {
  const test::HandClock clock;
  for (const std::string text : {"", "{", "{\"ended\": [{}]}", "{\"ended\": [3]}"}) {
    ASSERT_TRUE(write_file_atomic(path_, text).ok());
    const auto loaded = EndedJobs(path_, clock).load();
    ASSERT_FALSE(loaded.ok()) << text;
    EXPECT_EQ(loaded.error().code, ErrorCode::kDataLoss);
    EXPECT_NE(loaded.error().message.find(path_), std::string::npos);
  }
}

TEST(LifePolicy, PausesGrowAndEnd) {
  LifePolicy policy;
  EXPECT_EQ(policy.ended(10), 0);
  EXPECT_EQ(policy.ended(10), LifePolicy::kFirstPauseMs);
  EXPECT_EQ(policy.ended(10), 2 * LifePolicy::kFirstPauseMs);
  int64_t last = 0;
  for (int life = 4; life <= LifePolicy::kMaxShortLives; ++life) {
    const auto pause = policy.ended(10);
    ASSERT_TRUE(pause) << life;
    EXPECT_GE(*pause, last);
    EXPECT_LE(*pause, LifePolicy::kLongestPauseMs);
    last = *pause;
  }
  EXPECT_FALSE(policy.ended(10));
}

TEST(LifePolicy, ALongLifeIsForgiven) {
  LifePolicy policy;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(policy.ended(LifePolicy::kLongLifeMs), 0);
}

TEST(LifePolicy, WhatIsOverIsNotStartedAgain) {
  for (const int code : {0, 1, 93, kExitUsage, kExitSuperseded, kExitRequeued}) {
    EXPECT_TRUE(is_over(code)) << code;
  }
  for (const int code : {kExitFault, 128 + 9, 128 + 6, 66}) EXPECT_FALSE(is_over(code)) << code;
  EXPECT_FALSE(is_over(std::nullopt));
}

TEST(ClusterIdentity, TextBothWays) {
  const Identity identity{1000, 100, {100, 27, 4294967294U}};
  EXPECT_EQ(to_text(identity), "1000:100:100,27,4294967294");
  const auto back = identity_from_text(to_text(identity));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(to_text(*back), to_text(identity));
  for (const char* text : {"", "1000", "1000:", "a:1:1", "1:1:1,x", "-1:1:1", "4294967296:1:1"}) {
    EXPECT_FALSE(identity_from_text(text).ok()) << text;
  }
}

TEST(ClusterIdentity, AUidWithoutAnEntryHasItsPrimaryGroup) {
  EXPECT_THAT(identity_of(3'999'999'998U, 77).groups, ElementsAre(77));
}

TEST(ClusterIdentity, NobodyBecomesSomebodyElse) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may";
  EXPECT_FALSE(become({::geteuid() + 1, ::getegid(), {}}).ok());
  EXPECT_TRUE(become({::geteuid(), ::getegid(), {}}).ok());
}

TEST(OperatorAcl, AreUsersUidsAndGroups) {
  const auto none = OperatorAcl::parse("", "here");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->have(0, 0)) << "nobody is appointed by nothing";
  const auto some = OperatorAcl::parse("nobody,4711,%daemon,%4712", "here");
  ASSERT_TRUE(some.ok());
  EXPECT_TRUE(some->have(65'534, 99)) << "by name";
  EXPECT_TRUE(some->have(4711, 99)) << "a uid that this machine does not know";
  EXPECT_TRUE(some->have(4713, 4712)) << "by the number of its group";
  EXPECT_TRUE(some->have(4713, 1)) << "by its name";
  EXPECT_FALSE(some->have(4713, 99));
  EXPECT_FALSE(some->have(0, 0));
  for (const std::string bad : {"a b", "a,,b", ",", "%", "%%a", "-a", "a:b", "a\tb", " "}) {
    const auto people = OperatorAcl::parse(bad, "--operators");
    ASSERT_FALSE(people.ok()) << bad;
    EXPECT_EQ(people.error().message.find("--operators: "), 0U) << people.error().message;
  }
}

TEST(OperatorAcl, HaveTheirRoles) {
  const Appointed appointed{OperatorAcl::parse("10", "").value(),
                            OperatorAcl::parse("10,11", "").value()};
  EXPECT_EQ(role_of(appointed, 10, 99, 500), Role::kAppointedOperator);
  EXPECT_EQ(role_of(appointed, 11, 99, 500), Role::kAppointedReader);
  EXPECT_EQ(role_of(appointed, 12, 99, 500), Role::kUser);
  EXPECT_EQ(role_of(appointed, 500, 99, 500), Role::kAdministrator);
  EXPECT_EQ(role_of(appointed, 0, 0, 500), Role::kAdministrator);
}

TEST(ChildProtocol, OrderAndReport) {
  const ChildOrder order{"token", {"n1", "n2"}, "slurm", "/opt/hpctl/bin", 3, "0.0.0.0:0", true};
  const std::string line = to_line(order);
  EXPECT_EQ(line.back(), '\n');
  const auto back = order_from_line(line);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(to_line(*back), line);
  EXPECT_TRUE(back->older_agents);
  EXPECT_FALSE(order_from_line("{}").ok());
  EXPECT_FALSE(order_from_line("[]").ok());

  const auto serves =
      report_from_line(report_line(ChildReport{"10.0.0.1:7", "-----\n", 9400, true}));
  ASSERT_TRUE(serves.ok());
  EXPECT_EQ(serves->address, "10.0.0.1:7");
  EXPECT_EQ(serves->certificate, "-----\n");
  EXPECT_EQ(serves->metrics_port, 9400);
  EXPECT_TRUE(serves->takes_roles);
  EXPECT_FALSE(report_from_line(R"({"address":"","certificate":""})")->takes_roles)
      << "of an older release";
  EXPECT_EQ(
      report_from_line(R"({"address":"","certificate":"","metrics_port":65536})")->metrics_port, 0);
  EXPECT_EQ(report_from_line(R"({"address":"","certificate":""})")->metrics_port, 0);
  EXPECT_FALSE(report_from_line(R"({"address":"10.0.0.1:7"})").ok()) << "nobody could know it";
  const auto refused =
      report_from_line(report_line(Error{ErrorCode::kPermissionDenied, "not \xff yours"}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("yours"));
  EXPECT_EQ(report_from_line(R"({"code":0,"error":"a\nb\u001b[1m"})").error().message, "a b [1m");
  EXPECT_FALSE(report_from_line("").ok());
  EXPECT_EQ(report_from_line(R"({"code":99,"error":"x"})").error().code, ErrorCode::kInternal);
}

TEST(ChildProtocol, ALineThatDoesNotCome) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  EXPECT_FALSE(read_line(reader.get(), 10, 100).ok());
  ASSERT_TRUE(write_all(writer.get(), std::string(6'000, 'x'), "x").ok());
  EXPECT_FALSE(read_line(reader.get(), 10'000, 100).ok());
  ASSERT_TRUE(write_all(writer.get(), "half", "x").ok());
  writer.reset();
  EXPECT_FALSE(read_line(reader.get(), -1, 100'000).ok());
}

JobRow row_of(uint64_t job) {
  JobRow row;
  row.key = {1000, job};
  row.gid = 100;
  row.groups = {100, 27};
  row.job_dir = "/fsx/jobs/submit-k";
  row.nodes = {"n1", "n2"};
  row.restart_count = 2;
  row.token = "t";
  row.address = "10.0.0.1:7";
  row.metrics_port = 9400;
  row.certificate = "c";
  row.pid = 17;
  row.start_ticks = 1234567890123;
  row.boot_id = "b";
  row.restarts = 5;
  return row;
}

TEST(JobRows, OutliveTheProcess) {
  const TemporaryDirectory directory;
  const auto rows = JobRows::open(directory / "jobs");
  ASSERT_TRUE(rows.ok());
  ASSERT_TRUE(rows->write(row_of(1)).ok());
  ASSERT_TRUE(rows->write(row_of(2)).ok());
  ASSERT_TRUE(rows->remove({1000, 1}).ok());
  ASSERT_TRUE(rows->remove({1000, 1}).ok());
  const auto loaded = JobRows::open(directory / "jobs")->load();
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ(loaded->size(), 1U);
  const JobRow& row = loaded->front();
  EXPECT_EQ(to_text(row.key), "job 2 of uid 1000");
  EXPECT_EQ(row.metrics_port, 9400);
  EXPECT_THAT(row.nodes, ElementsAre("n1", "n2"));
  EXPECT_THAT(row.groups, ElementsAre(100, 27));
  EXPECT_EQ(row.start_ticks, 1234567890123U);
  EXPECT_EQ(row.token, "t");
  EXPECT_EQ(row.restarts, 5U);
}

TEST(JobRows, ADamagedOneIsNamed) {
  const TemporaryDirectory directory;
  const auto rows = JobRows::open(directory / "jobs");
  ASSERT_TRUE(rows.ok());
  ASSERT_TRUE(write_file_atomic(directory / "jobs/1000-7.json", "{").ok());
  EXPECT_THAT(rows->load().error().message, HasSubstr("1000-7.json"));
}

TEST(JobRows, AreNobodyElsesBusiness) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkdir((directory / "jobs").c_str(), 0755), 0);
  ASSERT_EQ(::chmod((directory / "jobs").c_str(), 0755), 0);
  const auto rows = JobRows::open(directory / "jobs");
  ASSERT_FALSE(rows.ok());
  EXPECT_THAT(rows.error().message, HasSubstr("0700"));
}

v1::Admission good() {
  v1::Admission admission;
  admission.set_job(7);
  admission.set_job_dir("/fsx/jobs/submit-k");
  admission.add_nodes("ip-10-0-0-1.ec2");
  admission.set_scheduler("slurm");
  return admission;
}

TEST(Admission, IsChecked) {
  EXPECT_FALSE(find_problem(good()));
  const auto problem = [](const auto& change) {
    v1::Admission admission = good();
    change(admission);
    return find_problem(admission).has_value();
  };
  EXPECT_TRUE(problem([](auto& a) { a.set_job(0); }));
  EXPECT_TRUE(problem([](auto& a) { a.set_job(uint64_t{1} << 32); }));
  EXPECT_TRUE(problem([](auto& a) { a.set_job_dir("relative"); }));
  EXPECT_TRUE(problem([](auto& a) { a.set_job_dir("/with\nnewline"); }));
  EXPECT_TRUE(problem([](auto& a) { a.set_job_dir("/" + std::string(5'000, 'x')); }));
  EXPECT_TRUE(problem([](auto& a) { a.set_programs("bin"); }));
  EXPECT_TRUE(problem([](auto& a) { a.set_scheduler("cron"); }));
  for (const char* node : {"", "--option", "a b", "a/b", "a;b"}) {
    EXPECT_TRUE(problem([node](auto& a) { a.add_nodes(node); })) << node;
  }
}

class ClusterAddress : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("HPCTL_CLUSTER");
    ::setenv("HPCTL_SYSROOT", root_.path().c_str(), 1);
    ASSERT_TRUE(make_directories(root_ / "etc/hpctl").ok());
  }
  void TearDown() override {
    ::unsetenv("HPCTL_CLUSTER");
    ::unsetenv("HPCTL_CLUSTER_CA");
    ::unsetenv("HPCTL_SYSROOT");
  }
  void configure(const std::string& text) {
    ASSERT_TRUE(write_file_atomic(root_ / "etc/hpctl/cluster.conf", text).ok());
  }
  TemporaryDirectory root_;
};

TEST_F(ClusterAddress, EnvironmentThenFile) {
  EXPECT_EQ(cluster_address().value(), "");
  configure("# the head node\n\nHPCTL_CLUSTER=head.example:7300\n");
  EXPECT_EQ(cluster_address().value(), "head.example:7300");
  ::setenv("HPCTL_CLUSTER", "10.0.0.1:7301", 1);
  EXPECT_EQ(cluster_address().value(), "10.0.0.1:7301");
  ::setenv("HPCTL_CLUSTER", "head1:7300,head2:7300", 1);
  EXPECT_EQ(cluster_address().value(), "head1:7300,head2:7300");
  ::setenv("HPCTL_CLUSTER", "", 1);
  EXPECT_EQ(cluster_address().value(), "");
}

TEST_F(ClusterAddress, TheBundleIsConfiguredBesideIt) {
  EXPECT_EQ(cluster_ca().value(), "");
  configure("HPCTL_CLUSTER=head:7301\n# whose certificates\nHPCTL_CLUSTER_CA=/etc/hpctl/ca.pem\n");
  EXPECT_EQ(cluster_address().value(), "head:7301");
  EXPECT_EQ(cluster_ca().value(), "/etc/hpctl/ca.pem");
  ::setenv("HPCTL_CLUSTER", "other:7301", 1);
  EXPECT_EQ(cluster_ca().value(), "/etc/hpctl/ca.pem") << "whatever address is asked";
  ::setenv("HPCTL_CLUSTER_CA", "", 1);
  EXPECT_EQ(cluster_ca().value(), "/etc/hpctl/ca.pem") << "nobody loses it by mistake";
  ::setenv("HPCTL_CLUSTER_CA", "/home/a/ca.pem", 1);
  EXPECT_EQ(cluster_ca().value(), "/home/a/ca.pem");
  ::setenv("HPCTL_CLUSTER_CA", "ca.pem", 1);
  EXPECT_THAT(cluster_ca().error().message, HasSubstr("HPCTL_CLUSTER_CA: expected the absolute"));
  ::unsetenv("HPCTL_CLUSTER_CA");
  configure("HPCTL_CLUSTER=head:7301\nHPCTL_CLUSTER_CA=\n");
  EXPECT_THAT(cluster_ca().error().message, HasSubstr("cluster.conf:2: expected the absolute"));
}

// Such a line would leave its author in the belief that he is safe.
TEST_F(ClusterAddress, ALineThatIsNotUnderstoodIsNotPassedOver) {
  configure("HPCTL_CLUSTER=head:7301\nHPCTL_CLUSTERCA=/etc/hpctl/ca.pem\n");
  EXPECT_THAT(cluster_address().error().message, HasSubstr("cluster.conf:2"));
  EXPECT_THAT(cluster_ca().error().message, HasSubstr("cluster.conf:2"));
  configure("HPCTL_CLUSTER_CA=/a\nHPCTL_CLUSTER=a:1\nHPCTL_CLUSTER_CA=/b\n");
  EXPECT_THAT(cluster_ca().error().message, HasSubstr("is there twice, first in "));
}

TEST_F(ClusterAddress, WhatIsWrongIsNamed) {
  for (const char* text :
       {"head", ":7300", "head:", "head:0", "head:70000", "head:x", "a b:1", ",", "a:1,", ",a:1",
        "a:1,,b:1", "a:1, b:1", "a:1,b", "a:1,b:2,c:3,d:4,e:5"}) {
    ::setenv("HPCTL_CLUSTER", text, 1);
    EXPECT_THAT(cluster_address().error().message, HasSubstr("HOST:PORT")) << text;
  }
  ::unsetenv("HPCTL_CLUSTER");
  configure("# one\ncontroller=head:1\n");
  EXPECT_THAT(cluster_address().error().message, HasSubstr("cluster.conf:2"));
}

}  // namespace
}  // namespace hpctl::cluster
