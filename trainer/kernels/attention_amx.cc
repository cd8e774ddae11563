// SPDX-License-Identifier: Apache-2.0
// Attention over bf16 on matrix units. The order is the same as in attention_blocks.h: blocks of 64
// keys and 64 queries, scores transposed, [keys, queries], queries in the lanes of vectors. Here a
// block is four by four tiles, and products are of tiles (amx_tiles.h) with sums in fp32. The
// softmax and its derivative between them use vectors of fp32, rounded to bf16 as they become
// operands of the next product. On the diagonal the tiles above it are left out.
//
// Operands are packed once per unit (keys) or block (queries), in the form in which they meet the
// other factor; "down" is the form in which tokens are the depth. Values after the last token or
// dimension are zeros, which add nothing.
//
// A product of 64 sums of depth is two steps. In weights and slopes on the diagonal, the rows after
// the last tile that a strip needs are zeros, up to a whole step.
#include "trainer/kernels/amx_tiles.h"
#include "trainer/kernels/attention_amx_memory.h"
#include "trainer/kernels/attention_levels.h"
#include "trainer/kernels/vectors.h"

namespace hpctl::kernels {

namespace amx_attention {

namespace {

struct AmxAttention {
  static constexpr int kBytes = 64;
};
using Tile = Tiles<AmxAttention>;
using Memory = TileMemory<Tile>;
using L = Lanes<float, AmxAttention>;
using Vector = L::Vector;

constexpr int64_t kBlock = kAttentionBlock;
constexpr int64_t kStrip = Tile::kLines;  // queries of a vector
constexpr int64_t kTilesOfBlock = kBlock / kStrip;
constexpr int64_t kStepsOfBlock = kBlock / Tile::kDepth;
constexpr int64_t kBlockBytes = kBlock * 4;  // a row of sums
static_assert(kTilesOfBlock == 4 && kStepsOfBlock == 2);

// For a query that has not seen a key. Times the scale it must be finite.
constexpr float kLowest = -__FLT_MAX__ / 4;
constexpr float kInfinity = __builtin_inff();

int64_t lesser_of(int64_t a, int64_t b) { return a < b ? a : b; }

// Some queries and the keys that they meet.
struct Meeting {
  bool diagonal;
  int64_t reach;  // query n sees keys behind n - reach

  // Keys that the strip of query tile `tile` needs.
  int64_t keys(int64_t tile) const { return diagonal ? (tile + 1) * kStrip : kBlock; }
};

template <typename Row>
Row* row_at(const TokenRows<Row>& rows, int64_t token, int64_t head, int64_t dim) {
  return rows.data + token * rows.stride + head * dim;
}

// Tokens in rows of bf16: `tokens` of a block, and how far the rows are apart.
struct Rows {
  const uint16_t* data;
  int64_t stride;
  int64_t tokens;
};

// Rows of positions from `begin` on, in place; back where `sign` is -1.
void turn(const RotaryTables<float>& rotary, int64_t begin, int64_t tokens, float sign,
          const Memory& m, float* rows) {
  if (rotary.cos == nullptr) return;
  const int64_t half = m.dim / 2;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t d = 0; d < half; d += kStrip) {
      const auto mask = static_cast<__mmask16>(Tile::first_bits(lesser_of(half - d, kStrip)));
      float* front = rows + t * m.width + d;
      const auto part = [mask](const float* from) {
        return (Vector)_mm512_maskz_loadu_ps(mask, from);
      };
      const Vector a = part(front);
      const Vector b = part(front + half);
      const Vector cosine = part(rotary.cos + (begin + t) * half + d);
      const Vector sine = part(rotary.sin + (begin + t) * half + d) * sign;
      _mm512_mask_storeu_ps(front, mask, (__m512)(a * cosine - b * sine));
      _mm512_mask_storeu_ps(front + half, mask, (__m512)(b * cosine + a * sine));
    }
  }
}

void widen_row(const uint16_t* from, int64_t count, float* to) {
  for (int64_t d = 0; d < count; d += kStrip) {
    const auto mask = static_cast<__mmask16>(Tile::first_bits(lesser_of(count - d, kStrip)));
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + d));
    L::store(to + d, (Vector)_mm512_slli_epi32(bits, 16));
  }
}

