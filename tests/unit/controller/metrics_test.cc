// SPDX-License-Identifier: Apache-2.0
// Metrics are best effort, and their port is open to strangers.
#include "controller/publish/metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <ctime>
#include <vector>

#include "common/base/file.h"
#include "common/job/controller_beat.h"
#include "common/job/endpoint.h"
#include "common/job/job_files.h"
#include "controller/publish/fleet_metrics.h"
#include "controller/publish/loss_counter.h"
#include "controller/publish/scrape_targets.h"
#include "tests/support/http_get.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

UniqueFd connect_to(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(Metrics, APortThatIsTakenIsReplacedByAFreeOne) {
  const auto first = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->moved(), "");
  const auto second = Metrics::open((*first)->address());
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_NE((*second)->address(), (*first)->address());
  EXPECT_THAT((*second)->moved(), HasSubstr((*first)->address() + " is in use"));
  EXPECT_THAT(http_get((*second)->port(), "/healthz"), HasSubstr("200 OK"));
}

TEST(Metrics, AnAddressOfAnotherMachineIsAnError) {
  const auto metrics = Metrics::open("203.0.113.1:9400");
  ASSERT_FALSE(metrics.ok());
  EXPECT_THAT(metrics.error().message, HasSubstr("not an address of this machine"));
}

TEST(Metrics, WhatIsNoAddressIsSaidToBeNone) {
  for (const char* address : {"9400", ":9400", "127.0.0.1:", "127.0.0.1:x", "::1:9400"}) {
    const auto metrics = Metrics::open(address);
    ASSERT_FALSE(metrics.ok()) << address;
    EXPECT_THAT(metrics.error().message,
                HasSubstr("HPCTL_METRICS or --metrics: expected HOST:PORT"));
  }
}

// Its series end with the node.
TEST(Metrics, TellWhoStandsByOnEachNode) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  JobView view;
  view.job = 3;
  view.name = "t";
  view.nodes.push_back({"n0", "active", "up", "i-0", "b-0", 10, 11, "", StandbyView{1, 0, 1, 0}});
  view.nodes.push_back({"n1", "spare", "up", "i-1", "b-1", 12, 13, "", StandbyView{2, 2, 0, 512}});
  (*metrics)->job(view);
  const std::string text = http_get((*metrics)->port(), "/metrics");
  const std::string n0 = R"({job="3",name="t",node="n0")";
  const std::string n1 = R"({job="3",name="t",node="n1")";
  EXPECT_THAT(text, HasSubstr("hpctl_standbys" + n0 + R"(,state="ready"} 0)"));
  EXPECT_THAT(text, HasSubstr("hpctl_standbys" + n0 + R"(,state="loading"} 1)"));
  EXPECT_THAT(text, HasSubstr("hpctl_standbys" + n1 + R"(,state="ready"} 2)"));
  EXPECT_THAT(text, HasSubstr("hpctl_standbys_wanted" + n1 + "} 2"));
  EXPECT_THAT(text, HasSubstr("hpctl_standbys_memory_bytes" + n1 + "} 512"));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_standbys_memory_bytes" + n0)));
  view.nodes[0].standbys.reset();
  (*metrics)->job(view);
  const std::string after = http_get((*metrics)->port(), "/metrics");
  EXPECT_THAT(after, Not(HasSubstr("hpctl_standbys" + n0)));
  EXPECT_THAT(after, HasSubstr("hpctl_job_node_info" + n0 + R"(,role="active"} 1)"));
  EXPECT_THAT(after, HasSubstr("hpctl_job_node_info" + n1 + R"(,role="spare"} 1)"));
}

// As they are told elsewhere: each for as long as it stands, at the node that it is about.
TEST(Metrics, TellWhatIsFound) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  JobView view;
  view.job = 3;
  Finding budget;
  budget.kind = FindingKind::kBudgetLow;
  budget.severity = Severity::kCritical;
  budget.name = "t";
  Finding lemon;
  lemon.kind = FindingKind::kNodeLemon;
  lemon.name = "t";
  lemon.node = "n1";
  (*metrics)->findings(view, {budget, lemon});
  const std::string job = R"(hpctl_job_finding{job="3",name="t",)";
  std::string text = http_get((*metrics)->port(), "/metrics");
  EXPECT_THAT(text, HasSubstr(job + R"(kind="budget_low",severity="critical",node=""} 1)"));
  EXPECT_THAT(text, HasSubstr(job + R"(kind="node_lemon",severity="warn",node="n1"} 1)"));
  (*metrics)->findings(view, {lemon});
  text = http_get((*metrics)->port(), "/metrics");
  EXPECT_THAT(text, Not(HasSubstr("budget_low")));
  EXPECT_THAT(text, HasSubstr("node_lemon"));
}

