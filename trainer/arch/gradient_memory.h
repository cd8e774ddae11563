// SPDX-License-Identifier: Apache-2.0
// A block's gradient in which some tensors are unwritten: their memory holds anything. A product
// that is the first to have something for such a tensor writes it there, and the later ones add.
// That saves zeros for all weights, and reading them.
//
// The storage under the tensors knows what is unwritten. So a node of autograd, which sees a
// weight's gradient alone, can ask. One thread at a time: the backward pass or its caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/compat/torch_compat.h"

namespace hpctl {

// Elements [first, first + count) of a block.
struct UnwrittenPart {
  int64_t first;
  int64_t count;
};

// fp32, `count` elements over memory that it does not own, on the device that LibTorch calls so.
at::Tensor gradient_over(float* memory, int64_t count, const std::string& device,
                         std::vector<UnwrittenPart> unwritten);

// Of the memory under this tensor.
std::vector<UnwrittenPart> unwritten_parts(const at::Tensor& gradient);

// Returns whether all of `gradient`, a contiguous view of whole parts, is unwritten. It counts as
// written from now on. Where only some of its parts are unwritten, they become zeros and the result
// is false.
bool take_unwritten(const at::Tensor& gradient);

}  // namespace hpctl
