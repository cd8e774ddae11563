// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism divides the matrices of a model over tp ranks. This file says which part of
// each tensor a rank has, as boxes of the global tensor: checkpoints, initial values and imports
// know global tensors only. Free of LibTorch.
//
//   cut           tensors                              part of rank r of tp
//   kWhole        norms, biases after a sum, wpe       everything: a copy on each rank
//   kRows         q, gate, up and their biases         rows [r * n / tp, (r + 1) * n / tp)
//   kColumns      o, down; c_fc, whose rows are input  the same of the last dimension
//   kKeyHeads     k, v and their biases                the rows of its key heads; with fewer heads
//                                                      than ranks, consecutive ranks share a head
//   kThirds       c_attn                               its columns of q, of k and of v
//   kVocabulary   embedding and output projection      rows, whose counts may differ by one
//
// An adapter (lora.h) follows its matrix: if rows are cut, A is whole and B is cut by rows. If
// columns are cut, A is cut by columns and B is whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/train_spec.h"
#include "common/layout/block_layout.h"

namespace hpctl {

enum class TensorCut : uint8_t { kWhole, kRows, kColumns, kKeyHeads, kThirds, kVocabulary };

// Rank `rank` of `size` tp ranks.
struct TensorPlace {
  int rank = 0;
  int size = 1;
};

// Elements begin[d] to begin[d] + shape[d] of each dimension d.
struct TensorBox {
  std::vector<int64_t> begin;
  std::vector<int64_t> shape;
  bool operator==(const TensorBox&) const = default;
};

// The part of a tensor that a rank has.
struct LocalTensor {
  std::vector<int64_t> shape;
  // One box, or several that follow one another along the last dimension (kThirds).
  std::vector<TensorBox> boxes;
  // Ranks [first_copy, first_copy + copies) have the same boxes.
  int first_copy = 0;
  int copies = 1;
};

// Indices [begin, begin + count) of part `part`, if `total` is divided into `parts`.
struct Share {
  int64_t begin = 0;
  int64_t count = 0;
};
Share share_of(int64_t total, int64_t part, int64_t parts);

// `tensor` has the global shape. The model can be divided (tensor_parallel_problem()).
LocalTensor local_tensor(const ModelSpec& model, const TensorSlot& tensor, TensorPlace place);

// The reason why `size` tp ranks cannot divide the model, with the nearest sizes that can, or "".
std::string tensor_parallel_problem(const ModelSpec& model, int size);

}  // namespace hpctl