TEST(Metrics, TellHowAJobEnded) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  JobView view;
  view.job = 3;
  view.name = "t";
  view.state = "RECOVERING";
  view.restarts = 4;
  view.storage = {61'500, 3, 2, WallTime(1'700'000'000'250), {{"EIO", 7}}};
  view.margins.emplace().storage_ms = 1'500;
  view.mirror = {"/mirror", 40, 2'500, ""};
  view.nodes.push_back({"n0", "active", "up", "i-0", "b-0", 10, 11, "", {}});
  (*metrics)->job(view);
  std::string text = http_get((*metrics)->port(), "/metrics");
  EXPECT_THAT(text, HasSubstr("# TYPE hpctl_job_restarts_total counter\n"));
  EXPECT_THAT(text, HasSubstr(R"(hpctl_job_restarts_total{job="3",name="t"} 4)"));
  EXPECT_THAT(text, HasSubstr(R"(hpctl_job_mirror_step{job="3",name="t"} 40)"));
  EXPECT_THAT(text, HasSubstr(R"(hpctl_job_mirror_behind_seconds{job="3",name="t"} 2.5)"));
  const std::string storage = R"(hpctl_job_storage_)";
  EXPECT_THAT(text, HasSubstr(storage + R"(away_seconds{job="3",name="t"} 1.5)"));
  EXPECT_THAT(text, HasSubstr(storage + R"(wait_seconds_total{job="3",name="t"} 61)"));
  EXPECT_THAT(text, HasSubstr(storage + R"(errors_total{job="3",name="t",kind="directory"} 3)"));
  EXPECT_THAT(text, HasSubstr(storage + R"(errors_total{job="3",name="t",kind="worker"} 2)"));
  EXPECT_THAT(text, HasSubstr(storage + R"(exits_total{job="3",name="t",errno="EIO"} 7)"));
  EXPECT_THAT(text, HasSubstr("hpctl_job_checkpoint_verified_timestamp_seconds"
                              R"({job="3",name="t"} 1700000000.25)"));
  EXPECT_THAT(text, HasSubstr("hpctl_build_info{version=\""));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_job_ended_timestamp_seconds")));
  view.state = "FAILED";
  view.ended_at = WallTime(1'700'000'000'500);
  (*metrics)->job(view);
  text = http_get((*metrics)->port(), "/metrics");
  EXPECT_THAT(text, HasSubstr("hpctl_job_ended_timestamp_seconds"
                              R"({job="3",name="t",state="FAILED"} 1700000000.5)"));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_job_node_info"))) << "it has none any more";
}

TEST(Metrics, CountFaultsByKindAndNode) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  core::Fault fault;
  (*metrics)->fault(3, "t", fault);
  fault.node = "n1";
  (*metrics)->fault(3, "t", fault);
  fault.rank = 2;
  (*metrics)->fault(3, "t", fault);
  (*metrics)->fault(3, "t", fault);
  fault.hang = true;
  (*metrics)->fault(3, "t", fault);
  fault.damage = true;
  (*metrics)->fault(3, "t", fault);
  fault.in_order = true;
  (*metrics)->fault(3, "t", fault);
  (*metrics)->detection(3, "t", 0.2);
  const std::string text = http_get((*metrics)->port(), "/metrics");
  const auto counted = [&](const std::string& kind, const std::string& node, int times) {
    return HasSubstr("hpctl_job_faults_total{job=\"3\",kind=\"" + kind + "\",name=\"t\",node=\"" +
                     node + "\"} " + std::to_string(times) + "\n");
  };
  EXPECT_THAT(text, counted("job", "", 1));
  EXPECT_THAT(text, counted("node", "n1", 1));
  EXPECT_THAT(text, counted("worker", "n1", 2));
  EXPECT_THAT(text, counted("hang", "n1", 1));
  EXPECT_THAT(text, counted("checkpoint", "n1", 1));
  EXPECT_THAT(text, counted("order", "n1", 1));
  EXPECT_THAT(text, HasSubstr(R"(hpctl_job_detection_seconds_count{job="3",name="t"} 1)"));
}

