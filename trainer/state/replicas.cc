// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/replicas.h"

#include <algorithm>
#include <cstring>

namespace hpctl {

namespace {

constexpr size_t kMostBytesOfPiece = size_t{4} << 20;
constexpr size_t kMostBytesOfRound = size_t{64} << 20;  // that a rank receives

size_t divided(size_t a, size_t b) { return (a + b - 1) / b; }

int32_t holders_among(const std::vector<int32_t>& ranks, const std::vector<int32_t>& refilled) {
  return static_cast<int32_t>(std::count_if(ranks.begin(), ranks.end(), [&](int32_t rank) {
    return !std::binary_search(refilled.begin(), refilled.end(), rank);
  }));
}

// The bytes of a round that holder number `holder` sends.
std::span<std::byte> piece_of(std::span<std::byte> round, size_t holder, size_t piece) {
  const size_t begin = std::min(round.size(), holder * piece);
  return round.subspan(begin, std::min(piece, round.size() - begin));
}

}  // namespace

ReplicaGroup replica_group(const Mesh& mesh, int32_t rank, const std::vector<int32_t>& refilled) {
  ReplicaGroup group;
  for (const int32_t member : mesh.group(rank, MeshDim::kDpReplicate)) {
    group.has.push_back(!std::binary_search(refilled.begin(), refilled.end(), member));
  }
  group.holders = static_cast<int32_t>(std::count(group.has.begin(), group.has.end(), true));
  group.fewest = group.holders;
  for (int32_t first = 0; first < mesh.world_size(); ++first) {
    if (mesh.coordinate(first, MeshDim::kDpReplicate) != 0) continue;
    const auto members = mesh.group(first, MeshDim::kDpReplicate);
    group.fewest = std::min(group.fewest, holders_among(members, refilled));
  }
  return group;
}

Outcome spread(Communicator& replicas, const ReplicaGroup& group, std::span<std::byte> part) {
  const size_t members = group.has.size();
  const size_t most = std::min(kMostBytesOfPiece, kMostBytesOfRound / members);
  const size_t rounds = divided(part.size(), most * static_cast<size_t>(group.fewest));
  const size_t span = divided(part.size(), rounds);
  const bool nobody_lacks = group.holders == static_cast<int32_t>(members);
  const size_t piece = nobody_lacks ? 1 : divided(span, static_cast<size_t>(group.holders));
  const auto own = static_cast<size_t>(replicas.rank());
  std::vector<std::byte> buffer(members * piece);
  for (size_t begin = 0; begin < part.size(); begin += span) {
    const auto round = part.subspan(begin, std::min(span, part.size() - begin));
    if (group.has[own] && !nobody_lacks) {
      const auto holder = std::count(group.has.begin(), group.has.begin() + replicas.rank(), true);
      const auto bytes = piece_of(round, static_cast<size_t>(holder), piece);
      std::copy(bytes.begin(), bytes.end(), buffer.begin() + static_cast<ptrdiff_t>(own * piece));
    }
    HP_TRY(replicas.all_gather(buffer.data(), piece));
    if (group.has[own]) continue;
    size_t holder = 0;
    for (size_t member = 0; member < members; ++member) {
      if (!group.has[member]) continue;
      const auto bytes = piece_of(round, holder++, piece);
      std::memcpy(bytes.data(), buffer.data() + member * piece, bytes.size());
    }
  }
  return Ok{};
}

}  // namespace hpctl