void narrow_row(const float* from, int64_t count, float factor, uint16_t* to) {
  for (int64_t d = 0; d < count; d += kStrip) {
    const auto mask = static_cast<__mmask16>(Tile::first_bits(lesser_of(count - d, kStrip)));
    const Vector scaled = L::load(from + d) * factor;
    _mm256_mask_storeu_epi16(to + d, mask, (__m256i)_mm512_cvtneps_pbh((__m512)scaled));
  }
}

// The same rows, turned to their positions from `begin` on.
Rows turned_rows(const Rows& from, const RotaryTables<float>& rotary, int64_t begin,
                 const Memory& m) {
  if (rotary.cos == nullptr) return from;
  for (int64_t t = 0; t < from.tokens; ++t) {
    widen_row(from.data + t * from.stride, m.dim, m.rows + t * m.width);
  }
  turn(rotary, begin, from.tokens, 1, m, m.rows);
  for (int64_t t = 0; t < from.tokens; ++t) {
    narrow_row(m.rows + t * m.width, m.dim, 1, m.turned + t * m.width);
  }
  return {m.turned, m.width, from.tokens};
}

// Tokens as lines, dimensions as depth: a left operand [token tiles, steps], or a right one [steps,
// token tiles].
template <Side kSide>
void pack_across(const Rows& rows, const Memory& m, uint16_t* to) {
  for (int64_t tile = 0; tile < kTilesOfBlock; ++tile) {
    const int64_t first = tile * kStrip;
    const int64_t lines = rows.tokens < first ? 0 : rows.tokens - first;
    for (int64_t step = 0; step < m.steps; ++step) {
      const int64_t at = kSide == Side::kLeft ? tile * m.steps + step : step * kTilesOfBlock + tile;
      const int64_t d = step * Tile::kDepth;
      Tile::pack<kSide, false>(rows.data + first * rows.stride + d, rows.stride, lines, m.dim - d,
                               to + at * Tile::kElements);
    }
  }
}

// Dimensions as lines, tokens as depth: [steps of tokens, dim_tiles].
template <Side kSide>
void pack_down(const Rows& rows, const Memory& m, uint16_t* to) {
  for (int64_t t = 0; t < kBlock; t += Tile::kDepth) {
    for (int64_t tile = 0; tile < m.dim_tiles; ++tile) {
      const int64_t d = tile * Tile::kLines;
      Tile::pack<kSide, true>(rows.data + t * rows.stride + d, rows.stride, m.dim - d,
                              rows.tokens - t, to);
      to += Tile::kElements;
    }
  }
}

// sums [keys, queries] = left right, but the tiles above the diagonal.
void meet(const uint16_t* left, const uint16_t* right, int64_t steps, bool diagonal, float* sums) {
  for (int64_t tile = 0; tile < kTilesOfBlock; ++tile) {
    const int64_t first = diagonal ? tile : 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const uint16_t* b = right;
    for (int64_t step = 0; step < steps; ++step, left += Tile::kElements) {
      _tile_loadd(4, left, 64);
      if (first <= 0) {
        _tile_loadd(5, b, 64);
        _tile_dpbf16ps(0, 4, 5);
      }
      if (first <= 1) {
        _tile_loadd(6, b + Tile::kElements, 64);
        _tile_dpbf16ps(1, 4, 6);
      }
      if (first <= 2) {
        _tile_loadd(7, b + 2 * Tile::kElements, 64);
        _tile_dpbf16ps(2, 4, 7);
      }
      _tile_loadd(5, b + 3 * Tile::kElements, 64);
      _tile_dpbf16ps(3, 4, 5);
      b += kTilesOfBlock * Tile::kElements;
    }
    float* row = sums + tile * kStrip * kBlock;
    if (first <= 0) _tile_stored(0, row, kBlockBytes);
    if (first <= 1) _tile_stored(1, row + kStrip, kBlockBytes);
    if (first <= 2) _tile_stored(2, row + 2 * kStrip, kBlockBytes);
    _tile_stored(3, row + 3 * kStrip, kBlockBytes);
  }
}

