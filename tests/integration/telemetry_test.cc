// SPDX-License-Identifier: Apache-2.0
// What a real job says about itself: its figures over HTTP as Prometheus gets them, and its unfit
// steps as events, causes and counters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/net/host_port.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/http_get.h"
#include "trainer/data/sample_order.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr seconds kLong{120};

// One passage of noise in an orderly text: the loss of step 38, which takes it, jumps.
std::string write_noisy_text(const std::string& path) {
  constexpr uint64_t kWindows = 400;
  constexpr uint64_t kSeqLen = 32;
  constexpr uint64_t kSeed = 3;
  const uint64_t noisy = window_of_sample(kSeed, kWindows, 150);
  std::ofstream text(path);
  for (uint64_t i = 0; i <= kWindows * kSeqLen; ++i) {
    const uint64_t at = i - noisy * kSeqLen;  // wraps around before the noise
    text << static_cast<char>(at >= 2 && at < 30 ? 128 + i * 37 % 101 : "abcd"[i % 4]);
  }
  return path;
}

class Telemetry : public ::testing::Test {
 protected:
  Telemetry() { setenv("HPCTL_METRICS", "127.0.0.1:0", 1); }
  ~Telemetry() override { unsetenv("HPCTL_METRICS"); }

  JobId submit(const std::string& name, const std::string& data, int steps,
               const std::string& stability) {
    return cluster_.submit(
        "name: " + name +
        "\nnodes: 2\nworkload:\n  train:\n    model: {preset: tiny}\n"
        "    data: {path: " +
        data +
        ", tokenizer: byte, seq_len: 32}\n"
        "    batch: {micro: 1, global: 4}\n    seed: 3\n    precision: fp32\n"
        "    optimizer: {lr: 2e-3}\n    schedule: {warmup_steps: 2}\n    steps: " +
        std::to_string(steps) + "\n    stability: " + stability + "\n");
  }
  std::string metrics() const {
    const auto version = json::parse(cluster_.hpctl({"version", "--json"}).out);
    const std::string address = version["controller"]["metrics"];
    return http_get(HostPort::parse(address).value().port, "/metrics");
  }
  // The causes of the job's events of this type.
  std::vector<std::string> told(JobId job, const std::string& type) const {
    std::vector<std::string> causes;
    for (const json& event : cluster_.events(job)) {
      if (event["type"] == type) causes.push_back(event["cause"]);
    }
    return causes;
  }

  LocalCluster cluster_;
};

// The value of the series that begins like this; NaN when there is none.
double value_of(const std::string& text, const std::string& series) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(series)) return std::stod(line.substr(line.rfind(' ') + 1));
  }
  return std::nan("");
}

TEST_F(Telemetry, FiguresOfARunningJobAreServed) {
  const JobId job = submit("watched", "/usr/share/common-licenses/GPL-3", 1'000'000, "{}");
  ASSERT_TRUE(cluster_.wait_for_step(job, 5, kLong));
  const std::string labels = "{job=\"" + to_string(job) + "\",name=\"watched\"";
  const std::vector<std::string> ranks = {",rank=\"0\",node=\"n0\"", ",rank=\"1\",node=\"n1\""};
  // Each is told of by its own agent, one of which may be late.
  const auto is_told_of = [&](const std::string& text, const std::string& rank) {
    return text.find("hpctl_train_communication_overlap_ratio" + labels + rank) !=
           std::string::npos;
  };
  std::string text;
  ASSERT_TRUE(wait_until(
      cluster_.directory(),
      [&] {
        text = metrics();
        return value_of(text, "hpctl_train_step{") >= 5 && is_told_of(text, ranks[0]) &&
               is_told_of(text, ranks[1]);
      },
      kLong))
      << text;
  EXPECT_GT(value_of(text, "hpctl_train_loss" + labels), 0);
  EXPECT_GT(value_of(text, "hpctl_train_tokens_per_second" + labels), 0);
  EXPECT_GT(value_of(text, "hpctl_train_gradient_norm" + labels), 0);
  EXPECT_GT(value_of(text, "hpctl_train_learning_rate" + labels), 0);
  EXPECT_GT(value_of(text, "hpctl_train_step_seconds" + labels), 0);
  const double whole =
      value_of(text, "hpctl_train_flops_per_second" + labels + ",attention=\"whole\"");
  EXPECT_GT(whole,
            value_of(text, "hpctl_train_flops_per_second" + labels + ",attention=\"causal\""));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_train_mfu_ratio"))) << "a processor's peak is unknown";
  for (const std::string& rank : ranks) {
    EXPECT_GT(value_of(text, "hpctl_train_peak_memory_bytes" + labels + rank), 1e7);
    EXPECT_GT(value_of(text, "hpctl_train_compute_seconds" + labels + rank), 0);
    EXPECT_GE(value_of(text, "hpctl_train_data_wait_ratio" + labels + rank), 0);
    EXPECT_GT(value_of(text, "hpctl_train_communication_wait_ratio" + labels + rank), 0);
    const double overlap =
        value_of(text, "hpctl_train_communication_overlap_ratio" + labels + rank);
    EXPECT_GE(overlap, 0);
    EXPECT_LT(overlap, 1);
  }
  EXPECT_EQ(value_of(text, "hpctl_train_rollbacks_total" + labels), 0);
  cluster_.hpctl({"cancel", to_string(job)});
  EXPECT_EQ(cluster_.wait_for_end(job, kLong), "CANCELLED");
  text = metrics();
  EXPECT_THAT(text, HasSubstr("hpctl_train_step" + labels));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_train_peak_memory_bytes"))) << "its workers are gone";
}

TEST_F(Telemetry, ASkippedBatchIsToldAndCountedOnce) {
  const JobId job = submit("noisy", write_noisy_text(cluster_.directory() + "/text"), 50,
                           "{policy: skip, spikes: true}");
  ASSERT_EQ(cluster_.wait_for_end(job, kLong), "FINISHED");
  EXPECT_THAT(told(job, "LossSpiked"), ElementsAre(HasSubstr("step 38 was not applied: loss")));
  EXPECT_THAT(told(job, "BatchSkipped"), ElementsAre(HasSubstr("4 samples are left out")));
  const std::string text = metrics();
  const std::string labels = "{job=\"" + to_string(job) + "\",name=\"noisy\"";
  EXPECT_EQ(value_of(text, "hpctl_train_bad_steps_total" + labels + ",finding=\"loss_spike\""), 1);
  EXPECT_EQ(value_of(text, "hpctl_train_skipped_steps_total" + labels), 1);
  EXPECT_EQ(value_of(text, "hpctl_train_skipped_samples_total" + labels), 4);
  EXPECT_EQ(value_of(text, "hpctl_train_stability_stops_total" + labels), 0);
}

TEST_F(Telemetry, WhyNamesTheStepThatStoppedTheJob) {
  const JobId job = submit("stopped", write_noisy_text(cluster_.directory() + "/text"), 50,
                           "{policy: stop, spikes: true, reexecute: true}");
  EXPECT_EQ(cluster_.wait_for_end(job, kLong), "FAILED");
  EXPECT_THAT(told(job, "LossSpiked"), ElementsAre(HasSubstr("executed again, the same")));
  const json why = json::parse(cluster_.hpctl({"why", to_string(job), "--json"}).out);
  std::vector<std::string> chain;
  for (const json& event : why["chain"]) chain.push_back(event["type"]);
  EXPECT_THAT(chain, Contains("TrainingStopped"));
  EXPECT_THAT(why["summary"].get<std::string>(), HasSubstr("step 38")) << why;
}

}  // namespace
}  // namespace hpctl::testing
