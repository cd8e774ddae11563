// SPDX-License-Identifier: Apache-2.0
// deploy/prometheus with a real Prometheus and real jobs: every query of every view has data, as
// have the metrics of every rule; alerts fire for a fault that is brought about here, and clear;
// the consoles show it, in a real Chromium as well. Those few that this machine cannot bring about
// are named below with the reason; promtool's tests (prometheus_files) have all of them.
// With HPCTL_SCREENSHOTS=DIR the pictures of docs/images are written there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <regex>
#include <set>

#include "common/base/file.h"
#include "tests/fault/cluster_service.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/prometheus_server.h"
#include "tests/integration/training_job.h"
#include "tests/support/browser.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using test::Browser;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr seconds kLong{60};

// The peak of a processor is not known, so there is no MFU on one.
constexpr const char* kOnlyOnGpus = "hpctl_train_mfu_ratio";

// Queries that have had no data yet.
class Coverage {
 public:
  Coverage(const PrometheusServer& prometheus, const std::vector<std::string>& views)
      : prometheus_(prometheus) {
    for (const std::string& view : views) {
      for (std::string& query : queries_of_view(view)) {
        if (query.find(kOnlyOnGpus) == std::string::npos) left_.insert(std::move(query));
      }
    }
    EXPECT_FALSE(left_.empty());
  }
  const std::set<std::string>& look() {
    std::erase_if(left_, [&](const std::string& query) { return prometheus_.has_data(query); });
    return left_;
  }

 private:
  const PrometheusServer& prometheus_;
  std::set<std::string> left_;
};

void keep_picture(Browser& browser, const std::string& name) {
  const char* directory = std::getenv("HPCTL_SCREENSHOTS");
  if (directory == nullptr) return;
  EXPECT_TRUE(
      write_file_atomic(directory + ("/" + name + ".png"), browser.screenshot("html")).ok());
}

// What the server makes of a view, and a browser, where there is one, of that.
class Consoles {
 public:
  explicit Consoles(const PrometheusServer& prometheus) : prometheus_(prometheus) {
    if (Browser::is_installed()) browser_ = Browser::start({1280, 1500, false});
  }
  // `text` is of a series.
  void expect_shown(const std::string& view, const std::string& text) {
    const std::string page = "hpctl-" + view + ".html?span=60";
    const std::string answer = prometheus_.console(page);
    EXPECT_THAT(answer, HasSubstr(" 200 OK")) << answer << prometheus_.log();
    EXPECT_THAT(answer, HasSubstr(text)) << view;
    const std::string nobody =
        prometheus_.console("hpctl-" + view + ".html?name=nobody%22%7D&job=0");
    EXPECT_THAT(nobody, HasSubstr(" 200 OK")) << "a name is a name, whatever is in it";
    EXPECT_THAT(nobody, Not(HasSubstr(text)));
    if (browser_ == nullptr) return;
    browser_->go(prometheus_.url(page));
    EXPECT_TRUE(browser_->wait_for("return document.body.dataset.plotted === 'yes'")) << view;
    EXPECT_EQ(browser_->run("return document.querySelectorAll('svg .line').length > 3"), true)
        << view;
    EXPECT_EQ(browser_->complaints(), "") << view;
    keep_picture(*browser_, "prometheus-" + view);
  }

 private:
  const PrometheusServer& prometheus_;
  std::unique_ptr<Browser> browser_;
};

// A look every 50 ms: Prometheus tells nobody that it has new data.
bool until(const std::function<bool()>& done) { return wait_until(HPCTL_SOURCE, done, kLong); }

void expect_fires(const PrometheusServer& prometheus, const std::string& alert) {
  EXPECT_TRUE(until([&] { return prometheus.fires(alert); }))
      << alert << " does not fire\n"
      << prometheus.query("{__name__=~\"hpctl_job.*|hpctl_train_step.*|up\"}").dump(1);
}

