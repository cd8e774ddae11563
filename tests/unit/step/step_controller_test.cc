// SPDX-License-Identifier: Apache-2.0
// The step's controller against scripted tasks: what each is told, and what srun's user reads.
#include "controller/step/step_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpctl::step {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Tasks that obey: a started program runs until the test says how it ends.
class Step : public Outlet {
 public:
  explicit Step(int32_t tasks, int64_t max_restarts = 20, int64_t hang_timeout_ms = 0,
                bool has_input = true)
      : controller_({"7.0", max_restarts, hang_timeout_ms, has_input}, *this),
        orders_(tasks),
        generation_(tasks) {}

  void send(int32_t task, const ToShim& message) override { pending_.emplace_back(task, message); }
  void say(const std::string& line) override { said_.push_back(line); }

  std::string hello(int32_t task) {
    Hello hello;
    hello.task = task;
    hello.tasks = static_cast<int32_t>(orders_.size());
    hello.node = "node" + std::to_string(task / 2);
    hello.pid = 1000 + static_cast<uint64_t>(task);
    hello.address = "10.0.0." + std::to_string(task);
    hello.free_port = static_cast<uint16_t>(task == 0 ? 5000 : 0);
    const std::string refusal = controller_.hello(hello, now_);
    settle();
    return refusal;
  }
  void hello_all() {
    for (int32_t task = 0; task < static_cast<int32_t>(orders_.size()); ++task) hello(task);
  }
  void exit(int32_t task, int32_t code, int32_t signal = 0) {
    controller_.message(task, Exited{generation_[task], pid(task), code, signal}, now_);
    settle();
  }
  void tell(int32_t task, uint64_t step, const std::string& process_state = "S") {
    controller_.message(
        task, Progress{generation_[task], pid(task), step, 4096, 1'000'000'000, process_state},
        now_);
    settle();
  }
  // Each task says again and again what it has last said, as its shim does.
  void pass(int64_t ms, const std::vector<std::pair<uint64_t, std::string>>& told) {
    for (const int64_t until = now_ + ms; now_ < until; now_ += 250) {
      for (size_t task = 0; task < told.size(); ++task) {
        if (told[task].first > 0) {
          tell(static_cast<int32_t>(task), told[task].first, told[task].second);
        }
      }
      controller_.tick(now_);
      settle();
    }
  }
  void lose(int32_t task) {
    controller_.lost(task, now_);
    settle();
  }
  // Only stop() says that its program has ended.
  void make_deaf(int32_t task) { deaf_ = task; }
  void stop(int32_t task) {
    controller_.message(task, Stopped{generation_[task], 0, ""}, now_);
    settle();
  }
  void give_up(int32_t task) {
    Hello hello;
    hello.task = task;
    hello.node = "node0";
    controller_.gave_up(hello);
    settle();
  }
  int64_t now() const { return now_; }
  void end_by_slurm(int32_t task) {
    controller_.message(task, Ending{15}, now_);
    settle();
  }
  // Lets time pass up to the next deadline, and past it.
  void next_deadline() {
    ASSERT_TRUE(controller_.next_deadline().has_value());
    now_ = std::max(now_, *controller_.next_deadline());
    controller_.tick(now_);
    settle();
  }
  void advance(int64_t ms) { now_ += ms; }

  template <typename T>
  std::vector<T> got(int32_t task) const {
    std::vector<T> found;
    for (const ToShim& order : orders_[task]) {
      if (const T* wanted = std::get_if<T>(&order)) found.push_back(*wanted);
    }
    return found;
  }
  const std::vector<std::string>& said() const { return said_; }
  const StepController& controller() const { return controller_; }

 private:
  uint64_t pid(int32_t task) const { return generation_[task] * 100 + static_cast<uint64_t>(task); }

  void settle() {
    while (!pending_.empty()) {
      const auto [task, message] = pending_.front();
      pending_.erase(pending_.begin());
      orders_[task].push_back(message);
      if (const auto* start = std::get_if<Start>(&message)) {
        generation_[task] = start->generation;
        controller_.message(task, Started{start->generation, pid(task)}, now_);
      } else if (const auto* stop = std::get_if<Stop>(&message); stop != nullptr && task != deaf_) {
        const auto port = static_cast<uint16_t>(task == 0 ? 5000 + stop->generation : 0);
        const std::string stacks = stop->stacks == 0 ? "" : "stacks of " + std::to_string(task);
        controller_.message(task, Stopped{stop->generation, port, stacks}, now_);
      } else if (const auto* finish = std::get_if<Finish>(&message);
                 finish != nullptr && finish->stacks != 0) {
        controller_.message(
            task, Stopped{generation_[task], 0, "last stacks of " + std::to_string(task)}, now_);
      }
    }
  }

  StepController controller_;
  std::vector<std::vector<ToShim>> orders_;
  std::vector<uint64_t> generation_;
  std::vector<std::pair<int32_t, ToShim>> pending_;
  std::vector<std::string> said_;
  int64_t now_ = 1'000;
  int32_t deaf_ = -1;
};

TEST(StepControllerTest, NothingStartsBeforeTheLastTaskIsThere) {
  Step step(3);
  step.hello(2);
  step.hello(0);
  EXPECT_EQ(step.got<Welcome>(0).size(), 1);
  EXPECT_TRUE(step.got<Start>(0).empty());
  step.hello(1);
  for (int32_t task = 0; task < 3; ++task) {
    ASSERT_EQ(step.got<Start>(task).size(), 1) << task;
    const Start start = step.got<Start>(task)[0];
    EXPECT_EQ(start.generation, 1);
    EXPECT_EQ(start.restart_count, 0);
    EXPECT_EQ(start.master_address, "10.0.0.0");
    EXPECT_EQ(start.master_port, 5000);
    EXPECT_EQ(start.run_id, "7.0");
  }
  EXPECT_TRUE(step.said().empty());
}

TEST(StepControllerTest, AllFinishedEndsTheStepAndNotEarlier) {
  Step step(2);
  step.hello_all();
  step.exit(0, 0);
  EXPECT_TRUE(step.got<Finish>(0).empty());
  step.exit(1, 0);
  for (int32_t task = 0; task < 2; ++task) {
    ASSERT_EQ(step.got<Finish>(task).size(), 1);
    EXPECT_EQ(step.got<Finish>(task)[0].exit_code, 0);
  }
  EXPECT_TRUE(step.said().empty());
}

TEST(StepControllerTest, OneFailureRestartsEveryTaskInOneGenerationWithAFreshPort) {
  Step step(4);
  step.hello_all();
  step.exit(1, 0);
  step.exit(2, 0, 9);
  for (int32_t task = 0; task < 4; ++task) {
    ASSERT_EQ(step.got<Stop>(task).size(), 1) << task;
    EXPECT_EQ(step.got<Stop>(task)[0].generation, 1);
    EXPECT_EQ(step.got<Start>(task).size(), 1) << "no restart before the back-off is over";
  }
  step.next_deadline();
  for (int32_t task = 0; task < 4; ++task) {
    ASSERT_EQ(step.got<Start>(task).size(), 2) << task;
    const Start start = step.got<Start>(task)[1];
    EXPECT_EQ(start.generation, 2);
    EXPECT_EQ(start.restart_count, 1);
    EXPECT_EQ(start.master_port, 5001);
  }
  EXPECT_THAT(step.said(), ElementsAre(AllOf(HasSubstr("task 2 on node1 died of SIGKILL"),
                                             HasSubstr("all 4 tasks start again (restart 1 of"))));
}

// The shim of the task that was killed has its turn after those whose programs noticed.
TEST(StepControllerTest, TheCauseIsNamedThoughItsConsequenceIsToldFirst) {
  Step step(4);
  step.hello_all();
  step.make_deaf(3);
  step.exit(0, 1);
  step.exit(1, 95);
  EXPECT_TRUE(step.said().empty());
  step.exit(3, 0, 9);
  step.stop(3);
  step.next_deadline();
  EXPECT_EQ(step.got<Start>(0).size(), 2);
  EXPECT_THAT(step.said(), ElementsAre(AllOf(HasSubstr("task 3 on node1 died of SIGKILL"),
                                             HasSubstr("all 4 tasks start again (restart 1 of"))));
}

TEST(StepControllerTest, OfSeveralExitCodesTheFirstIsNamed) {
  Step step(3);
  step.hello_all();
  step.make_deaf(2);
  step.exit(1, 7);
  step.exit(2, 1);
  step.stop(2);
  step.next_deadline();
  EXPECT_THAT(step.said(), ElementsAre(HasSubstr("task 1 on node0 exited with code 7")));
}

TEST(StepControllerTest, ExitCode93EndsTheStepWithoutARestart) {
  Step step(2);
  step.hello_all();
  step.exit(1, 93);
  EXPECT_TRUE(step.got<Stop>(0).empty());
  ASSERT_EQ(step.got<Finish>(0).size(), 1);
  EXPECT_EQ(step.got<Finish>(0)[0].exit_code, 93);
  EXPECT_THAT(step.said(), ElementsAre(HasSubstr("task 1 on node0 exited with code 93")));
}

TEST(StepControllerTest, TheBudgetIsSpentAndTheLastFaultIsNamed) {
  Step step(2, 1);
  step.hello_all();
  step.exit(0, 4);
  step.next_deadline();
  step.exit(1, 0, 11);
  ASSERT_EQ(step.got<Finish>(0).size(), 1);
  EXPECT_EQ(step.got<Finish>(0)[0].exit_code, 128 + 11);
  EXPECT_THAT(step.said().back(), HasSubstr("task 1 on node0 died of SIGSEGV; giving up"));
  EXPECT_THAT(step.said().back(), HasSubstr("HPCTL_MAX_RESTARTS"));
}

// With /dev/null there is nothing to give again.
TEST(StepControllerTest, OnlyAnInputThatWasReadIsMissed) {
  for (const bool has_input : {true, false}) {
    Step step(1, 20, 0, has_input);
    step.hello_all();
    step.exit(0, 1);
    if (step.said().empty()) step.next_deadline();
    const bool told = step.said().back().find("standard input") != std::string::npos;
    EXPECT_EQ(told, has_input) << step.said().back();
  }
}

TEST(StepControllerTest, AProgramThatNeverLastsIsGivenUpBeforeTheBudgetIsSpent) {
  Step step(1, 100);
  step.hello_all();
  int exits = 0;
  while (step.got<Finish>(0).empty() && exits < 50) {
    step.exit(0, 1);
    ++exits;
    if (step.got<Finish>(0).empty()) step.next_deadline();
  }
  EXPECT_EQ(exits, core::kMaxRestartsWithoutProgress + 1);
  EXPECT_THAT(step.said().back(), HasSubstr("did not last a minute"));
}

TEST(StepControllerTest, AProgramThatLastsAMinuteEachTimeHasTheWholeBudget) {
  Step step(1, 10);
  step.hello_all();
  int exits = 0;
  while (step.got<Finish>(0).empty() && exits < 50) {
    step.advance(core::kLastingGenerationMs);
    step.exit(0, 1);
    ++exits;
  }
  EXPECT_EQ(exits, 10 + 1);
}

TEST(StepControllerTest, WhenSlurmEndsTheStepEveryTaskIsReleasedAndNoneRestarts) {
  Step step(3);
  step.hello_all();
  step.exit(1, 1);
  step.end_by_slurm(0);
  for (int32_t task = 0; task < 3; ++task) EXPECT_EQ(step.got<Release>(task).size(), 1);
  EXPECT_FALSE(step.controller().next_deadline().has_value());
  for (int32_t task = 0; task < 3; ++task) EXPECT_EQ(step.got<Start>(task).size(), 1);
}

TEST(StepControllerTest, ATaskThatNeverReportsReleasesTheOthers) {
  Step step(2);
  step.hello(0);
  step.next_deadline();
  EXPECT_EQ(step.got<Release>(0).size(), 1);
  EXPECT_THAT(step.said(), ElementsAre(HasSubstr("1 tasks of the step did not report")));
  step.hello(1);  // late
  EXPECT_EQ(step.got<Release>(1).size(), 1);
}

TEST(StepControllerTest, ATaskThatGaveUpWaitingReleasesTheOthers) {
  Step step(3);
  step.hello(0);
  step.give_up(2);
  EXPECT_EQ(step.got<Release>(0).size(), 1);
  EXPECT_THAT(step.said(), ElementsAre(HasSubstr("task 2 on node0 was not answered in time")));
  step.hello(1);
  EXPECT_EQ(step.got<Release>(1).size(), 1);
  EXPECT_TRUE(step.got<Start>(1).empty());
}

// It cannot be brought back, unlike a node.
TEST(StepControllerTest, AProgramMayTakeAMinuteToDie) {
  Step step(2);
  step.hello_all();
  step.make_deaf(1);
  const int64_t ordered = step.now();
  step.exit(0, 3);
  ASSERT_EQ(step.got<Stop>(1).size(), 1);
  while (step.now() - ordered < kStopPatienceMs) {
    EXPECT_TRUE(step.got<Finish>(0).empty());
    step.next_deadline();
  }
  EXPECT_EQ(step.now() - ordered, kStopPatienceMs);
  for (int i = 0; i < 4 && step.got<Finish>(0).empty(); ++i) step.next_deadline();
  EXPECT_EQ(step.got<Finish>(0).size(), 1);
}

TEST(StepControllerTest, ALostShimEndsTheStepBecauseSlurmStartsItOnlyOnce) {
  Step step(2);
  step.hello_all();
  step.lose(1);
  for (int i = 0; i < 4 && step.got<Finish>(0).empty(); ++i) step.next_deadline();
  ASSERT_EQ(step.got<Finish>(0).size(), 1);
  EXPECT_EQ(step.got<Finish>(0)[0].exit_code, 1);
  EXPECT_THAT(step.said(), ElementsAre("task 1 on node0 was lost with its shim or its node; the "
                                       "step cannot go on"));
}

// As without us: tasks of a step need not end together.
TEST(StepControllerTest, ATaskMayGoOnLongAfterTheOthers) {
  constexpr int64_t kDayMs = 86'400'000;
  Step step(2);
  step.hello_all();
  step.exit(0, 0);
  EXPECT_GT(step.controller().next_deadline().value_or(INT64_MAX), step.now() + 100 * kDayMs);
}

// Who sets a limit wants to be told, and to go on.
TEST(StepControllerTest, TheLastTasksAreLateAfterALimitThatWasSet) {
  Step step(3, 20, 90'000);
  step.hello_all();
  step.exit(0, 0);
  step.exit(2, 0);
  step.advance(89'000);
  EXPECT_THAT(step.got<Start>(1), SizeIs(1));
  step.next_deadline();
  EXPECT_THAT(step.got<Start>(1), SizeIs(2));
  EXPECT_THAT(
      step.said(),
      ElementsAre(HasSubstr("task 1 on node0 has not ended 90 s after the last of the others "
                            "exited with code 0 (HPCTL_HANG_TIMEOUT); all 3 tasks start again "
                            "(restart 1 of"),
                  HasSubstr("stacks of 1")));
}

TEST(StepControllerTest, TasksThatTellNoStepsAreNotWatched) {
  Step step(2, 20, 5'000);
  step.hello_all();
  EXPECT_EQ(step.controller().next_deadline(), std::nullopt);
}

TEST(StepControllerTest, ATaskWhoseProcessIsStoppedIsBlamed) {
  Step step(4);
  step.hello_all();
  step.pass(1'000, {{7, "S"}, {7, "S"}, {7, "S"}, {7, "S"}});
  step.pass(1'500, {{7, "S"}, {7, "S"}, {7, "T"}, {7, "S"}});
  EXPECT_THAT(step.got<Start>(0), SizeIs(2));
  ASSERT_THAT(step.said(), SizeIs(2));
  EXPECT_THAT(step.said()[0], HasSubstr("task 2 on node1 hangs: no step completed for "));
  EXPECT_THAT(step.said()[0], HasSubstr("all 4 tasks start again"));
  EXPECT_EQ(step.said()[1], "where they stood: stacks of 2");
}

TEST(StepControllerTest, AStepThatHangsIsEndedAfterItsLimitAndATaskThatIsBehindIsBlamed) {
  Step step(3, 20, 20'000);
  step.hello_all();
  step.pass(1'000, {{4, "S"}, {4, "S"}, {4, "S"}});
  step.pass(19'000, {{5, "S"}, {4, "S"}, {5, "S"}});
  EXPECT_THAT(step.said(), IsEmpty());
  step.pass(4'000, {{5, "S"}, {4, "S"}, {5, "S"}});
  EXPECT_THAT(step.said(), ElementsAre(HasSubstr("task 1 on node0 hangs"), HasSubstr("of 1")));
  // The same again, without an end: no step beyond the fifth is progress.
  step.pass(300'000, {{5, "S"}, {4, "S"}, {5, "S"}});
  EXPECT_THAT(step.said(),
              Contains(HasSubstr("times in a row the program did not get past step 5")));
  // They are written of the last hang as well.
  EXPECT_EQ(step.said().back(), "where they stood: last stacks of 1");
}

TEST(StepControllerTest, StepsThatGoOnAreNoHang) {
  Step step(2, 20, 5'000);
  step.hello_all();
  for (uint64_t n = 1; n <= 20; ++n) step.pass(4'000, {{n, "S"}, {0, ""}});  // rank 0 alone tells
  EXPECT_THAT(step.said(), IsEmpty());
  step.pass(7'000, {{20, "S"}, {0, ""}});
  EXPECT_THAT(step.said(), ElementsAre(HasSubstr("the step hangs"), HasSubstr("stacks of 0")));
}

TEST(StepControllerTest, AStepThatWasStartedAgainSaysWhatThatCost) {
  Step step(2);
  step.hello_all();
  step.pass(10'000, {{1, "S"}, {1, "S"}});
  step.pass(10'000, {{40, "S"}, {40, "S"}});
  step.exit(1, 0, 9);
  step.pass(20'000, {{1, "S"}, {1, "S"}});
  step.pass(60'000, {{41, "S"}, {41, "S"}});
  step.exit(0, 0);
  step.exit(1, 0);
  ASSERT_THAT(step.said(), SizeIs(2));
  // From step 40, which was completed 10 s before its end, to the step beyond it.
  EXPECT_EQ(step.said()[1],
            "step 41; 1 restart cost 30 s; goodput 70.00 % of 100 s since the first step");
}

// Suspended, with or without this controller, nobody tells anything; then they have their time
// anew.
TEST(StepControllerTest, AStepThatIsSuspendedDoesNotHang) {
  Step step(2, 20, 20'000);
  step.hello_all();
  step.pass(1'000, {{4, "S"}, {4, "S"}});
  for (int i = 0; i < 100; ++i) {
    step.advance(1'000);
    step.next_deadline();
  }
  step.pass(19'000, {{4, "S"}, {4, "S"}});
  EXPECT_THAT(step.said(), IsEmpty());
  step.pass(3'000, {{4, "S"}, {4, "S"}});
  EXPECT_THAT(step.said(), Contains(HasSubstr("the step hangs")));
}

TEST(StepControllerTest, WhatCannotBeToldCountsForNothing) {
  Step step(1, 20, 5'000);
  step.hello_all();
  step.tell(0, UINT64_MAX);
  EXPECT_EQ(step.controller().next_deadline(), std::nullopt);
}

TEST(StepControllerTest, ForeignOrRepeatedTasksAreRefused) {
  Step step(2);
  EXPECT_EQ(step.hello(0), "");
  EXPECT_THAT(step.hello(0), HasSubstr("here already"));
  Hello other;
  other.task = 1;
  other.tasks = 5;
  StepController controller({"7.0", 1}, step);
  EXPECT_EQ(controller.hello(other, 0), "");
  other.task = 5;
  EXPECT_THAT(controller.hello(other, 0), HasSubstr("does not belong"));
  other.task = 2;
  other.version = kProtocolVersion + 1;
  EXPECT_THAT(controller.hello(other, 0), HasSubstr("speaks version"));
}

TEST(StepControllerTest, IsDoneWhenEveryTaskHasGone) {
  Step step(1);
  EXPECT_FALSE(step.controller().done());
  step.hello_all();
  step.exit(0, 0);
  EXPECT_FALSE(step.controller().done());
  step.lose(0);
  EXPECT_TRUE(step.controller().done());
}

}  // namespace
}  // namespace hpctl::step
