// SPDX-License-Identifier: Apache-2.0
// What a heartbeat says of the lines that a rank printed.
#include "agent/worker_pages.h"

#include <gtest/gtest.h>

#include "agent/worker_command.h"

namespace hpctl::agent {
namespace {

TEST(PrintedLines, TheirAgesAreInEachHeartbeat) {
  WorkerPages pages{Reported{}};
  holder::WorkerState worker;
  worker.incarnation = 9;
  worker.generation = 1;
  worker.rank = 2;
  worker.part = holder::WorkerPart::kMember;
  pages.started(worker, UniqueFd(), "/nowhere");
  const auto ages = [&](int64_t now_ms) {
    v1::Heartbeat heartbeat;
    pages.describe(heartbeat, now_ms, INT64_MAX);
    EXPECT_EQ(heartbeat.workers_size(), 1);
    const auto& told = heartbeat.workers(0).log_match_age_ms();
    return std::vector<int64_t>(told.begin(), told.end());
  };
  EXPECT_EQ(ages(1'000), std::vector<int64_t>()) << "it has no rules, or they are not known yet";
  pages.printed({9, {4'000, 0}});
  EXPECT_EQ(ages(5'500), (std::vector<int64_t>{1'500, -1}));
  EXPECT_EQ(ages(3'000), (std::vector<int64_t>{0, -1})) << "the holder looked later";
  pages.printed({8, {5'000, 5'000}});
  EXPECT_EQ(ages(5'500), (std::vector<int64_t>{1'500, -1})) << "another process";
}

TEST(PrintedLines, PatternsOfTheOrderReachTheHolder) {
  v1::StartWorkers start;
  start.set_generation(7);
  start.add_ranks(0);
  start.add_command("train.py");
  start.add_hang_patterns("loss=");
  const auto spawn = make_spawn(start, 0, {42, "n1", "/jobs/42", "/opt/hpctl/bin", "/tmp"});
  ASSERT_TRUE(spawn.ok());
  EXPECT_EQ(spawn->hang_patterns, std::vector<std::string>{"loss="});
}

}  // namespace
}  // namespace hpctl::agent