// Within the last minute, also when it is over.
void expect_fired(const PrometheusServer& prometheus, const std::string& alert) {
  const std::string told = "ALERTS{alertstate=\"firing\",alertname=\"" + alert + "\"}";
  EXPECT_TRUE(until([&] { return prometheus.has_data("count_over_time(" + told + "[1m])"); }))
      << alert << " did not fire";
}

void expect_clears(const PrometheusServer& prometheus, const std::string& alert) {
  EXPECT_TRUE(until([&] { return !prometheus.fires(alert); })) << alert << " does not clear";
}

// That promtool's reader and the server's take them is not enough: none fails on real series.
void expect_healthy_rules(const PrometheusServer& prometheus) {
  const json rules = prometheus.rules();
  EXPECT_FALSE(rules.empty());
  for (const json& rule : rules) EXPECT_EQ(rule.at("health"), "ok") << rule.dump();
}

std::string without_ending(std::string name) {
  for (const std::string ending : {"_bucket", "_sum", "_count"}) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  return name;
}

std::set<std::string> documented_metrics() {
  std::set<std::string> names;
  const std::string page = read_file(HPCTL_SOURCE "/docs/metrics.md").value();
  const std::regex name("`(hpctl_[a-z_]+)");
  for (std::sregex_iterator at(page.begin(), page.end(), name), none; at != none; ++at) {
    names.insert((*at)[1]);
  }
  for (const char* label : {"hpctl_job", "hpctl_node"}) names.erase(label);
  return names;
}

// What was scraped so far is what docs/metrics.md has: nothing else, and all of it that a cluster
// controller serves, or all that it does not, but for `others`.
void expect_as_documented(const PrometheusServer& prometheus, bool of_cluster,
                          const std::set<std::string>& others) {
  const auto is_of_cluster = [](const std::string& name) {
    return name.starts_with("hpctl_cluster_");
  };
  const std::set<std::string> documented = documented_metrics();
  std::set<std::string> scraped;
  for (const json& series : prometheus.query("last_over_time({__name__=~\"hpctl_.+\"}[1d])")) {
    scraped.insert(without_ending(series.at("metric").at("__name__")));
  }
  for (const std::string& name : scraped) {
    EXPECT_TRUE(documented.contains(name)) << name << " is not in docs/metrics.md";
    EXPECT_FALSE(others.contains(name)) << name << " was thought to be absent here";
  }
  for (const std::string& name : documented) {
    if (is_of_cluster(name) != of_cluster || others.contains(name)) continue;
    EXPECT_TRUE(scraped.contains(name)) << name << " was never scraped";
  }
}

class Prometheus : public ::testing::Test {
 protected:
  Prometheus() { setenv("HPCTL_METRICS", "127.0.0.1:0", 1); }
  ~Prometheus() override { unsetenv("HPCTL_METRICS"); }
  void SetUp() override {
    if (!PrometheusServer::is_installed()) GTEST_SKIP() << "the package prometheus is missing";
  }
  bool runs(JobId job, uint64_t generation) const {
    const json status = cluster_.status(job);
    return status.value("state", "") == "RUNNING" &&
           status.value("generation", uint64_t{0}) >= generation;
  }
  // Its process, once it runs in the present generation; 0 when it never does.
  pid_t await_worker(JobId job, int rank) const {
    pid_t pid = 0;
    until([&] { return (pid = worker_pid(cluster_.status(job), rank)) > 1; });
    return pid;
  }
  void inject(JobId job, const std::string& fault) const {
    const auto result =
        cluster_.hpctl({"chaos", to_string(job), "--faults", fault, "--every", "100ms"});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }

  LocalCluster cluster_;
};

