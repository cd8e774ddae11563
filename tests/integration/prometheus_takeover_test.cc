// SPDX-License-Identifier: Apache-2.0
// A real Prometheus over the death of a job's controller. The next one counted from nothing: what
// had been scraped vanished, and an increase over the takeover was lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/integration/local_cluster.h"
#include "tests/integration/prometheus_server.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

class PrometheusOverATakeover : public ::testing::Test {
 protected:
  PrometheusOverATakeover() { ::setenv("HPCTL_METRICS", "127.0.0.1:0", 1); }
  ~PrometheusOverATakeover() override { ::unsetenv("HPCTL_METRICS"); }
  void SetUp() override {
    if (!PrometheusServer::is_installed()) GTEST_SKIP() << "the package prometheus is missing";
  }

  bool reaches(const std::function<bool()>& done) const {
    return wait_until(cluster_.directory(), done, std::chrono::seconds(60));
  }
  bool is_in_generation(JobId job, uint64_t generation) const {
    const nlohmann::json status = cluster_.status(job);
    return status.value("state", "") == "RUNNING" &&
           status.value("generation", uint64_t{0}) >= generation;
  }
  void lose_rank_0(JobId job, uint64_t next_generation) const {
    pid_t worker = 0;
    ASSERT_TRUE(reaches([&] { return (worker = worker_pid(cluster_.status(job), 0)) > 1; }));
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    ASSERT_TRUE(reaches([&] { return is_in_generation(job, next_generation); }))
        << cluster_.status(job);
  }
  pid_t controller(JobId job) const {
    return cluster_.status(job).value("controller", nlohmann::json::object()).value("pid", 0);
  }

  LocalCluster cluster_;
};

TEST_F(PrometheusOverATakeover, CountersGoOn) {
  TrainingJob spec;
  spec.steps = 1'000'000;
  const JobId job = cluster_.submit(spec.yaml());
  const PrometheusServer prometheus(cluster_.paths().home());
  ASSERT_TRUE(reaches([&] { return is_in_generation(job, 1); })) << cluster_.status(job);
  lose_rank_0(job, 2);
  const std::string of_rank_0 = R"(kind="worker",node="n0")";
  const std::string faults = "hpctl_job_faults_total{" + of_rank_0;
  EXPECT_TRUE(reaches([&] { return prometheus.has_data("max(" + faults + "}) == 1"); }))
      << prometheus.log();
  const nlohmann::json series = prometheus.query(faults + "}");
  ASSERT_EQ(series.size(), 1U) << series;
  const std::string next =
      faults + ",instance!=\"" + series[0]["metric"].value("instance", "") + "\"}";

  const pid_t former = controller(job);
  ASSERT_GT(former, 0);
  ASSERT_EQ(::kill(former, SIGKILL), 0);
  ASSERT_TRUE(reaches([&] { return controller(job) > 0 && controller(job) != former; }));
  EXPECT_TRUE(reaches([&] { return prometheus.has_data("max(" + next + ") == 1"); }))
      << prometheus.log();
  lose_rank_0(job, 3);
  EXPECT_TRUE(reaches([&] { return prometheus.has_data("max(" + next + ") == 2"); }))
      << prometheus.log();
  EXPECT_TRUE(reaches([&] {
    return prometheus.has_data("sum(increase(hpctl_job_faults_total[1m])) > 0.5");
  })) << prometheus.log();
}

}  // namespace
}  // namespace hpctl::testing
