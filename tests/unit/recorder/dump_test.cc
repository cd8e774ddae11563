// SPDX-License-Identifier: Apache-2.0
// Dumps as JSON, made after the documents that FlightRecorder::dump_json() of PyTorch writes
// (format 2.10, FlightRecorderDetail.hpp of commit 1189309) and that its tutorial shows
// (format 2.5).
#include "common/recorder/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json.h"
#include "tests/support/json_mutation.h"

namespace hpctl::recorder {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json frame(const std::string& file, int line, const std::string& name) {
  return {{"filename", file}, {"line", line}, {"name", name}};
}

json document() {
  return {{"version", "2.10"},
          {"comm_lib_version", "2.27.5"},
          {"pg_config", {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1, 12]"}}}}},
          {"pg_status",
           {{"0",
             {{"last_enqueued_collective", "2"},
              {"last_started_collective", "-1"},
              {"last_completed_collective", "1"}}}}},
          {"entries",
           {{{"frames",
              {frame("/opt/torch/distributed/distributed_c10d.py", 2696, "all_reduce"),
               frame("/opt/torch/distributed/c10d_logger.py", 83, "wrapper"),
               frame("/home/ada/crash.py", 44, "<module>")}},
             {"record_id", 4},
             {"pg_id", 0},
             {"process_group", {"0", "default_pg"}},
             {"thread_name", "pt_main_thread"},
             {"collective_seq_id", 2},
             {"p2p_seq_id", 0},
             {"op_id", 2},
             {"profiling_name", "nccl:all_reduce"},
             {"time_created_ns", 1724779239936775119},
             {"input_sizes", {{3, 4}, {7}}},
             {"input_dtypes", {"Float", "Long"}},
             {"output_sizes", {{3, 4}}},
             {"output_dtypes", {"Float"}},
             {"state", "scheduled"},
             {"time_discovered_started_ns", nullptr},
             {"time_discovered_completed_ns", nullptr},
             {"retired", false},
             {"timeout_ms", 600000},
             {"is_p2p", false}}}}};
}

std::string problem_of_dump(const json& changed) {
  const auto dump = read_dump(changed.dump());
  return dump.ok() ? "none" : dump.error().message;
}

TEST(Dump, WhatARankRecordedIsRead) {
  const auto dump = read_dump(document().dump());
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  EXPECT_EQ(dump->groups, (std::vector<Group>{{"0", "default_pg", {0, 1, 12}}}));
  ASSERT_EQ(dump->operations.size(), 1U);
  const Operation& call = dump->operations[0];
  EXPECT_EQ(call.group, 0U);
  EXPECT_EQ(call.sequence, 2);
  EXPECT_FALSE(call.is_p2p);
  EXPECT_FALSE(call.completed);
  EXPECT_EQ(call.name, "all_reduce");
  EXPECT_THAT(call.input_elements, ElementsAre(12, 7));
  EXPECT_THAT(call.output_elements, ElementsAre(12));
  EXPECT_THAT(call.types, ElementsAre("Float", "Long", "Float"));
  EXPECT_EQ(call.inputs, "[3, 4] Float, [7] Long");
  EXPECT_EQ(call.caller, "crash.py:44 in <module>") << "not where PyTorch itself is";
}

TEST(Dump, AGroupThatIsNotListedIsOneWithoutMembers) {
  json changed = document();
  changed["pg_config"].clear();
  const auto dump = read_dump(changed.dump());
  ASSERT_TRUE(dump.ok());
  EXPECT_EQ(dump->groups, (std::vector<Group>{{"0", "default_pg", {}}}));
}

TEST(Dump, OneWithoutEntriesIsOneOfARankThatIsInNoCall) {
  json changed = document();
  changed.erase("entries");
  const auto dump = read_dump(changed.dump());
  ASSERT_TRUE(dump.ok());
  EXPECT_EQ(dump->groups.size(), 1U);
  EXPECT_TRUE(dump->operations.empty());
}

TEST(Dump, AnotherFormatIsNamed) {
  json changed = document();
  changed["version"] = "3.0";
  EXPECT_THAT(problem_of_dump(changed), HasSubstr("its format is 3.0, and 2.x is known"));
  changed.erase("version");
  EXPECT_THAT(problem_of_dump(changed), HasSubstr("it has no version"));
  EXPECT_THAT(problem_of_dump(json::array()), HasSubstr("opcode"));
  EXPECT_FALSE(read_dump("").ok());
  EXPECT_THAT(read_dump(document().dump().substr(0, 99)).error().message,
              HasSubstr("damaged JSON"));
}

TEST(Dump, StrangeDocumentsAreHarmless) {
  Rng rng(11);
  for (int i = 0; i < 1'000; ++i) {
    json changed = document();
    for (uint64_t n = 1 + rng.below(3); n > 0; --n) mutate(changed, rng);
    (void)read_dump(changed.dump());
  }
}

}  // namespace
}  // namespace hpctl::recorder
