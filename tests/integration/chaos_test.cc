// SPDX-License-Identifier: Apache-2.0
// Bit-exact and exactly once, under fire: the same job is run undisturbed, then while `hpctl chaos`
// kills and stops workers, agents, holders and the controller. Every run must end with the digest
// of the undisturbed one, and the ledger of all generations must hold every sample exactly once in
// the surviving history. A failing seed is printed; HPCTL_CHAOS_SEED replays it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "common/base/file.h"
#include "common/base/rng.h"
#include "common/worker/injected_fault.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/memory_cgroup.h"
#include "tests/support/processes.h"
#include "tests/support/promise.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kSteps = 140;
constexpr int kFaults = 3;
constexpr uint64_t kGlobalBatch = 8;

// Every kind once; what training does not wait for comes last, because the job goes on meanwhile.
constexpr const char* kEveryFault =
    "seed: 3\n"
    "recover_within: 60s\n"
    "faults:\n"
    "  - {fault: kill-worker, rank: 3, at_step: 20}\n"
    "  - {fault: stop-worker, rank: 1}\n"
    "  - {fault: crash-worker}\n"
    "  - {fault: hang-worker, rank: 2}\n"
    "  - {fault: exit-worker, rank: 0}\n"
    "  - {fault: oom-worker, rank: 3}\n"
    "  - {fault: nan-gradient, rank: 1}\n"
    "  - {fault: kill-holder, node: n1}\n"
    "  - {fault: corrupt-checkpoint, node: n0}\n"
    "  - {fault: kill-agent}\n"
    "  - {fault: kill-controller}\n";

// All of a node's memory is lost with its holder, the first, the second and the first again.
constexpr const char* kLostNodes =
    "seed: 5\n"
    "recover_within: 60s\n"
    "faults:\n"
    "  - {fault: kill-holder, node: n1, at_step: 20}\n"
    "  - {fault: kill-holder, node: n0}\n"
    "  - {fault: kill-worker}\n"
    "  - {fault: kill-holder, node: n1}\n";

// The same when what the one before cost is made good, and copies are at peers again.
constexpr const char* kLostNodesApart =
    "seed: 5\n"
    "recover_within: 60s\n"
    "faults:\n"
    "  - {fault: kill-holder, node: n1, at_step: 20}\n"
    "  - {fault: kill-holder, node: n0, at_step: 38}\n"
    "  - {fault: kill-worker, at_step: 56}\n"
    "  - {fault: kill-holder, node: n1, at_step: 72}\n";

// At random steps, as long as the job has some left.
std::string random_plan(uint64_t seed) {
  Rng rng(seed);
  std::string plan = "recover_within: 60s\nseed: " + std::to_string(seed) + "\nfaults:\n";
  uint64_t step = 0;
  for (int i = 0; i < kFaults; ++i) {
    constexpr auto kKinds =
        std::to_array<const char*>({"kill-worker", "exit-worker", "nan-gradient", "kill-agent",
                                    "kill-holder", "kill-controller", "corrupt-checkpoint"});
    step += 1 + rng.below(kSteps / (kFaults + 2));
    plan += "  - {fault: " + std::string(kKinds[rng.below(kKinds.size())]) +
            ", at_step: " + std::to_string(step) + "}\n";
  }
  return plan;
}

// Each moment of the job's life is in one part, whatever was killed meanwhile, and the sum is all.
void expect_all_time_accounted_for(const json& goodput, const TrainingJob& job) {
  int64_t sum_ms = 0;
  for (const char* part : {"start", "train", "checkpoint", "data", "notice", "decide", "wait",
                           "restart", "repeat", "suspended"}) {
    const auto ms = goodput.value(std::string(part) + "_ms", int64_t{-1});
    EXPECT_GE(ms, 0) << part;
    sum_ms += ms;
  }
  EXPECT_EQ(sum_ms, goodput["wall_ms"]) << goodput.dump(1);
  EXPECT_GT(goodput["train_ms"], 0) << goodput.dump(1);
  // The only save of a job that saves at its end can stall training for less than a millisecond.
  if (job.checkpoint_every < job.steps) {
    EXPECT_GT(goodput["checkpoint_ms"], 0) << goodput.dump(1);
  }
  EXPECT_EQ(goodput["ranks"], 4);
  EXPECT_EQ(goodput["faults"] > 0, goodput["restart_ms"] > 0) << goodput.dump(1);
}