// mixed [dimensions, queries] += down [dimensions, keys] right [keys, queries]
void mix(const uint16_t* down, const uint16_t* right, bool diagonal, const Memory& m) {
  for (int64_t tile = 0; tile < m.dim_tiles; ++tile) {
    float* sums = m.mixed + tile * Tile::kLines * kBlock;
    _tile_loadd(0, sums, kBlockBytes);
    _tile_loadd(1, sums + kStrip, kBlockBytes);
    _tile_loadd(2, sums + 2 * kStrip, kBlockBytes);
    _tile_loadd(3, sums + 3 * kStrip, kBlockBytes);
    const uint16_t* b = right;
    for (int64_t step = 0; step < kStepsOfBlock; ++step) {
      _tile_loadd(4, down + (step * m.dim_tiles + tile) * Tile::kElements, 64);
      if (step == 0 || !diagonal) {
        _tile_loadd(5, b, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, b + Tile::kElements, 64);
        _tile_dpbf16ps(1, 4, 6);
      }
      _tile_loadd(7, b + 2 * Tile::kElements, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_loadd(5, b + 3 * Tile::kElements, 64);
      _tile_dpbf16ps(3, 4, 5);
      b += kTilesOfBlock * Tile::kElements;
    }
    _tile_stored(0, sums, kBlockBytes);
    _tile_stored(1, sums + kStrip, kBlockBytes);
    _tile_stored(2, sums + 2 * kStrip, kBlockBytes);
    _tile_stored(3, sums + 3 * kStrip, kBlockBytes);
  }
}

// gradients [keys, width] += left [keys, queries] down [queries, dimensions]
void spread(const uint16_t* left, const uint16_t* down, bool diagonal, const Memory& m,
            float* gradients) {
  const int64_t bytes = m.width * 4;
  const int64_t below = kStrip * m.width;
  for (int64_t tile = 0; tile < m.dim_tiles; ++tile) {
    float* sums = gradients + tile * Tile::kLines;
    _tile_loadd(0, sums, bytes);
    _tile_loadd(1, sums + below, bytes);
    _tile_loadd(2, sums + 2 * below, bytes);
    _tile_loadd(3, sums + 3 * below, bytes);
    for (int64_t step = 0; step < kStepsOfBlock; ++step) {
      const uint16_t* a = left + step * Tile::kElements;
      constexpr int64_t kNext = kStepsOfBlock * Tile::kElements;
      _tile_loadd(4, down + (step * m.dim_tiles + tile) * Tile::kElements, 64);
      _tile_loadd(5, a, 64);
      _tile_dpbf16ps(0, 5, 4);
      _tile_loadd(6, a + kNext, 64);
      _tile_dpbf16ps(1, 6, 4);
      if (step == 0 && diagonal) continue;
      _tile_loadd(7, a + 2 * kNext, 64);
      _tile_dpbf16ps(2, 7, 4);
      _tile_loadd(5, a + 3 * kNext, 64);
      _tile_dpbf16ps(3, 5, 4);
    }
    _tile_stored(0, sums, bytes);
    _tile_stored(1, sums + below, bytes);
    _tile_stored(2, sums + 2 * below, bytes);
    _tile_stored(3, sums + 3 * below, bytes);
  }
}

// 2^x with a relative error of at most 2^-18, where weights are rounded to bf16 in any case: 2^n
// 2^f, n the greatest integer that is not above x; 2^f is a polynomial (minimax on [0, 1], 2.6e-6).
// 0 for minus infinity.
[[gnu::always_inline]] inline Vector exp2(Vector x) {
  constexpr int kFraction = 1;  // what is left of rounding down to an integer
  const Vector f = (Vector)_mm512_reduce_ps((__m512)x, kFraction);
  Vector p = 0.0135341681F * f + 0.0520114603F;
  p = p * f + 0.2414427571F;
  p = p * f + 0.6930038344F;
  p = p * f + 1.0000025934F;
  return (Vector)_mm512_scalef_ps((__m512)p, (__m512)x);
}

// Scores of keys that a query does not see: later ones, and those before its window.
void hide(const Meeting& b, float* scores) {
  const Vector hidden = L::all(-kInfinity);
  for (int64_t tile = 0; tile < kTilesOfBlock; ++tile) {
    const int64_t lane = tile * kStrip;
    float* column = scores + lane;
    for (int64_t row = lane + 1; b.diagonal && row < lane + kStrip; ++row) {
      const Vector first = L::all(static_cast<float>(row - lane));
      const Vector score = L::load(column + row * kBlock);
      L::store(column + row * kBlock, L::numbers() < first ? hidden : score);
    }
    const int64_t rows = lesser_of(b.keys(tile), lane + kStrip - b.reach);
    for (int64_t row = 0; row < rows; ++row) {
      const Vector end = L::all(static_cast<float>(row + b.reach - lane));
      const Vector score = L::load(column + row * kBlock);
      L::store(column + row * kBlock, L::numbers() < end ? score : hidden);
    }
  }
}

// Two rows of a strip as a row of a right tile.
[[gnu::always_inline]] inline void store_pair(Vector even, Vector odd, int64_t row, int64_t tile,
                                              uint16_t* right) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = Tile::narrow((__m512)even, (__m512)odd);
  uint16_t* to = right + (row / Tile::kDepth * kTilesOfBlock + tile) * Tile::kElements +
                 row % Tile::kDepth * kStrip;
  _mm512_store_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both));
}

