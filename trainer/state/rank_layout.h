// SPDX-License-Identifier: Apache-2.0
// Which elements of the model a rank's state is made of.
//
// Without tensor parallelism a rank's blocks are the model's. With it they are smaller: their
// tensors are parts of the model's (common/layout/local_layout.h). In both cases the rank keeps an
// interval of each block's flat range. Initial values and checkpoints are of the model, so here the
// elements of such an interval are found in the model's tensors, as runs and as boxes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/job/train_spec.h"
#include "common/layout/block_layout.h"
#include "common/layout/local_layout.h"
#include "common/layout/mesh.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/tensor_slice.h"

namespace hpctl {

// Elements that a rank writes to a checkpoint: `range` of its block, which is not empty if there is
// a slice. They are the same range of the model's block, or that slice, row-major in both.
struct WrittenPart {
  int32_t block = 0;
  ElementRange range;
  std::optional<TensorSlice> slice;
};

class RankLayout {
 public:
  // Precondition: check_local_layout() of what `train` trains.
  RankLayout(const TrainSpec& train, const Mesh& mesh, int32_t rank);

  // The blocks that the job trains: the model's, or its adapters'.
  const std::vector<Block>& whole() const { return whole_; }
  // The rank's blocks, as many, in the same order.
  const std::vector<Block>& blocks() const { return is_divided() ? blocks_ : whole_; }
  bool is_divided() const { return !local_.empty(); }

  // The initial values of elements `range` of the rank's block, to out[0 .. range.size()); what is
  // in no tensor becomes 0. Uses at most `threads` threads.
  void fill_initial_values(const TrainSpec& train, size_t block, ElementRange range, float* out,
                           int threads) const;
  // As CheckpointLoader::load_range, but `range` is of the rank's block. The checkpoint may be of
  // any mesh.
  Outcome load_range(CheckpointLoader& loader, size_t block, StateKind kind, ElementRange range,
                     std::span<float> out) const;
  // Appends `range` of the rank's block in the order of a file (shard_writer.h). Of tensors that
  // several ranks have, the first of them writes.
  void append_written(size_t block, ElementRange range, std::vector<WrittenPart>& parts) const;

 private:
  // run(tensor, first element of the model's tensor, first element of the rank's block, count)
  using Run = std::function<Outcome(const TensorSlot&, int64_t, int64_t, int64_t)>;
  Outcome for_each_run(size_t block, ElementRange range, const Run& run) const;

  std::vector<Block> whole_;
  std::vector<Block> blocks_;      // empty where they are the model's
  std::vector<LocalBlock> local_;  // likewise
};

}  // namespace hpctl
