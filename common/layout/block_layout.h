// SPDX-License-Identifier: Apache-2.0
// The flat layout of a model (docs/formats.md, "Flat block layout").
//
// A model is a list of blocks; a block's parameters sit at fixed offsets of one flat range of
// float elements. Offsets are multiples of kAlignElements (64 bytes of fp32) and do not depend on
// the world size, so a shard is an interval, resharding is interval overlap, and a checkpoint is
// (block, element range, name table). The gaps between tensors hold zeros and belong to no tensor.
//
// Rank r of W owns [r*S, (r+1)*S) of every block, S = ceil(numel / W) rounded up to kAlignElements,
// clipped to numel. The elements from numel to W*S exist only in communication buffers; a
// checkpoint does not have them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/job_spec.h"

namespace hpctl {

inline constexpr int64_t kAlignElements = 16;  // 64 bytes of fp32

struct TensorSlot {
  std::string name;  // Hugging Face name, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  int64_t offset = 0;     // first element within the block; a multiple of kAlignElements
  int64_t numel = 0;      // product of shape
  bool no_decay = false;  // exempt from weight decay; not part of what a tensor is
  bool operator==(const TensorSlot&) const = default;
};

struct Block {
  std::string name;                 // "embed", "layers.0", ..., "head"
  std::vector<TensorSlot> tensors;  // ascending by offset, not overlapping
  int64_t numel = 0;                // of the flat range; a multiple of kAlignElements
  bool operator==(const Block&) const = default;
};

// Elements [begin, end) of a block's flat range.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool operator==(const ElementRange&) const = default;
};

// Rounds up to the next multiple of kAlignElements.
constexpr int64_t align_elements(int64_t n) {
  return (n + kAlignElements - 1) / kAlignElements * kAlignElements;
}

// S above: elements every rank contributes to a gather of the block. world_size >= 1.
int64_t shard_capacity(int64_t block_numel, int32_t world_size);

// The interval rank `rank` of `world_size` owns, clipped to the block; empty for the last ranks
// when the block is small. A multiple of kAlignElements at both ends for a whole block.
ElementRange shard_range(int64_t block_numel, int32_t rank, int32_t world_size);

// The common part; empty (begin == end) when there is none.
ElementRange intersect(ElementRange a, ElementRange b);

// Appends a tensor after the last one, at the next aligned offset, and updates block.numel.
void append_tensor(Block& block, std::string name, std::vector<int64_t> shape);

// Sum of the tensors' elements, without alignment gaps.
int64_t parameter_count(const std::vector<Block>& blocks);

}  // namespace hpctl