// A row of a strip as half a row of a left tile.
[[gnu::always_inline]] inline void store_half(Vector values, int64_t row, int64_t tile,
                                              uint16_t* left) {
  uint16_t* to = left + (row / kStrip * kStepsOfBlock + tile / 2) * Tile::kElements +
                 row % kStrip * Tile::kDepth + tile % 2 * kStrip;
  _mm256_store_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)values));
}

// Of `rows` vectors and `start`. Four at a time, because each comparison waits for the one before.
Vector greatest(const float* column, int64_t rows, Vector start) {
  Vector tops[4] = {start, start, start, start};
  for (int64_t row = 0; row < rows; row += 4) {
    for (int i = 0; i < 4; ++i) {
      tops[i] = L::greater(tops[i], L::load(column + (row + i) * kBlock));
    }
  }
  return L::greater(L::greater(tops[0], tops[1]), L::greater(tops[2], tops[3]));
}

// Scores become weights relative to the greatest score so far, and what earlier blocks have given
// is brought to the same. `factor` makes scores exponents of 2.
void soften(const Meeting& b, float factor, const Memory& m) {
  for (int64_t tile = 0; tile < kTilesOfBlock; ++tile) {
    const int64_t lane = tile * kStrip;
    const int64_t rows = b.keys(tile);
    const float* column = m.scores + lane;
    const Vector before = L::load(m.tops + lane);
    const Vector top = greatest(column, rows, before);
    const Vector offset = top * factor;
    Vector sum[2] = {};
    int64_t row = 0;
    for (; row < rows; row += 2) {
      const Vector even = exp2(L::load(column + row * kBlock) * factor - offset);
      const Vector odd = exp2(L::load(column + (row + 1) * kBlock) * factor - offset);
      sum[0] += even;
      sum[1] += odd;
      store_pair(even, odd, row, tile, m.weights_right);
    }
    for (; row % Tile::kDepth != 0; row += 2)
      store_pair(Vector{}, Vector{}, row, tile, m.weights_right);
    const Vector shrink = exp2((before - top) * factor);
    L::store(m.tops + lane, top);
    L::store(m.sums + lane, L::load(m.sums + lane) * shrink + (sum[0] + sum[1]));
    for (int64_t d = 0; d < m.dim; ++d) {
      float* mixed = m.mixed + d * kBlock + lane;
      L::store(mixed, L::load(mixed) * shrink);
    }
  }
}