TEST_F(Prometheus, ShowsAJobAndItsFaults) {
  TrainingJob spec;
  spec.steps = 1'000'000;
  spec.hang_timeout = "1m";       // a rank that stands still is for the alert
  spec.heartbeat_timeout = "1m";  // so is a holder
  const JobId job = cluster_.submit(spec.yaml());
  const PrometheusServer prometheus(cluster_.paths().home());
  Coverage coverage(prometheus, {"job", "node", "goodput"});
  ASSERT_TRUE(until([&] { return prometheus.has_data("hpctl_train_compute_seconds"); }))
      << prometheus.log();

  // What has failed has failed; the alert is over when an hour of the rules is.
  const JobId failed = cluster_.submit(
      "name: failed\nnodes: 1\nworkload: {command: [/bin/false]}\nrecovery: {max_restarts: 0}\n");
  EXPECT_EQ(cluster_.wait_for_end(failed, kLong), "FAILED");
  expect_fires(prometheus, "HpctlJobFailed");

  // A command that tells its steps has them there as well.
  const JobId tells = cluster_.submit(
      "name: tells\nnodes: 1\nworkload: {command: [/bin/sh, -c, 'for s in 1 2 3; do echo $s 100 >> "
      "$HPCTL_PROGRESS_FILE; sleep 0.2; done; sleep 1000']}\n");
  EXPECT_TRUE(until([&] {
    return prometheus.has_data("hpctl_train_step{name=\"tells\"} == 3") &&
           prometheus.has_data("hpctl_train_tokens_per_second{name=\"tells\"} > 0");
  }));
  EXPECT_EQ(cluster_.hpctl({"cancel", to_string(tells)}).exit_code, 0);
  EXPECT_EQ(cluster_.wait_for_end(tells, kLong), "CANCELLED");

  for (uint64_t generation = 2; generation <= 5; ++generation) {
    ASSERT_TRUE(end_process(await_worker(job, 2)));
    ASSERT_TRUE(until([&] { return runs(job, generation); }));
  }
  expect_fires(prometheus, "HpctlJobRestartsOften");

  const pid_t stands = await_worker(job, 1);
  ASSERT_GT(stands, 1);
  ASSERT_EQ(kill(stands, SIGSTOP), 0);
  expect_fires(prometheus, "HpctlStepsStandStill");
  coverage.look();  // its panels show alerts
  ASSERT_EQ(kill(stands, SIGCONT), 0);
  expect_clears(prometheus, "HpctlStepsStandStill");

  // A node that does not take part in a recovery.
  const pid_t holder = node_pid(cluster_.status(job), 1, "holder_pid");
  ASSERT_GT(holder, 1);
  ASSERT_EQ(kill(holder, SIGSTOP), 0);
  ASSERT_TRUE(end_process(await_worker(job, 0)));
  expect_fires(prometheus, "HpctlJobRecoversForLong");
  ASSERT_EQ(kill(holder, SIGCONT), 0);
  expect_clears(prometheus, "HpctlJobRecoversForLong");

  inject(job, "full-disk");
  expect_fired(prometheus, "HpctlCheckpointDiskFull");
  inject(job, "slow-worker");
  expect_fired(prometheus, "HpctlSlowRank");
  EXPECT_TRUE(until([&] { return coverage.look().empty(); }));
  EXPECT_THAT(coverage.look(), IsEmpty());
  for (const char* alert : {"HpctlJobRestartsOften", "HpctlCheckpointDiskFull", "HpctlSlowRank"}) {
    expect_clears(prometheus, alert);
  }
  expect_clears(prometheus, "HpctlJobFailed");
  EXPECT_TRUE(prometheus.has_data("hpctl_job_faults_total{node=\"n1\",kind=\"worker\"} >= 4"))
      << prometheus.query("hpctl_job_faults_total").dump(1);

  Consoles consoles(prometheus);
  consoles.expect_shown("job", "tiny " + to_string(job) + " RUNNING");
  consoles.expect_shown("node", "rank 3 on n1");
  consoles.expect_shown("goodput", "tiny goodput");

  expect_healthy_rules(prometheus);
  expect_as_documented(prometheus, false, {kOnlyOnGpus});
}

