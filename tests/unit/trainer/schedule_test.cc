// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules: every generated table is valid, ends under any delays, needs the memory and
// has the bubble that its design promises; a damaged table is refused with its cell.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "trainer/schedule/csv.h"
#include "trainer/schedule/generate.h"
#include "trainer/schedule/lower.h"
#include "trainer/schedule/simulate.h"
#include "trainer/schedule/validate.h"

namespace hpctl {
namespace {

struct ScheduleCase {
  std::string name;
  ScheduleShape shape;
  std::string text() const {
    return name + " p=" + std::to_string(shape.ranks) +
           " v=" + std::to_string(shape.stages_per_rank) +
           " m=" + std::to_string(shape.micro_batches);
  }
};

void for_each_schedule(const std::function<void(const ScheduleCase&, const ScheduleTable&)>& use) {
  for (int32_t p = 1; p <= 8; ++p) {
    for (const int32_t m : {1, 2, 3, 5, 7, 8, 9, 16, 23, 64}) {
      std::vector<ScheduleCase> cases = {{"GPipe", {p, 1, m}},
                                         {"1F1B", {p, 1, m}},
                                         {"ZBH1", {p, 1, m}},
                                         {"ZBVZeroBubble", {p, 2, m}}};
      for (int32_t v = 1; v <= 4; ++v) cases.push_back({"Interleaved1F1B", {p, v, m}});
      for (const ScheduleCase& one : cases) {
        SCOPED_TRACE(one.text());
        const auto table = generate_schedule(one.name, one.shape);
        ASSERT_TRUE(table.ok()) << table.error().message;
        use(one, *table);
      }
    }
  }
}

ScheduleTime time_of(const std::string& name, const ScheduleShape& shape) {
  return simulate_schedule(generate_schedule(name, shape).value(), StageTimes{}).value();
}

TEST(ScheduleTest, AllShapesAreValidWithinTheirMemory) {
  for_each_schedule([](const ScheduleCase& one, const ScheduleTable& table) {
    const auto facts = validate_schedule(table);
    ASSERT_TRUE(facts.ok()) << facts.error().message;
    const auto [p, v, m] = one.shape;
    EXPECT_EQ(facts->micro_batches, m);
    EXPECT_EQ(facts->rank_of_stage.size(), static_cast<size_t>(p) * static_cast<size_t>(v));
    for (int32_t rank = 0; rank < p; ++rank) {
      int32_t most = m * v;
      if (one.name == "1F1B" || (one.name == "Interleaved1F1B" && v == 1)) {
        most = std::min(most, p - rank);
      } else if (one.name == "Interleaved1F1B") {
        const int32_t groups = std::max(1, m / p);
        most = std::min(most, (v - 1) * ((m + groups - 1) / groups) + 2 * (p - rank) - 1);
      } else if (one.name != "GPipe") {
        most = std::min(most, p * v);
      }
      EXPECT_LE(facts->peak_live[static_cast<size_t>(rank)], most) << "rank " << rank;
    }
  });
}

TEST(ScheduleTest, LoweredTablesEndUnderRandomDelays) {
  std::mt19937_64 random(39);
  for_each_schedule([&random](const ScheduleCase&, const ScheduleTable& table) {
    const auto lowered = lower_schedule(table);
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    const auto parsed = parse_schedule_csv(schedule_csv(*lowered));
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(*parsed, *lowered);
    const auto time = simulate_schedule(*lowered, StageTimes{}, [&random](int32_t, const Action&) {
      return static_cast<int64_t>(random() % 8);
    });
    ASSERT_TRUE(time.ok()) << time.error().message;
    // Without delays, communication that takes no time changes nothing.
    EXPECT_EQ(simulate_schedule(*lowered, StageTimes{})->makespan,
              simulate_schedule(table, StageTimes{})->makespan);
  });
}

TEST(ScheduleTest, BubblesEqualTheFormulas) {
  for (int32_t p = 1; p <= 8; ++p) {
    for (const int32_t rounds : {2, 4, 8}) {
      const int32_t m = p * rounds;
      SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
      EXPECT_EQ(time_of("GPipe", {p, 1, m}).makespan, 3 * m + 3 * (p - 1));
      EXPECT_EQ(time_of("1F1B", {p, 1, m}).makespan, 3 * m + 3 * (p - 1));
      EXPECT_EQ(time_of("ZBH1", {p, 1, m}).makespan, 3 * m + p - 1);
      for (int32_t v = 2; v <= 4; ++v) {
        EXPECT_EQ(time_of("Interleaved1F1B", {p, v, m}).makespan, 3 * m * v + 3 * (p - 1))
            << "v=" << v;
      }
    }
  }
}

TEST(ScheduleTest, ZbvBubbleIsBelowHalfOf1F1B) {
  for (int32_t p = 2; p <= 8; ++p) {
    for (const int32_t rounds : {1, 2, 4, 8}) {
      const ScheduleTime time = time_of("ZBVZeroBubble", {p, 2, rounds * p});
      const int64_t of_1f1b = 2 * 3 * (p - 1);  // a stage of 1F1B is two of these
      for (const RankTime& rank : time.ranks) {
        EXPECT_LT(2 * rank.bubble, of_1f1b) << "p=" << p << " rounds=" << rounds;
      }
    }
  }
}

TEST(ScheduleTest, OneFOneBIsWrittenAsPyTorchDoes) {
  const auto table = generate_schedule("1F1B", {2, 1, 3});
  EXPECT_EQ(schedule_csv(*table), "0F0,0F1,0B0,0F2,0B1,0B2\r\n1F0,1B0,1F1,1B1,1F2,1B2\r\n");
}

TEST(ScheduleTest, EmptyCellsOfPyTorchAreIdle) {
  const auto table = parse_schedule_csv("0F0,,,0I0,0W0\n,1F0, 1I0,1W0\n");
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ((*table)[1][0].kind, ActionKind::kIdle);
  EXPECT_TRUE(validate_schedule(*table).ok());
  EXPECT_EQ(schedule_csv(*table), "0F0,,,0I0,0W0\r\n,1F0,1I0,1W0\r\n");
}

TEST(ScheduleTest, UnreadableCellsAreNamed) {
  const auto message = [](const char* text) { return parse_schedule_csv(text).error().message; };
  EXPECT_TRUE(message("0F0,0B0\n1F0,1X0\n").starts_with("row 2, column 2: \"1X0\""));
  EXPECT_TRUE(message("0F0,F\n").starts_with("row 1, column 2"));
  EXPECT_TRUE(message("0F\n").starts_with("row 1, column 1"));
  EXPECT_TRUE(message("0UNSHARD1\n").starts_with("row 1, column 1"));
  EXPECT_TRUE(message("0F99999999999\n").starts_with("row 1, column 1"));
  EXPECT_NE(message("(0F1;1B0)OVERLAP_F_B\n").find("not supported"), std::string::npos);
}

TEST(ScheduleTest, FaultsOfATableAreNamed) {
  const auto message = [](const char* text) {
    const auto facts = validate_schedule(parse_schedule_csv(text).value());
    return facts.ok() ? std::string("valid") : facts.error().message;
  };
  EXPECT_EQ(message("0F0,0B0\n1F0,1B0\n"), "valid");
  EXPECT_TRUE(message("0F0,0B0,0F0\n").starts_with("row 1, column 3: 0F0: a second time"));
  EXPECT_TRUE(message("0B0,0F0\n").starts_with("row 1, column 1: 0B0"));
  EXPECT_TRUE(message("0F0\n").starts_with("row 1, column 2: the row ends without 0I0"));
  EXPECT_TRUE(message("0F0,0F1,0B1,0B0\n").starts_with("row 1, column 3: 0B1"));
  EXPECT_TRUE(message("0F0,0B0\n0F1,0B1\n").starts_with("row 2, column 1: 0F1"));
  // Rank 0 wants the gradient before it makes the input.
  EXPECT_TRUE(
      message("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n").starts_with("row 1, column 2: 0B0: dead"));
  // Both inputs are sent; the receiver asks for the second first.
  EXPECT_TRUE(message("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                      "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n")
                  .starts_with("row 2, column 1: 1RECV_F1: the other end"));
}

TEST(ScheduleTest, LoweredTableWithoutAnyOneCellIsRefused) {
  for (const char* name : {"1F1B", "ZBVZeroBubble"}) {
    const int32_t v = name[0] == 'Z' ? 2 : 1;
    const auto lowered = lower_schedule(generate_schedule(name, {3, v, 4}).value());
    for (size_t row = 0; row < lowered->size(); ++row) {
      for (size_t column = 0; column < (*lowered)[row].size(); ++column) {
        if ((*lowered)[row][column].kind == ActionKind::kReshard) continue;  // may be left out
        ScheduleTable damaged = *lowered;
        damaged[row].erase(damaged[row].begin() + static_cast<std::ptrdiff_t>(column));
        const auto facts = validate_schedule(damaged);
        ASSERT_FALSE(facts.ok()) << name << " row " << row << " column " << column;
        EXPECT_TRUE(facts.error().message.starts_with("row " + std::to_string(row + 1) + ", "))
            << facts.error().message;
      }
    }
  }
}

TEST(ScheduleTest, ImpossibleShapesAreRefused) {
  EXPECT_FALSE(generate_schedule("1F1B", {2, 2, 4}).ok());
  EXPECT_FALSE(generate_schedule("ZBVZeroBubble", {2, 1, 4}).ok());
  EXPECT_FALSE(generate_schedule("GPipe", {0, 1, 4}).ok());
  EXPECT_FALSE(generate_schedule("DualPipe", {2, 1, 4}).ok());
}

}  // namespace
}  // namespace hpctl