// Scores become weights, products of gradients and values the gradients of scores.
void differentiate(const Meeting& b, float factor, const Memory& m) {
  for (int64_t tile = 0; tile < kTilesOfBlock; ++tile) {
    const int64_t lane = tile * kStrip;
    const int64_t rows = b.keys(tile);
    const Vector log_sum = L::load(m.tops + lane);
    const Vector product = L::load(m.sums + lane);
    int64_t row = 0;
    for (; row < rows; row += 2) {
      Vector slopes[2];
      for (int i = 0; i < 2; ++i) {
        const int64_t at = (row + i) * kBlock + lane;
        const Vector weight = exp2(L::load(m.scores + at) * factor - log_sum);
        slopes[i] = weight * (L::load(m.slopes + at) - product);
        store_half(weight, row + i, tile, m.weights_left);
        store_half(slopes[i], row + i, tile, m.slopes_left);
      }
      store_pair(slopes[0], slopes[1], row, tile, m.slopes_right);
    }
    for (; row % Tile::kDepth != 0; row += 2) {
      for (int i = 0; i < 2; ++i) {
        store_half(Vector{}, row + i, tile, m.weights_left);
        store_half(Vector{}, row + i, tile, m.slopes_left);
      }
      store_pair(Vector{}, Vector{}, row, tile, m.slopes_right);
    }
  }
}

// mixed as rows [queries, width], each lane times its factor.
void mixed_rows(const float* factors, const Memory& m) {
  for (int64_t q = 0; q < kBlock; q += kStrip) {
    for (int64_t d = 0; d < m.width; d += kStrip) {
      __m512i lines[16];
      for (int64_t i = 0; i < 16; ++i) {
        lines[i] = (__m512i)(L::load(m.mixed + (d + i) * kBlock + q) * L::load(factors + q));
      }
      Tile::transpose(lines);
      for (int64_t i = 0; i < 16; ++i) {
        _mm512_storeu_si512(m.rows + (q + i) * m.width + d, lines[i]);
      }
    }
  }
}

void fill(float* to, int64_t count, float value) {
  for (int64_t i = 0; i < count; ++i) to[i] = value;
}

constexpr double kLog2E = 1.4426950408889634;

// Both passes over one unit.
template <typename Pass>
class Unit {
 public:
  Unit(const Pass& pass, const AttentionUnit& unit, void* memory)
      : pass_(pass),
        unit_(unit),
        m_(pass.shape, unit.tokens, static_cast<char*>(memory)),
        factor_(static_cast<float>(pass.shape.scale * kLog2E)) {}

  void forward() {
    pack_keys(/*backward=*/false);
    for_each_block([&](int64_t head, int64_t begin) { forward_block(head, begin); });
  }

  void backward() {
    pack_keys(/*backward=*/true);
    const int64_t tokens = (unit_.tokens + kBlock - 1) / kBlock * kBlock;
    fill(m_.key_gradients, tokens * m_.width, 0);
    fill(m_.value_gradients, tokens * m_.width, 0);
    for_each_block([&](int64_t head, int64_t begin) { backward_block(head, begin); });
    turn(pass_.rotary, 0, unit_.tokens, -1, m_, m_.key_gradients);
    for (int64_t t = 0; t < unit_.tokens; ++t) {
      const int64_t token = unit_.begin + t;
      narrow_row(m_.key_gradients + t * m_.width, m_.dim, scale(),
                 row_at(pass_.k_gradient, token, unit_.kv_head, m_.dim));
      narrow_row(m_.value_gradients + t * m_.width, m_.dim, 1,
                 row_at(pass_.v_gradient, token, unit_.kv_head, m_.dim));
    }
  }