JobSpec training_spec() {
  TrainingJob job;
  job.steps = 1'000'000;
  return job.spec();
}

void fail(const test::JobCluster& job) {
  job.open_gate();
  EXPECT_TRUE(until([&] { return job.verdict().has_value(); })) << job.logs();
  EXPECT_EQ(job.verdict(), kVerdictFailedForGood) << job.logs();
}

// Its controller ends with it. What is scraped last is how it ended.
TEST(PrometheusOfAJob, SeesThatItFailed) {
  if (!PrometheusServer::is_installed()) GTEST_SKIP() << "the package prometheus is missing";
  test::JobCluster job(test::gated_job(7));
  const PrometheusServer prometheus(job.job_dir());
  const pid_t controller = job.start_controller("n0", {"--metrics", "127.0.0.1:0"});
  for (const std::string& node : job.nodes()) job.start_agent(node);
  ASSERT_TRUE(until([&] { return prometheus.has_data("hpctl_job_state{state=\"RUNNING\"} == 1"); }))
      << job.logs() << prometheus.log();
  fail(job);
  EXPECT_EQ(job.wait_for(controller, test::kPatienceMs), kVerdictFailedForGood) << job.logs();
  EXPECT_FALSE(path_exists(job.job_dir() + "/metrics-targets.json"));
  expect_fires(prometheus, "HpctlJobFailed");
  EXPECT_TRUE(until([&] { return !prometheus.has_data("up"); }));
  expect_clears(prometheus, "HpctlJobFailed");
  EXPECT_THAT(prometheus.log(), Not(HasSubstr("metrics-targets"))) << "the file went unnoticed";
}

class PrometheusOfACluster : public test::ClusterController {
 protected:
  PrometheusOfACluster() : ClusterController(training_spec()) {}
  ~PrometheusOfACluster() override { ::unsetenv("HPCTL_CLUSTER_CA"); }
  void SetUp() override {
    if (!PrometheusServer::is_installed()) GTEST_SKIP() << "the package prometheus is missing";
    ClusterController::SetUp();
  }
  test::JobCluster other_{test::gated_job(7), other_number(1)};
};

TEST_F(PrometheusOfACluster, ShowsAllJobs) {
  const test::LoopbackPort metrics;
  const std::vector<std::string> with_metrics = {"/usr/bin/env",
                                                 "HPCTL_METRICS=" + metrics.address()};
  kill_service();
  start_service(with_metrics);
  const PrometheusServer prometheus(directory_ / "state");
  Coverage coverage(prometheus, {"cluster"});
  start_job();
  start_other_job(other_);
  EXPECT_TRUE(until([&] {
    return prometheus.has_data("count(hpctl_cluster_job_state{state=\"RUNNING\"} == 1) == 2");
  }));
  coverage.look();
  // The jobs' controllers have found a port each, and the service's file names them.
  EXPECT_TRUE(until([&] {
    return prometheus.has_data("count(up == 1) == 3") && prometheus.has_data("hpctl_train_loss") &&
           prometheus.has_data("count(hpctl_job_nodes_up) == 2");
  })) << read_file(directory_ / "state/metrics-targets.json").value();

  kill_service();
  expect_fires(prometheus, "HpctlScrapeFails");
  coverage.look();  // its panel shows alerts
  start_service(with_metrics);
  expect_clears(prometheus, "HpctlScrapeFails");
  coverage.look();

  fail(other_);
  expect_fires(prometheus, "HpctlJobFailed");
  EXPECT_TRUE(until([&] { return prometheus.has_data("hpctl_cluster_jobs == 1"); }));
  EXPECT_TRUE(until([&] { return prometheus.has_data("count(up) == 2"); }))
      << "a job that has ended is not scraped any more";
  EXPECT_TRUE(prometheus.has_data("hpctl_cluster_job_state{state=\"FAILED\"} == 1"))
      << "the service tells how it ended";
  const std::string own = "hpctl_job_ended_timestamp_seconds{state=\"FAILED\"}";
  EXPECT_TRUE(prometheus.has_data("last_over_time(" + own + "[1m])")) << "its controller, too";
  EXPECT_EQ(prometheus
                .query("count_over_time(ALERTS{alertname=\"HpctlJobFailed\","
                       "alertstate=\"firing\",user!=\"\"}[1m])")
                .size(),
            1U);
  expect_clears(prometheus, "HpctlJobFailed");
  EXPECT_TRUE(until([&] { return coverage.look().empty(); }));
  EXPECT_THAT(coverage.look(), IsEmpty());
  Consoles(prometheus).expect_shown("cluster", "cluster FAILED");
  expect_healthy_rules(prometheus);
  // Those of an authority are in the next test.
  expect_as_documented(prometheus, true,
                       {"hpctl_cluster_certificate_expiry_timestamp_seconds",
                        "hpctl_cluster_ca_expiry_timestamp_seconds"});
}

