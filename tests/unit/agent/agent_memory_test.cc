// SPDX-License-Identifier: Apache-2.0
// What a new agent proper is told, after all that may have happened before.
#include "agent/holder/agent_memory.h"

#include <gtest/gtest.h>

namespace hpctl::holder {
namespace {

Exited exit_of(uint64_t incarnation) {
  Exited exit;
  exit.incarnation = incarnation;
  return exit;
}

WorkerState ended(uint64_t generation, int32_t rank) {
  WorkerState worker;
  worker.generation = generation;
  worker.rank = rank;
  return worker;
}

// Of the greeting, in its order; "living" is what the holder adds.
std::string greeting(const AgentMemory& memory) {
  std::string words;
  const auto send = [&](const ToAgent& message) {
    if (const auto* hello = std::get_if<Hello>(&message)) {
      words += "hello " + hello->boot_id + " " + std::to_string(hello->holder_pid);
    } else if (const auto* worker = std::get_if<WorkerState>(&message)) {
      words += ", ended " + std::to_string(worker->rank);
    } else if (const auto* report = std::get_if<StoredReport>(&message)) {
      words += ", report " + std::to_string(report->seq) + " " + report->bytes;
    } else if (const auto* exit = std::get_if<Exited>(&message)) {
      words +=
          ", exit " + std::to_string(exit->exit_id) + " of " + std::to_string(exit->incarnation);
    } else if (std::holds_alternative<HelloEnd>(message)) {
      words += ", end";
    }
  };
  memory.tell(send, [&] { words += ", living"; });
  return words;
}

TEST(AgentMemory, AFirstAgentHasNothingBeforeIt) {
  EXPECT_EQ(greeting(AgentMemory("boot", 7)), "hello boot 7, living, end");
}

TEST(AgentMemory, ANewAgentIsToldWhatTheLastOneKnew) {
  AgentMemory memory("boot", 7);
  memory.saw(2);
  EXPECT_EQ(memory.keep(exit_of(11)).exit_id, 1U);
  EXPECT_EQ(memory.keep(exit_of(12)).exit_id, 2U);
  memory.ended(ended(2, 5));
  memory.keep(KeepReport{4, 1, 2, 30, 2, 28, "bytes"});
  EXPECT_EQ(greeting(memory), "hello boot 7, ended 5, living, report 4 bytes, exit 2 of 12, end")
      << "a report covers the first exit";
  EXPECT_EQ(memory.facts().last_report, 4U);
  EXPECT_EQ(memory.facts().committed_step, 30U);
  EXPECT_EQ(memory.facts().bad_step_number, 28U);
  memory.drop(DropReport{4});
  memory.keep(KeepReport{3, 2, 0, 0, 0, 0, "late"});
  EXPECT_EQ(greeting(memory), "hello boot 7, ended 5, living, report 3 late, end");
  EXPECT_EQ(memory.facts().last_report, 4U);
  EXPECT_EQ(memory.facts().committed_step, 30U) << "a report without a commit leaves it";
  EXPECT_EQ(memory.keep(exit_of(13)).exit_id, 3U) << "no number is used twice";
}

TEST(AgentMemory, OnlyTheNewestGenerationsDeadAreRemembered) {
  AgentMemory memory("boot", 7);
  memory.saw(2);
  memory.ended(ended(1, 0));
  memory.ended(ended(2, -1));
  memory.ended(ended(2, 3));
  memory.saw(1);
  EXPECT_EQ(memory.facts().generation_seen, 2U);
  EXPECT_EQ(greeting(memory), "hello boot 7, ended 3, living, end");
  memory.saw(3);
  EXPECT_EQ(greeting(memory), "hello boot 7, living, end");
  memory.ended_through(3);
  memory.ended_through(2);
  EXPECT_EQ(memory.facts().ended_through, 3U);
}

}  // namespace
}  // namespace hpctl::holder
