// SPDX-License-Identifier: Apache-2.0
#include "common/layout/mesh.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "common/base/check.h"

namespace hpctl {

namespace {

bool is_among(MeshDims dims, const MeshDimension& dimension) {
  return std::find(dims.begin(), dims.end(), dimension.name) != dims.end();
}

bool is_shard_dim(std::string_view dim) {
  return std::find(kShardDims.begin(), kShardDims.end(), dim) != kShardDims.end();
}

}  // namespace

Mesh::Mesh(std::vector<MeshDimension> dimensions) : dimensions_(std::move(dimensions)) {
  std::set<std::string_view> names;
  for (const MeshDimension& dimension : dimensions_) {
    HP_CHECK(dimension.degree >= 1 && names.insert(dimension.name).second);
    HP_CHECK(dimension.degree <= std::numeric_limits<int32_t>::max() / world_size_);
    world_size_ *= dimension.degree;
  }
}

Mesh::Mesh(int32_t dp_replicate, int32_t dp_shard)
    : Mesh({{std::string(MeshDim::kPp), 1},
            {std::string(MeshDim::kDpReplicate), dp_replicate},
            {std::string(MeshDim::kDpShard), dp_shard},
            {std::string(MeshDim::kCp), 1},
            {std::string(MeshDim::kTp), 1}}) {}

int32_t Mesh::degree(MeshDims dims) const {
  int32_t product = 1;
  for (const MeshDimension& d : dimensions_) product *= is_among(dims, d) ? d.degree : 1;
  return product;
}

int32_t Mesh::coordinate(int32_t rank, MeshDims dims) const {
  HP_CHECK(rank >= 0 && rank < world_size_);
  int32_t stride = world_size_;  // ranks between neighbours
  int32_t place = 0;
  for (const MeshDimension& d : dimensions_) {
    stride /= d.degree;
    if (is_among(dims, d)) place = place * d.degree + rank / stride % d.degree;
  }
  return place;
}

std::vector<int32_t> Mesh::group(int32_t rank, MeshDims dims) const {
  HP_CHECK(rank >= 0 && rank < world_size_);
  std::vector<int32_t> members = {0};
  int32_t stride = world_size_;
  for (const MeshDimension& d : dimensions_) {
    stride /= d.degree;
    std::vector<int32_t> longer;
    for (const int32_t member : members) {
      const bool varies = is_among(dims, d);
      for (int32_t c = 0; c < (varies ? d.degree : 1); ++c) {
        longer.push_back(member + (varies ? c : rank / stride % d.degree) * stride);
      }
    }
    members = std::move(longer);
  }
  return members;
}

DataRank Mesh::data_rank(int32_t rank) const {
  std::vector<std::string_view> others;
  std::vector<std::string_view> loss_copies;
  for (const MeshDimension& d : dimensions_) {
    if (is_among(kDataDims, d)) continue;
    others.push_back(d.name);
    if (d.name != MeshDim::kPp && d.name != MeshDim::kCp) loss_copies.push_back(d.name);
  }
  const bool is_last_stage = coordinate(rank, MeshDim::kPp) + 1 == degree(MeshDim::kPp);
  return {.index = coordinate(rank, kDataDims),
          .count = degree(kDataDims),
          .shares_data = coordinate(rank, others) == 0,
          .shares_loss = is_last_stage && coordinate(rank, loss_copies) == 0};
}

bool Mesh::is_same_part(int32_t rank, const Mesh& other, int32_t other_rank) const {
  // dp_shard and cp divide the same range; the others of kStateDims divide something of their own.
  const auto alike = [&](MeshDims dims) {
    return degree(dims) == other.degree(dims) &&
           coordinate(rank, dims) == other.coordinate(other_rank, dims);
  };
  return alike(kShardDims) && std::all_of(kStateDims.begin(), kStateDims.end(), [&](auto dim) {
           return is_shard_dim(dim) || alike(MeshDims(&dim, 1));
         });
}

Mesh Mesh::with_world(int32_t world_size) const {
  HP_CHECK(world_size > 0 && world_size % unit() == 0);
  return Mesh({{std::string(MeshDim::kPp), degree(MeshDim::kPp)},
               {std::string(MeshDim::kDpReplicate), 1},
               {std::string(MeshDim::kDpShard), world_size / unit()},
               {std::string(MeshDim::kCp), degree(MeshDim::kCp)},
               {std::string(MeshDim::kTp), degree(MeshDim::kTp)}});
}

Outcome check_engine_mesh(const Mesh& mesh) {
  for (const MeshDimension& d : mesh.dimensions()) {
    if (d.degree == 1 || is_among(kDataDims, d) || d.name == MeshDim::kTp) continue;
    return Error{ErrorCode::kFailedPrecondition,
                 "the mesh has " + d.name + " of degree " + std::to_string(d.degree) +
                     ": this version trains with data and tensor parallelism alone "
                     "(dp_replicate, dp_shard and tp); give " +
                     d.name + " the degree 1"};
  }
  return Ok{};
}

}  // namespace hpctl
