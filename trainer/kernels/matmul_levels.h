// SPDX-License-Identifier: Apache-2.0
// matmul.h as matmul_amx.cc computes it. A block is 32 rows and 32 columns of the result.
#pragma once

#include "trainer/kernels/matmul.h"

namespace hpctl::kernels {

inline constexpr int64_t kProductBlock = 32;
// Of depth that is added to a result in fp32 at a time, so that many columns' operands fit.
inline constexpr int64_t kAddedDepth = 1024;
// Elements of the right operand that are packed at a time: half of a core's second cache.
inline constexpr int64_t kPanelElements = 512 * 1024;

// Depth and columns that are packed at a time: multiples of a block.
struct ProductPanel {
  int64_t depth;
  int64_t columns;
};

// `memory` has (columns + kProductBlock) * depth elements, and begins at a multiple of 64 bytes.
void multiply_amx(const Bf16Product& product, const ProductPanel& panel, const uint16_t* bias,
                  uint16_t* c, uint16_t* memory);
void add_rounded_product_amx(const Bf16Product& product, const ProductPanel& panel, uint16_t* c,
                             uint16_t* memory);
void add_product_amx(const Bf16Product& product, const ProductPanel& panel, float* c,
                     uint16_t* memory);

}  // namespace hpctl::kernels