// Of the service by HTTPS, of its jobs' controllers by HTTP, with one configuration.
TEST_F(PrometheusOfACluster, GoesByTheBundleOfAnAuthority) {
  kill_service();
  const std::string ca = directory_ / "ca";
  const std::string other_ca = directory_ / "other-ca";
  for (const std::string& made : {ca, other_ca}) {
    ASSERT_EQ(hpctl_of({}, {"ca", "make", "--dir", made}).code, 0);
  }
  const std::string bundle = directory_ / "ca.pem";
  const auto copy_bundle = [&] {
    return write_file_atomic(bundle, read_file(ca + "/bundle.pem").value()).ok();
  };
  ASSERT_TRUE(copy_bundle());
  ::setenv("HPCTL_CLUSTER_CA", bundle.c_str(), 1);
  const test::LoopbackPort metrics;
  start_service({"/usr/bin/env", "HPCTL_METRICS=" + metrics.address()}, {"--ca", ca});
  EXPECT_THAT(read_file(directory_ / "state/metrics-targets.json").value(),
              HasSubstr(R"("__scheme__":"https")"));
  const PrometheusServer prometheus(directory_ / "state", bundle);
  const PrometheusServer mistaken(directory_ / "state", other_ca + "/bundle.pem");
  start_job();
  const std::string expiry = "hpctl_cluster_ca_expiry_timestamp_seconds";
  EXPECT_TRUE(until([&] {
    return prometheus.has_data("count(up == 1) == 2") && prometheus.has_data(expiry) &&
           prometheus.has_data("hpctl_cluster_certificate_expiry_timestamp_seconds") &&
           prometheus.has_data("hpctl_train_loss");
  })) << prometheus.query("up").dump(1)
      << prometheus.log();
  EXPECT_TRUE(until([&] { return mistaken.has_data("count(up == 0) == 1"); }))
      << "the service's certificate is another authority's: " << mistaken.query("up").dump(1);
  EXPECT_FALSE(mistaken.has_data(expiry));

  // Its copy of the bundle is replaced while it runs, and so is who signs.
  const std::string before = prometheus.query(expiry).at(0).at("value").at(1);
  ASSERT_EQ(hpctl_of({}, {"ca", "rotate", "--dir", ca, "--spread", "0", "--days", "3650"}).code, 0);
  ASSERT_TRUE(copy_bundle());
  EXPECT_TRUE(until([&] { return prometheus.has_data(expiry + " > " + before); }))
      << prometheus.query("up").dump(1) << prometheus.log();
  EXPECT_TRUE(until([&] { return prometheus.has_data("count(up == 1) == 2"); }));
  EXPECT_FALSE(prometheus.fires("HpctlCertificateRunsOut"));
}

}  // namespace
}  // namespace hpctl::testing
