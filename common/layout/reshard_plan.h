// SPDX-License-Identifier: Apache-2.0
// Which elements of a state each part of a new mesh takes from which part of a former one, whatever
// the two meshes are.
//
// A part has some boxes of each tensor (local_layout.h), and of these an interval of the block's
// flat range. A tensor is cut in one dimension at most. So it is a matrix whose columns are cut,
// and an interval of a local tensor is at most three rectangles of that matrix: the rest of its
// first row, whole rows, and the beginning of its last row. Two parts have in common what their
// rectangles have in common, as runs of elements with a constant distance on both sides.
//
// Every element of a new part is in one piece. Of a tensor that several former ranks have as
// copies, one copy is taken.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/layout/local_layout.h"
#include "common/layout/mesh.h"

namespace hpctl {

// A number of runs of elements, in an interval of a block.
struct ElementRuns {
  int32_t block = 0;   // index in local_layout() of the part's ranks
  int64_t first = 0;   // element of the first run, from the interval's beginning on
  int64_t stride = 0;  // from a run to the next
  bool operator==(const ElementRuns&) const = default;
};

struct ReshardPiece {
  int32_t from_part = 0;  // Mesh::part() of the former mesh
  ElementRuns from;
  ElementRuns to;
  int64_t runs = 1;
  int64_t count = 0;  // elements of a run

  int64_t elements() const { return runs * count; }
  bool operator==(const ReshardPiece&) const = default;
};

class ReshardPlan {
 public:
  // Precondition: check_local_layout() of both.
  ReshardPlan(const CutModel& model, const Mesh& from, const Mesh& to);
  ReshardPlan(const ReshardPlan&) = delete;
  ReshardPlan& operator=(const ReshardPlan&) = delete;

  // What part `to_part` of the new mesh needs, in the order of its blocks and tensors.
  std::vector<ReshardPiece> pieces_of(int32_t to_part) const;

 private:
  // One of the ranks of a mesh that differ in neither stage nor place in tp: those divide its
  // blocks into intervals.
  struct Holder {
    std::vector<LocalBlock> blocks;
    std::vector<int32_t> parts;  // by interval
  };
  // A tensor at a holder.
  struct Held {
    const Holder* holder;
    int32_t block;
    const LocalTensor* tensor;
    int64_t offset;  // in the block
  };

  static std::vector<Holder> holders_of(const CutModel& model, const Mesh& mesh);
  void take_tensor(const Held& to, int32_t interval, int32_t to_part,
                   std::vector<ReshardPiece>& pieces) const;
  void take_from(const Held& from, const Held& to, int32_t interval,
                 std::vector<ReshardPiece>& pieces) const;
  int64_t inner_of(const LocalTensor& tensor) const;

  CutModel model_;
  std::vector<Holder> from_;
  std::vector<Holder> to_;
  std::vector<std::pair<int32_t, int32_t>> place_of_part_;  // holder and interval, of the new mesh
  std::map<std::pair<int32_t, int32_t>, std::vector<Held>> sources_;  // by block and tensor
};

}  // namespace hpctl