// Without copies at peers: a damaged checkpoint is found where it is read.
const TrainingJob kAnyFault = {
    .name = "chaos", .steps = kSteps, .checkpoint_every = 7, .snapshot = "{replicas: 0}"};

// What `hpctl chaos` says of a run by this plan; "" = the job runs undisturbed. `digest` is that of
// the final checkpoint.
json run(const std::string& plan, std::string& digest, const TrainingJob& chaos_job = kAnyFault) {
  LocalCluster cluster;
  const JobId job = cluster.submit(chaos_job.yaml());
  CommandResult chaos;
  json report;
  if (!plan.empty()) {
    const std::string file = cluster.directory() + "/plan.yaml";
    EXPECT_TRUE(write_file_atomic(file, plan).ok());
    chaos = cluster.hpctl({"chaos", to_string(job), "--plan", file, "--json"}, seconds(180));
    report = json::parse(chaos.out, nullptr, false);
    EXPECT_TRUE(report.is_object()) << chaos.out << chaos.err;
  }
  const std::string state = cluster.wait_for_end(job, seconds(90));
  report["logs"] = cluster.hpctl({"logs", to_string(job)}).out;
  report["events"] = cluster.events(job);
  report["status"] = cluster.status(job);
  const std::string story = plan + chaos.out + chaos.err;
  EXPECT_EQ(state, "FINISHED") << story << cluster.hpctl({"events", to_string(job)}).out
                               << cluster.hpctl({"logs", to_string(job)}).out;
  // An unfinished job has no final state, so it breaks no promise.
  if (state != "FINISHED") throw std::runtime_error("the job has not finished: " + state);
  expect_all_time_accounted_for(
      json::parse(cluster.hpctl({"goodput", to_string(job), "--json"}).out, nullptr, false),
      chaos_job);
  const std::string directory = cluster.paths().default_checkpoints(job);
  const auto ledger = verify_ledger(directory + "/ledger", directory);
  EXPECT_TRUE(ledger.ok()) << story << ledger.error().message << broken_promise("ledger");
  if (ledger.ok()) {
    EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << story << broken_promise("ledger");
    EXPECT_EQ(ledger->cursor, chaos_job.steps * kGlobalBatch) << story << broken_promise("ledger");
  }
  digest = cluster.digest(job);
  cluster.stop_and_expect_no_leftovers(seconds(60));
  // Without any process, hpctl answers from the job's files.
  EXPECT_EQ(cluster.status(job)["state"], "FINISHED") << story;
  EXPECT_FALSE(cluster.events(job).empty()) << story;
  return report;
}

const std::string& undisturbed() {
  static const std::string digest = [] {
    std::string of_run;
    const json status = run("", of_run)["status"];
    EXPECT_EQ(of_run.size(), 65U) << of_run;
    EXPECT_EQ(status["step"], kSteps);
    EXPECT_EQ(status["generation"], 1);
    EXPECT_EQ(status["restarts"], 0);
    return of_run;
  }();
  return digest;
}

// The causes of all events of this type, one per line.
std::string causes(const json& report, const std::string& type) {
  std::string text;
  for (const json& event : report["events"]) {
    if (event["type"] == type) text += event["cause"].get<std::string>() + "\n";
  }
  return text;
}

// The damaged checkpoint was the newest one, and the history names it.
void expect_damage_is_told(const json& report) {
  std::string chosen;
  for (const json& event : report["events"]) {
    const auto cause = event["cause"].get<std::string>();
    if (event["type"] == "CheckpointChosen") chosen += cause + "\n";
    if (event["type"] != "CheckpointDamaged") continue;
    EXPECT_THAT(cause, HasSubstr(", and will not be used again"));
    EXPECT_THAT(chosen, HasSubstr("the newest valid checkpoint is " +
                                  cause.substr(0, cause.find(' ')) + ";"));
    return;
  }
  ADD_FAILURE() << "the history tells of no damaged checkpoint: " << report["events"].dump(1);
}