core::Job counted_job() {
  core::Job job;
  job.id = JobId{3};
  job.spec.name = "t";
  job.state = core::JobState::kRunning;
  return job;
}

// As the next controller reads them in the job's status file.
LossCounts as_recorded(const LossCounts& counts) {
  JobView view;
  view.job = 3;
  view.losses = counts;
  const auto read = job_view_from_json(to_json_text(view));
  EXPECT_TRUE(read.ok());
  return read.ok() ? read->losses : LossCounts();
}

TEST(LossCounter, TellsEachLossOnce) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  const auto scrape = [&] { return http_get((*metrics)->port(), "/metrics"); };
  core::Job job;
  job.id = JobId{3};
  job.spec.name = "t";
  job.state = core::JobState::kRecovering;
  job.lost_ms = 70'000;
  job.spent.notice_ms = 5'000;
  job.recent_faults = {{.cause = "of a former controller", .node = "n9", .seq = Seq{4}}};
  LossCounter losses;
  losses.recall(job);
  losses.count(job, metrics->get());
  EXPECT_THAT(scrape(), HasSubstr(R"(hpctl_job_recovery_seconds_count{job="3",name="t"} 0)"))
      << "what was before is no news, and a rate needs a sample before the first loss";

  job.recent_faults.push_back({.cause = "a consequence", .node = "n0", .rank = 0, .seq = Seq{7}});
  job.spent.notice_ms += 200;
  losses.count(job, metrics->get());
  EXPECT_THAT(scrape(), HasSubstr(R"(hpctl_job_detection_seconds_sum{job="3",name="t"} 0.2)"));
  EXPECT_THAT(scrape(), Not(HasSubstr("hpctl_job_faults_total"))) << "the cause may follow";
  job.recent_faults.back() = {.cause = "the cause", .node = "n1", .rank = 2, .seq = Seq{8}};
  losses.count(job, metrics->get());
  job.state = core::JobState::kRunning;
  job.lost_ms += 3'000;
  losses.count(job, metrics->get());
  losses.count(job, metrics->get());
  const std::string text = scrape();
  EXPECT_THAT(text, HasSubstr("hpctl_job_faults_total{job=\"3\",kind=\"worker\",name=\"t\","
                              "node=\"n1\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("node=\"n0\"")));
  EXPECT_THAT(text, Not(HasSubstr("node=\"n9\"")));
  EXPECT_THAT(text, HasSubstr(R"(hpctl_job_recovery_seconds_sum{job="3",name="t"} 3)"));
  EXPECT_THAT(text, HasSubstr(R"(hpctl_job_detection_seconds_count{job="3",name="t"} 1)"));
}

