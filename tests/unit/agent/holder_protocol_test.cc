// SPDX-License-Identifier: Apache-2.0
// Packets between holder and agent proper: every message survives the trip, nothing else does.
#include "agent/holder/holder_protocol.h"

#include <gtest/gtest.h>

namespace hpctl::holder {
namespace {

TEST(HolderProtocol, SpawnKeepsEveryField) {
  const Spawn sent{
      3, 5, 1, {"prog", "", "a b"}, {"A=1", "B="}, "/tmp", "/log", std::string("\0x", 2), 1};
  const auto received = decode_to_holder(encode(ToHolder(sent)));
  ASSERT_TRUE(received.ok());
  const auto& spawn = std::get<Spawn>(*received);
  EXPECT_EQ(spawn.generation, 3U);
  EXPECT_EQ(spawn.rank, 5);
  EXPECT_EQ(spawn.local_rank, 1);
  EXPECT_EQ(spawn.argv, sent.argv);
  EXPECT_EQ(spawn.env, sent.env);
  EXPECT_EQ(spawn.directory, "/tmp");
  EXPECT_EQ(spawn.log_path, "/log");
  EXPECT_EQ(spawn.workload, sent.workload);
  EXPECT_EQ(spawn.python, 1);
}

TEST(HolderProtocol, EveryKindIsReadAsItself) {
  const std::vector<ToHolder> requests = {
      AcceptGeneration{9}, Spawn{},          Kill{4, 5, 6, 1}, KeepReport{1, 2, 3, 4, 5, 6, "x"},
      DropReport{8},       End{1, 2, "why"}, Alive{3},         Strike{4, "kill-worker"}};
  for (const ToHolder& request : requests) {
    const auto received = decode_to_holder(encode(request));
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(received->index(), request.index());
    EXPECT_EQ(encode(*received), encode(request));
  }
  const BadStep bad_step{1,
                         2,
                         3,
                         4,
                         BadStepFinding::kLossSpike,
                         BadStepVerdict::kOtherResult,
                         BadStepOutcome::kRolledBack,
                         5,
                         "reason"};
  const std::vector<ToAgent> events = {
      Hello{1, "b", 2, 3, 4, 5, 6, 7, 8, 9, 10},
      WorkerState{9, 1, 2, 3, 4, WorkerPart::kIdle, 1, WorkerOrigin::kStandby},
      SpawnFailed{1, 2, 1, "no"},
      Exited{1,
             9,
             2,
             3,
             4,
             5,
             6,
             7,
             8,
             1,
             1,
             "last",
             {bad_step, bad_step},
             {{{7, 8, 9}}, {{4, 8, 9}}},
             {"shard-00001.safetensors", 4, 8, 5}},
      StoredReport{1, "bytes"},
      HelloEnd{},
      AliveToo{},
      StacksTaken{3, "told"},
      ToldToEnd{"signal 15"},
      LogMatches{4, {5, 0, 6}}};
  for (const ToAgent& event : events) {
    const auto received = decode_to_agent(encode(event));
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(received->index(), event.index());
    EXPECT_EQ(encode(*received), encode(event));
  }
}

TEST(HolderProtocol, EveryTruncationAndEveryTailIsAnError) {
  const std::string whole = encode(ToHolder(Spawn{1, 2, 3, {"a", "b"}, {"C=d"}, "e", "f", "g"}));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_to_holder(whole.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(decode_to_holder(whole + "x").ok());
  EXPECT_FALSE(decode_to_holder("\xff").ok());
  // A count of four billion texts must neither be believed nor allocated.
  std::string huge = encode(ToHolder(Spawn{}));
  huge.replace(1 + 8 + 4 + 4, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(decode_to_holder(huge).ok());
}

}  // namespace
}  // namespace hpctl::holder
