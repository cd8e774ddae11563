// SPDX-License-Identifier: Apache-2.0
// How long a job of hpctl's trainer is away after a fault, and what it costs: many faults of each
// kind, in one job a kind.
//
//   bench_faults [FAULTS [KIND...]]      20 of each; kinds: worker hang holder controller grow
//
// The quickstart's model (debugmodel, seq 128, one sequence per worker), four workers on two
// virtual nodes, copies at peers. Each fault comes at a moment of a step that a seeded generator
// chooses, when the job has trained for a while since the one before. Where a step begins and ends
// the job's metrics say, which rank 0 writes. Prints a table, then one line of JSON. Nothing is
// asserted: figures are for people.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "tests/bench/figures.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

// Until then standbys have loaded their engine and copies are at peers.
constexpr size_t kStepsBetween = 30;
constexpr seconds kLong{120};
constexpr double kNotYet = -1;

struct Step {
  int64_t step = 0;
  int64_t generation = 0;
  double completed_ms = 0;  // since the epoch
  double took_ms = 0;
};

struct Cost {
  double away_ms = 0;  // beyond a step as they are without faults
  double again = 0;    // completed steps that were done again
};

// A job that trains until it is cancelled.
class Job {
 public:
  Job() : id_(cluster_.submit(yaml())), path_(cluster_.paths().job_metrics(id_)) {}
  ~Job() { cluster_.hpctl({"cancel", to_string(id_)}); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const LocalCluster& cluster() const { return cluster_; }
  JobId id() const { return id_; }
  json status() const { return cluster_.status(id_); }
  const std::vector<Step>& steps() const { return steps_; }

  bool await(const std::function<bool()>& done) {
    return wait_until(
        cluster_.paths().job(id_),
        [&] {
          read();
          return done();
        },
        kLong);
  }
  // The index of the first step of another generation than that of step `before`.
  size_t await_generation_after(size_t before) {
    const int64_t generation = steps_[before].generation;
    HP_CHECK(await([&] { return steps_.back().generation != generation; }));
    size_t next = before;
    while (steps_[next].generation == generation) ++next;
    return next;
  }
  void await_steps(size_t more) {
    const size_t wanted = steps_.size() + more;
    HP_CHECK(await([&] { return steps_.size() >= wanted; }));
  }
  // Of the last steps, which belong to one generation.
  double median_step_ms() const {
    std::vector<double> took;
    for (size_t i = steps_.size() - kStepsBetween / 2; i < steps_.size(); ++i) {
      took.push_back(steps_[i].took_ms);
    }
    return median(took);
  }
  // When that event came first after `from_ms`, for each of `count` nodes; the last of these.
  double first_of_each_node(const std::string& type, double from_ms, size_t count) const;

 private:
  static std::string yaml() {
    return "name: faults\nnodes: {count: 2, min: 1}\nworkers_per_node: 2\n"
           "workload:\n  train:\n    model: {preset: debugmodel}\n"
           "    data: {path: /usr/share/common-licenses/GPL-3, seq_len: 128}\n"
           "    batch: {micro: 1, global: 4}\n    steps: 1000000\n"
           "checkpoint: {every_steps: 100000}\nrecovery: {max_restarts: 100000}\n";
  }
  // Complete lines that are new.
  void read() {
    std::ifstream in(path_);
    in.seekg(offset_);
    for (std::string line; std::getline(in, line) && !in.eof();) {
      offset_ += static_cast<std::streamoff>(line.size()) + 1;
      const json parsed = json::parse(line);
      if (!parsed.contains("step_ms")) continue;
      steps_.push_back({parsed["step"], parsed["generation"], parsed["time"].get<double>() * 1e3,
                        parsed["step_ms"]});
    }
  }

  LocalCluster cluster_;
  JobId id_;
  std::string path_;
  std::streamoff offset_ = 0;
  std::vector<Step> steps_;
};

double Job::first_of_each_node(const std::string& type, double from_ms, size_t count) const {
  std::map<std::string, double> first;
  for (const json& event : cluster_.events(id_)) {
    const auto at = static_cast<double>(parse_wall_ms(event["time"]));
    if (event["type"] == type && at >= from_ms) first.emplace(event["node"], at);
  }
  if (first.size() < count) return kNotYet;
  double last = 0;
  for (const auto& [node, at] : first) last = std::max(last, at);
  return last;
}

// Something of the job is sent a signal, and the ranks go on in another generation.
Cost measure_restart(Job& job, pid_t victim, int signal) {
  const double step_ms = job.median_step_ms();
  const double from_ms = now_ms();
  HP_CHECK(victim > 1 && kill(victim, signal) == 0);
  const size_t next = job.await_generation_after(job.steps().size() - 1);
  const std::vector<Step>& steps = job.steps();
  return {steps[next].completed_ms - from_ms - step_ms,
          static_cast<double>(steps[next - 1].step - steps[next].step + 1)};
}

Cost kill_worker(Job& job, int rank) {
  return measure_restart(job, worker_pid(job.status(), rank), SIGKILL);
}

Cost stop_worker(Job& job, int rank) {
  return measure_restart(job, worker_pid(job.status(), rank), SIGSTOP);
}

// With it go the node's ranks and all that was in its memory.
Cost kill_holder(Job& job, int rank) {
  return measure_restart(job, node_pid(job.status(), static_cast<size_t>(rank / 2), "holder_pid"),
                         SIGKILL);
}

// Away is how long no controller had both agents; the ranks train meanwhile.
Cost kill_controller(Job& job, int /*rank*/) {
  const json controller = json::parse(read_file(job.cluster().paths().controller_json()).value());
  const int64_t generation = job.steps().back().generation;
  const double from_ms = now_ms();
  HP_CHECK(end_process(controller["pid"].get<pid_t>()));
  double back_ms = kNotYet;
  HP_CHECK(job.await([&] {
    back_ms = job.first_of_each_node("AgentRegistered", from_ms, 2);
    return back_ms != kNotYet;
  }));
  job.await_steps(1);
  HP_CHECK(job.steps().back().generation == generation);
  return {back_ms - from_ms, 0};
}

void tell(Job& job, const std::vector<std::string>& words) {
  std::vector<std::string> command = {"nodes"};
  command.insert(command.end(), words.begin(), words.end());
  for (const std::string& word : {std::string("--job"), to_string(job.id())}) {
    command.push_back(word);
  }
  HP_CHECK(job.cluster().hpctl(command).exit_code == 0);
}

// A node is taken out, which is not measured, and then taken back.
Cost grow(Job& job, int /*rank*/) {
  tell(job, {"quarantine", "n1", "--reason", "a benchmark"});
  job.await_generation_after(job.steps().size() - 1);
  job.await_steps(kStepsBetween);
  const double step_ms = job.median_step_ms();
  tell(job, {"release", "n1"});
  const size_t next = job.await_generation_after(job.steps().size() - 1);
  const std::vector<Step>& steps = job.steps();
  return {steps[next].completed_ms - steps[next - 1].completed_ms - step_ms,
          static_cast<double>(steps[next - 1].step - steps[next].step + 1)};
}

struct Kind {
  std::string key;
  std::string name;
  std::function<Cost(Job&, int rank)> fault;
};

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kinds = {
      {"worker", "SIGKILL of a worker", kill_worker},
      {"hang", "SIGSTOP of a worker", stop_worker},
      {"holder", "SIGKILL of a holder", kill_holder},
      {"controller", "SIGKILL of the controller", kill_controller},
      {"grow", "a node is taken back", grow}};
  return kinds;
}

