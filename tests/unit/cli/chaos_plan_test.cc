// SPDX-License-Identifier: Apache-2.0
#include "hpctl/chaos_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "common/base/rng.h"
#include "hpctl/chaos_fit.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;

ChaosPlan good(const std::string& text) {
  auto plan = parse_chaos_plan(text, "p.yaml");
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.ok() ? *plan : ChaosPlan();
}
std::string mistakes(const std::string& text) {
  const auto plan = parse_chaos_plan(text, "p.yaml");
  return plan.ok() ? "" : plan.error().message;
}

TEST(ChaosPlan, SaysWhatToWhomAndWhen) {
  const ChaosPlan plan = good(
      "seed: 7\n"
      "recover_within: 30s\n"
      "faults:\n"
      "  - {fault: kill-worker, rank: 3, at_step: 20}\n"
      "  - {fault: kill-holder, node: n1, after: 10s}\n"
      "  - {fault: stop-worker, every: 1m, count: 5}\n"
      "  - {fault: kill-controller}\n");
  EXPECT_EQ(plan.seed, 7U);
  EXPECT_EQ(plan.recover_within_ms, 30'000);
  ASSERT_EQ(plan.faults.size(), 8U);
  EXPECT_EQ(plan.faults[0].fault, InjectedFault::kKillWorker);
  EXPECT_EQ(plan.faults[0].rank, 3);
  EXPECT_EQ(plan.faults[0].at_step, 20U);
  EXPECT_EQ(plan.faults[1].node, "n1");
  EXPECT_EQ(plan.faults[1].after_ms, 10'000);
  EXPECT_EQ(plan.faults[6].fault, InjectedFault::kStopWorker);
  EXPECT_FALSE(plan.faults[6].rank.has_value());
  EXPECT_EQ(plan.faults[7].after_ms, 0);
}

TEST(ChaosPlan, ASeedRepeatsItselfAndAnotherDiffers) {
  const auto make = [](uint64_t seed) {
    const auto plan = make_chaos_plan("kill-worker,kill-agent,kill-holder", 60'000, 200, seed);
    std::string text;
    for (const PlannedFault& planned : plan->faults) {
      text += std::string(to_word(planned.fault)) + " " + std::to_string(planned.after_ms) + " " +
              std::to_string(planned.draw) + "\n";
    }
    return text;
  };
  EXPECT_EQ(make(1), make(1));
  EXPECT_NE(make(1), make(2));
  const auto plan = make_chaos_plan("kill-worker", 60'000, 2000, 3);
  int64_t sum = 0;
  for (const PlannedFault& planned : plan->faults) sum += planned.after_ms;
  EXPECT_NEAR(static_cast<double>(sum) / 2000, 60'000, 6'000) << "the mean that was asked for";
}

TEST(ChaosPlan, MistakesAreToldWithLineCauseAndRemedy) {
  EXPECT_EQ(mistakes("faults:\n  - {fault: kil-worker}\n"),
            "p.yaml:2:13: faults[0].fault: expected one of kill-worker, stop-worker, crash-worker, "
            "kill-agent, kill-holder, kill-controller, hang-worker, exit-worker, nan-gradient, "
            "corrupt-checkpoint, stop-agent, cut-agent, stop-holder, oom-worker, full-disk, "
            "slow-disk, flip-parameter, slow-worker, delay-messages, lose-messages, "
            "delay-collectives, lose-collectives, cut-peers, storage-error, storage-pause, "
            "storage-away; found "
            "\"kil-worker\"\n");
  EXPECT_EQ(mistakes("fautls: []\n"),
            "p.yaml:1:1: unknown key \"fautls\"; did you mean \"faults\"?\n");
  EXPECT_EQ(mistakes("seed: 1\n"),
            "p.yaml:1:1: faults: this key is required: a list such as [{fault: kill-worker}]; or "
            "\"trace\"\n");
  EXPECT_THAT(mistakes("faults: []\n"), HasSubstr("this key is required"));
  EXPECT_THAT(mistakes("faults: [{rank: 1}]\n"), HasSubstr("\"fault\" is required: one of "));
  EXPECT_THAT(mistakes("faults: [{fault: kill-agent, rank: 1}]\n"),
              HasSubstr("faults[0].rank: kill-agent is not done to a rank"));
  EXPECT_THAT(mistakes("faults: [{fault: kill-worker, node: n1}]\n"),
              HasSubstr("faults[0].node: kill-worker is not done to a node"));
  EXPECT_THAT(mistakes("faults: [{fault: delay-messages, rank: 1}]\n"),
              HasSubstr("faults[0].rank: delay-messages is not done to a rank"));
  EXPECT_THAT(mistakes("faults: [{fault: kill-worker, after: 1s, at_step: 3}]\n"),
              HasSubstr("expected one of at_step, after and every, found several"));
  EXPECT_THAT(mistakes("faults: [{fault: kill-worker, at_step: 9}, {fault: kill-worker, at_step: "
                       "3}]\n"),
              HasSubstr("faults[1].at_step: an earlier step than a fault above has"));
  EXPECT_THAT(mistakes("faults: [{fault: kill-worker, at_step: 3, count: 2}]\n"),
              HasSubstr("faults[0].count: a step is completed once"));
  EXPECT_THAT(mistakes("recover_within: 10ms\nfaults: [{fault: kill-worker}]\n"),
              HasSubstr("p.yaml:1:17: recover_within: expected at least 1s"));
  EXPECT_THAT(mistakes("faults: [{fault: kill-worker, fault: kill-agent}]\n"),
              HasSubstr("the key \"fault\" is given twice"));
  // Every mistake at once, each told once.
  const std::string several = mistakes("seed: x\nfaults:\n  - {fault: kill-worker, every: soon}\n");
  EXPECT_EQ(std::count(several.begin(), several.end(), '\n'), 2) << several;
}

TEST(ChaosPlan, HostileTextIsRefused) {
  for (const std::string& text :
       {std::string(),
        std::string("- a\n- b\n"),
        std::string("faults: {a: b}\n"),
        std::string("faults: [kill-worker]\n"),
        std::string("faults: [[[[\n"),
        std::string("faults: [{fault: [1]}]\n"),
        std::string("? [a]\n: b\n"),
        std::string("faults: [{fault: kill-worker, rank: -1}]\n"),
        std::string("faults: [{fault: kill-worker, rank: 99999999999}]\n"),
        std::string("faults: [{fault: kill-worker, count: 10001}]\n"),
        std::string("faults: [{fault: kill-worker, count: 0}]\n"),
        std::string("faults: [{fault: kill-worker, at_step: 0}]\n"),
        std::string("faults: [{fault: kill-worker, every: 0s}]\n"),
        std::string("faults: [{fault: kill-agent, node: \"\\xff\\x1b\"}]\n"),
        std::string("seed: -1\nfaults: [{fault: kill-worker}]\n"),
        std::string("faults: [{fault: kill-worker}]\n---\nfaults: []\n"),
        std::string("faults: [\0]\n", 12),
        std::string("\tfaults: []\n"),
        std::string("faults: [&a {fault: kill-worker, count: 9999}, *a]\n"),
        std::string(300'000, '[')}) {
    EXPECT_NE(mistakes(text), "") << text.substr(0, 80);
  }
  // Whatever becomes of a good plan, it is read or refused.
  const std::string plan =
      "seed: 7\nfaults:\n  - {fault: kill-worker, rank: 3, at_step: 20}\n  - {fault: kill-agent}\n";
  Rng rng(5);
  for (int i = 0; i < 3000; ++i) {
    std::string text = plan;
    for (uint64_t changes = 1 + rng.below(3); changes > 0; --changes) {
      text[rng.below(text.size())] = static_cast<char>(rng.below(256));
    }
    const auto read = parse_chaos_plan(text, "p.yaml");
    if (read.ok()) continue;
    EXPECT_THAT(read.error().message, HasSubstr("p.yaml:"));
  }
}

TEST(ChaosPlan, FitsToTheJob) {
  JobView job;
  job.job = 3;
  job.total_steps = 60;
  job.workers = {{0, "n0", 1, 1, "running", "training", 4}};
  job.nodes = {{"n0", "active", "up", "", "", 1, 2}};
  const auto misfit = [&](const std::string& fault) {
    return find_misfit(good("faults: [{" + fault + "}]\n"), job, nullptr);
  };
  EXPECT_EQ(misfit("fault: kill-worker, rank: 0, at_step: 59"), "");
  EXPECT_EQ(misfit("fault: kill-worker, rank: 4"), "p.yaml:1: faults[0]: job 3 has no rank 4");
  EXPECT_EQ(misfit("fault: kill-agent, node: n5"), "p.yaml:1: faults[0]: job 3 has no node \"n5\"");
  EXPECT_EQ(misfit("fault: kill-worker, at_step: 60"),
            "p.yaml:1: faults[0]: job 3 ends at step 60");
}

// Kind of workload, strategy, precision: what no state of the job changes.
TEST(ChaosPlan, FitsToWhatTheJobIs) {
  JobSpec spec;
  spec.nodes = 2;
  spec.workers_per_node = 2;
  spec.chaos = true;
  spec.train.emplace().steps = 60;
  const auto misfit = [&](const std::string& fault, bool local = true) {
    return find_misfit(good("faults: [{fault: kill-worker}, {" + fault + "}]\n"), spec, local);
  };
  EXPECT_THAT(misfit("fault: corrupt-checkpoint"), HasSubstr("copies of the state are at peers"));
  spec.nodes = 1;  // nobody keeps a copy
  EXPECT_EQ(misfit("fault: corrupt-checkpoint"), "");
  spec.nodes = 2;
  spec.recovery.snapshot.replicas = 0;
  EXPECT_EQ(misfit("fault: corrupt-checkpoint"), "");
  EXPECT_EQ(misfit("fault: nan-gradient, rank: 3"), "");
  EXPECT_EQ(misfit("fault: slow-worker, rank: 3"), "");
  EXPECT_EQ(misfit("fault: cut-peers, rank: 3"), "");
  spec.nodes = spec.workers_per_node = 1;
  for (const char* fault : {"delay-collectives", "lose-collectives", "cut-peers"}) {
    EXPECT_THAT(misfit("fault: " + std::string(fault)), HasSubstr("its only rank has no peers"));
  }
  spec.nodes = spec.workers_per_node = 2;
  EXPECT_EQ(misfit("fault: kill-worker, rank: 4"), "p.yaml:1: faults[1]: the job has no rank 4");
  EXPECT_EQ(misfit("fault: kill-agent, node: n2"),
            "p.yaml:1: faults[1]: the job has no node \"n2\"");
  EXPECT_EQ(misfit("fault: lose-messages, node: n2"),
            "p.yaml:1: faults[1]: the job has no node \"n2\"");
  EXPECT_EQ(misfit("fault: kill-agent, node: p5-17", false), "") << "Slurm will choose";
  EXPECT_EQ(misfit("fault: flip-parameter"), "");
  spec.train->memory.offload = {Offload::kOptimizer};
  EXPECT_THAT(misfit("fault: flip-parameter"), HasSubstr("with memory.offload a step computes"));
  spec.train->strategy = Strategy::kHybrid;
  EXPECT_THAT(
      misfit("fault: corrupt-checkpoint"),
      HasSubstr("faults[1]: the job cannot have corrupt-checkpoint: its ranks have replicas"));
  spec.train->precision = Precision::kFp16;
  EXPECT_THAT(misfit("fault: nan-gradient"), HasSubstr("an overflow of the loss scale"));
  spec.train.reset();
  EXPECT_THAT(misfit("fault: hang-worker"), HasSubstr("only the built-in trainer"));
  EXPECT_THAT(misfit("fault: corrupt-checkpoint"), HasSubstr("only checkpoints of the built-in"));
  EXPECT_THAT(misfit("fault: slow-worker"), HasSubstr("only the built-in trainer"));
  EXPECT_EQ(misfit("fault: crash-worker"), "");
  EXPECT_EQ(misfit("fault: delay-messages, node: n1"), "");
  spec.chaos = false;
  EXPECT_THAT(misfit("fault: crash-worker"), HasSubstr("the job may not be attacked"));
}

constexpr const char* kTrace =
    "seed: 3\n"
    "trace:\n"
    "  period: 100s\n"
    "  faster: 10\n"
    "  count: 4000\n"
    "  causes:\n"
    "    - {cause: often, count: 75, faults: [kill-worker]}\n"
    "    - {cause: seldom, count: 25, faults: [kill-agent, kill-holder]}\n";

TEST(ChaosPlan, ATraceGivesItsSharesAtItsRate) {
  const ChaosPlan plan = good(kTrace);
  ASSERT_EQ(plan.faults.size(), 4000U);
  std::map<InjectedFault, int> counts;
  int64_t sum_ms = 0;
  for (const PlannedFault& planned : plan.faults) {
    ++counts[planned.fault];
    sum_ms += planned.after_ms;
  }
  EXPECT_NEAR(counts[InjectedFault::kKillWorker], 3000, 150);
  EXPECT_NEAR(counts[InjectedFault::kKillAgent], 500, 100);
  EXPECT_NEAR(counts[InjectedFault::kKillHolder], 500, 100);
  EXPECT_NEAR(static_cast<double>(sum_ms) / 4000, 100, 10) << "1 s in the mean, 10 times faster";
  EXPECT_THAT(plan.faults[0].where, HasSubstr("p.yaml: trace: "));
  std::string longer = kTrace;
  longer.replace(longer.find("  count: 4000\n"), 14, "");
  EXPECT_EQ(good(longer).faults.size(), 100U) << "as many as there were";
}

TEST(ChaosPlan, TheTraceOfTheLlama3ReportIsAPlan) {
  const auto plan =
      load_chaos_plan(std::string(std::getenv("HPCTL_SOURCE")) + "/examples/chaos-llama3.yaml");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->faults.size(), 40U);
  EXPECT_EQ(plan->recover_within_ms, 300'000);
}

TEST(ChaosPlan, MistakesInATrace) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = kTrace;
    text.replace(text.find(from), from.size(), to);
    return mistakes(text);
  };
  EXPECT_EQ(with("period: 100s", "perod: 100s"),
            "p.yaml:3:3: trace: unknown key \"perod\"; did you mean \"period\"?\n");
  EXPECT_THAT(with("  period: 100s\n", ""), HasSubstr("\"period\" and \"causes\" are required"));
  EXPECT_THAT(with("kill-agent, kill-holder", ""),
              HasSubstr("p.yaml:8:7: trace.causes[1]: \"count\" and \"faults\" are required"));
  EXPECT_THAT(with("count: 25", "count: 0"), HasSubstr("trace.causes[1].count: expected 1 to"));
  EXPECT_THAT(with("kill-agent", "kill-agnet"), HasSubstr("expected one of kill-worker"));
  EXPECT_THAT(with("faster: 10", "faster: 0"), HasSubstr("trace.faster: expected 1 to"));
  EXPECT_THAT(with("count: 4000", "count: 40000"), HasSubstr("trace.count: 40000 faults; at most"));
  EXPECT_THAT(with("seed: 3\n", "faults: [{fault: kill-agent}]\n"),
              HasSubstr("expected one of faults and trace, found both"));
  EXPECT_NE(mistakes("trace: 7\n"), "");
  EXPECT_NE(mistakes("trace: {period: 1s, causes: [7]}\n"), "");
  EXPECT_NE(mistakes("trace: {period: 1s, causes: {}}\n"), "");
}

}  // namespace
}  // namespace hpctl