// Counters vanished under the next controller, and an increase over the takeover was lost.
TEST(LossCounter, GoesOnFromWhatTheFormerControllerCounted) {
  core::Job job = counted_job();
  LossCounter former;
  former.recall(job);
  job.lost_ms += 3'000;
  job.spent.notice_ms += 200;
  job.recent_faults = {{.cause = "why", .node = "n1", .rank = 2, .seq = Seq{8}}};
  former.count(job, nullptr);

  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  LossCounter losses;
  losses.recall(job);
  losses.go_on_from(as_recorded(former.counts()));
  losses.count(job, metrics->get());
  const auto scrape = [&] { return http_get((*metrics)->port(), "/metrics"); };
  std::string text = scrape();
  EXPECT_THAT(text, HasSubstr("kind=\"worker\",name=\"t\",node=\"n1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(R"(hpctl_job_recovery_seconds_sum{job="3",name="t"} 3)"));
  EXPECT_THAT(text, HasSubstr(R"(hpctl_job_detection_seconds_count{job="3",name="t"} 1)"));
  job.recent_faults.push_back({.cause = "again", .node = "n1", .rank = 2, .seq = Seq{9}});
  losses.count(job, metrics->get());
  text = scrape();
  EXPECT_THAT(text, HasSubstr("kind=\"worker\",name=\"t\",node=\"n1\"} 2\n"));
  ASSERT_EQ(losses.counts().faults.size(), 1U);
  EXPECT_EQ(losses.counts().faults[0].count, 2U);
}

// A controller died while its job recovered. The time until the fault was detected vanished, and
// the fault was never counted.
TEST(LossCounter, CountsTheFaultThatOutlivedAController) {
  core::Job job = counted_job();
  LossCounter former;
  former.recall(job);
  former.count(job, nullptr);
  job.state = core::JobState::kRecovering;
  job.spent.notice_ms += 200;
  job.recent_faults = {{.cause = "why", .node = "n1", .rank = 2, .seq = Seq{8}}};
  former.count(job, nullptr);

  LossCounter losses;
  losses.recall(job);
  losses.go_on_from(as_recorded(former.counts()));
  losses.count(job, nullptr);
  EXPECT_TRUE(losses.counts().faults.empty()) << "it is not over";
  job.state = core::JobState::kRunning;
  job.lost_ms += 3'000;
  losses.count(job, nullptr);
  losses.count(job, nullptr);
  ASSERT_EQ(losses.counts().faults.size(), 1U);
  EXPECT_EQ(losses.counts().faults[0].count, 1U);
  EXPECT_EQ(losses.counts().recovery.sum, 3);
  EXPECT_EQ(losses.counts().detection.sum, 0.2);

  // The former controller's last record may be older than the job's row.
  LossCounter from_older;
  from_older.recall(job);
  from_older.go_on_from(as_recorded(former.counts()));
  from_older.count(job, nullptr);
  ASSERT_EQ(from_older.counts().faults.size(), 1U);
  EXPECT_EQ(from_older.counts().recovery.sum, 3);
}

// A scrape of /metrics is reported to those who wait for one; a look at /healthz is not.
TEST(Metrics, TellThatTheyAreScraped) {
  std::atomic<int> scraped = 0;
  const auto metrics = Metrics::open("127.0.0.1:0", [&] { ++scraped; });
  ASSERT_TRUE(metrics.ok());
  http_get((*metrics)->port(), "/healthz");
  EXPECT_EQ(scraped, 0);
  http_get((*metrics)->port(), "/metrics");
  EXPECT_EQ(scraped, 1);
}

// One after the other would wait for half a minute each.
TEST(Metrics, SilentClientsDoNotHoldOthers) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(connect_to((*metrics)->port()));
  EXPECT_THAT(http_get((*metrics)->port(), "/healthz"), HasSubstr("200 OK"));
}

TEST(Metrics, OfOtherPathsThereAreNone) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  EXPECT_THAT(http_get((*metrics)->port(), "/"), HasSubstr("404 Not Found"));
  EXPECT_THAT(http_get((*metrics)->port(), "/healthz"), HasSubstr("\nhpctl_controller_up 1\n"));
}

TEST(MetricFamilies, AreTextOfPrometheus) {
  MetricFamilies out;
  const MetricLabels job = {{"job", "3"}, {"name", "a \"b\\c\nd"}};
  out.gauge("b", "of b", job, 0.1);
  out.counter("a_total", "of a", {}, 12'345'678'901);
  out.gauge("b", "of b", with(job, "rank", "1"), 1'700'000'000.5);
  out.gauge("b", "of b", with(job, "rank", "2"), NAN);
  const std::vector<std::string> text = out.take();
  ASSERT_EQ(text.size(), 2U);
  EXPECT_EQ(text[0], "# HELP a_total of a\n# TYPE a_total counter\na_total 12345678901\n");
  const std::string labels = R"(b{job="3",name="a \"b\\c\nd")";
  EXPECT_EQ(text[1], "# HELP b of b\n# TYPE b gauge\n" + labels + "} 0.1\n" + labels +
                         ",rank=\"1\"} 1700000000.5\n");
}

std::string text_of(const FleetMetrics& metrics) {
  MetricFamilies out;
  metrics.add_to(out);
  std::string text;
  for (const std::string& family : out.take()) text += family;
  return text;
}

FleetJob fleet_job(uint64_t id) {
  JobSummary job;
  job.job = JobId{id};
  job.name = "llama";
  job.state = "RECOVERING";
  job.submitted_at = WallTime(1'000);
  job.taken_at = WallTime(101'000);
  job.step = 34;
  job.restarts = 2;
  job.nodes = {"n0", "n1"};
  job.spent.start_ms = 10'000;
  job.spent.restart_ms = 45'000;
  return {job, "alice"};
}

TEST(FleetMetrics, TellOfEveryJob) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  const auto scrape = [&] { return http_get((*metrics)->port(), "/metrics"); };
  EXPECT_THAT(scrape(), Not(HasSubstr("hpctl_cluster_job")));
  FleetJob little = fleet_job(8);
  little.summary.taken_at = WallTime(0);
  (*metrics)->fleet({fleet_job(7), little});
  const std::string text = scrape();
  const std::string labels = "{job=\"7\",name=\"llama\",user=\"alice\"";
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_state" + labels + ",state=\"RECOVERING\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_state" + labels + ",state=\"RUNNING\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_step" + labels + "} 34\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_nodes" + labels + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_restarts_total" + labels + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_node_info" + labels + ",node=\"n1\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_cluster_job_ended_timestamp_seconds")));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_goodput_ratio" + labels + "} 0.5\n"));
  EXPECT_THAT(text,
              HasSubstr("hpctl_cluster_job_time_seconds" + labels + ",part=\"restart\"} 45\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_state{job=\"8\""));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_cluster_job_step{job=\"8\""))) << "it is not known";
  (*metrics)->fleet({});
  EXPECT_THAT(scrape(), Not(HasSubstr("job=\"7\""))) << "a series ends with its job";
}