 private:
  float scale() const { return static_cast<float>(pass_.shape.scale); }

  template <typename Work>
  void for_each_block(const Work& work) {
    const int64_t group = pass_.shape.heads / pass_.shape.kv_heads;
    for (int64_t g = 0; g < group; ++g) {
      for (int64_t begin = 0; begin < unit_.tokens; begin += kBlock) {
        work(unit_.kv_head * group + g, begin);
      }
    }
  }

  Rows rows_from(const TokenRows<const uint16_t>& rows, int64_t begin, int64_t head) const {
    return {row_at(rows, unit_.begin + begin, head, m_.dim), rows.stride,
            lesser_of(kBlock, unit_.tokens - begin)};
  }

  uint16_t* left_of(uint16_t* all, int64_t begin) const {
    return all + begin * m_.steps * Tile::kDepth;
  }
  uint16_t* down_of(uint16_t* all, int64_t begin) const { return all + begin * m_.width; }

  void pack_keys(bool backward) {
    for (int64_t begin = 0; begin < unit_.tokens; begin += kBlock) {
      const Rows keys =
          turned_rows(rows_from(pass_.k, begin, unit_.kv_head), pass_.rotary, begin, m_);
      const Rows values = rows_from(pass_.v, begin, unit_.kv_head);
      pack_across<Side::kLeft>(keys, m_, left_of(m_.keys_left, begin));
      if (backward) {
        pack_down<Side::kLeft>(keys, m_, down_of(m_.keys_down, begin));
        pack_across<Side::kLeft>(values, m_, left_of(m_.values_left, begin));
      } else {
        pack_down<Side::kLeft>(values, m_, down_of(m_.values_down, begin));
      }
    }
  }

  // work(key, meeting) for the blocks of keys that queries from `begin` on see.
  template <typename Work>
  void for_each_meeting(int64_t begin, const Work& work) {
    const int64_t window = pass_.shape.window;
    const int64_t first = begin < window ? 0 : (begin - window + 1) / kBlock * kBlock;
    for (int64_t key = first; key <= begin; key += kBlock) {
      const Meeting meeting = {key == begin, window - (begin - key)};
      Tile::publish();
      meet(left_of(m_.keys_left, key), m_.queries_right, m_.steps, meeting.diagonal, m_.scores);
      hide(meeting, m_.scores);
      work(key, meeting);
    }
  }

  void forward_block(int64_t head, int64_t begin) {
    const Rows queries = turned_rows(rows_from(pass_.q, begin, head), pass_.rotary, begin, m_);
    pack_across<Side::kRight>(queries, m_, m_.queries_right);
    fill(m_.mixed, m_.width * kBlock, 0);
    fill(m_.sums, kBlock, 0);
    fill(m_.tops, kBlock, kLowest);
    for_each_meeting(begin, [&](int64_t key, const Meeting& meeting) {
      soften(meeting, factor_, m_);
      Tile::publish();
      mix(down_of(m_.values_down, key), m_.weights_right, meeting.diagonal, m_);
    });
    float* log_sums = pass_.log_sums + head * pass_.shape.tokens + unit_.begin + begin;
    for (int64_t q = 0; q < queries.tokens; ++q) {
      log_sums[q] = m_.tops[q] * factor_ + __builtin_log2f(m_.sums[q]);
    }
    for (int64_t q = 0; q < kBlock; ++q) m_.sums[q] = 1 / m_.sums[q];
    mixed_rows(m_.sums, m_);
    for (int64_t q = 0; q < queries.tokens; ++q) {
      narrow_row(m_.rows + q * m_.width, m_.dim, 1,
                 row_at(pass_.out, unit_.begin + begin + q, head, m_.dim));
    }
  }

