// SPDX-License-Identifier: Apache-2.0
// deploy/prometheus with a real Prometheus and real jobs: every query of every view has data, as
// have the metrics of every rule; every alert fires for a fault that is brought about here, and
// clears (prometheus_files looks that none is missing); the consoles show it, in a real Chromium as
// well. Those few metrics that this machine cannot have are named below with the reason.
// With HPCTL_SCREENSHOTS=DIR the pictures of docs/images are written there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <set>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/job/node_record.h"
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

// A look every 50 ms: Prometheus tells nobody that it has new data. Of what is there for good, too:
// of a scrape that was late the series are gone until the next one.
bool until(const std::function<bool()>& done) { return wait_until(HPCTL_SOURCE, done, kLong); }

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
    std::string answer;
    until([&] { return (answer = prometheus_.console(page)).find(text) != std::string::npos; });
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

void expect_fires(const PrometheusServer& prometheus, const std::string& alert,
                  const std::string& job = "") {
  EXPECT_TRUE(until([&] { return prometheus.fires(alert, job); }))
      << alert << " does not fire\n"
      << prometheus.query("{__name__=~\"hpctl_job.*|hpctl_train_step.*|up\"}").dump(1);
}

// Also when it is over.
void expect_fired(const PrometheusServer& prometheus, const std::string& alert,
                  const std::string& job = "") {
  const std::string lately = "count_over_time(" + firing(alert, job) + "[10m])";
  EXPECT_TRUE(until([&] { return prometheus.has_data(lately); })) << alert << " did not fire";
}

