// SPDX-License-Identifier: Apache-2.0
// Inputs of recomputed layers in host memory between forward and backward pass (memory.offload:
// activations). With activation checkpointing they are nearly all that a layer keeps, so where
// memory is short they are what grows with layers and tokens.
//
//   forward   the copy down runs beside the layer's own computation; then the memory goes
//   backward  the copy up runs beside the backward pass of the layer above, into one of two buffers
//
// The storage under the tensor loses its memory and gets other memory with the same bytes, as with
// parameters (sharded_block.h); autograd sees nothing of it. The last layer's input stays: it is
// needed again as soon as the head is done.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "trainer/compat/torch_compat.h"
#include "trainer/device/device.h"

namespace hpctl {

class OffloadedInputs {
 public:
  // `leaves[b]`: whether block b's input does. The device outlives it.
  OffloadedInputs(std::vector<bool> leaves, Device& device);

  bool leaves(size_t block) const { return leaves_[block]; }

  // Around the forward computation of a block whose input leaves.
  void begin_leave(size_t block, const at::Tensor& input);
  void leave(const at::Tensor& input);
  // In the backward pass: before the computation of the block above, and before its own.
  void begin_return(size_t block);
  void finish_return(size_t block, const at::Tensor& input);
  // After it, the bytes of the input are gone.
  void forget(const at::Tensor& input);

 private:
  std::vector<bool> leaves_;
  Device& device_;
  std::vector<HostStaging> host_;                  // per block
  std::array<DeviceArray<std::byte>, 2> buffers_;  // taken in turn
  std::vector<size_t> buffer_of_;                  // per block, since begin_return
  size_t returns_ = 0;
};

}  // namespace hpctl
