// SPDX-License-Identifier: Apache-2.0
// The whole hpagent against a scripted controller: real holder, real agent proper, real workers.
#include <filesystem>
#include <map>
#include <set>

#include "common/base/file.h"
#include "common/base/rng.h"
#include "common/job/bad_step.h"
#include "common/worker/worker_abi.h"
#include "tests/support/promise.h"
#include "tests/unit/agent/node_under_test.h"

namespace hpctl::agent {
namespace {

using test::AgentMessage;
using test::eventually;
using test::kJob;
using test::number_after;
using test::text_of;

class AgentTest : public ::testing::Test, public test::NodeUnderTest {};

TEST_F(AgentTest, RegistersWithWhoItIs) {
  environment_ = {"HPCTL_INSTANCE_ID=i-0123"};
  connect();
  EXPECT_EQ(registration_.job(), kJob.value);
  EXPECT_EQ(registration_.node(), "n0");
  EXPECT_FALSE(registration_.boot_id().empty());
  EXPECT_EQ(registration_.report_seq(), 0U);
  const v1::Register& registration = registration_.register_agent();
  EXPECT_EQ(registration.instance_id(), "i-0123");
  EXPECT_EQ(registration.holder_pid(), static_cast<uint64_t>(holder_.pid));
  EXPECT_EQ(registration.generation_seen(), 0U);
  EXPECT_EQ(registration.workers_size(), 0);
  EXPECT_GT(std::stoi(registration.capabilities().at("cpus")), 0);
  EXPECT_FALSE(registration.version().empty());
  EXPECT_GT(std::stoi(registration.capabilities().at("probe_port")), 0);
  controller_.take(AgentMessage::kHeartbeat);
}

// At 50 ms as Welcome said, there would be more than twenty while the worker makes its steps. What
// is news brings a few.
TEST_F(AgentTest, BeatsAsOftenAsItIsToldUntilItIsToldOtherwise) {
  connect();
  EXPECT_EQ(registration_.register_agent().capabilities().at("beats_as_told"), "1");
  v1::ControllerMessage order;
  order.set_job(kJob.value);
  order.mutable_beat_every()->set_interval_ms(600'000);
  controller_.send(order);
  start(10, 1, {2}, {"map", "step", "1", "train", "100", "exit", "0"});
  const size_t before = controller_.count(AgentMessage::kHeartbeat);
  EXPECT_EQ(exited().last_step(), 101U);
  EXPECT_LT(controller_.count(AgentMessage::kHeartbeat), before + 10);

  while (controller_.count(AgentMessage::kHeartbeat) > 0) {
    controller_.take(AgentMessage::kHeartbeat);
  }
  order.mutable_beat_every()->set_interval_ms(20);
  controller_.send(order);
  for (int i = 0; i < 20; ++i) controller_.take(AgentMessage::kHeartbeat);
}

TEST_F(AgentTest, WorkersGetRankEnvironmentAndWorkload) {
  environment_ = {"OMP_NUM_THREADS=7"};
  connect();
  v1::ControllerMessage message = start_workers(10, 1, {2, 3}, {"report", "hang"});
  (*message.mutable_start_workers()->mutable_env())["MKL_NUM_THREADS"] = "5";
  controller_.send(message);
  const v1::ActionDone first = done(10);
  ASSERT_EQ(first.workers_size(), 2);
  EXPECT_EQ(first.workers(0).rank(), 2);
  EXPECT_EQ(first.workers(1).rank(), 3);
  EXPECT_EQ(first.generation(), 1U);
  ASSERT_TRUE(eventually([&] { return number_after(log_of(3), "WORLD_SIZE") == 4; }));
  EXPECT_EQ(number_after(log_of(3), "RANK"), 3);
  EXPECT_EQ(number_after(log_of(3), "OMP_NUM_THREADS"), 7) << "the user's own choice stands";
  const std::string environment =
      text_of("/proc/" + std::to_string(first.workers(1).pid()) + "/environ");
  for (const char* entry : {"LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "HPCTL_JOB_ID=3", "HPCTL_NODE=n0",
                            "MKL_NUM_THREADS=5", "TORCHELASTIC_USE_AGENT_STORE=False"}) {
    EXPECT_NE(environment.find(std::string(entry) + '\0'), std::string::npos) << entry;
  }
  // The controller may repeat itself: same answer, same processes.
  controller_.send(message);
  const v1::ActionDone second = done(10);
  ASSERT_EQ(second.workers_size(), 2);
  EXPECT_EQ(second.workers(0).pid(), first.workers(0).pid());
  EXPECT_EQ(second.workers(1).pid(), first.workers(1).pid());
}

TEST_F(AgentTest, DefaultCommandIsTheTrainerBesideTheAgent) {
  std::filesystem::create_symlink(test::test_program("probe_worker"), program("hptrain"));
  connect();
  v1::ControllerMessage message = start_workers(1, 1, {0}, {});
  message.mutable_start_workers()->clear_command();
  controller_.send(message);
  EXPECT_EQ(done(1).workers_size(), 1);
  EXPECT_EQ(exited().exit_code(), 0);
}

TEST_F(AgentTest, HeartbeatsCarryProgressAndCommitsAreReportedOnce) {
  controller_.behaviour.heartbeat_ms = 600'000;  // so that only the first step can cause one
  connect();
  controller_.take(AgentMessage::kHeartbeat);
  start(1, 1, {0},
        {"map", "wait", marker("go"), "step", "1", "commit", "1", "wait", marker("end"), "step",
         "2", "commit", "2", "exit", "0"});
  EXPECT_TRUE(write_file_atomic(marker("go"), "").ok());
  const AgentMessage heartbeat = controller_.take([](const AgentMessage& message) {
    return message.has_heartbeat() && message.heartbeat().workers_size() == 1;
  });
  const v1::WorkerProgress& progress = heartbeat.heartbeat().workers(0);
  EXPECT_EQ(progress.step(), 1U);
  EXPECT_EQ(progress.generation(), 1U);
  EXPECT_NE(progress.first_step_unix_ns(), 0U);
  EXPECT_TRUE(write_file_atomic(marker("end"), "").ok());
  EXPECT_EQ(exited().last_step(), 2U);
  std::vector<uint64_t> steps;
  while (controller_.count(AgentMessage::kCheckpointCommitted) > 0) {
    steps.push_back(
        controller_.take(AgentMessage::kCheckpointCommitted).checkpoint_committed().step());
  }
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back(), 2U) << "the last commit, seen only after the worker's end";
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
}

TEST_F(AgentTest, BadStepsAreReportedOnceAndBeforeTheExitThatTheyExplain) {
  controller_.behaviour.heartbeat_ms = 20;
  connect();
  const std::vector<std::string> script = {"map",        "step",     "4", "bad_step", "5", "wait",
                                           marker("go"), "bad_step", "6", "exit",     "1"};
  start(1, 1, {0}, script);
  const AgentMessage report = controller_.take(AgentMessage::kBadStep);
  EXPECT_NE(report.report_seq(), 0U);
  EXPECT_EQ(report.bad_step().generation(), 1U);
  EXPECT_EQ(report.bad_step().number(), 1U);
  EXPECT_EQ(report.bad_step().step(), 5U);
  EXPECT_EQ(report.bad_step().finding(), static_cast<uint32_t>(BadStepFinding::kLossSpike));
  EXPECT_EQ(report.bad_step().reason(), "high?") << "only printable";

  kill_agent();  // its successor finds the page as it was
  EXPECT_TRUE(write_file_atomic(marker("go"), "").ok());
  const AgentMessage next = controller_.take([&](const AgentMessage& message) {
    const bool repeated = message.report_seq() == report.report_seq();  // not acknowledged in time
    return !repeated && (message.has_bad_step() || message.has_worker_exited());
  });
  EXPECT_EQ(next.bad_step().number(), 2U) << "neither the first anew nor the exit before it";
  EXPECT_EQ(next.bad_step().missed(), 0U);
  EXPECT_EQ(exited().exit_code(), 1);
}

TEST_F(AgentTest, AnBadStepThatNoAgentSawIsInTheExitRecord) {
  connect();
  const v1::ActionDone started =
      start(1, 1, {0}, {"map", "wait", marker("go"), "bad_step", "5", "exit", "1"});
  ::kill(agent_pid(), SIGSTOP);
  EXPECT_TRUE(write_file_atomic(marker("go"), "").ok());
  const auto worker = static_cast<pid_t>(started.workers(0).pid());
  ASSERT_TRUE(eventually([&] { return ::kill(worker, 0) != 0; }));  // only the holder has seen it
  kill_agent();
  EXPECT_EQ(controller_.take(AgentMessage::kBadStep).bad_step().step(), 5U);
  EXPECT_EQ(exited().exit_code(), 1);
}

TEST_F(AgentTest, AWorkerThatWritesIntoItsPageHarmsNobody) {
  controller_.behaviour.heartbeat_ms = 20;
  connect();
  const pid_t agent = agent_pid();
  start(1, 1, {0},
        {"map", "step", "4", "scribble", "step", "5", "wait", marker("go"), "overwrite", "file",
         marker("done"), "wait", marker("end"), "exit", "0"});
  const auto heartbeat_at = [&](uint64_t step) {
    return controller_.take([step](const AgentMessage& message) {
      return message.has_heartbeat() && message.heartbeat().workers_size() == 1 &&
             message.heartbeat().workers(0).step() == step;
    });
  };
  heartbeat_at(5);  // what is sound on the page still counts
  EXPECT_TRUE(write_file_atomic(marker("go"), "").ok());
  ASSERT_TRUE(eventually([&] { return is_accessible(marker("done")); }));
  heartbeat_at(5);  // and where nothing is, the last that was
  EXPECT_TRUE(write_file_atomic(marker("end"), "").ok());
  EXPECT_EQ(exited().exit_code(), 0);
  EXPECT_EQ(agent_pid(), agent) << "nobody had to replace it";
  EXPECT_EQ(controller_.count(AgentMessage::kBadStep), 0U);
  EXPECT_EQ(controller_.count(AgentMessage::kCheckpointCommitted), 0U);
}

TEST_F(AgentTest, AWorkerThatStandsStillIsShownWithTheStateOfItsProcess) {
  controller_.behaviour.hang_timeout_ms = 400;
  connect();
  const v1::ActionDone started = start(1, 1, {0}, {"map", "step", "1", "hang"});
  const auto heartbeat_with = [&](const std::string& state) {
    return controller_.take([state](const AgentMessage& message) {
      return message.has_heartbeat() && message.heartbeat().workers_size() == 1 &&
             message.heartbeat().workers(0).step() == 1 &&
             message.heartbeat().workers(0).process_state() == state;
    });
  };
  heartbeat_with("");  // it has just moved
  heartbeat_with("S");
  ::kill(static_cast<pid_t>(started.workers(0).pid()), SIGSTOP);
  heartbeat_with("T");
}

TEST_F(AgentTest, ReportsAreRepeatedUntilAcknowledgedWithTheirNumber) {
  controller_.behaviour.acknowledge = false;
  connect();
  controller_.send(start_workers(1, 1, {0}, {"exit", "9"}));
  const AgentMessage started = controller_.take(AgentMessage::kActionDone);
  const AgentMessage report = controller_.take(AgentMessage::kWorkerExited);
  EXPECT_NE(started.report_seq(), report.report_seq());
  EXPECT_EQ(report.worker_exited().exit_code(), 9);
  controller_.acknowledge(started);

  kill_agent();
  AgentMessage again = controller_.take(AgentMessage::kWorkerExited);
  EXPECT_EQ(again.SerializeAsString(), report.SerializeAsString());
  controller_.stop();
  controller_.start();
  registration_ = controller_.take(AgentMessage::kRegisterAgent);
  again = controller_.take(AgentMessage::kWorkerExited);
  EXPECT_EQ(again.SerializeAsString(), report.SerializeAsString());
  controller_.acknowledge(again);

  // The acknowledgement reaches the agent before the action after it.
  start(2, 2, {0}, {"hang"});
  kill_agent();
  controller_.take(AgentMessage::kActionDone);
  EXPECT_EQ(controller_.count(AgentMessage::kWorkerExited), 0U);
}

TEST_F(AgentTest, KilledAgentDisturbsNoWorkerAndLosesNoExit) {
  connect();
  const v1::ActionDone started = start(1, 4, {0, 1}, {"hang"});
  const std::string boot = registration_.boot_id();
  ::kill(agent_pid(), SIGSTOP);
  const auto victim = static_cast<pid_t>(started.workers(1).pid());
  ::kill(victim, SIGKILL);
  ASSERT_TRUE(eventually([&] { return ::kill(victim, 0) != 0; }));  // only the holder has seen it
  kill_agent();
  EXPECT_EQ(registration_.boot_id(), boot);
  EXPECT_EQ(registration_.register_agent().generation_seen(), 4U);
  ASSERT_EQ(registration_.register_agent().workers_size(), 1);
  EXPECT_EQ(registration_.register_agent().workers(0).pid(), started.workers(0).pid());
  EXPECT_TRUE(process_runs(static_cast<pid_t>(started.workers(0).pid())));
  const v1::WorkerExited report = exited();
  EXPECT_EQ(report.rank(), 1);
  EXPECT_EQ(report.signal(), SIGKILL);
  EXPECT_FALSE(report.by_request());
  // The repeated action is answered from what the holder remembers, also for the dead one.
  controller_.send(start_workers(1, 4, {0, 1}, {"hang"}));
  const v1::ActionDone again = done(1);
  ASSERT_EQ(again.workers_size(), 2);
  EXPECT_EQ(again.workers(0).pid(), started.workers(0).pid());
  EXPECT_EQ(again.workers(1).pid(), started.workers(1).pid());
}

TEST_F(AgentTest, HungAgentIsReplaced) {
  alive_limit_ms_ = "";
  connect();
  const v1::ActionDone started = start(1, 1, {0}, {"hang"});
  const pid_t hung = agent_pid();
  ::kill(hung, SIGSTOP);
  registration_ = controller_.take(AgentMessage::kRegisterAgent);
  EXPECT_NE(agent_pid(), hung);
  ASSERT_EQ(registration_.register_agent().workers_size(), 1);
  EXPECT_TRUE(process_runs(static_cast<pid_t>(started.workers(0).pid())));
}

TEST_F(AgentTest, StopEndsWorkersFirstAndAnswersThen) {
  connect();
  start(1, 2, {0, 1}, {"deaf", "hang"});
  controller_.send(stop_workers(2, 2, 50));
  done(2);
  EXPECT_EQ(controller_.count(AgentMessage::kWorkerExited), 2U) << "reported before the answer";
  EXPECT_TRUE(exited().by_request());
  // Nothing of that generation starts any more, also not by a message that was late.
  controller_.send(start_workers(3, 2, {0}, {"hang"}));
  EXPECT_NE(failed(3).reason().find("was ended"), std::string::npos);
  controller_.send(stop_workers(4, 2, 0));
  done(4);
}

TEST_F(AgentTest, LeftoversAreGoneBeforeTheNextGenerationStarts) {
  connect();
  const v1::ActionDone old = start(1, 1, {0}, {"deaf", "hang"});
  const v1::ActionDone next = start(2, 2, {0}, {"hang"});
  EXPECT_FALSE(process_runs(static_cast<pid_t>(old.workers(0).pid())))
      << broken_promise("leftover");
  const v1::WorkerExited report = exited();
  EXPECT_EQ(report.generation(), 1U);
  EXPECT_TRUE(report.by_request());
  EXPECT_TRUE(process_runs(static_cast<pid_t>(next.workers(0).pid())));
  controller_.send(start_workers(3, 1, {0}, {"hang"}));
  const v1::ActionFailed stale = failed(3);
  EXPECT_NE(stale.reason().find("stale"), std::string::npos);
  EXPECT_FALSE(stale.permanent());
  EXPECT_TRUE(process_runs(static_cast<pid_t>(next.workers(0).pid())));
}

TEST_F(AgentTest, FailureOfOneRankEndsTheOthersAndNamesTheCause) {
  connect();
  v1::ControllerMessage message = start_workers(1, 1, {0, 1}, {});
  message.mutable_start_workers()->clear_command();  // no hptrain beside this agent
  controller_.send(message);
  const v1::ActionFailed missing = failed(1);
  EXPECT_FALSE(missing.permanent()) << "an upgrade may be under way";
  EXPECT_EQ(missing.reason(),
            "rank 0: cannot execute " + program("hptrain") + ": No such file or directory");
  message = start_workers(2, 2, {0}, {"hang"});
  message.mutable_start_workers()->set_workload_json("{damaged");
  controller_.send(message);
  EXPECT_TRUE(failed(2).permanent());
  message = start_workers(3, 3, {0}, {std::string(300'000, 'x')});
  controller_.send(message);
  EXPECT_NE(failed(3).reason().find("exceed"), std::string::npos);
}

TEST_F(AgentTest, EndNodeStopsEverythingAndSaysGoodbye) {
  connect();
  start(1, 1, {0}, {"hang"});
  v1::ControllerMessage message;
  message.set_job(kJob.value);
  message.mutable_end_node()->set_action_seq(2);
  controller_.send(message);
  EXPECT_TRUE(exited().by_request());
  controller_.take(AgentMessage::kGoodbye);
  EXPECT_EQ(wait_for_node_end(), 0);
}

// Workers were ended at once, before the controller knew why.
TEST_F(AgentTest, SigtermToTheNodeIsPassedOn) {
  connect();
  start(1, 1, {0}, {"hang"});
  ::kill(holder_.pid, SIGTERM);
  EXPECT_EQ(controller_.take(AgentMessage::kToldToEnd).told_to_end().reason(), "signal 15");
  kill_agent();
  controller_.take(AgentMessage::kToldToEnd);  // of the next process, too
  controller_.send(stop_workers(2, 1, 1'000));
  done(2);
  EXPECT_TRUE(exited().by_request());
  v1::ControllerMessage message;
  message.set_job(kJob.value);
  message.mutable_end_node()->set_action_seq(3);
  controller_.send(message);
  controller_.take(AgentMessage::kGoodbye);
  EXPECT_EQ(wait_for_node_end(), 0);
}

TEST_F(AgentTest, SigtermWithoutAControllerEndsTheNode) {
  connect();
  start(1, 1, {0}, {"hang"});
  controller_.stop();
  ::kill(holder_.pid, SIGTERM);
  EXPECT_EQ(wait_for_node_end(), 0);
}

TEST_F(AgentTest, PermanentRefusalEndsTheNode) {
  controller_.behaviour.refuse = "the job has ended";
  connect();
  EXPECT_EQ(wait_for_node_end(), 1);
}

TEST_F(AgentTest, KilledHolderLeavesNothing) {
  connect();
  const v1::ActionDone started = start(1, 1, {0}, {"stray", "hang"});
  ASSERT_TRUE(eventually([&] { return number_after(log_of(0), "sleeper") > 0; }));
  const auto stray = static_cast<pid_t>(number_after(log_of(0), "sleeper"));
  ::kill(holder_.pid, SIGKILL);
  EXPECT_EQ(wait_for_node_end(), 256 + SIGKILL);
  for (const pid_t pid : {agent_pid(), static_cast<pid_t>(started.workers(0).pid()), stray}) {
    EXPECT_TRUE(eventually([&] { return !process_runs(pid); }))
        << pid << broken_promise("leftover");
  }
}

TEST_F(AgentTest, AStoppedHolderIsFoundAndItsNodeLost) {
  connect();
  const v1::ActionDone started = start(1, 1, {0}, {"hang"});
  ::kill(holder_.pid, SIGSTOP);
  EXPECT_EQ(wait_for_node_end(), 256 + SIGKILL);
  for (const pid_t pid : {agent_pid(), static_cast<pid_t>(started.workers(0).pid())}) {
    EXPECT_TRUE(eventually([&] { return !process_runs(pid); }))
        << pid << broken_promise("leftover");
  }
}

// One worker dies, which is told at once. That the others end, as they were told to, is known with
// the answer to that order: nothing else makes them be told, because no heartbeat is due.
TEST_F(AgentTest, ExitsThatAreNoNewsLeaveWithTheAnswer) {
  controller_.behaviour.exits_together = true;
  controller_.behaviour.heartbeat_ms = 600'000;
  connect();
  const v1::ActionDone started = start(1, 2, {0, 1, 2}, {"hang"});
  ::kill(static_cast<pid_t>(started.workers(0).pid()), SIGKILL);
  EXPECT_EQ(exited().signal(), SIGKILL);
  controller_.send(stop_workers(2, 2, 0));
  done(2);
  EXPECT_EQ(controller_.count(AgentMessage::kWorkerExited), 0U);
  ASSERT_EQ(controller_.count(AgentMessage::kWorkersExited), 1U) << "told before the answer";
  const AgentMessage report = controller_.take(AgentMessage::kWorkersExited);
  const v1::WorkersExited& exits = report.workers_exited();
  ASSERT_EQ(exits.exits_size(), 2);
  EXPECT_EQ(exits.first_report_seq() + 1, report.report_seq());
  for (const v1::WorkerExited& exit : exits.exits()) EXPECT_TRUE(exit.by_request());
  EXPECT_EQ(exits.exits(0).rank() + exits.exits(1).rank(), 3);
  // One acknowledgement was for both: nothing is told again. The answer to an order that comes
  // after it says that the agent has it.
  controller_.send(stop_workers(4, 2, 0));
  done(4);
  kill_agent();
  start(3, 3, {0}, {"hang"});
  EXPECT_EQ(controller_.count(AgentMessage::kWorkerExited), 0U);
  EXPECT_EQ(controller_.count(AgentMessage::kWorkersExited), 0U);
}

TEST_F(AgentTest, ExitsThatWereNotAcknowledgedAreToldAgainTogether) {
  controller_.behaviour.exits_together = true;
  controller_.behaviour.acknowledge = false;
  connect();
  start(1, 2, {0, 1}, {"hang"});
  controller_.send(stop_workers(2, 2, 0));
  done(2);
  const auto numbers_told = [&] {  // in two messages where a heartbeat came between
    std::set<uint64_t> numbers;
    while (numbers.size() < 2) {
      const AgentMessage report = controller_.take([](const AgentMessage& message) {
        return message.has_workers_exited() || message.has_worker_exited();
      });
      const uint64_t first = report.workers_exited().first_report_seq();
      for (uint64_t seq = first == 0 ? report.report_seq() : first; seq <= report.report_seq();
           ++seq) {
        numbers.insert(seq);
      }
    }
    return numbers;
  };
  const std::set<uint64_t> told = numbers_told();
  kill_agent();
  const AgentMessage again = controller_.take(AgentMessage::kWorkersExited);
  EXPECT_EQ(again.workers_exited().first_report_seq(), *told.begin());
  EXPECT_EQ(again.report_seq(), *told.rbegin());
  EXPECT_EQ(again.workers_exited().exits_size(), 2);
}

// Agents killed at arbitrary moments while generations start and fault: every exit is reported
// under exactly one number, every start is answered, and no rank ever runs twice.
TEST_F(AgentTest, KillsAtAnyMomentLoseAndRepeatNothing) {
  connect();
  Rng rng(7);
  std::map<std::pair<uint64_t, int>, std::set<uint64_t>> exits;
  for (uint64_t generation = 1; generation <= 15; ++generation) {
    const v1::ControllerMessage start =
        start_workers(generation, generation, {0, 1}, {"exit", "1"});
    controller_.send(start);
    ::poll(nullptr, 0, static_cast<int>(rng.below(4)));
    kill_agent();
    ASSERT_FALSE(HasFailure());
    controller_.send(start);  // as a controller does whose action is not acknowledged
    done(generation);
    for (int i = 0; i < 2; ++i) {
      const AgentMessage report = controller_.take([&](const AgentMessage& message) {
        return message.has_worker_exited() && message.worker_exited().generation() == generation &&
               !exits.contains({generation, message.worker_exited().rank()});
      });
      exits[{generation, report.worker_exited().rank()}].insert(report.report_seq());
    }
  }
  while (controller_.count(AgentMessage::kWorkerExited) > 0) {  // repetitions, if any
    const AgentMessage report = controller_.take(AgentMessage::kWorkerExited);
    exits[{report.worker_exited().generation(), report.worker_exited().rank()}].insert(
        report.report_seq());
  }
  EXPECT_EQ(exits.size(), 30U);
  for (const auto& [worker, numbers] : exits) EXPECT_EQ(numbers.size(), 1U);
}

}  // namespace
}  // namespace hpctl::agent
