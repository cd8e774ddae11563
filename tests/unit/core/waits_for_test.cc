// SPDX-License-Identifier: Apache-2.0
// Ranks that run small programs of collectives and edges until none can go on, because one of them
// was stopped before one of its calls. Whoever is named must be that one.
#include "controller/core/waits_for.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "controller/core/hang.h"

namespace hpctl::core {
namespace {

struct GroupOfRanks {
  const char* name;
  std::vector<int32_t> ranks;
  bool is_edge = false;  // the first sends to the second, and never waits
};

using Program = std::vector<size_t>;  // the groups whose collectives a rank calls, in order

struct Waiting {
  std::vector<GroupOfRanks> groups;
  std::vector<Program> programs;  // by rank
};

Program repeat(const Program& step, int times) {
  Program program;
  for (int i = 0; i < times; ++i) program.insert(program.end(), step.begin(), step.end());
  return program;
}

// Rank = 2 pp + tp; two micro-batches, with all forward passes first.
Waiting pp2_tp2() {
  enum : size_t { kWorld, kTp0, kTp1, kForward0, kForward1, kBackward0, kBackward1 };
  Waiting mesh;
  mesh.groups = {{"world", {0, 1, 2, 3}},     {"tp 0-1", {0, 1}},
                 {"tp 2-3", {2, 3}},          {"pp 0 to 2", {0, 2}, true},
                 {"pp 1 to 3", {1, 3}, true}, {"pp 2 to 0", {2, 0}, true},
                 {"pp 3 to 1", {3, 1}, true}};
  for (size_t tp = 0; tp < 2; ++tp) {
    const size_t forward = kForward0 + tp;
    const size_t backward = kBackward0 + tp;
    mesh.programs.push_back(repeat({kTp0, kTp0, forward, kTp0, kTp0, forward, backward, kTp0, kTp0,
                                    backward, kTp0, kTp0, kWorld},
                                   3));
  }
  for (size_t tp = 0; tp < 2; ++tp) {
    const size_t forward = kForward0 + tp;
    const size_t backward = kBackward0 + tp;
    mesh.programs.push_back(repeat({forward, kTp1, kTp1, kTp1, forward, kTp1, kTp1, kTp1, kTp1,
                                    backward, kTp1, kTp1, backward, kWorld},
                                   3));
  }
  return mesh;
}

// Rank = 2 dp + tp.
Waiting dp2_tp2() {
  enum : size_t { kWorld, kTp0, kTp1, kDp0, kDp1 };
  Waiting mesh;
  mesh.groups = {{"world", {0, 1, 2, 3}},
                 {"tp 0-1", {0, 1}},
                 {"tp 2-3", {2, 3}},
                 {"shard 0, 2", {0, 2}},
                 {"shard 1, 3", {1, 3}}};
  for (size_t rank = 0; rank < 4; ++rank) {
    const size_t tp = rank < 2 ? kTp0 : kTp1;
    const size_t dp = rank % 2 == 0 ? kDp0 : kDp1;
    mesh.programs.push_back(repeat({dp, tp, tp, dp, tp, tp, dp, kWorld}, 3));
  }
  return mesh;
}

class StoppedRun {
 public:
  // Rank `stopped` makes `calls` calls and no more.
  StoppedRun(const Waiting& mesh, size_t stopped, size_t calls)
      : mesh_(mesh), stopped_(stopped), calls_(calls), next_(mesh.programs.size(), 0) {
    for (const GroupOfRanks& group : mesh.groups) {
      GroupSight& seen = sights_.emplace_back();
      seen.name = group.name;
      for (const int32_t rank : group.ranks) seen.members.push_back({.rank = Rank{rank}});
    }
    bool went_on = true;
    while (went_on) {
      went_on = false;
      for (size_t rank = 0; rank < next_.size(); ++rank) went_on = go_on(rank) || went_on;
    }
  }

  const std::vector<GroupSight>& sights() const { return sights_; }

  uint64_t begun_by(size_t rank) const {
    uint64_t total = 0;
    for (const GroupSight& group : sights_) {
      for (const GroupSight::Member& member : group.members) {
        if (member.rank.value == static_cast<int32_t>(rank)) total += member.begun;
      }
    }
    return total;
  }

  JobSight job() const {
    JobSight job;
    job.trains = true;
    job.world_size = 4;
    job.step = 5;
    job.still_ms = kPlainHangFloorMs + 1;
    job.median_step_ns = job.slowest_step_ns = 100'000'000;
    for (size_t i = 0; i < next_.size(); ++i) {
      RankSight& rank = job.ranks.emplace_back();
      rank.rank = Rank{static_cast<int32_t>(i)};
      rank.node = i < 2 ? "n0" : "n1";
      rank.pid = 100 + i;
      rank.step = 5;
      rank.collective = begun_by(i);
      rank.open_collectives = i == stopped_ ? 0 : 1;
      rank.phase = WorkerPhase::kTraining;
      rank.computing = true;
      rank.process_state = "S";
      rank.still_ms = job.still_ms;
    }
    job.groups = sights_;
    return job;
  }

 private:
  GroupSight::Member& member(GroupSight& group, size_t rank) {
    return *std::find_if(group.members.begin(), group.members.end(), [&](const auto& member) {
      return member.rank.value == static_cast<int32_t>(rank);
    });
  }

