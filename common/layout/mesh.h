// SPDX-License-Identifier: Apache-2.0
// The ranks of a job as a grid, so that every kind of parallelism is a dimension of it.
//
// A mesh has any number of dimensions, each with a name and a degree, from the slowest to the
// fastest: rank = ((c0 * degree1 + c1) * degree2 + c2) ... of the coordinates c. The trainer's
// dimensions have TorchTitan's names and order: pipeline stages, replicas, shards, parts of a
// sequence (context), parts of a layer (tensor). Neighbours in rank are then neighbours in the
// dimension that communicates most, and a node's ranks, which are consecutive, form a shard group
// before anything else.
//
// Several dimensions count as one if data are divided over all of them: the coordinate in a set is
// the place in their own order, whatever lies between them. A dimension that a mesh does not have
// has the degree 1.
//
// The engine trains with dp_replicate, dp_shard and tp (check_engine_mesh()); data, evaluation and
// communicators work with any mesh.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/job/train_spec.h"

namespace hpctl {

struct MeshDim {
  static constexpr std::string_view kPp = "pp";
  static constexpr std::string_view kDpReplicate = "dp_replicate";
  static constexpr std::string_view kDpShard = "dp_shard";
  static constexpr std::string_view kCp = "cp";
  static constexpr std::string_view kTp = "tp";
};

// A set of dimensions, in any order.
using MeshDims = std::span<const std::string_view>;
// Over which the samples of a step are divided.
inline constexpr std::array kDataDims = {MeshDim::kDpReplicate, MeshDim::kDpShard};
// Over which parameters, gradients and optimizer state are: parts of a sequence need whole
// parameters as much as other sequences do.
inline constexpr std::array kShardDims = {MeshDim::kDpShard, MeshDim::kCp};
// By which the state that a rank has differs: ranks that differ in dp_replicate alone have the
// same.
inline constexpr std::array kStateDims = {MeshDim::kPp, MeshDim::kDpShard, MeshDim::kCp,
                                          MeshDim::kTp};
// That all ranks of one data coordinate differ in: such a group leaves and joins as a whole.
inline constexpr std::array kUnitDims = {MeshDim::kPp, MeshDim::kCp, MeshDim::kTp};

struct MeshDimension {
  std::string name;
  int32_t degree = 1;
  bool operator==(const MeshDimension&) const = default;
};

// The samples that a rank works on.
struct DataRank {
  int32_t index = 0;  // coordinate in kDataDims: ranks with the same one read the same samples
  int32_t count = 1;  // of such coordinates
  // The first of those ranks: what is counted once for each sample, as in the ledger, it counts.
  bool shares_data = true;
  // It has a part of the loss: the last stage has the logits, with the same loss on all ranks of
  // tp, of which the first one counts; each rank of cp has the loss of its part of the sequence.
  bool shares_loss = true;
  bool operator==(const DataRank&) const = default;
};

class Mesh {
 public:
  Mesh() = default;  // one rank
  // From the slowest to the fastest. Degrees >= 1, no name twice, no more than 2^31 - 1 ranks.
  explicit Mesh(std::vector<MeshDimension> dimensions);
  // Of data parallelism alone: the others of MeshDim have the degree 1.
  Mesh(int32_t dp_replicate, int32_t dp_shard);

  const std::vector<MeshDimension>& dimensions() const { return dimensions_; }
  int32_t world_size() const { return world_size_; }
  int32_t degree(std::string_view dim) const { return degree(MeshDims(&dim, 1)); }
  int32_t degree(MeshDims dims) const;
  int32_t coordinate(int32_t rank, std::string_view dim) const {
    return coordinate(rank, MeshDims(&dim, 1));
  }
  int32_t coordinate(int32_t rank, MeshDims dims) const;
  // The ranks that differ from `rank` in `dims` alone, ascending by coordinate; it is one of them.
  std::vector<int32_t> group(int32_t rank, std::string_view dim) const {
    return group(rank, MeshDims(&dim, 1));
  }
  std::vector<int32_t> group(int32_t rank, MeshDims dims) const;
  DataRank data_rank(int32_t rank) const;

  // The parts of the state: a rank's is its coordinate in kStateDims.
  int32_t parts() const { return degree(kStateDims); }
  int32_t part(int32_t rank) const { return coordinate(rank, kStateDims); }
  // The ranks that have the part of `rank`, ascending; it is one of them.
  std::vector<int32_t> replicas(int32_t rank) const { return group(rank, MeshDim::kDpReplicate); }
  // Whether `rank` has the state that `other_rank` has in another mesh: the same stage, the same
  // part of each layer, and of that the same interval. Two meshes may have equally many parts and
  // divide the state differently.
  bool is_same_part(int32_t rank, const Mesh& other, int32_t other_rank) const;
  // The ranks of one data coordinate: a job shrinks and grows by so many, or a multiple.
  int32_t unit() const { return degree(kUnitDims); }
  // The mesh of a job of `world_size` ranks with the same units; its data coordinates alone count,
  // not how they are divided between replicas and shards. Precondition: a multiple of unit(), > 0.
  Mesh with_world(int32_t world_size) const;

 private:
  std::vector<MeshDimension> dimensions_;
  int32_t world_size_ = 1;
};

// kFailedPrecondition, with the dimension, where the mesh has more than the engine trains with.
Outcome check_engine_mesh(const Mesh& mesh);

}  // namespace hpctl