// With whose job it is, and no more than there is room for.
TEST(FleetMetrics, TellWhatIsFound) {
  Finding silent;
  silent.kind = FindingKind::kControllerSilent;
  silent.severity = Severity::kCritical;
  silent.job = JobId{7};
  silent.name = "llama";
  silent.user = "alice";
  Finding warned = silent;
  warned.kind = FindingKind::kSparesExhausted;
  warned.severity = Severity::kWarn;
  std::vector<Finding> findings(kMaxFleetFindings, warned);
  findings.push_back(silent);
  FleetMetrics metrics;
  metrics.show({});
  metrics.show_findings(findings);
  const std::string text = text_of(metrics);
  const std::string job = R"(hpctl_cluster_job_finding{job="7",name="llama",user="alice",)";
  EXPECT_THAT(text, HasSubstr(job + R"(kind="controller_silent",severity="critical",node=""} 1)"))
      << "critical ones first";
  size_t told = 0;
  for (size_t at = text.find(job); at != std::string::npos; at = text.find(job, at + 1)) ++told;
  EXPECT_EQ(told, kMaxFleetFindings);
}

TEST(FleetMetrics, TellHowAJobEnded) {
  FleetJob failed = fleet_job(7);
  failed.summary.state = "FAILED";
  failed.summary.ended_at = WallTime(101'000);
  FleetMetrics metrics;
  metrics.show({failed});
  const std::string text = text_of(metrics);
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_ended_timestamp_seconds{job=\"7\",name=\"llama\","
                              "user=\"alice\",state=\"FAILED\"} 101\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_goodput_ratio{")) << "what it came to stays";
  for (const char* gone : {"hpctl_cluster_job_nodes{", "hpctl_cluster_job_node_info{"}) {
    EXPECT_THAT(text, Not(HasSubstr(gone)));
  }
}

TEST(FleetMetrics, HaveNoGoodputOfACommandThatToldNoStep) {
  FleetJob command = fleet_job(7);
  command.summary.step = 0;
  FleetMetrics metrics;
  metrics.show({command});
  EXPECT_THAT(text_of(metrics), Not(HasSubstr("goodput")));
  EXPECT_THAT(text_of(metrics), HasSubstr("part=\"train\"} 45\n"));
}

TEST(FleetMetrics, AreBounded) {
  FleetMetrics metrics;
  std::vector<FleetJob> jobs;
  for (uint64_t id = 1; id <= kMaxFleetJobs + 3; ++id) jobs.push_back(fleet_job(id));
  for (size_t n = 0; n < kMaxFleetNodes; ++n) {
    jobs[5].summary.nodes.push_back("p5-" + std::to_string(n));
  }
  metrics.show(std::move(jobs));
  MetricFamilies out;
  metrics.add_to(out);
  for (const std::string& family : out.take()) {
    const auto lines = static_cast<size_t>(std::count(family.begin(), family.end(), '\n'));
    EXPECT_LE(lines, 2 + std::max(10 * kMaxFleetJobs, kMaxFleetNodes)) << family.substr(0, 80);
  }
  EXPECT_THAT(text_of(metrics), HasSubstr("\nhpctl_cluster_jobs_without_metrics 3\n"));
}

