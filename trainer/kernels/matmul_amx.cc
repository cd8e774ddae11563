// SPDX-License-Identifier: Apache-2.0
// A panel of the right operand, all of whose tiles are packed once, meets the rows of the left one,
// 32 at a time, which are packed as well: rows as they lie may be at distances that share few sets
// of the cache. A block of the result is four tiles of sums, beside two tiles of either operand: so
// each loaded tile is used twice.
#include "trainer/kernels/amx_tiles.h"
#include "trainer/kernels/matmul_levels.h"

namespace hpctl::kernels {

namespace amx_products {

namespace {

struct AmxProducts {};
using T = Tiles<AmxProducts>;

constexpr int64_t kBlock = kProductBlock;
constexpr int64_t kStepElements = 2 * T::kElements;  // of 32 lines and 32 of depth

int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t steps_of(int64_t depth) { return (depth + T::kDepth - 1) / T::kDepth; }

// Lines and depth from where `data` points to, 32 lines by 32 lines.
template <Side kSide, bool kAcross>
void pack_lines(const uint16_t* data, int64_t stride, int64_t lines, int64_t depth, uint16_t* to) {
  const int64_t line_stride = kAcross ? 1 : stride;
  const int64_t depth_stride = kAcross ? stride : 1;
  for (int64_t block = 0; block < lines; block += kBlock) {
    for (int64_t d = 0; d < depth; d += T::kDepth) {
      for (int64_t line = block; line < block + kBlock; line += T::kLines) {
        const int64_t left = lines - line;
        T::pack<kSide, kAcross>(data + line * line_stride + d * depth_stride, stride,
                                left < 0 ? 0 : left, depth - d, to);
        to += T::kElements;
      }
    }
  }
}

template <Side kSide>
void pack_operand(const Bf16Matrix& m, int64_t row, int64_t column, int64_t lines, int64_t depth,
                  uint16_t* to) {
  if (m.transposed == (kSide == Side::kLeft)) {
    pack_lines<kSide, true>(m.at(row, column), m.stride, lines, depth, to);
  } else {
    pack_lines<kSide, false>(m.at(row, column), m.stride, lines, depth, to);
  }
}

void load_sums(const float* c, int64_t stride) {
  const int64_t bytes = stride * 4;
  const float* below = c + T::kLines * stride;
  _tile_loadd(0, c, bytes);
  _tile_loadd(1, c + T::kLines, bytes);
  _tile_loadd(2, below, bytes);
  _tile_loadd(3, below + T::kLines, bytes);
}

void store_sums(float* c, int64_t stride) {
  const int64_t bytes = stride * 4;
  float* below = c + T::kLines * stride;
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + T::kLines, bytes);
  _tile_stored(2, below, bytes);
  _tile_stored(3, below + T::kLines, bytes);
}

void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

void add_steps(const uint16_t* a, const uint16_t* b, int64_t steps) {
  constexpr int64_t kBytes = 64;
  for (int64_t step = 0; step < steps; ++step, a += kStepElements, b += kStepElements) {
    _tile_loadd(4, a, kBytes);
    _tile_loadd(6, b, kBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + T::kElements, kBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + T::kElements, kBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// The place of a block in a result whose rows lie `stride` apart. If `adds`, it is added to the
// bf16 values there; fp32 sums always add.
struct Place {
  int64_t rows;
  int64_t columns;
  int64_t stride;
  bool adds;
};

// Adds `steps` to the sums. A block at the edge passes through separate memory.
void finish(const uint16_t* a, const uint16_t* b, int64_t steps, const Place& place,
            const uint16_t*, float* c) {
  if (place.rows == kBlock && place.columns == kBlock) {
    load_sums(c, place.stride);
    add_steps(a, b, steps);
    store_sums(c, place.stride);
    return;
  }
  alignas(64) float sums[kBlock * kBlock] = {};
  for (int64_t i = 0; i < place.rows; ++i) {
    for (int64_t j = 0; j < place.columns; ++j) sums[i * kBlock + j] = c[i * place.stride + j];
  }
  T::publish();
  load_sums(sums, kBlock);
  add_steps(a, b, steps);
  store_sums(sums, kBlock);
  for (int64_t i = 0; i < place.rows; ++i) {
    for (int64_t j = 0; j < place.columns; ++j) c[i * place.stride + j] = sums[i * kBlock + j];
  }
}

__m512 widened(__m256i narrow) {
  return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
}

// The sum of two rows of 32 numbers, rounded.
__m512i rounded_sum(__m512i a, __m512i b) {
  const auto low = [](__m512i x) { return widened(_mm512_castsi512_si256(x)); };
  const auto high = [](__m512i x) { return widened(_mm512_extracti64x4_epi64(x, 1)); };
  return T::narrow(_mm512_add_ps(low(a), low(b)), _mm512_add_ps(high(a), high(b)));
}

// Rounded, with the bias.
void finish(const uint16_t* a, const uint16_t* b, int64_t steps, const Place& place,
            const uint16_t* bias, uint16_t* c) {
  alignas(64) float sums[kBlock * kBlock];
  zero_sums();
  add_steps(a, b, steps);
  store_sums(sums, kBlock);
  const __mmask32 mask = T::first_bits(place.columns);
  __m512 low_bias = _mm512_setzero_ps();
  __m512 high_bias = low_bias;
  if (bias != nullptr) {
    const __m512i both = _mm512_maskz_loadu_epi16(mask, bias);
    low_bias = widened(_mm512_castsi512_si256(both));
    high_bias = widened(_mm512_extracti64x4_epi64(both, 1));
  }
  for (int64_t i = 0; i < place.rows; ++i) {
    const __m512 low = _mm512_load_ps(sums + i * kBlock);
    const __m512 high = _mm512_load_ps(sums + i * kBlock + T::kLines);
    uint16_t* const to = c + i * place.stride;
    __m512i result = T::narrow(_mm512_add_ps(low, low_bias), _mm512_add_ps(high, high_bias));
    if (place.adds) result = rounded_sum(_mm512_maskz_loadu_epi16(mask, to), result);
    _mm512_mask_storeu_epi16(to, mask, result);
  }
}

template <typename Result>
void compute(const Bf16Product& p, const ProductPanel& panel, const uint16_t* bias, bool adds,
             Result* c, uint16_t* memory) {
  uint16_t* const left = memory;
  uint16_t* const right = memory + kBlock * panel.depth;
  T::begin();
  for (int64_t d = 0; d < p.depth; d += panel.depth) {
    const int64_t depth = lesser(panel.depth, p.depth - d);
    const int64_t steps = steps_of(depth);
    for (int64_t first = 0; first < p.columns; first += panel.columns) {
      const int64_t columns = lesser(panel.columns, p.columns - first);
      pack_operand<Side::kRight>(p.b, d, first, columns, depth, right);
      for (int64_t row = 0; row < p.rows; row += kBlock) {
        const int64_t rows = lesser(kBlock, p.rows - row);
        pack_operand<Side::kLeft>(p.a, row, d, rows, depth, left);
        T::publish();
        for (int64_t n = 0; n < columns; n += kBlock) {
          const Place place = {rows, lesser(kBlock, columns - n), p.columns, adds};
          finish(left, right + n * steps * T::kDepth, steps, place,
                 bias == nullptr ? nullptr : bias + first + n, c + row * p.columns + first + n);
        }
      }
    }
  }
  T::end();
}

}  // namespace

}  // namespace amx_products

void multiply_amx(const Bf16Product& product, const ProductPanel& panel, const uint16_t* bias,
                  uint16_t* c, uint16_t* memory) {
  amx_products::compute(product, panel, bias, false, c, memory);
}

void add_rounded_product_amx(const Bf16Product& product, const ProductPanel& panel, uint16_t* c,
                             uint16_t* memory) {
  amx_products::compute(product, panel, nullptr, true, c, memory);
}

void add_product_amx(const Bf16Product& product, const ProductPanel& panel, float* c,
                     uint16_t* memory) {
  amx_products::compute(product, panel, nullptr, true, c, memory);
}

}  // namespace hpctl::kernels
