// SPDX-License-Identifier: Apache-2.0
// How long is training away after a worker is killed, and where does the time go?
//
//   bench_recovery PEERS_DIRECTORY [RUNS]
//
// Trainers of the same model (debugmodel, seq 128, one sequence per worker, 4 workers) run in turn,
// A B C D A B C D ...: hpctl's own on the local backend; a Python DDP script under torchrun, under
// hpctl, and under hpctl with Pythons that stand by (recovery.standby_imports). In each run one
// worker is killed with SIGKILL in mid-training; measured is kill -> next completed step, minus the
// median step time of that run. Also submit -> first step of hpctl. Prints a table, then one line
// of JSON. Nothing is asserted: figures are for people.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>

#include "common/base/clock.h"
#include "tests/bench/figures.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr const char* kText = "/usr/share/common-licenses/GPL-3";
constexpr uint64_t kKillAtStep = 16;
constexpr size_t kTimeLength = 24;  // "2026-11-21T09:30:00.123Z"

// Complete lines of a JSONL file so far.
std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    json parsed = json::parse(line, nullptr, false);
    if (parsed.is_object()) lines.push_back(std::move(parsed));
  }
  return lines;
}

struct Recovery {
  double away_ms = 0;    // kill -> next completed step
  double step_ms = 0;    // median step before the kill
  double submit_ms = 0;  // submit -> first step; under hpctl only
  json phases;           // under hpctl only: name -> ms after the kill
  double cost_ms() const { return away_ms - step_ms; }
};

// Waits until `count` lines are there and `last` accepts the newest.
bool await_line(const std::string& directory, const std::string& file, size_t count,
                const std::function<bool(const json&)>& last) {
  return wait_until(
      directory,
      [&] {
        const auto lines = lines_of(file);
        return lines.size() >= count && last(lines.back());
      },
      seconds(60));
}

double median_step(const std::string& file) {
  std::vector<double> steps;
  for (const json& line : lines_of(file)) steps.push_back(line["step_ms"].get<double>());
  return median(steps);
}

// What happened when, in ms after the kill: the controller's events, then rank 0's start-up.
json phases_after(const LocalCluster& cluster, JobId job, double killed) {
  json phases = json::array();
  const auto add = [&](const std::string& what, double at) {
    if (at >= 0) phases.push_back({{"what", what}, {"ms", std::round(at)}});
  };
  for (const json& event : cluster.events(job)) {
    const std::string type = event["type"];
    const std::string node = event["node"].is_string() ? event["node"].get<std::string>() : "";
    add(type + (node.empty() ? "" : " " + node),
        static_cast<double>(parse_wall_ms(event["time"])) - killed);
  }
  std::ifstream log(cluster.paths().rank_log(job, Rank{0}));
  for (std::string line; std::getline(log, line);) {
    const auto timing = line.find("timing: ");
    if (timing == std::string::npos) continue;
    const std::string what = line.substr(timing + 8);
    const auto at = static_cast<double>(parse_wall_ms(line.substr(0, kTimeLength)));
    add("rank 0: " + what.substr(0, what.find(" done")), at - killed);
  }
  std::stable_sort(phases.begin(), phases.end(),
                   [](const json& a, const json& b) { return a["ms"] < b["ms"]; });
  return phases;
}

Recovery run_hpctl() {
  LocalCluster cluster;
  Recovery r;
  const std::string yaml =
      std::string("name: bench\nnodes: 2\nworkers_per_node: 2\n") +
      "workload:\n  train:\n    model: {preset: debugmodel}\n    data: {path: " + kText +
      ", seq_len: 128}\n    batch: {micro: 1, global: 4}\n    steps: 500\n"
      "    precision: fp32\ncheckpoint: {every_steps: 10}\n";
  const double submitted = now_ms();
  const JobId job = cluster.submit(yaml);
  const std::string metrics = cluster.paths().job_metrics(job);
  const std::string dir = cluster.paths().job(job);
  HP_CHECK(await_line(dir, metrics, 1, [](const json&) { return true; }));
  r.submit_ms = now_ms() - submitted;
  HP_CHECK(await_line(dir, metrics, kKillAtStep, [](const json&) { return true; }));
  const pid_t victim = worker_pid(cluster.status(job), 2);
  r.step_ms = median_step(metrics);
  const size_t before = lines_of(metrics).size();
  const double killed = now_ms();
  HP_CHECK(end_process(victim));
  HP_CHECK(await_line(dir, metrics, before + 1,
                      [](const json& line) { return line.value("generation", 0) == 2; }));
  r.away_ms = now_ms() - killed;
  r.phases = phases_after(cluster, job, killed);
  cluster.hpctl({"cancel", to_string(job)});
  return r;
}

