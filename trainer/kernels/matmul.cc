// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/matmul.h"

#include <algorithm>
#include <memory>
#include <new>

#include "trainer/kernels/matmul_levels.h"

namespace hpctl {

namespace {

constexpr std::align_val_t kTileAlignment{64};

struct FreeTiles {
  void operator()(uint16_t* memory) const { ::operator delete(memory, kTileAlignment); }
};

int64_t whole_blocks(int64_t count) {
  return (count + kernels::kProductBlock - 1) / kernels::kProductBlock * kernels::kProductBlock;
}

kernels::ProductPanel panel_of(const Bf16Product& product, int64_t depth) {
  const int64_t most = kernels::kPanelElements / depth / kernels::kProductBlock;
  return {depth, std::min(whole_blocks(product.columns),
                          std::max<int64_t>(most, 1) * kernels::kProductBlock)};
}

std::unique_ptr<uint16_t, FreeTiles> memory_for(const kernels::ProductPanel& panel) {
  const auto elements = static_cast<size_t>((panel.columns + kernels::kProductBlock) * panel.depth);
  return std::unique_ptr<uint16_t, FreeTiles>(
      static_cast<uint16_t*>(::operator new(elements * sizeof(uint16_t), kTileAlignment)));
}

}  // namespace

#ifdef __x86_64__
void multiply(const Bf16Product& product, const uint16_t* bias, uint16_t* c) {
  const kernels::ProductPanel panel = panel_of(product, whole_blocks(product.depth));
  kernels::multiply_amx(product, panel, bias, c, memory_for(panel).get());
}

void add_rounded_product(const Bf16Product& product, uint16_t* c) {
  const kernels::ProductPanel panel = panel_of(product, whole_blocks(product.depth));
  kernels::add_rounded_product_amx(product, panel, c, memory_for(panel).get());
}

void add_product(const Bf16Product& product, float* c) {
  const kernels::ProductPanel panel =
      panel_of(product, std::min(whole_blocks(product.depth), kernels::kAddedDepth));
  kernels::add_product_amx(product, panel, c, memory_for(panel).get());
}
#else
void multiply(const Bf16Product&, const uint16_t*, uint16_t*) { __builtin_trap(); }
void add_rounded_product(const Bf16Product&, uint16_t*) { __builtin_trap(); }
void add_product(const Bf16Product&, float*) { __builtin_trap(); }
#endif

}  // namespace hpctl