TEST(Chaos, EveryFaultIsFoundBlamedOnTheRightOneAndSurvived) {
  std::string digest;
  const json report = run(kEveryFault, digest);
  EXPECT_EQ(digest, undisturbed()) << broken_promise("digest");
  ASSERT_EQ(report["faults"].size(), 11U) << report.dump(1);
  for (const json& fault : report["faults"]) {
    const auto name = fault["fault"].get<std::string>();
    const bool to_blame =
        name.ends_with("-worker") || name.ends_with("-holder") || name == "corrupt-checkpoint";
    EXPECT_TRUE(fault["found"].get<bool>()) << fault.dump(1);
    EXPECT_EQ(fault["problem"], "") << fault.dump(1);
    EXPECT_EQ(fault["blame"], to_blame ? "right" : "not due") << fault.dump(1);
    EXPECT_GE(fault["noticed_ms"].get<int64_t>(), 0) << fault.dump(1);
    if (!to_blame) continue;
    EXPECT_GT(fault["back_ms"], fault["noticed_ms"]) << fault.dump(1);
  }
  EXPECT_EQ(report["totals"]["recall"], 1.0);
  EXPECT_EQ(report["totals"]["precision"], 1.0);
  EXPECT_GT(report["totals"]["lost_ms"].get<int64_t>(), 0);
  EXPECT_THAT(causes(report, "JobRecovering") + causes(report, "CauseFound"),
              HasSubstr("worker 3 on n1 died of SIGKILL"));
  EXPECT_NE(causes(report, "NodeLost"), "");
  expect_damage_is_told(report);
}

// Runs a job that ends only when it is cancelled, and attacks it. The result is the report of
// `hpctl chaos` with the job's status before and after the faults.
json run_endless(const std::string& faults) {
  LocalCluster cluster;
  const TrainingJob endless = {.name = "endless", .steps = 1'000'000, .checkpoint_every = 7};
  const JobId job = cluster.submit(endless.yaml());
  EXPECT_TRUE(cluster.wait_for_step(job, 1, seconds(60)));
  const json before = cluster.status(job);
  const std::string file = cluster.directory() + "/plan.yaml";
  EXPECT_TRUE(write_file_atomic(file, "recover_within: 60s\nfaults:\n" + faults).ok());
  const CommandResult chaos =
      cluster.hpctl({"chaos", to_string(job), "--plan", file, "--json"}, seconds(180));
  EXPECT_EQ(chaos.exit_code, 0) << chaos.out << chaos.err;
  json report = json::parse(chaos.out, nullptr, false);
  EXPECT_TRUE(report.is_object()) << chaos.out << chaos.err;
  report["before"] = before;
  const json after = cluster.status(job);
  report["after"] = after;
  EXPECT_TRUE(cluster.wait_for_step(job, after["step"].get<uint64_t>() + 20, seconds(60)));
  EXPECT_EQ(cluster.hpctl({"cancel", to_string(job)}).exit_code, 0);
  EXPECT_EQ(cluster.wait_for_end(job, seconds(60)), "CANCELLED");
  const std::string directory = cluster.paths().default_checkpoints(job);
  const auto ledger = verify_ledger(directory + "/ledger", directory);
  EXPECT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  if (ledger.ok()) {
    EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  }
  cluster.stop_and_expect_no_leftovers(seconds(60));
  return report;
}

