// SPDX-License-Identifier: Apache-2.0
// Jobs of a cluster that are told to end at random moments: while they start and load, train,
// evaluate and save, and while a worker that was killed is replaced. Who tells them: a person, the
// time limit, Slurm's signal to the batch script, or its signal to every node. Or one node is told
// to end, and a spare takes its ranks. No completed step may be lost without a word, and no process
// or unfinished file is left behind.
//
// HPCTL_STOP_SEED replays a seed. Fifteen seeds in a row have each stop in each phase; one node is
// told to end only in training.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/file.h"
#include "common/base/rng.h"
#include "common/job/lineage.h"
#include "tests/fault/job_cluster.h"
#include "tests/integration/stopped_job.h"
#include "tests/integration/training_job.h"
#include "tests/support/promise.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr int kPatienceMs = 90'000;

struct StopKind {
  const char* name;
  const char* state;  // of the job, at the end
  void (*stop)(const test::JobCluster& cluster, pid_t controller);
};

void cancel(const test::JobCluster& cluster, bool time_limit) {
  grpc::ClientContext context;
  test::set_deadline(context);
  v1::CancelRequest request;
  request.set_job(to_string(cluster.job()));
  request.set_time_limit(time_limit);
  v1::CancelResponse response;
  const grpc::Status answer = cluster.stub()->Cancel(&context, request, &response);
  EXPECT_TRUE(answer.ok()) << answer.error_message() << cluster.logs();
}

bool are_nodes_up(const v1::JobStatus& status) {
  return std::all_of(status.nodes().begin(), status.nodes().end(),
                     [](const auto& node) { return node.state() == "up"; });
}

void signal_holder(const test::JobCluster& cluster, const std::string& node) {
  const auto pid = read_file(cluster.paths(node).node_lock(cluster.job(), node));
  ASSERT_TRUE(pid.ok()) << pid.error().message;
  ::kill(static_cast<pid_t>(std::stol(*pid)), SIGTERM);
}

// As Slurm does it to every step of a job.
void signal_holders(const test::JobCluster& cluster) {
  EXPECT_TRUE(cluster.wait_for_status(are_nodes_up, kPatienceMs)) << cluster.logs();
  for (const std::string& node : cluster.nodes()) signal_holder(cluster, node);
}

// Its ranks save, and the spare takes them.
void drain(const test::JobCluster& cluster) {
  constexpr char kNode[] = "n1";
  EXPECT_TRUE(cluster.wait_for_status(are_nodes_up, kPatienceMs)) << cluster.logs();
  signal_holder(cluster, kNode);
  const auto has_left = [&](const v1::JobStatus& status) {
    return status.state() == "RUNNING" && status.generation() > 1 &&
           std::none_of(status.workers().begin(), status.workers().end(),
                        [&](const auto& worker) { return worker.node() == kNode; });
  };
  EXPECT_TRUE(cluster.wait_for_status(has_left, kPatienceMs)) << cluster.logs();
  cancel(cluster, false);
}

constexpr auto kStops = std::to_array<StopKind>({
    {"cancel", "CANCELLED", [](const auto& cluster, pid_t) { cancel(cluster, false); }},
    {"time limit", "TIMEOUT", [](const auto& cluster, pid_t) { cancel(cluster, true); }},
    {"SIGTERM to the controller", "CANCELLED",
     [](const auto&, pid_t controller) { ::kill(controller, SIGTERM); }},
    {"SIGTERM to every node", "CANCELLED",
     [](const auto& cluster, pid_t) { signal_holders(cluster); }},
    {"SIGTERM to one node", "CANCELLED", [](const auto& cluster, pid_t) { drain(cluster); }},
});
constexpr size_t kDrain = kStops.size() - 1;

enum class Phase { kStart, kTraining, kRecovery };
constexpr std::array kPhases = {"start", "training", "recovery"};

// It evaluates for about as long as it trains, and a save is often under way.
JobSpec spec_of(const std::string& texts) {
  TrainingJob job{.name = "stops",
                  .steps = 1'000'000,
                  .checkpoint_every = 7,
                  .heartbeat_timeout = "10s",
                  .nodes = "2"};
  job.stability = "{}\n    validation: {every_steps: 20, sequences: 300}";
  std::string text = job.yaml();
  const std::string data = "/usr/share/common-licenses/GPL-3,";
  text.replace(text.find(data), data.size(), texts + ", split: [1, 1, 0],");
  const JobYaml parsed = parse_job_yaml(text, "/");
  HP_CHECK(parsed.spec.has_value());
  return *parsed.spec;
}

