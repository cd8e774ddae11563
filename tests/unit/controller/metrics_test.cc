// SPDX-License-Identifier: Apache-2.0
// Metrics are best effort, and their port is open to strangers.
#include "controller/publish/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/metric_family.h>

#include <vector>

#include "controller/publish/fleet_metrics.h"
#include "controller/publish/scrape_targets.h"
#include "tests/support/http_get.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

uint16_t port_of(const Metrics& metrics) {
  const std::string& address = metrics.address();
  return static_cast<uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
}

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
  EXPECT_THAT(http_get(port_of(**second), "/healthz"), HasSubstr("200 OK"));
}

TEST(Metrics, AnAddressOfAnotherMachineIsAnError) {
  const auto metrics = Metrics::open("203.0.113.1:9400");
  ASSERT_FALSE(metrics.ok());
  EXPECT_THAT(metrics.error().message, HasSubstr("not an address of this machine"));
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
  const std::string text = http_get(port_of(**metrics), "/metrics");
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
  EXPECT_THAT(http_get(port_of(**metrics), "/metrics"), Not(HasSubstr("node=\"n0\"")));
}

// One after the other would wait for half a minute each.
TEST(Metrics, SilentClientsDoNotHoldOthers) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(connect_to(port_of(**metrics)));
  EXPECT_THAT(http_get(port_of(**metrics), "/healthz"), HasSubstr("200 OK"));
}

FleetJob fleet_job(uint64_t id) {
  JobSummary job;
  job.job = JobId{id};
  job.name = "llama";
  job.state = "RECOVERING";
  job.taken_wall_ms = 100'000;
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
  const auto scrape = [&] { return http_get(port_of(**metrics), "/metrics"); };
  EXPECT_THAT(scrape(), Not(HasSubstr("hpctl_cluster_job")));
  FleetJob little = fleet_job(8);
  little.summary.taken_wall_ms = 0;
  (*metrics)->fleet({fleet_job(7), little});
  const std::string text = scrape();
  const std::string labels = "{job=\"7\",name=\"llama\",user=\"alice\"";
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_state" + labels + ",state=\"RECOVERING\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_state" + labels + ",state=\"RUNNING\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_step" + labels + "} 34\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_nodes" + labels + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_restarts" + labels + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_goodput_ratio" + labels + "} 0.5\n"));
  EXPECT_THAT(text,
              HasSubstr("hpctl_cluster_job_time_seconds" + labels + ",part=\"restart\"} 45\n"));
  EXPECT_THAT(text, HasSubstr("hpctl_cluster_job_state{job=\"8\""));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_cluster_job_step{job=\"8\""))) << "it is not known";
  (*metrics)->fleet({});
  EXPECT_THAT(scrape(), Not(HasSubstr("job=\"7\""))) << "a series ends with its job";
}

TEST(FleetMetrics, AreBounded) {
  FleetMetrics metrics;
  std::vector<FleetJob> jobs;
  for (uint64_t id = 1; id <= kMaxFleetJobs + 3; ++id) jobs.push_back(fleet_job(id));
  metrics.show(std::move(jobs));
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    EXPECT_LE(family.metric.size(), 10 * kMaxFleetJobs) << family.name;
    if (family.name == "hpctl_cluster_jobs_without_metrics") {
      EXPECT_EQ(family.metric.at(0).gauge.value, 3);
    }
  }
}

TEST(ScrapeTargets, OfAllJobsOfAHomeAreInOneDirectory) {
  EXPECT_EQ(scrape_targets_path("/h/jobs/17"), "/h/metrics-targets-17.json");
  EXPECT_EQ(scrape_targets_path("/h"), "/h/metrics-targets.json");
  EXPECT_EQ(scrape_targets_path("/h/jobs"), "/h/jobs/metrics-targets.json");
  EXPECT_EQ(scrape_targets_path("/h/jobs/17a"), "/h/jobs/17a/metrics-targets.json");
  EXPECT_EQ(scrape_targets_path("/tmp/17"), "/tmp/17/metrics-targets.json");
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
