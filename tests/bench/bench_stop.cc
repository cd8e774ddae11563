// SPDX-License-Identifier: Apache-2.0
// How long a job takes to end after `hpctl cancel`: it saves the last completed step first.
//
//   bench_stop [TIMES [MOMENT...]]      10 of each; moments: start training evaluation save
//   recovery
//
// The tiny model of the tests, four workers on two virtual nodes, a job for each stop. Prints a
// table: from the call of `hpctl cancel` until the job's state is CANCELLED, and until its last
// worker is gone. Then one line of JSON. Nothing is asserted: figures are for people.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/file.h"
#include "tests/bench/figures.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/stopped_job.h"
#include "tests/integration/training_job.h"
#include "tests/support/processes.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr seconds kLong{120};
constexpr int kNoSaves = 100'000;
constexpr uint64_t kFirstSteps = 30;  // until then a step takes longer

struct Times {
  std::vector<double> state_ms;
  std::vector<double> gone_ms;
  int lost_steps = 0;
};

struct Moment {
  const char* name;
  TrainingJob job;
  void (*reach)(const LocalCluster& cluster, JobId job);
};

TrainingJob endless() {
  return {
      .name = "stop", .steps = 1'000'000, .checkpoint_every = kNoSaves, .heartbeat_timeout = "10s"};
}

TrainingJob that_evaluates() {
  TrainingJob job = endless();
  // The evaluation of 2000 sequences takes longer than the ten steps before it.
  job.stability = "{}\n    validation: {every_steps: 10, sequences: 2000}";
  return job;
}

TrainingJob that_saves() {
  TrainingJob job = endless();
  job.checkpoint_every = 1;
  return job;
}

void train(const LocalCluster& cluster, JobId job) {
  HP_CHECK(cluster.wait_for_step(job, kFirstSteps, kLong));
}

void evaluate(const LocalCluster& cluster, JobId job) {
  train(cluster, job);
  std::this_thread::sleep_for(milliseconds(50));  // into an evaluation, most of the time
}

// Some milliseconds into the load of the engine and the data.
void start(const LocalCluster& cluster, JobId job) {
  HP_CHECK(wait_until(
      cluster.paths().job(job), [&] { return worker_pid(cluster.status(job), 0) > 0; }, kLong));
}

void recover(const LocalCluster& cluster, JobId job) {
  train(cluster, job);
  HP_CHECK(end_process(worker_pid(cluster.status(job), 3)));
  std::this_thread::sleep_for(milliseconds(50));  // into the recovery
}

std::string yaml_of(const Moment& moment, const std::string& texts) {
  std::string text = moment.job.yaml();
  const std::string data = "/usr/share/common-licenses/GPL-3,";
  text.replace(text.find(data), data.size(), texts + ", split: [1, 1, 0],");
  return text;
}

void measure(const LocalCluster& cluster, JobId job, Times& times) {
  const json status = cluster.status(job);
  std::vector<pid_t> workers;
  for (const json& worker : status["workers"]) workers.push_back(worker["pid"].get<pid_t>());
  const double from_ms = now_ms();
  HP_CHECK(cluster.hpctl({"cancel", to_string(job)}).exit_code == 0);
  HP_CHECK(cluster.wait_for_end(job, kLong) == "CANCELLED");
  times.state_ms.push_back(now_ms() - from_ms);
  const auto are_gone = [&] {
    return std::none_of(workers.begin(), workers.end(),
                        [](pid_t pid) { return pid > 1 && process_runs(pid); });
  };
  HP_CHECK(wait_until(cluster.paths().job(job), are_gone, kLong));
  times.gone_ms.push_back(now_ms() - from_ms);
  const uint64_t last = last_step_in(cluster.paths().job_metrics(job));
  const uint64_t saved = saved_step_in(cluster.paths().default_checkpoints(job));
  times.lost_steps += static_cast<int>(last - std::min(saved, last));
}

Times measure(const Moment& moment, int count) {
  LocalCluster cluster;
  const std::string texts = cluster.directory() + "/texts";
  HP_CHECK(make_directories(texts).ok());
  for (const char* file : {"/0", "/1"}) {
    HP_CHECK(write_file_atomic(texts + file, std::string(70'000, 'a')).ok());
  }
  Times times;
  for (int i = 0; i < count; ++i) {
    Moment numbered = moment;
    numbered.job.name += std::to_string(i);
    const JobId job = cluster.submit(yaml_of(numbered, texts));
    moment.reach(cluster, job);
    measure(cluster, job, times);
  }
  return times;
}

int run(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 10;
  const std::vector<std::string> wanted(argv + std::min(argc, 2), argv + argc);
  const std::vector<Moment> moments = {{"start", endless(), start},
                                       {"training", endless(), train},
                                       {"evaluation", that_evaluates(), evaluate},
                                       {"save", that_saves(), train},
                                       {"recovery", endless(), recover}};
  json result = {{"benchmark", "stop"}, {"times", count}};
  std::printf(
      "| cancelled during | CANCELLED after ms: median | worst | last worker gone: median |"
      " worst | steps lost |\n|---|---|---|---|---|---|\n");
  for (const Moment& moment : moments) {
    const bool is_wanted =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), moment.name) != wanted.end();
    if (!is_wanted) continue;
    const Times times = measure(moment, count);
    std::printf("| %s | %.0f | %.0f | %.0f | %.0f | %d |\n", moment.name, median(times.state_ms),
                at_share(times.state_ms, 1), median(times.gone_ms), at_share(times.gone_ms, 1),
                times.lost_steps);
    std::fflush(stdout);
    result[moment.name] = {{"median_ms", median(times.state_ms)},
                           {"worst_ms", at_share(times.state_ms, 1)},
                           {"gone_median_ms", median(times.gone_ms)},
                           {"lost_steps", times.lost_steps}};
  }
  std::cout << result.dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace hpctl::testing

int main(int argc, char** argv) { return hpctl::testing::run(argc, argv); }