// The moments of a seed.
class Stopped {
 public:
  explicit Stopped(uint64_t seed)
      : seed_(seed),
        kind_(kStops[seed % kStops.size()]),
        phase_(seed % kStops.size() == kDrain ? Phase::kTraining
                                              : static_cast<Phase>(seed % kPhases.size())),
        rng_(seed) {
    HP_CHECK(make_directories(texts_ / "all").ok());
    std::ofstream(texts_ / "all/0") << std::string(20'000, 'a');
    std::ofstream(texts_ / "all/1") << std::string(20'000, 'b');
    JobSpec spec = spec_of(texts_ / "all");
    spec.spares = seed % kStops.size() == kDrain ? 1 : 0;
    cluster_.emplace(spec);
  }

  void run() {
    const pid_t controller = cluster_->start_all();
    ASSERT_NO_FATAL_FAILURE(reach_phase());
    const milliseconds moment(rng_.below(phase_ == Phase::kStart ? 3'000 : 1'500));
    std::this_thread::sleep_for(moment);  // the moment itself
    const auto began = std::chrono::steady_clock::now();
    kind_.stop(*cluster_, controller);
    ASSERT_TRUE(test::eventually([&] { return cluster_->verdict().has_value(); }, kPatienceMs))
        << story() << cluster_->logs();
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_TRUE(test::eventually([&] { return cluster_->processes().empty(); }, kPatienceMs))
        << story() << cluster_->logs() << broken_promise("leftover");
    judge();
    // tests/bench/stops.sh reads this line.
    std::cout << story() << ": step " << saved_ << " of " << last_ << " saved, "
              << (saved_ + may_miss() >= last_ ? "nothing lost" : "a loss is told") << ", ended in "
              << std::chrono::duration_cast<milliseconds>(took).count() << " ms" << std::endl;
  }

 private:
  std::string story() const {
    return "seed " + std::to_string(seed_) + ": " + kind_.name + ", " +
           kPhases[static_cast<size_t>(phase_)];
  }
  // The rank that was killed may have died before it had applied the step that rank 0 wrote down.
  uint64_t may_miss() const { return phase_ == Phase::kRecovery ? 1 : 0; }

  void reach_phase() {
    if (phase_ == Phase::kStart) return;
    const uint64_t step = phase_ == Phase::kRecovery ? 3 + rng_.below(30) : 1;
    ASSERT_TRUE(cluster_->wait_for_status(
        [step](const v1::JobStatus& status) { return status.step() >= step; }, kPatienceMs))
        << story() << cluster_->logs();
    if (phase_ != Phase::kRecovery) return;
    const auto workers = cluster_->shown().workers();
    const auto victim = static_cast<int>(rng_.below(static_cast<uint64_t>(workers.size())));
    ASSERT_TRUE(end_process(static_cast<pid_t>(workers[victim].pid()))) << story();
  }

  void judge() {
    const HomePaths paths = cluster_->paths("n0");
    const auto text = read_file(paths.job_status(cluster_->job()));
    ASSERT_TRUE(text.ok()) << story() << text.error().message;
    const json status = json::parse(*text, nullptr, false);
    EXPECT_EQ(status["state"], kind_.state) << story() << status["reason"] << cluster_->logs();
    last_ = last_step_in(paths.job_metrics(cluster_->job()));
    EXPECT_LE(steps_done_again_in(paths.job_metrics(cluster_->job())), may_miss())
        << story() << cluster_->logs() << broken_promise("checkpoint");
    saved_ = saved_step_in(cluster_->checkpoints());
    if (saved_ + may_miss() < last_) {
      const std::string reason = status["reason"].dump();
      const bool is_told = reason.find("no checkpoint") != std::string::npos ||
                           reason.find("could not be saved") != std::string::npos;
      EXPECT_TRUE(is_told) << story() << ": step " << saved_ << " of " << last_
                           << " is saved: " << reason << cluster_->logs()
                           << broken_promise("checkpoint");
    } else if (phase_ != Phase::kRecovery) {  // a process that is killed leaves its file
      expect_no_unfinished_save();
    }
  }

  void expect_no_unfinished_save() const {
    const auto names = list_directory(cluster_->checkpoints());
    if (!names.ok()) return;  // it did not come to make one
    for (const std::string& name : *names) {
      if (!name.starts_with("step-")) continue;
      const auto is_committed = has_manifest(cluster_->checkpoints() + "/" + name);
      EXPECT_TRUE(is_committed.ok() && *is_committed)
          << story() << ": " << name << broken_promise("leftover");
    }
  }

  const uint64_t seed_;
  const StopKind& kind_;
  const Phase phase_;
  Rng rng_;
  TemporaryDirectory texts_;
  std::optional<test::JobCluster> cluster_;
  uint64_t last_ = 0;
  uint64_t saved_ = 0;
};

std::vector<uint64_t> seeds() {
  const char* const given = std::getenv("HPCTL_STOP_SEED");
  if (given != nullptr) return {std::stoull(given)};
  return {1, 2, 3};
}

class StopChaos : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, StopChaos, ::testing::ValuesIn(seeds()),
                         [](const auto& seed) { return std::to_string(seed.param); });

TEST_P(StopChaos, AtAnyMomentLosesNoStepInSilence) { Stopped(GetParam()).run(); }

}  // namespace
}  // namespace hpctl::testing