Recovery run_torchrun(const std::string& peers) {
  const TemporaryDirectory out;
  const std::string metrics = out.path() + "/metrics.jsonl";
  const pid_t launcher = fork();
  if (launcher == 0) {
    setpgid(0, 0);
    HP_CHECK(freopen((out.path() + "/log").c_str(), "w", stderr) != nullptr);
    const std::string run = peers + "/torchrun.py";
    const std::string script = peers + "/ddp_llama.py";
    setenv("OMP_NUM_THREADS", "1", 1);
    execl("/usr/bin/python3", "/usr/bin/python3", run.c_str(), "--nproc_per_node", "4",
          "--max_restarts", "3", script.c_str(), kText, out.path().c_str(), "500", nullptr);
    _exit(127);
  }
  Recovery r;
  HP_CHECK(await_line(out.path(), metrics, kKillAtStep, [](const json&) { return true; }));
  r.step_ms = median_step(metrics);
  const size_t before = lines_of(metrics).size();
  const int first_pid = lines_of(metrics).back()["pid"];
  const pid_t victim = std::stoi(read_file(out.path() + "/pid-2").value());
  const double killed = now_ms();
  HP_CHECK(end_process(victim));
  HP_CHECK(await_line(out.path(), metrics, before + 1,
                      [&](const json& line) { return line["pid"] != first_pid; }));
  r.away_ms = now_ms() - killed;
  kill(-launcher, SIGTERM);
  int status = 0;
  waitpid(launcher, &status, 0);
  return r;
}

// Until all four have their imports done.
void await_standbys(const LocalCluster& cluster, JobId job) {
  const std::string logs = cluster.paths().job_logs(job);
  const auto all_ready = [&] {
    int ready = 0;
    for (const char* node : {"n0", "n1"}) {
      std::ifstream log(logs + "/standby-" + node + ".log");
      for (std::string line; std::getline(log, line);) {
        ready += line.find("standby is ready") != std::string::npos ? 1 : 0;
      }
    }
    return ready == 4;
  };
  HP_CHECK(wait_until(logs, all_ready, seconds(120)));
}

// The script as hpctl's command; `recovery` is what the job has in that section.
Recovery run_script(const std::string& peers, const std::string& recovery) {
  LocalCluster cluster;
  const std::string out = cluster.directory() + "/out";
  HP_CHECK(make_directories(out).ok());
  const std::string metrics = out + "/metrics.jsonl";
  const double submitted = now_ms();
  const JobId job =
      cluster.submit("name: script\nnodes: 2\nworkers_per_node: 2\nworkload: {command: [" +
                     std::string("/usr/bin/python3, ") + peers + "/ddp_llama.py, " + kText + ", " +
                     out + ", '500']}\nrecovery: {" + recovery + "}\n");
  HP_CHECK(await_line(out, metrics, 1, [](const json&) { return true; }));
  Recovery r;
  r.submit_ms = now_ms() - submitted;
  HP_CHECK(await_line(out, metrics, kKillAtStep, [](const json&) { return true; }));
  if (!recovery.empty()) await_standbys(cluster, job);
  const size_t before = lines_of(metrics).size();
  r.step_ms = median_step(metrics);
  const int first_pid = lines_of(metrics).back()["pid"];
  const double killed = now_ms();
  HP_CHECK(end_process(worker_pid(cluster.status(job), 2)));
  HP_CHECK(await_line(out, metrics, before + 1,
                      [&](const json& line) { return line["pid"] != first_pid; }));
  r.away_ms = now_ms() - killed;
  r.phases = phases_after(cluster, job, killed);
  cluster.hpctl({"cancel", to_string(job)});
  return r;
}

