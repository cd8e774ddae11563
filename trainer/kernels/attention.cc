// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/attention.h"

#include <array>
#include <new>
#include <utility>

#include "trainer/kernels/attention_levels.h"
#include "trainer/kernels/level_table.h"

namespace hpctl {

namespace {

constexpr std::align_val_t kAlignment{64};
constexpr int64_t kRound = 16;  // elements: a multiple of every level's vector

constexpr int64_t rounded_up(int64_t count) { return (count + kRound - 1) / kRound * kRound; }

const kernels::AttentionPasses<float>& passes(KernelLevel level) {
  return kernels::table_at<kernels::kAttentionBaseline, kernels::kAttentionAvx2,
                           kernels::kAttentionAvx512>(level);
}

}  // namespace

template <typename T>
AttentionScratch<T>::AttentionScratch(const AttentionShape& shape, int64_t tokens)
    : rounded(rounded_up(shape.head_dim)) {
  const int64_t packed = rounded_up(tokens * shape.head_dim);
  const int64_t gradients = tokens * rounded;
  const int64_t block = kAttentionBlock * rounded;
  // Not a power of two: a load would wait for a store that lies 4096 bytes away from it.
  const int64_t pairs = kAttentionBlock * kAttentionBlock + kRound;
  const std::array<std::pair<T**, int64_t>, 13> parts = {{{&keys, packed},
                                                          {&values, packed},
                                                          {&key_gradients, gradients},
                                                          {&value_gradients, gradients},
                                                          {&query_columns, block},
                                                          {&gradient_columns, block},
                                                          {&query_rows, block},
                                                          {&gradient_rows, block},
                                                          {&mixed, block},
                                                          {&scores, pairs},
                                                          {&slopes, pairs},
                                                          {&tops, kAttentionBlock},
                                                          {&sums, kAttentionBlock}}};
  int64_t elements = 0;
  for (const auto& [part, count] : parts) elements += count;
  memory_.reset(
      static_cast<T*>(::operator new(static_cast<size_t>(elements) * sizeof(T), kAlignment)));
  T* next = memory_.get();
  for (const auto& [part, count] : parts) {
    *part = next;
    next += count;
  }
}

template <typename T>
AttentionScratch<T>::~AttentionScratch() = default;

template <typename T>
void AttentionScratch<T>::Free::operator()(T* memory) const {
  ::operator delete(memory, kAlignment);
}

template class AttentionScratch<float>;
template class AttentionScratch<double>;

void attention_forward(const AttentionForward<float>& pass, const AttentionUnit& unit,
                       const AttentionScratch<float>& scratch, KernelLevel level) {
  passes(level).forward(pass, unit, scratch);
}

void attention_forward(const AttentionForward<double>& pass, const AttentionUnit& unit,
                       const AttentionScratch<double>& scratch) {
  kernels::kAttentionBaselineDouble.forward(pass, unit, scratch);
}

void attention_backward(const AttentionBackward<float>& pass, const AttentionUnit& unit,
                        const AttentionScratch<float>& scratch, KernelLevel level) {
  passes(level).backward(pass, unit, scratch);
}

void attention_backward(const AttentionBackward<double>& pass, const AttentionUnit& unit,
                        const AttentionScratch<double>& scratch) {
  kernels::kAttentionBaselineDouble.backward(pass, unit, scratch);
}

#ifdef __x86_64__
AttentionScratch<uint16_t>::AttentionScratch(const AttentionShape& shape, int64_t tokens)
    : memory_(::operator new(static_cast<size_t>(kernels::attention_amx_bytes(shape, tokens)),
                             kAlignment)) {}

AttentionScratch<uint16_t>::~AttentionScratch() { ::operator delete(memory_, kAlignment); }

void attention_forward(const AttentionForward<uint16_t>& pass, const AttentionUnit& unit,
                       const AttentionScratch<uint16_t>& scratch) {
  kernels::kAttentionAmx.forward(pass, unit, scratch);
}

void attention_backward(const AttentionBackward<uint16_t>& pass, const AttentionUnit& unit,
                        const AttentionScratch<uint16_t>& scratch) {
  kernels::kAttentionAmx.backward(pass, unit, scratch);
}
#else
AttentionScratch<uint16_t>::AttentionScratch(const AttentionShape&, int64_t) { __builtin_trap(); }
AttentionScratch<uint16_t>::~AttentionScratch() = default;
void attention_forward(const AttentionForward<uint16_t>&, const AttentionUnit&,
                       const AttentionScratch<uint16_t>&) {
  __builtin_trap();
}
void attention_backward(const AttentionBackward<uint16_t>&, const AttentionUnit&,
                        const AttentionScratch<uint16_t>&) {
  __builtin_trap();
}
#endif

}  // namespace hpctl