std::vector<Cost> measure(const Kind& kind, int faults) {
  std::mt19937 random(7);  // NOLINT(cert-msc*): the same moments in each run
  Job job;
  std::vector<Cost> costs;
  for (int i = 0; i < faults; ++i) {
    job.await_steps(kStepsBetween);
    std::uniform_real_distribution<double> moment(0, job.median_step_ms());
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(moment(random)));
    costs.push_back(kind.fault(job, static_cast<int>(random() % 4)));
  }
  return costs;
}

json print_row(const Kind& kind, const std::vector<Cost>& costs) {
  std::vector<double> away;
  std::vector<double> again;
  for (const Cost& cost : costs) {
    away.push_back(cost.away_ms);
    again.push_back(cost.again);
  }
  std::printf("%-28s %8.0f %8.0f %8.0f %14.0f %8.0f\n", kind.name.c_str(), at_share(away, 0),
              median(away), at_share(away, 0.99), median(again), at_share(again, 1));
  std::fflush(stdout);
  return {{"away_ms", away}, {"steps_again", again}};
}

}  // namespace
}  // namespace hpctl::testing

int main(int argc, char** argv) {
  using namespace hpctl::testing;  // NOLINT(google-build-using-namespace): the program's own names
  const int faults = argc > 1 ? std::atoi(argv[1]) : 20;
  const std::vector<std::string> wanted(argv + std::min(argc, 2), argv + argc);
  std::printf("%d faults of each kind: ms away beyond a step, completed steps done again\n",
              faults);
  std::printf("%-28s %8s %8s %8s %14s %8s\n", "", "min", "median", "p99", "again, median", "most");
  json result = {{"name", "faults"}, {"faults", faults}};
  for (const Kind& kind : all_kinds()) {
    const bool chosen =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), kind.key) != wanted.end();
    if (chosen) result[kind.key] = print_row(kind, measure(kind, faults));
  }
  std::cout << result.dump() << "\n";
  return 0;
}