// Disks and supervisors: no worker ends, and no generation follows.
TEST(Chaos, TrainingGoesOnWhereOnlyADiskOrASupervisorIsInTrouble) {
  const json report = run_endless(
      "  - {fault: full-disk, rank: 2, at_step: 10}\n"
      "  - {fault: slow-disk, rank: 1}\n"
      "  - {fault: storage-error, rank: 3}\n"
      "  - {fault: storage-pause, rank: 0}\n"
      "  - {fault: stop-agent, node: n1}\n"
      "  - {fault: cut-agent, node: n0}\n"
      "  - {fault: lose-messages, node: n1}\n"
      "  - {fault: kill-agent, node: n0}\n"
      "  - {fault: kill-controller}\n");
  ASSERT_EQ(report["faults"].size(), 9U) << report.dump(1);
  for (const json& fault : report["faults"]) {
    EXPECT_TRUE(fault["found"].get<bool>()) << fault.dump(1);
    EXPECT_EQ(fault["blame"], "not due") << fault.dump(1);
    EXPECT_EQ(fault["lost_steps"], 0) << fault.dump(1);
  }
  EXPECT_EQ(report["totals"]["lost_ms"], 0) << report.dump(1);
  EXPECT_EQ(report["after"]["generation"], 1);
  EXPECT_EQ(report["after"]["restarts"], 0);
  // An agent has started the controller again.
  EXPECT_NE(report["after"]["controller"]["pid"], report["before"]["controller"]["pid"]);
}

// What the job goes on from must be looked for, and cannot: it waits, and nothing is lost for it.
TEST(Chaos, StorageThatIsAwayIsWaitedFor) {
  const json report = run_endless("  - {fault: storage-away, rank: 1, at_step: 10}\n");
  ASSERT_EQ(report["faults"].size(), 1U) << report.dump(1);
  const json& fault = report["faults"][0];
  EXPECT_TRUE(fault["found"].get<bool>()) << fault.dump(1);
  EXPECT_EQ(fault["blame"], "right") << fault.dump(1);
  EXPECT_EQ(fault["lost_steps"], 0) << fault.dump(1);
  EXPECT_GE(fault["back_ms"], kDiskTroubleMs) << fault.dump(1);
  EXPECT_EQ(report["after"]["generation"], 2);
  EXPECT_EQ(report["after"]["restarts"], 1) << "none for the storage";
}

// It takes seconds, in which its ranks go on.
TEST(Chaos, AHolderThatHangsIsFound) {
  const json report = run_endless("  - {fault: stop-holder, node: n1, at_step: 10}\n");
  ASSERT_EQ(report["faults"].size(), 1U) << report.dump(1);
  EXPECT_TRUE(report["faults"][0]["found"].get<bool>()) << report.dump(1);
  EXPECT_EQ(report["faults"][0]["blame"], "right") << report.dump(1);
  EXPECT_EQ(report["after"]["generation"], 2);
  EXPECT_EQ(report["after"]["restarts"], 1);
  const pid_t holder = node_pid(report["before"], 1, "holder_pid");
  EXPECT_NE(node_pid(report["after"], 1, "holder_pid"), holder);
  EXPECT_FALSE(process_runs(holder));
}

// What hpctl does not do is said, not hidden.
TEST(Chaos, AnInvertedBitOfAParameterIsFoundByNobody) {
  std::string digest;
  const json report = run("faults: [{fault: flip-parameter, rank: 1, at_step: 20}]\n", digest);
  ASSERT_EQ(report["faults"].size(), 1U) << report.dump(1);
  const json& fault = report["faults"][0];
  EXPECT_TRUE(fault["injected"].get<bool>()) << fault.dump(1);
  EXPECT_FALSE(fault["found"].get<bool>()) << fault.dump(1);
  EXPECT_THAT(fault["problem"].get<std::string>(), HasSubstr("nothing looks at the values"));
  EXPECT_NE(digest, undisturbed()) << "or it was not done";
}

// Until the end of the job, of which the controller hears late where its messages are late. That a
// rank that is slow is named is in straggler_test.
TEST(Chaos, WhatIsOnlyLateChangesNoBitAndNobodyIsBlamedForIt) {
  TrainingJob job = kAnyFault;
  job.straggler = "off";
  for (const std::string of : {"slow-worker, rank: 1", "delay-messages, node: n1"}) {
    std::string digest;
    const json report = run("faults: [{fault: " + of + ", at_step: 60}]\n", digest, job);
    EXPECT_EQ(digest, undisturbed()) << of << broken_promise("digest");
    ASSERT_EQ(report["faults"].size(), 1U) << report.dump(1);
    const json& fault = report["faults"][0];
    EXPECT_TRUE(fault["injected"].get<bool>()) << fault.dump(1);
    EXPECT_FALSE(fault["found"].get<bool>()) << fault.dump(1);
    EXPECT_EQ(fault["blame"], "not due") << fault.dump(1);
    EXPECT_EQ(fault["lost_steps"], 0) << fault.dump(1);
    EXPECT_THAT(fault["problem"].get<std::string>(), HasSubstr("not found: ")) << fault.dump(1);
    EXPECT_EQ(report["logs"].get<std::string>().find("this rank is slow") != std::string::npos,
              of.starts_with("slow-worker"))
        << report["logs"];
  }
}