  // Logarithms of sums, and products of results with their gradients.
  void note_results(int64_t head, int64_t begin, const Rows& gradients) {
    fill(m_.tops, kBlock, 0);
    fill(m_.sums, kBlock, 0);
    float* gradient = m_.rows;
    float* result = m_.rows + m_.width;
    for (int64_t q = 0; q < gradients.tokens; ++q) {
      const int64_t token = unit_.begin + begin + q;
      widen_row(gradients.data + q * gradients.stride, m_.dim, gradient);
      widen_row(row_at(pass_.out, token, head, m_.dim), m_.dim, result);
      Vector product = {};
      for (int64_t d = 0; d < m_.width; d += kStrip) {
        product += L::load(gradient + d) * L::load(result + d);
      }
      m_.tops[q] = pass_.log_sums[head * pass_.shape.tokens + token];
      m_.sums[q] = L::sum(product);
    }
  }

  void backward_block(int64_t head, int64_t begin) {
    const Rows queries = turned_rows(rows_from(pass_.q, begin, head), pass_.rotary, begin, m_);
    pack_across<Side::kRight>(queries, m_, m_.queries_right);
    pack_down<Side::kRight>(queries, m_, m_.queries_down);
    const Rows gradients = rows_from(pass_.out_gradient, begin, head);
    pack_across<Side::kRight>(gradients, m_, m_.gradients_right);
    pack_down<Side::kRight>(gradients, m_, m_.gradients_down);
    note_results(head, begin, gradients);
    fill(m_.mixed, m_.width * kBlock, 0);
    for_each_meeting(begin, [&](int64_t key, const Meeting& meeting) {
      meet(left_of(m_.values_left, key), m_.gradients_right, m_.steps, meeting.diagonal, m_.slopes);
      differentiate(meeting, factor_, m_);
      Tile::publish();
      mix(down_of(m_.keys_down, key), m_.slopes_right, meeting.diagonal, m_);
      spread(m_.weights_left, m_.gradients_down, meeting.diagonal, m_,
             m_.value_gradients + key * m_.width);
      spread(m_.slopes_left, m_.queries_down, meeting.diagonal, m_,
             m_.key_gradients + key * m_.width);
    });
    fill(m_.sums, kBlock, scale());
    mixed_rows(m_.sums, m_);
    turn(pass_.rotary, begin, queries.tokens, -1, m_, m_.rows);
    for (int64_t q = 0; q < queries.tokens; ++q) {
      narrow_row(m_.rows + q * m_.width, m_.dim, 1,
                 row_at(pass_.q_gradient, unit_.begin + begin + q, head, m_.dim));
    }
  }

  const Pass& pass_;
  const AttentionUnit& unit_;
  const Memory m_;
  const float factor_;
};

void forward_on_tiles(const AttentionForward<uint16_t>& pass, const AttentionUnit& unit,
                      const AttentionScratch<uint16_t>& scratch) {
  Tile::begin();
  Unit<AttentionForward<uint16_t>>(pass, unit, scratch.memory()).forward();
  Tile::end();
}

void backward_on_tiles(const AttentionBackward<uint16_t>& pass, const AttentionUnit& unit,
                       const AttentionScratch<uint16_t>& scratch) {
  Tile::begin();
  Unit<AttentionBackward<uint16_t>>(pass, unit, scratch.memory()).backward();
  Tile::end();
}

}  // namespace

}  // namespace amx_attention

const AttentionPasses<uint16_t> kAttentionAmx = {amx_attention::forward_on_tiles,
                                                 amx_attention::backward_on_tiles};

int64_t attention_amx_bytes(const AttentionShape& shape, int64_t tokens) {
  return amx_attention::Memory(shape, tokens, nullptr).bytes();
}

}  // namespace hpctl::kernels
