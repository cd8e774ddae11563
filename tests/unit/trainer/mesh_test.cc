// SPDX-License-Identifier: Apache-2.0
// The mesh of ranks with any dimensions: who is whose neighbour, who reads what, and what the
// engine refuses.
#include "common/layout/mesh.h"
#include "common/layout/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/trainer/comm_world.h"
#include "trainer/comm/mesh_communicators.h"
#include "trainer/data/evaluation_part.h"
#include "trainer/data/step_samples.h"

namespace hpctl {
namespace {

using ::testing::ElementsAre;

Mesh five_dimensions() {
  return Mesh({{"pp", 2}, {"dp_replicate", 2}, {"dp_shard", 3}, {"cp", 2}, {"tp", 2}});
}

std::vector<Mesh> some_meshes() {
  return {Mesh(),
          Mesh(2, 3),
          five_dimensions(),
          Mesh({{"dp_shard", 4}, {"tp", 2}}),
          Mesh({{"tp", 2}, {"dp_shard", 4}}),
          Mesh({{"dp_replicate", 3}, {"cp", 2}}),
          Mesh({{"dp_shard", 2}, {"ep", 3}, {"dp_replicate", 2}}),
          Mesh({{"pp", 4}})};
}

TEST(Mesh, GroupsAndCoordinates) {
  const Mesh mesh(2, 3);
  EXPECT_EQ(mesh.world_size(), 6);
  EXPECT_EQ(mesh.coordinate(4, MeshDim::kDpReplicate), 1);
  EXPECT_EQ(mesh.coordinate(4, MeshDim::kDpShard), 1);
  EXPECT_EQ(mesh.coordinate(4, MeshDim::kTp), 0);
  EXPECT_THAT(mesh.group(4, MeshDim::kDpShard), ElementsAre(3, 4, 5));
  EXPECT_THAT(mesh.group(4, MeshDim::kDpReplicate), ElementsAre(1, 4));
  EXPECT_THAT(mesh.group(4, MeshDim::kPp), ElementsAre(4));
}

TEST(Mesh, HasAnyDimensions) {
  const Mesh mesh = five_dimensions();
  EXPECT_EQ(mesh.world_size(), 48);
  EXPECT_EQ(mesh.degree("tp"), 2);
  EXPECT_EQ(mesh.degree("ep"), 1) << "a dimension that it does not have";
  EXPECT_EQ(mesh.degree(kShardDims), 6);
  // 41 = pp 1, dp_replicate 1, dp_shard 1, cp 0, tp 1
  EXPECT_EQ(mesh.coordinate(41, "pp"), 1);
  EXPECT_EQ(mesh.coordinate(41, "dp_replicate"), 1);
  EXPECT_EQ(mesh.coordinate(41, "dp_shard"), 1);
  EXPECT_EQ(mesh.coordinate(41, "cp"), 0);
  EXPECT_EQ(mesh.coordinate(41, "tp"), 1);
  EXPECT_EQ(mesh.coordinate(41, kShardDims), 2);
  EXPECT_THAT(mesh.group(41, "tp"), ElementsAre(40, 41));
  EXPECT_THAT(mesh.group(41, "pp"), ElementsAre(17, 41));
  EXPECT_THAT(mesh.group(41, kShardDims), ElementsAre(37, 39, 41, 43, 45, 47));
  EXPECT_THAT(mesh.group(41, kDataDims), ElementsAre(25, 29, 33, 37, 41, 45));
}

// Groups of a set divide the world, and a rank's place in its group is its coordinate.
TEST(Mesh, GroupsDivideTheWorld) {
  const std::vector<std::vector<std::string_view>> sets = {
      {}, {"tp"}, {"dp_shard", "cp"}, {"dp_replicate", "dp_shard"}, {"pp", "tp"}, {"ep"}};
  for (const Mesh& mesh : some_meshes()) {
    for (const auto& dims : sets) {
      std::map<int32_t, int> members;
      for (int32_t rank = 0; rank < mesh.world_size(); ++rank) {
        const std::vector<int32_t> group = mesh.group(rank, dims);
        ASSERT_EQ(static_cast<int32_t>(group.size()), mesh.degree(dims));
        ASSERT_EQ(group[static_cast<size_t>(mesh.coordinate(rank, dims))], rank);
        for (const int32_t member : group) ASSERT_EQ(mesh.group(member, dims), group);
        if (group.front() != rank) continue;
        for (const int32_t member : group) ++members[member];
      }
      ASSERT_EQ(static_cast<int32_t>(members.size()), mesh.world_size());
      for (const auto& [member, times] : members) ASSERT_EQ(times, 1) << member;
    }
  }
}

TEST(Mesh, SamplesAreDividedByDataParallelCoordinate) {
  const auto step = take_samples(100, 37, {{110, 115}}).ranges;
  for (const Mesh& mesh : some_meshes()) {
    std::map<uint64_t, int> counted;
    std::map<int32_t, std::set<std::vector<uint64_t>>> by_coordinate;
    for (int32_t rank = 0; rank < mesh.world_size(); ++rank) {
      const DataRank data = mesh.data_rank(rank);
      EXPECT_EQ(data.count, mesh.degree("dp_replicate") * mesh.degree("dp_shard"));
      const auto samples = sample_numbers(data_part(step, data.index, data.count));
      by_coordinate[data.index].insert(samples);
      if (!data.shares_data) continue;
      for (const uint64_t sample : samples) ++counted[sample];
    }
    EXPECT_EQ(by_coordinate.size(), static_cast<size_t>(mesh.degree(kDataDims)));
    for (const auto& [index, read] : by_coordinate) {
      EXPECT_EQ(read.size(), 1U) << "ranks of one coordinate read the same samples";
    }
    EXPECT_EQ(counted.size(), 37U);
    for (const auto& [sample, times] : counted) EXPECT_EQ(times, 1) << sample;
  }
}

TEST(Mesh, SequencesAreEvaluatedOncePerCoordinate) {
  const TemporaryDirectory dir;
  TrainSpec train;
  train.data.path = dir / "texts";
  train.data.seq_len = 16;
  train.data.split = {1, 0, 1};
  train.model.vocab = 256;
  train.batch.micro = 3;
  std::filesystem::create_directory(dir / "texts");
  for (int d = 0; d < 8; ++d) {
    std::ofstream(dir / ("texts/" + std::to_string(d) + ".txt")) << std::string(200, 'a');
  }
  const auto trained = SampleReader::open(train.data, train.seed, train.model.vocab);
  ASSERT_TRUE(trained.ok()) << trained.error().message;
  auto part = open_evaluation_part(train, *trained, DataPart::kTest);
  ASSERT_TRUE(part.ok()) << part.error().message;
  ASSERT_TRUE(part->has_value());
  const uint64_t micro_batches = ((*part)->sequences + 2) / 3;
  ASSERT_GT(micro_batches, 7U);
  for (const Mesh& mesh : some_meshes()) {
    std::map<uint64_t, int> counted;
    uint64_t sequences = 0;
    std::map<std::pair<int32_t, uint64_t>, std::set<std::optional<uint64_t>>> by_coordinate;
    for (int32_t rank = 0; rank < mesh.world_size(); ++rank) {
      const DataRank data = mesh.data_rank(rank);
      const uint64_t rounds = evaluation_rounds(**part, 3, data.count);
      for (uint64_t round = 0; round < rounds; ++round) {
        const auto turn = evaluated_in(**part, 3, round, data.index, data.count);
        // All ranks of a coordinate evaluate what the one that counts does.
        by_coordinate[{data.index, round}].insert(turn ? std::optional(turn->begin) : std::nullopt);
        if (!turn || !data.shares_data) continue;
        ++counted[turn->begin];
        sequences += turn->end - turn->begin;
      }
    }
    for (const auto& [turn, read] : by_coordinate) EXPECT_EQ(read.size(), 1U);
    EXPECT_EQ(counted.size(), micro_batches);
    EXPECT_EQ(sequences, (*part)->sequences) << "the part is evaluated whole";
    for (const auto& [first, times] : counted) EXPECT_EQ(times, 1) << first;
  }
}

TEST(Mesh, TheEngineRefusesWhatItDoesNotTrainWith) {
  EXPECT_TRUE(check_engine_mesh(Mesh(2, 3)).ok());
  EXPECT_TRUE(check_engine_mesh(Mesh({{"dp_shard", 2}, {"cp", 1}, {"tp", 2}})).ok());
  const Outcome refused = check_engine_mesh(Mesh({{"dp_shard", 2}, {"cp", 4}, {"tp", 2}}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(refused.error().message,
            "the mesh has cp of degree 4: this version trains with data and tensor parallelism "
            "alone (dp_replicate, dp_shard and tp); give cp the degree 1");
}

TEST(Mesh, OfAStrategy) {
  TrainSpec hybrid;
  hybrid.strategy = Strategy::kHybrid;
  hybrid.shard_group = 4;
  const auto impossible = sharding_of(hybrid, 6);
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.error().message,
            "parallelism.shard_group: expected a divisor of the number of workers (6), found 4");
}

// Every rank adds its number along each dimension: what comes out names the group.
TEST(MeshCommunicators, GoAlongEveryDimension) {
  const Mesh mesh({{"dp_replicate", 2}, {"dp_shard", 1}, {"cp", 2}, {"tp", 2}, {"one", 1}});
  test::on_every_rank(mesh.world_size(), [&](const CommunicatorOptions& options) {
    MeshCommunicators comms(options, mesh);
    ASSERT_TRUE(comms.connect().ok());
    const auto sum = [&](Communicator& comm, const std::vector<int32_t>& group) {
      std::array<double, 1> value = {static_cast<double>(options.rank)};
      ASSERT_TRUE(comm.all_reduce(value).ok());
      double expected = 0;
      for (const int32_t member : group) expected += member;
      EXPECT_EQ(value[0], expected);
      EXPECT_EQ(comm.world_size(), static_cast<int>(group.size()));
    };
    sum(comms.shard(), mesh.group(options.rank, kShardDims));
    for (const char* dim : {"dp_replicate", "cp", "tp", "one"}) {
      sum(comms.along(dim), mesh.group(options.rank, dim));
    }
    EXPECT_EQ(&comms.along("dp_replicate"), &comms.replicate());
    ASSERT_TRUE(comms.world().barrier().ok());
  });
}

// Rank 1 comes to the second barrier of its tp group when rank 0 waits there.
TEST(MeshCommunicators, CountOnThePageForEachGroup) {
  const Mesh mesh({{"dp_shard", 2}, {"cp", 1}, {"tp", 2}});
  std::array<GroupSlots, 4> pages{};
  test::on_every_rank(mesh.world_size(), [&](CommunicatorOptions options) {
    GroupSlots& page = pages[static_cast<size_t>(options.rank)];
    options.groups = &page;
    MeshCommunicators comms(options, mesh);
    ASSERT_TRUE(comms.connect().ok());
    const auto expect_slot = [&](size_t slot, GroupKind kind, int32_t first, int32_t last) {
      EXPECT_EQ(page.slots[slot].kind, static_cast<uint32_t>(kind));
      EXPECT_EQ(page.slots[slot].first, first);
      EXPECT_EQ(page.slots[slot].last, last);
    };
    const int32_t tp = options.rank % 2;
    expect_slot(0, GroupKind::kWorld, 0, 3);
    expect_slot(1, GroupKind::kShard, tp, 2 + tp);
    expect_slot(2, GroupKind::kTensor, options.rank - tp, options.rank - tp + 1);
    EXPECT_EQ(page.slots[3].kind, 0U) << "groups of one rank";
    const uint64_t of_world = page.slots[0].count.begun;
    const uint64_t of_tp = page.slots[2].count.begun;
    if (options.rank == 1) {
      while (pages[0].waits_in != 3) std::this_thread::yield();
    }
    ASSERT_TRUE(comms.along("tp").barrier().ok());
    EXPECT_EQ(page.slots[2].count.begun, of_tp + 1);
    EXPECT_EQ(page.slots[2].count.completed, of_tp + 1);
    EXPECT_EQ(page.slots[0].count.begun, of_world);
    EXPECT_EQ(page.waits_in, 0U);
    ASSERT_TRUE(comms.world().barrier().ok());
  });
}

TEST(MeshCommunicators, GroupsOfAllShareTheWorldsAndOfOneHaveNoNetwork) {
  std::vector<int> sizes;
  const auto made = MeshCommunicators::create(
      {.rank = 1, .world_size = 4, .rendezvous_dir = "nowhere"}, Mesh({{"dp_shard", 4}, {"tp", 1}}),
      [&](const CommunicatorOptions& group) {
        sizes.push_back(group.world_size);
        return Result<std::unique_ptr<Communicator>>(make_communicator(group));
      });
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(sizes, ElementsAre(4, 1, 1)) << "the world, replicas, tp";
}

}  // namespace
}  // namespace hpctl