// Late: nobody need find it. Cut: every rank loses peers, and none of them is to blame. Lost: all
// ranks wait alike in a collective, which only a limit shows.
TEST(Chaos, WhateverBefallsTheNetworkBetweenRanksNoInnocentOneIsBlamed) {
  TrainingJob job = kAnyFault;
  job.hang_timeout = "4s";
  std::string digest;
  const json report =
      run("recover_within: 60s\n"
          "faults:\n"
          "  - {fault: delay-collectives, rank: 2, at_step: 20}\n"
          "  - {fault: cut-peers, rank: 1}\n"
          "  - {fault: lose-collectives, rank: 3}\n",
          digest, job);
  EXPECT_EQ(digest, undisturbed()) << broken_promise("digest");
  ASSERT_EQ(report["faults"].size(), 3U) << report.dump(1);
  const json& late = report["faults"][0];
  EXPECT_THAT(late["problem"].get<std::string>(), HasSubstr("no limit of the job was passed"));
  for (const json& fault : report["faults"]) {
    EXPECT_TRUE(fault["injected"].get<bool>()) << fault.dump(1);
    EXPECT_EQ(fault["found"], fault != late) << fault.dump(1);
    EXPECT_EQ(fault["blame"], "not due") << fault.dump(1);
    EXPECT_LE(fault["lost_steps"], 1) << fault.dump(1);
  }
  EXPECT_GE(report["faults"][2]["noticed_ms"], 4'000) << report.dump(1);
  for (const char* done : {"come late", "connections to its peers break", "are lost"}) {
    EXPECT_THAT(report["logs"].get<std::string>(), HasSubstr(done));
  }
}

// The nodes of this machine as nodes apart: through memory on each, over Gloo between them. The
// bits are those of the run whose ranks all share memory.
TEST(Chaos, BetweenNodesOfSeveralRanksEveryLossIsSurvivedWithTheSameBits) {
  TrainingJob job = kAnyFault;
  job.more = "env: {set: {HPTRAIN_NODES_APART: \"1\"}}\n";
  std::string digest;
  const json report =
      run("recover_within: 60s\n"
          "faults:\n"
          "  - {fault: kill-worker, rank: 3, at_step: 20}\n"
          "  - {fault: cut-peers, rank: 1}\n"
          "  - {fault: kill-worker, rank: 0}\n"
          "  - {fault: kill-holder, node: n1}\n",
          digest, job);
  EXPECT_EQ(digest, undisturbed()) << broken_promise("digest");
  ASSERT_EQ(report["faults"].size(), 4U) << report.dump(1);
  for (const json& fault : report["faults"]) {
    EXPECT_TRUE(fault["found"].get<bool>()) << fault.dump(1);
    EXPECT_EQ(fault["blame"], fault["fault"] == "cut-peers" ? "not due" : "right") << fault.dump(1);
  }
  EXPECT_THAT(report["logs"].get<std::string>(),
              HasSubstr("among the 2 ranks of a node, and over Gloo between the 2 nodes"));
}

// The ranks of its node, among which the state is divided, are behind all others; which of them
// lost its messages nobody can tell.
TEST(Chaos, WhereGroupsWaitForEachOtherTheNodeWithoutMessagesIsBlamedAndNoRankOfIt) {
  const TrainingJob job = {.name = "hybrid",
                           .steps = 60,
                           .checkpoint_every = 7,
                           .hang_timeout = "4s",
                           .strategy = "hybrid"};
  std::string digest;
  const json report =
      run("faults: [{fault: lose-collectives, rank: 3, at_step: 20}]\n", digest, job);
  ASSERT_EQ(report["faults"].size(), 1U) << report.dump(1);
  const json& fault = report["faults"][0];
  EXPECT_EQ(fault["blame"], "right") << fault.dump(1);
  EXPECT_EQ(fault["blamed"]["node"], "n1") << fault.dump(1);
  EXPECT_EQ(fault["blamed"]["rank"], -1) << fault.dump(1);
}

// Of a command no step proves that its node lives. Its holder answers, which triples the limit.
TEST(Chaos, ANodeWhoseMessagesAreLostForLongerThanItsLimitIsLostAndBlamed) {
  LocalCluster cluster;
  const JobId job = cluster.submit(
      "name: silent\n"
      "nodes: 2\n"
      "workload: {command: [sleep, '1000']}\n"
      "recovery: {heartbeat_timeout: 800ms}\n"
      "debug: {chaos: true}\n");
  const CommandResult chaos = cluster.hpctl(
      {"chaos", to_string(job), "--faults", "lose-messages", "--every", "1ms", "--json"},
      seconds(90));
  EXPECT_EQ(chaos.exit_code, 0) << chaos.out << chaos.err;
  const json report = json::parse(chaos.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << chaos.out << chaos.err;
  const json& fault = report["faults"][0];
  EXPECT_EQ(fault["blame"], "right") << fault.dump(1);
  EXPECT_GT(fault["noticed_ms"], 3 * 800 - 500) << fault.dump(1);
  EXPECT_EQ(cluster.status(job)["generation"], 2);
  EXPECT_EQ(cluster.hpctl({"cancel", to_string(job)}).exit_code, 0);
  ASSERT_EQ(cluster.wait_for_end(job, seconds(60)), "CANCELLED");
  cluster.stop_and_expect_no_leftovers(seconds(60));
}

TEST(Chaos, TheKernelEndsAWorkerThatRunsOutOfMemory) {
  const MemoryCgroup group(uint64_t{256} << 20);
  if (group.path().empty()) GTEST_SKIP() << "needs root and a memory cgroup: none here";
  LocalCluster cluster;
  const JobId job =
      cluster.submit(TrainingJob{.name = "memory", .steps = 60, .checkpoint_every = 7}.yaml());
  ASSERT_TRUE(cluster.wait_for_step(job, 3, seconds(60)));
  const pid_t worker = worker_pid(cluster.status(job), 2);
  ASSERT_TRUE(group.take(worker));
  const std::string file = cluster.directory() + "/plan.yaml";
  ASSERT_TRUE(write_file_atomic(file, "faults: [{fault: oom-worker, rank: 2}]\n").ok());
  const CommandResult chaos =
      cluster.hpctl({"chaos", to_string(job), "--plan", file, "--json"}, seconds(120));
  EXPECT_EQ(chaos.exit_code, 0) << chaos.out << chaos.err;
  EXPECT_EQ(group.kills(), 1U);
  const json report = json::parse(chaos.out, nullptr, false);
  EXPECT_EQ(report["totals"]["blamed_right"], 1) << chaos.out;
  ASSERT_EQ(cluster.wait_for_end(job, seconds(90)), "FINISHED");
  cluster.stop_and_expect_no_leftovers(seconds(60));
}

class ChaosOfReplicas : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(With, ChaosOfReplicas, ::testing::Values("no_shard", "hybrid"),
                         [](const auto& strategy) { return std::string(strategy.param); });

// Nothing is on disk before the end. What only a lost rank had completed is done again: one step.
TEST_P(ChaosOfReplicas, ALostNodeCostsNoStepThatAllHaveCompleted) {
  const TrainingJob job = {
      .name = "replicas", .steps = 90, .checkpoint_every = 100'000, .strategy = GetParam()};
  std::string expected;
  run("", expected, job);
  std::string digest;
  const json report = run(kLostNodes, digest, job);
  EXPECT_EQ(digest, expected) << broken_promise("digest");
  ASSERT_EQ(report["faults"].size(), 4U) << report.dump(1);
  for (const json& fault : report["faults"]) {
    EXPECT_EQ(fault["blame"], "right") << fault.dump(1);
    EXPECT_LE(fault["lost_steps"], 1) << fault.dump(1);
  }
}

// From the queue on: the plan is there before the job is.
TEST(Chaos, SubmitCarriesOutAPlanFromTheFirstStepOn) {
  LocalCluster cluster;
  const std::string job_file = cluster.directory() + "/job.yaml";
  const std::string plan_file = cluster.directory() + "/plan.yaml";
  const TrainingJob job = {.name = "traced", .steps = 90, .checkpoint_every = 7};
  ASSERT_TRUE(write_file_atomic(job_file, job.yaml()).ok());
  ASSERT_TRUE(write_file_atomic(plan_file,
                                "seed: 11\n"
                                "recover_within: 60s\n"
                                "trace:\n"
                                "  period: 1h\n"
                                "  faster: 3600\n"
                                "  count: 3\n"
                                "  causes:\n"
                                "    - {cause: a GPU, count: 2, faults: [exit-worker]}\n"
                                "    - {cause: a host, count: 1, faults: [kill-worker]}\n")
                  .ok());
  const CommandResult chaos =
      cluster.hpctl({"submit", job_file, "--local", "--json", "--chaos", plan_file}, seconds(180));
  EXPECT_EQ(chaos.exit_code, 0) << chaos.out << chaos.err;
  const json report = json::parse(chaos.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << chaos.out << chaos.err;
  EXPECT_EQ(report["totals"]["injected"], 3) << report.dump(1);
  EXPECT_EQ(report["totals"]["precision"], 1.0) << report.dump(1);
  ASSERT_EQ(cluster.wait_for_end(JobId{report["job"].get<uint64_t>()}, seconds(90)), "FINISHED");
  cluster.stop_and_expect_no_leftovers(seconds(60));
}

constexpr int kNoSaves = 100'000;
// The strategy, and after how many steps the job saves: a save reads the slots that copies are sent
// from.
class ChaosOfCopies : public ::testing::TestWithParam<std::pair<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(With, ChaosOfCopies,
                         ::testing::Values(std::pair("full", kNoSaves),
                                           std::pair("shard_grad_op", 4)),
                         [](const auto& strategy) { return std::string(strategy.param.first); });

// The same where no other rank has the same part: copies are at peers. They are up to three steps
// old: one under way, one that waits for room, one that only the lost node had completed. Where a
// worker alone is lost its node keeps its state: what only the others had completed is done again.
TEST_P(ChaosOfCopies, ALostNodeCostsAFewSteps) {
  const TrainingJob job = {.name = "copies",
                           .steps = 90,
                           .checkpoint_every = GetParam().second,
                           .strategy = GetParam().first,
                           .snapshot = "{every_steps: 1}"};
  std::string expected;
  run("", expected, job);
  std::string digest;
  const json report = run(kLostNodesApart, digest, job);
  EXPECT_EQ(digest, expected) << broken_promise("digest");
  ASSERT_EQ(report["faults"].size(), 4U) << report.dump(1);
  for (const json& fault : report["faults"]) {
    EXPECT_EQ(fault["blame"], "right") << fault.dump(1);
    const int most = fault["fault"] == "kill-holder" ? 3 : 1;
    EXPECT_LE(fault["lost_steps"], most) << fault.dump(1);
  }
}

TEST(Chaos, RandomFaultsChangeNoBitAndNoSample) {
  const char* replay = std::getenv("HPCTL_CHAOS_SEED");
  std::vector<uint64_t> seeds = {1, 2, 3};
  if (replay != nullptr) seeds = {std::strtoull(replay, nullptr, 10)};
  for (const uint64_t seed : seeds) {
    std::string digest;
    const json report = run(random_plan(seed), digest);
    EXPECT_EQ(digest, undisturbed())
        << "seed " << seed << " (replay with HPCTL_CHAOS_SEED=" << seed << ")\n"
        << report.dump(1) << broken_promise("digest");
    for (const json& fault : report["faults"]) {
      if (!fault["injected"].get<bool>()) continue;  // the job had ended
      EXPECT_TRUE(fault["found"].get<bool>()) << fault.dump(1);
      EXPECT_NE(fault["blame"], "wrong") << fault.dump(1);
    }
    std::cout << "seed " << seed << ": " << report["totals"].dump() << "\n";
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hpctl::testing