void expect_clears(const PrometheusServer& prometheus, const std::string& alert,
                   const std::string& job = "") {
  EXPECT_TRUE(until([&] { return !prometheus.fires(alert, job); })) << alert << " does not clear";
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
  void inject(JobId job, const std::string& fault, int count = 1) const {
    const auto result = cluster_.hpctl({"chaos", to_string(job), "--faults", fault, "--every",
                                        "100ms", "--count", std::to_string(count)});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
  std::string file(const std::string& name) const { return cluster_.directory() + "/" + name; }

  JobId submit_trainer();
  JobId submit_teller();
  JobId submit_reader();
  void speak_of_n1(NodeRecordKind kind) const;
  void expect_restarts_and_pauses(const PrometheusServer& prometheus, JobId job,
                                  Coverage& coverage) const;
  void expect_slow_reads(const PrometheusServer& prometheus) const;
  void expect_storage_away(const PrometheusServer& prometheus, JobId job) const;
  void expect_mirror_lags(const PrometheusServer& prometheus) const;
  void expect_no_standby(const PrometheusServer& prometheus, JobId job) const;
  void expect_findings(const PrometheusServer& prometheus, JobId job) const;
  std::vector<pid_t> standbys(JobId job) const;

  LocalCluster cluster_;
};

// What is done to it first comes first.
JobId Prometheus::submit_trainer() {
  TrainingJob spec;
  spec.steps = 1'000'000;
  spec.hang_timeout = "1m";       // a rank that stands still is for the alert
  spec.heartbeat_timeout = "1m";  // so is a holder
  spec.stability = "{policy: skip}";
  return cluster_.submit(spec.yaml());
}

// A command that tells its steps, once loses more than a tenth of six hours of the rules, and has
// no restart left then, until 20 s are over.
JobId Prometheus::submit_teller() {
  return cluster_.submit(
      "name: tells\nnodes: {count: 1, spares: 1}\n"
      "recovery: {max_restarts: 1, window: 20s, hang_timeout: 1m}\n"
      "workload:\n  command:\n    - /bin/sh\n    - -c\n    - |\n"
      "      at=" +
      file("told-step") +
      "\n"
      "      step=$(cat $at || echo 0)\n"
      "      while :; do\n"
      "        step=$((step + 1))\n"
      "        echo $step 100 >>$HPCTL_PROGRESS_FILE\n"
      "        echo $step >$at\n"
      "        sleep 0.2\n"
      "        [ $step != 10 ] || { sleep 10; exit 1; }\n"
      "      done\n");
}

// Its file system is slow on demand, and a step that is unfit is executed again. A file is where
// its mirror is to be.
JobId Prometheus::submit_reader() {
  TrainingJob spec;
  spec.name = "reads";
  spec.nodes = "1";
  spec.steps = 1'000'000;
  spec.stability = "{reexecute: true}";
  spec.standbys = 0;
  spec.more = "env: {set: {LD_PRELOAD: " SLOW_READS ", SLOW_READS_WHILE: " + file("slow") + "}}\n";
  EXPECT_TRUE(write_file_atomic(file("mirror"), "no directory").ok());
  std::string yaml = spec.yaml();
  yaml.insert(yaml.find("checkpoint: {") + 13, "mirror: {dir: " + file("mirror") + "}, ");
  return cluster_.submit(yaml);
}

// As a job before these would have, or a check.
void Prometheus::speak_of_n1(NodeRecordKind kind) const {
  const NodeRecord record{SystemClock().wall_ms(), 900, "n1", "", kind, to_string(kind), "Xid 79"};
  EXPECT_TRUE(
      append_node_records(node_records_directory(cluster_.paths()), "900.jsonl", {record}).ok());
}

void Prometheus::expect_restarts_and_pauses(const PrometheusServer& prometheus, JobId job,
                                            Coverage& coverage) const {
  uint64_t generation = 1;
  // Four are enough where they do not take longer than an hour of the rules.
  EXPECT_TRUE(until([&] {
    if (runs(job, generation) && end_process(worker_pid(cluster_.status(job), 2))) ++generation;
    return prometheus.fires("HpctlJobRestartsOften", "tiny");
  }));
  ASSERT_TRUE(until([&] { return runs(job, generation); }));

  const pid_t stands = await_worker(job, 1);
  ASSERT_GT(stands, 1);
  ASSERT_EQ(kill(stands, SIGSTOP), 0);
  expect_fires(prometheus, "HpctlStepsStandStill", "tiny");
  coverage.look();  // its panels show alerts
  ASSERT_EQ(kill(stands, SIGCONT), 0);
  expect_clears(prometheus, "HpctlStepsStandStill", "tiny");

  // A node that does not take part in a recovery.
  const pid_t holder = node_pid(cluster_.status(job), 1, "holder_pid");
  ASSERT_GT(holder, 1);
  ASSERT_EQ(kill(holder, SIGSTOP), 0);
  ASSERT_TRUE(end_process(await_worker(job, 0)));
  expect_fires(prometheus, "HpctlJobRecoversForLong", "tiny");
  ASSERT_EQ(kill(holder, SIGCONT), 0);
  expect_clears(prometheus, "HpctlJobRecoversForLong", "tiny");
}

void Prometheus::expect_slow_reads(const PrometheusServer& prometheus) const {
  ASSERT_TRUE(write_file_atomic(file("slow"), "").ok());
  expect_fires(prometheus, "HpctlDataStarved", "reads");
  expect_fires(prometheus, "HpctlThroughputFell", "reads");
  ASSERT_EQ(::unlink(file("slow").c_str()), 0);
  expect_clears(prometheus, "HpctlDataStarved", "reads");
  expect_clears(prometheus, "HpctlThroughputFell", "reads");
}

// Every copy fails. The next save after the file has gone makes the mirror.
void Prometheus::expect_mirror_lags(const PrometheusServer& prometheus) const {
  expect_fires(prometheus, "HpctlMirrorLags", "reads");
  ASSERT_EQ(::unlink(file("mirror").c_str()), 0);
  expect_clears(prometheus, "HpctlMirrorLags", "reads");
  EXPECT_TRUE(
      until([&] { return prometheus.has_data("hpctl_job_mirror_step{name=\"reads\"} > 0"); }));
}

// The records of generations cannot be listed: the error is another one than that of a file server
// that is away, and as little an answer.
void Prometheus::expect_storage_away(const PrometheusServer& prometheus, JobId job) const {
  const std::string records =
      cluster_.status(job)["checkpoint_dir"].get<std::string>() + "/generations";
  ASSERT_EQ(::rename(records.c_str(), (records + "-aside").c_str()), 0);
  ASSERT_EQ(::symlink(records.c_str(), records.c_str()), 0);
  ASSERT_TRUE(end_process(await_worker(job, 0)));
  expect_fires(prometheus, "HpctlStorageAway", "reads");
  ASSERT_EQ(::unlink(records.c_str()), 0);
  ASSERT_EQ(::rename((records + "-aside").c_str(), records.c_str()), 0);
  expect_clears(prometheus, "HpctlStorageAway", "reads");
  EXPECT_TRUE(until([&] {
    return prometheus.has_data(
        "hpctl_job_storage_errors_total{name=\"reads\",kind=\"directory\"} > 0");
  }));
}

// Processes of the trainer that are no ranks; there is no other job of it.
std::vector<pid_t> Prometheus::standbys(JobId job) const {
  const json status = cluster_.status(job);
  std::vector<pid_t> found;
  for (const pid_t pid : cluster_.processes()) {
    const auto name = read_file("/proc/" + std::to_string(pid) + "/comm");
    bool is_rank = false;
    for (const json& worker : status["workers"]) is_rank = is_rank || worker["pid"] == pid;
    if (name.ok() && *name == "hptrain\n" && !is_rank) found.push_back(pid);
  }
  return found;
}

// They are replaced three times in a generation, and in the next one there are others.
void Prometheus::expect_no_standby(const PrometheusServer& prometheus, JobId job) const {
  EXPECT_TRUE(until([&] {
    for (const pid_t pid : standbys(job)) end_process(pid);
    return prometheus.fires("HpctlNoStandbyReady", "tiny");
  }));
  ASSERT_TRUE(end_process(await_worker(job, 3)));
  expect_clears(prometheus, "HpctlNoStandbyReady", "tiny");
}

// What has no alert of its own.
void Prometheus::expect_findings(const PrometheusServer& prometheus, JobId job) const {
  const std::string told = "hpctl_job_finding{name=\"tells\",kind=";
  const std::vector<std::string> spare = {"n1", "--job", to_string(job)};
  const auto order = [&](const std::string& verb) {
    return cluster_.hpctl({"nodes", verb, spare[0], spare[1], spare[2]}).exit_code;
  };
  EXPECT_EQ(order("quarantine"), 0);
  expect_fires(prometheus, "HpctlFindingWarn", "tells");
  for (const char* finding : {"\"node_quarantined\",severity=\"warn\",node=\"n1\"}",
                              "\"spares_exhausted\",severity=\"warn\",node=\"\"}"}) {
    EXPECT_TRUE(until([&] { return prometheus.has_data(told + finding); })) << finding;
  }
  EXPECT_EQ(order("release"), 0);
  expect_clears(prometheus, "HpctlFindingWarn", "tells");
}

// Jobs side by side: what takes its time in one of them passes while something is done to another.
TEST_F(Prometheus, ShowsAJobAndItsFaults) {
  speak_of_n1(NodeRecordKind::kHardware);
  const JobId teller = submit_teller();
  const PrometheusServer prometheus(cluster_.paths().home());
  const JobId job = submit_trainer();
  Coverage coverage(prometheus, {"job", "node", "goodput"});
  ASSERT_TRUE(until([&] { return prometheus.has_data("hpctl_train_compute_seconds"); }))
      << prometheus.log();
  expect_fires(prometheus, "HpctlLemonNode", "tiny");
  EXPECT_TRUE(until(
      [&] { return prometheus.has_data("hpctl_job_finding{name=\"tiny\",kind=\"node_lemon\"}"); }));
  speak_of_n1(NodeRecordKind::kCheckPassed);
  // A command that tells its steps has them there as well.
  EXPECT_TRUE(until([&] {
    return prometheus.has_data("hpctl_train_step{name=\"tells\"} > 3") &&
           prometheus.has_data("hpctl_train_tokens_per_second{name=\"tells\"} > 0");
  }));

  // What has failed has failed; the alert is over when an hour of the rules is.
  const JobId failed = cluster_.submit(
      "name: failed\nnodes: 1\nworkload: {command: [/bin/false]}\nrecovery: {max_restarts: 0}\n");
  EXPECT_EQ(cluster_.wait_for_end(failed, kLong), "FAILED");
  expect_fires(prometheus, "HpctlJobFailed", "failed");

  expect_fired(prometheus, "HpctlFindingCritical", "tells");
  expect_restarts_and_pauses(prometheus, job, coverage);
  expect_clears(prometheus, "HpctlLemonNode");

  inject(job, "full-disk");
  expect_fired(prometheus, "HpctlSavesFail");
  inject(job, "slow-worker");
  expect_fired(prometheus, "HpctlSlowRank");
  coverage.look();  // its panel shows the ratio for as long as it is slow
  inject(job, "nan-gradient", 6);
  expect_fired(prometheus, "HpctlTrainingUnstable", "tiny");
  const JobId reader = submit_reader();
  EXPECT_TRUE(until([&] { return prometheus.has_data("hpctl_train_step{name=\"reads\"} > 3"); }));
  inject(reader, "nan-gradient");
  expect_fired(prometheus, "HpctlHardwareFaultSuspected", "reads");
  expect_slow_reads(prometheus);
  expect_mirror_lags(prometheus);
  expect_storage_away(prometheus, reader);
  EXPECT_EQ(cluster_.hpctl({"cancel", to_string(reader)}).exit_code, 0);
  EXPECT_EQ(cluster_.wait_for_end(reader, kLong), "CANCELLED");
  expect_no_standby(prometheus, job);
  expect_findings(prometheus, teller);

  EXPECT_TRUE(until([&] { return coverage.look().empty(); }));
  EXPECT_THAT(coverage.look(), IsEmpty());
  for (const char* alert :
       {"HpctlJobRestartsOften", "HpctlSavesFail", "HpctlSlowRank", "HpctlTrainingUnstable",
        "HpctlHardwareFaultSuspected", "HpctlJobFailed", "HpctlFindingCritical"}) {
    expect_clears(prometheus, alert);
  }
  EXPECT_TRUE(until([&] {
    return prometheus.has_data("hpctl_job_faults_total{node=\"n1\",kind=\"worker\"} >= 4");
  })) << prometheus.query("hpctl_job_faults_total").dump(1);
  expect_fired(prometheus, "HpctlGoodputFell", "tells");

  Consoles consoles(prometheus);
  consoles.expect_shown("job", "tiny " + to_string(job) + " RUNNING");
  consoles.expect_shown("node", "rank 3 on n1");
  consoles.expect_shown("goodput", "tiny goodput");
  expect_clears(prometheus, "HpctlGoodputFell", "tells");

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
  EXPECT_FALSE(is_accessible(job.job_dir() + "/metrics-targets.json"));
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
  // The job's controller ends, and nobody can claim to be the next one: where it would say so there
  // is no directory.
  void expect_none_to_serve(const PrometheusServer& prometheus) {
    const std::string claims = cluster_.job_dir() + "/controllers";
    const std::string away = claims + ".away";
    const auto controller = static_cast<pid_t>(listed().pid());
    ASSERT_EQ(std::rename(claims.c_str(), away.c_str()), 0);
    ASSERT_TRUE(write_file_atomic(claims, "").ok());
    ASSERT_TRUE(end_process(controller));
    expect_fires(prometheus, "HpctlJobsWithoutController");
    ASSERT_EQ(::unlink(claims.c_str()), 0);
    ASSERT_EQ(std::rename(away.c_str(), claims.c_str()), 0);
    expect_clears(prometheus, "HpctlJobsWithoutController");
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
  EXPECT_TRUE(until([&] {
    return prometheus.has_data("hpctl_cluster_job_state{state=\"FAILED\"} == 1");
  })) << "the service tells how it ended";
  const std::string own = "hpctl_job_ended_timestamp_seconds{state=\"FAILED\"}";
  EXPECT_TRUE(prometheus.has_data("last_over_time(" + own + "[10m])")) << "its controller, too";
  // That of the controller may have been first; a rule sees what was scraped when its turn comes.
  EXPECT_TRUE(until([&] {
    return prometheus
               .query(
                   "count_over_time(ALERTS{alertname=\"HpctlJobFailed\","
                   "alertstate=\"firing\",user!=\"\"}[10m])")
               .size() == 1;
  }));
  expect_clears(prometheus, "HpctlJobFailed");
  EXPECT_TRUE(until([&] { return coverage.look().empty(); }));
  EXPECT_THAT(coverage.look(), IsEmpty());
  Consoles(prometheus).expect_shown("cluster", "cluster FAILED");
  expect_none_to_serve(prometheus);
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
  for (const std::string& made : {ca, other_ca}) {  // which soon runs out
    ASSERT_EQ(hpctl_of({}, {"ca", "make", "--dir", made, "--days", "30"}).code, 0);
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

  expect_fires(prometheus, "HpctlCertificateRunsOut");
  // Its copy of the bundle is replaced while it runs, and so is who signs.
  const std::string lately = "last_over_time(" + expiry + "[10m])";  // also if a scrape was late
  const std::string before = prometheus.query(lately).at(0).at("value").at(1);
  ASSERT_EQ(hpctl_of({}, {"ca", "rotate", "--dir", ca, "--spread", "0", "--days", "3650"}).code, 0);
  ASSERT_TRUE(copy_bundle());
  EXPECT_TRUE(until([&] { return prometheus.has_data(expiry + " > " + before); }))
      << prometheus.query("up").dump(1) << prometheus.log();
  EXPECT_TRUE(until([&] { return prometheus.has_data("count(up == 1) == 2"); }));
  expect_clears(prometheus, "HpctlCertificateRunsOut");
}

}  // namespace
}  // namespace hpctl::testing
