// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing per operation: results of cheap operations that autograd has saved lose
// their memory after the forward pass and get it back, computed again, before the backward pass.
//
// A region is a pure function of tensors that stay (a layer's input, results of products). It runs
// once with a graph as always; autograd then holds its results for the backward pass, and this
// class knows which they are. give_up() takes the memory from under their storages, as
// sharded_block.h does with parameters; restore() runs the function once more without a graph and
// moves the new memory under the old storages. Autograd never knows, and the same operations on the
// same bytes give the same bits.
#pragma once

#include <functional>
#include <vector>

#include "trainer/compat/torch_compat.h"

namespace hpctl {

class Recomputed {
 public:
  // The tensors that autograd may save of a region, the region's value last. No result may share
  // its storage with a tensor that stays.
  using Function = std::function<std::vector<at::Tensor>()>;

  at::Tensor run(Function function);
  // A value that another operation has made, and that `function` alone makes again.
  void add(const at::Tensor& value, Function function);
  void give_up();
  // Everything the functions use is valid again by now. Forgets the regions.
  void restore();

 private:
  struct Region {
    Function function;
    std::vector<at::Tensor> results;
  };
  std::vector<Region> regions_;
};

// In a pass that keeps everything, `recomputed` is null.
inline at::Tensor run(Recomputed* recomputed, Recomputed::Function function) {
  return recomputed == nullptr ? function().back() : recomputed->run(std::move(function));
}

}  // namespace hpctl
