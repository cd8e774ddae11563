// SPDX-License-Identifier: Apache-2.0
#include "common/job/snapshot_peers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hpctl {
namespace {

// However many nodes there are, each rank's copy is on another node, each rank keeps one, and a
// group has few members: connections stay few.
TEST(SnapshotPeers, EveryRankHasItsCopyOnAnotherNode) {
  for (int32_t workers = 1; workers <= 3; ++workers) {
    for (int32_t nodes = 2; nodes <= 17; ++nodes) {
      const int32_t ranks = nodes * workers;
      std::set<int32_t> holders;
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const int32_t holder = snapshot_holder(rank, ranks, workers);
        EXPECT_NE(holder / workers, rank / workers) << rank << " of " << ranks;
        EXPECT_TRUE(holders.insert(holder).second) << rank << " of " << ranks;
        const auto group = snapshot_group(rank, ranks, workers);
        EXPECT_LE(group.size(), 3U);
        EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
        for (const int32_t member : group) {
          EXPECT_EQ(snapshot_group(member, ranks, workers), group);
        }
      }
    }
  }
}

TEST(SnapshotPeers, PartnersAreHalfOfTheNodesApart) {
  EXPECT_EQ(snapshot_group(3, 16, 2), (std::vector<int32_t>{3, 11}));
  EXPECT_EQ(snapshot_holder(11, 16, 2), 3);
  EXPECT_EQ(snapshot_group(5, 7, 1), (std::vector<int32_t>{4, 5, 6})) << "an odd number of nodes";
  EXPECT_EQ(snapshot_holder(6, 7, 1), 4);
}

TEST(SnapshotPeers, OneNodeHasNoPeer) {
  EXPECT_EQ(snapshot_group(1, 4, 4), std::vector<int32_t>{1});
  EXPECT_EQ(snapshot_holder(1, 4, 4), 1);
}

}  // namespace
}  // namespace hpctl
