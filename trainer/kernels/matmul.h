// SPDX-License-Identifier: Apache-2.0
// Products of matrices of bf16 on the matrix units of a CPU (AMX), with sums in fp32. Only where
// the processor has such units (level.h: has_bf16_matrix_units).
//
// Error: a sum of `depth` products is made of fp32 additions in an order that depends on `depth`
// alone, and product_error() bounds it; subnormal numbers, of operands and of sums, count as 0. A
// result of bf16 is rounded once, to nearest, ties to even. Infinite is what overflows; what is not
// a number stays so. Rows of a result depend on nothing but their operands: divided among threads
// in any way they have the same bits.
//
// Operands are copied, tile by tile, into memory that a call takes for itself: about 1 MiB.
#pragma once

#include <cstdint>

namespace hpctl {

// Bound of the error of a sum of `depth` products in fp32, and of its initial value, relative to
// the sum of their magnitudes. In any order of addition, each passes through the rounding of the
// product, which is exact in bf16, and at most `depth` additions, 2^-24 each. It holds for
// LibTorch's products in fp32 (trainer/arch/ops.h) as well.
constexpr double product_error(int64_t depth) { return static_cast<double>(depth) * 0x1p-23; }

// Element (i, j) is at data[i * stride + j], or where `transposed` at data[j * stride + i].
struct Bf16Matrix {
  const uint16_t* data;
  int64_t stride;
  bool transposed;

  const uint16_t* at(int64_t i, int64_t j) const {
    return transposed ? data + j * stride + i : data + i * stride + j;
  }
};

struct Bf16Product {
  int64_t rows;
  int64_t columns;
  int64_t depth;  // 1 or more
  Bf16Matrix a;   // [rows, depth]
  Bf16Matrix b;   // [depth, columns]
};

// c [rows, columns] = a b, and `bias` [columns] added to each row where it is not null.
void multiply(const Bf16Product& product, const uint16_t* bias, uint16_t* c);
// c [rows, columns] = c + a b, where a b is rounded before it is added: the bits of a product and
// an addition.
void add_rounded_product(const Bf16Product& product, uint16_t* c);
// c [rows, columns] += a b, all of it as one sum that begins with c.
void add_product(const Bf16Product& product, float* c);

}  // namespace hpctl