struct Trainer {
  std::string key;  // in the line of JSON
  std::string name;
  std::function<Recovery()> run;
  std::vector<Recovery> runs;
};

double median_of(const std::vector<Recovery>& runs, double (*value)(const Recovery&)) {
  std::vector<double> values;
  for (const Recovery& r : runs) values.push_back(value(r));
  return median(values);
}

// How many times as long `other` was away, run by run.
double ratio(const Trainer& other, const Trainer& trainer) {
  std::vector<double> ratios;
  for (size_t i = 0; i < trainer.runs.size(); ++i) {
    ratios.push_back(other.runs[i].cost_ms() / trainer.runs[i].cost_ms());
  }
  return median(ratios);
}

void print_row(const Trainer& trainer, const Trainer& torchrun) {
  const auto cost = [](const Recovery& r) { return r.cost_ms(); };
  const auto less = [&](const Recovery& a, const Recovery& b) { return cost(a) < cost(b); };
  const auto [least, most] = std::minmax_element(trainer.runs.begin(), trainer.runs.end(), less);
  std::printf("%-22s %8.0f %8.0f %8.0f %12.0f %18.2f\n", trainer.name.c_str(), cost(*least),
              median_of(trainer.runs, cost), cost(*most),
              median_of(trainer.runs, [](const Recovery& r) { return r.step_ms; }),
              ratio(torchrun, trainer));
}

void print_phases(const Trainer& trainer) {
  const json& phases = trainer.runs.back().phases;
  if (phases.empty()) return;
  std::printf("where the time goes in the last run of %s, ms after the kill:\n",
              trainer.name.c_str());
  for (const json& phase : phases) {
    std::printf("  %6.0f  %s\n", phase["ms"].get<double>(),
                phase["what"].get<std::string>().c_str());
  }
}

}  // namespace
}  // namespace hpctl::testing

int main(int argc, char** argv) {
  using namespace hpctl::testing;  // NOLINT(google-build-using-namespace): the program's own names
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_recovery PEERS_DIRECTORY [RUNS]\n");
    return 2;
  }
  const int runs = argc > 2 ? std::atoi(argv[2]) : 5;
  const std::string peers = std::filesystem::absolute(argv[1]);
  std::vector<Trainer> trainers = {
      {"hpctl", "hpctl", [] { return run_hpctl(); }, {}},
      {"torchrun", "torchrun", [&] { return run_torchrun(peers); }, {}},
      {"script", "script under hpctl", [&] { return run_script(peers, ""); }, {}},
      {"standbys",
       "same, with standbys",
       [&] { return run_script(peers, "standby_imports: [torch]"); },
       {}}};
  for (int i = 0; i < runs; ++i) {
    for (Trainer& trainer : trainers) trainer.runs.push_back(trainer.run());
  }
  std::printf("worker SIGKILL -> next completed step, minus the median step (ms), %d runs\n", runs);
  std::printf("%-22s %8s %8s %8s %12s %18s\n", "", "min", "median", "max", "median step",
              "torchrun : this");
  for (const Trainer& trainer : trainers) print_row(trainer, trainers[1]);
  const std::vector<Recovery>& ours = trainers[0].runs;
  const double submit_ms = median_of(ours, [](const Recovery& r) { return r.submit_ms; });
  std::printf("hpctl submit -> first step: median %.0f ms\n", submit_ms);
  for (const Trainer& trainer : trainers) print_phases(trainer);
  json result = {{"name", "recovery"},
                 {"runs", runs},
                 {"ratio_median", ratio(trainers[1], trainers[0])},
                 {"submit_to_first_step_ms", submit_ms}};
  for (const Trainer& trainer : trainers) {
    for (const Recovery& r : trainer.runs) result[trainer.key + "_ms"].push_back(r.cost_ms());
  }
  std::cout << result.dump() << "\n";
  return 0;
}