TEST(ScrapeTargets, OfAllJobsOfAHomeAreInOneDirectory) {
  EXPECT_EQ(scrape_targets_path("/h/jobs/17"), "/h/metrics-targets-17.json");
  EXPECT_EQ(scrape_targets_path("/h"), "/h/metrics-targets.json");
  EXPECT_EQ(scrape_targets_path("/h/jobs"), "/h/jobs/metrics-targets.json");
  EXPECT_EQ(scrape_targets_path("/h/jobs/17a"), "/h/jobs/17a/metrics-targets.json");
  EXPECT_EQ(scrape_targets_path("/tmp/17"), "/tmp/17/metrics-targets.json");
}

// A job's directory with its targets, as a controller leaves them.
class Homes : public ::testing::Test {
 protected:
  std::string add_job(const std::string& job) {
    const std::string directory = home_.path() + "/jobs/" + job;
    EXPECT_TRUE(make_directories(directory + "/controllers").ok());
    ControllerRecord record;
    record.epoch = 1;
    record.restart_count = 1;
    EXPECT_TRUE(create_controller_record(directory, record).ok());
    EXPECT_TRUE(write_beat(directory, 1, 1).ok());
    publish_scrape_targets(scrape_targets_path(directory), "[]\n");
    return directory;
  }
  bool has_targets(const std::string& job) const {
    return is_accessible(home_.path() + "/metrics-targets-" + job + ".json");
  }
  static void make_older(const std::string& path, int64_t seconds) {
    const timespec then{::time(nullptr) - seconds, 0};
    const std::array<timespec, 2> times{then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0), 0) << path;
  }
  TemporaryDirectory home_;
};

TEST_F(Homes, ThoseOfJobsThatAreOverAreSwept) {
  const std::string own = add_job("7");
  const std::string ended = add_job("1");
  ASSERT_TRUE(write_verdict(ended, kVerdictFailedForGood, 1).ok());
  make_older(verdict_path(ended), 120);
  ASSERT_TRUE(write_verdict(add_job("2"), kVerdictFailedForGood, 1).ok());
  ASSERT_TRUE(remove_tree(add_job("3")).ok());
  const std::string dead = add_job("4");
  make_older(beat_path(dead), 25 * 3600);
  make_older(scrape_targets_path(dead), 25 * 3600);
  make_older(scrape_targets_path(add_job("5")), 25 * 3600);
  ASSERT_TRUE(write_file_atomic(home_.path() + "/metrics-targets-x.json", "[]").ok());
  sweep_scrape_targets(own);
  EXPECT_FALSE(has_targets("1")) << "it has its verdict";
  EXPECT_TRUE(has_targets("2")) << "its controller may still wait for a scrape";
  EXPECT_FALSE(has_targets("3")) << "nobody knows it any more";
  EXPECT_FALSE(has_targets("4")) << "its controller was killed yesterday";
  EXPECT_TRUE(has_targets("5")) << "its controller lives";
  EXPECT_TRUE(has_targets("7"));
  EXPECT_TRUE(has_targets("x")) << "not ours";
  remove_scrape_targets(scrape_targets_path(own));
  EXPECT_FALSE(has_targets("7"));
}

TEST(ScrapeTargets, NameAnAddressThatOthersReach) {
  EXPECT_EQ(scrape_targets({{"0.0.0.0:9400", {{"hpctl_job", "7"}}}, {"", {}}}, "10.0.0.7"),
            R"([{"targets":["10.0.0.7:9400"],"labels":{"hpctl_job":"7"}}])"
            "\n");
  EXPECT_EQ(scrape_targets({{"127.0.0.1:1", {}}}, "10.0.0.7"),
            R"([{"targets":["127.0.0.1:1"],"labels":{}}])"
            "\n");
  EXPECT_EQ(scrape_targets({{"", {{"hpctl_job", "7"}}}}, "10.0.0.7"), "[]\n");
}

}  // namespace
}  // namespace hpctl