  // Whether the rank could do anything.
  bool go_on(size_t rank) {
    const Program& program = mesh_.programs[rank];
    const size_t end = rank == stopped_ ? calls_ : program.size();
    if (next_[rank] == end) return false;
    const size_t number = program[next_[rank]];
    GroupSight& group = sights_[number];
    GroupSight::Member& own = member(group, rank);
    const bool begins = !own.waits;
    if (begins) ++own.begun;
    const bool is_there =
        mesh_.groups[number].is_edge
            ? group.members[0].begun >= own.begun
            : std::all_of(group.members.begin(), group.members.end(),
                          [&](const auto& other) { return other.begun >= own.begun; });
    // The one that is stopped is so before a call, not inside the one before.
    own.waits = !is_there;
    if (!is_there) return begins;
    ++own.completed;
    ++next_[rank];
    return true;
  }

  const Waiting& mesh_;
  size_t stopped_;
  size_t calls_;
  std::vector<size_t> next_;
  std::vector<GroupSight> sights_;
};

// Stops every rank before every one of its calls. Returns how often it was not the one that had
// begun the fewest.
int check_each_stop(const Waiting& mesh) {
  int misled = 0;
  for (size_t stopped = 0; stopped < mesh.programs.size(); ++stopped) {
    for (size_t calls = 0; calls < mesh.programs[stopped].size(); ++calls) {
      const StoppedRun run(mesh, stopped, calls);
      const WaitsFor found = find_culprits(run.sights());
      const std::string what =
          "rank " + std::to_string(stopped) + " before call " + std::to_string(calls);
      EXPECT_TRUE(found.cycle.empty()) << what;
      EXPECT_EQ(found.culprits, std::vector<Rank>{Rank{static_cast<int32_t>(stopped)}}) << what;
      for (size_t rank = 0; rank < mesh.programs.size(); ++rank) {
        if (run.begun_by(rank) < run.begun_by(stopped)) {
          ++misled;
          break;
        }
      }
      const HangVerdict verdict = judge_hang(run.job());
      EXPECT_EQ(verdict.kind, HangVerdict::Kind::kHangsPlainly) << what;
      EXPECT_EQ(verdict.rank, Rank{static_cast<int32_t>(stopped)}) << what << verdict.evidence;
      EXPECT_EQ(verdict.node, stopped < 2 ? "n0" : "n1") << what;
    }
  }
  return misled;
}

TEST(WaitsForGraph, NamesTheStoppedRankOfEachStage) {
  EXPECT_GT(check_each_stop(pp2_tp2()), 0) << "totals would have named the right one as well";
}

TEST(WaitsForGraph, NamesTheStoppedRankOfEachReplica) { check_each_stop(dp2_tp2()); }

TEST(WaitsForGraph, TheEvidenceNamesThePlaceWhereOthersWait) {
  const Waiting mesh = dp2_tp2();
  const StoppedRun run(mesh, 3, 1);  // after its first gather, before its first tp collective
  EXPECT_EQ(judge_hang(run.job()).evidence,
            "no step completed for 5 s after step 5; rank 3 (pid 103) waits for nobody, and others "
            "wait: rank 1 waits in collective 2 of shard 1, 3, rank 2 waits in collective 1 of tp "
            "2-3 (phase training)");
}

TEST(WaitsForGraph, ACycleIsADefectAndBlamesNobody) {
  // Rank 0 waits for 1 in "c"; 1 and 2 call "a" and "b" in different orders.
  std::vector<GroupSight> groups = {{"a", {{Rank{1}, 1, 0, true}, {Rank{2}, 0, 0, false}}},
                                    {"b", {{Rank{1}, 0, 0, false}, {Rank{2}, 1, 0, true}}},
                                    {"c", {{Rank{0}, 1, 0, true}, {Rank{1}, 0, 0, false}}}};
  const Waiting mesh = dp2_tp2();
  for (int order = 0; order < 2; ++order) {
    EXPECT_TRUE(find_culprits(groups).culprits.empty());
    JobSight job = StoppedRun(mesh, 3, 1).job();
    job.groups = groups;
    job.still_ms = kHangFloorMs + 1;
    const HangVerdict verdict = judge_hang(job);
    EXPECT_EQ(verdict.kind, HangVerdict::Kind::kHangs);
    EXPECT_EQ(verdict.node, "");
    EXPECT_EQ(verdict.rank, Rank{-1});
    EXPECT_EQ(verdict.evidence,
              "no step completed for 60 s after step 5; ranks wait for each other in a cycle, "
              "which is a defect of the trainer: rank 1 waits in collective 1 of a, rank 2 waits "
              "in collective 1 of b; no rank is blamed");
    std::reverse(groups.begin(), groups.end());
  }
}

TEST(WaitsForGraph, WhoBeganACollectiveAndDoesNotComeBackIsNamed) {
  const std::vector<GroupSight> groups = {
      {"a", {{Rank{0}, 4, 3, true}, {Rank{1}, 4, 3, false}, {Rank{2}, 4, 4, false}}}};
  EXPECT_EQ(find_culprits(groups).culprits, std::vector<Rank>{Rank{1}});
}

TEST(WaitsForGraph, NobodyIsNamedWhereAllAreInTheSameCollective) {
  const std::vector<GroupSight> groups = {{"a", {{Rank{0}, 4, 3, true}, {Rank{1}, 4, 3, true}}}};
  const WaitsFor found = find_culprits(groups);
  EXPECT_TRUE(found.culprits.empty());
  EXPECT_TRUE(found.cycle.empty());
}

TEST(WaitsForGraph, ARankWithoutAReportIsNotNamed) {
  const Waiting mesh = dp2_tp2();
  JobSight job = StoppedRun(mesh, 3, 1).job();
  job.still_ms = kHangFloorMs + 1;
  job.ranks[3].unheard_ms = job.still_ms + 1;
  const HangVerdict verdict = judge_hang(job);
  EXPECT_EQ(verdict.kind, HangVerdict::Kind::kHangs);
  EXPECT_EQ(verdict.node, "");
}

}  // namespace
}  // namespace hpctl::core
