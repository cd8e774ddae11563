// SPDX-License-Identifier: Apache-2.0
// The source of attention.h's passes at one level. `Level`, a type of the including source's
// unnamed namespace (level.h), has kBytes, the size of a vector, and kRows, the rows of a product
// that fit in registers beside two vectors: a power of two.
//
// Queries lie in the lanes of vectors, keys in rows: scores are kept transposed, [keys, queries].
// So the softmax needs no sum across lanes, and every product is of one form: an element of the
// left operand times a vector of the right one, added to a vector in a register. A unit's keys and
// values are first packed side by side, since rows of a tensor with many heads lie at distances
// that share few sets of the cache.
//
// A block on the diagonal is computed in strips of lanes: a strip needs only the keys up to its
// last query. Later scores are neither computed nor read; hidden scores within a strip are set.
// With a window, the blocks before its first key are left out, and the block with that key is
// computed whole. So a query may first meet a block without any visible key: its greatest score
// then is the lowest finite number, which gives no weight.
#pragma once

#include "trainer/kernels/attention.h"
#include "trainer/kernels/vectors.h"

namespace hpctl::kernels {

template <typename T, typename Level>
class AttentionBlocks {
 public:
  static void forward(const AttentionForward<T>& pass, const AttentionUnit& unit,
                      const AttentionScratch<T>& s) {
    const int64_t dim = pass.shape.head_dim;
    const int64_t group = pass.shape.heads / pass.shape.kv_heads;
    pack(pass.k, unit, dim, pass.rotary, s.keys);
    pack(pass.v, unit, dim, {}, s.values);
    for (int64_t g = 0; g < group; ++g) {
      for (int64_t begin = 0; begin < unit.tokens; begin += kAttentionBlock) {
        forward_block(pass, unit, unit.kv_head * group + g, begin, s);
      }
    }
  }

  static void backward(const AttentionBackward<T>& pass, const AttentionUnit& unit,
                       const AttentionScratch<T>& s) {
    const int64_t dim = pass.shape.head_dim;
    const int64_t group = pass.shape.heads / pass.shape.kv_heads;
    pack(pass.k, unit, dim, pass.rotary, s.keys);
    pack(pass.v, unit, dim, {}, s.values);
    fill(s.key_gradients, unit.tokens * s.rounded, 0);
    fill(s.value_gradients, unit.tokens * s.rounded, 0);
    for (int64_t g = 0; g < group; ++g) {
      for (int64_t begin = 0; begin < unit.tokens; begin += kAttentionBlock) {
        backward_block(pass, unit, unit.kv_head * group + g, begin, s);
      }
    }
    const T scale = static_cast<T>(pass.shape.scale);
    for (int64_t t = 0; t < unit.tokens; ++t) {
      T* key = row_of(pass.k_gradient, unit.begin + t, unit.kv_head, dim);
      T* value = row_of(pass.v_gradient, unit.begin + t, unit.kv_head, dim);
      for (int64_t d = 0; d < dim; ++d) {
        key[d] = s.key_gradients[t * s.rounded + d] * scale;
        value[d] = s.value_gradients[t * s.rounded + d];
      }
      turn(pass.rotary, t, dim, -1, key);
    }
  }

 private:
  using L = Lanes<T, Level>;
  using Vector = typename L::Vector;

  static constexpr int64_t kLanes = L::kCount;
  static constexpr int64_t kBlock = kAttentionBlock;
  static constexpr T kInfinity = __builtin_huge_valf();
  static constexpr T kLowest = static_cast<T>(sizeof(T) == 4 ? -__FLT_MAX__ : -__DBL_MAX__);
  static constexpr double kLog2E = 1.4426950408889634;
  static_assert(kBlock % kLanes == 0 && kBlock % Level::kRows == 0);

  // Some queries and the keys that they meet. On the diagonal, key n belongs to query n.
  struct Block {
    int64_t queries;
    int64_t keys;
    bool diagonal;
    int64_t reach;  // the window of query n + reach and later ones begins behind key n

    int64_t lanes() const { return (queries + kLanes - 1) / kLanes * kLanes; }
    // First lane that a tile of rows from `row` on needs.
    int64_t first_lane(int64_t row) const { return diagonal ? row / kLanes * kLanes : 0; }
    // Rows that the strip of lanes from `lane` on needs.
    int64_t rows(int64_t lane) const {
      return diagonal && lane + kLanes < keys ? lane + kLanes : keys;
    }
    // The same with the last tile of rows whole: spread() reads it from this lane on.
    int64_t tiled_rows(int64_t lane) const {
      const int64_t needed = rows(lane);
      const int64_t whole = (needed + Level::kRows - 1) / Level::kRows * Level::kRows;
      return whole < keys ? whole : keys;
    }
  };

  // The block of queries from `begin` on and keys from `key` on.
  static Block block_at(const AttentionShape& shape, const AttentionUnit& unit, int64_t begin,
                        int64_t key) {
    const int64_t rest = unit.tokens - begin;
    const int64_t queries = rest < kBlock ? rest : kBlock;
    const bool diagonal = key == begin;
    return {queries, diagonal ? queries : kBlock, diagonal, shape.window - (begin - key)};
  }

  // The first key of the first block in which queries from `begin` on see a key.
  static int64_t first_key(const AttentionShape& shape, int64_t begin) {
    return begin < shape.window ? 0 : (begin - shape.window + 1) / kBlock * kBlock;
  }

  // C [rows, lanes] = A [rows, depth] B [depth, lanes], or is increased by it. Strides are between
  // rows as they lie in memory.
  struct Product {
    const T* a;
    int64_t a_stride;
    const T* b;
    int64_t b_stride;
    T* c;
    int64_t c_stride;
    int64_t depth;
  };
  enum class Left { kRows, kColumns };  // A lies as [rows, depth] or as [depth, rows]
  enum class Into { kNew, kSum };

  // M rows from `row` and N vectors from `lane` on, in registers.
  template <Left kLeft, Into kInto, int M, int N>
  [[gnu::always_inline]] static void tile(const Product& p, int64_t row, int64_t lane) {
    const T* a = kLeft == Left::kRows ? p.a + row * p.a_stride : p.a + row;
    const T* b = p.b + lane;
    T* c = p.c + row * p.c_stride + lane;
    Vector sums[M][N];
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        sums[m][n] = kInto == Into::kSum ? L::load(c + m * p.c_stride + n * kLanes) : Vector{};
      }
    }
    for (int64_t d = 0; d < p.depth; ++d) {
      Vector right[N];
      for (int n = 0; n < N; ++n) right[n] = L::load(b + n * kLanes);
      for (int m = 0; m < M; ++m) {
        const T left = kLeft == Left::kRows ? a[m * p.a_stride] : a[m];
        for (int n = 0; n < N; ++n) sums[m][n] += left * right[n];
      }
      a += kLeft == Left::kRows ? 1 : p.a_stride;
      b += p.b_stride;
    }
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) L::store(c + m * p.c_stride + n * kLanes, sums[m][n]);
    }
  }

  template <Left kLeft, Into kInto, int M>
  static void tile_row(const Product& p, int64_t row, int64_t lanes) {
    int64_t lane = 0;
    for (; lane + 2 * kLanes <= lanes; lane += 2 * kLanes) {
      tile<kLeft, kInto, M, 2>(p, row, lane);
    }
    if (lane < lanes) tile<kLeft, kInto, M, 1>(p, row, lane);
  }

  // Rows of the next tile where so many are left.
  static int64_t tile_rows(int64_t left) {
    int64_t rows = Level::kRows;
    while (rows > left) rows /= 2;
    return rows;
  }

  // `rows` as tile_rows() gave it; `lanes` a multiple of a vector's.
  template <Left kLeft, Into kInto>
  static void multiply(const Product& p, int64_t row, int64_t rows, int64_t lanes) {
    if constexpr (Level::kRows >= 8) {
      if (rows == 8) return tile_row<kLeft, kInto, 8>(p, row, lanes);
    }
    if (rows == 4) return tile_row<kLeft, kInto, 4>(p, row, lanes);
    if (rows == 2) return tile_row<kLeft, kInto, 2>(p, row, lanes);
    tile_row<kLeft, kInto, 1>(p, row, lanes);
  }

  template <typename Row>
  static Row* row_of(const TokenRows<Row>& rows, int64_t token, int64_t head, int64_t dim) {
    return rows.data + token * rows.stride + head * dim;
  }

  static void fill(T* to, int64_t count, T value) {
    for (int64_t i = 0; i < count; ++i) to[i] = value;
  }

  // In place; back where `sign` is -1.
  static void turn(const RotaryTables<T>& rotary, int64_t position, int64_t dim, T sign, T* row) {
    if (rotary.cos == nullptr) return;
    const int64_t half = dim / 2;
    const T* cosines = rotary.cos + position * half;
    const T* sines = rotary.sin + position * half;
    for (int64_t d = 0; d < half; ++d) {
      const T a = row[d];
      const T b = row[half + d];
      row[d] = a * cosines[d] - b * (sines[d] * sign);
      row[half + d] = b * cosines[d] + a * (sines[d] * sign);
    }
  }

  // The unit's keys or values as [tokens, dim].
  static void pack(const TokenRows<const T>& rows, const AttentionUnit& unit, int64_t dim,
                   const RotaryTables<T>& rotary, T* to) {
    for (int64_t t = 0; t < unit.tokens; ++t) {
      const T* from = row_of(rows, unit.begin + t, unit.kv_head, dim);
      for (int64_t d = 0; d < dim; ++d) to[t * dim + d] = from[d];
      turn(rotary, t, dim, 1, to + t * dim);
    }
  }

  // Queries from position `begin` on as rows, the ends of which are 0.
  static void pack_rows(const T* from, int64_t stride, const Block& b, int64_t dim, int64_t rounded,
                        const RotaryTables<T>& rotary, int64_t begin, T* to) {
    for (int64_t q = 0; q < b.queries; ++q) {
      T* row = to + q * rounded;
      for (int64_t d = 0; d < dim; ++d) row[d] = from[q * stride + d];
      for (int64_t d = dim; d < rounded; ++d) row[d] = 0;
      turn(rotary, begin + q, dim, 1, row);
    }
  }

  // Rows as columns, and 0 in the lanes after the last one.
  static void pack_columns(const T* rows, int64_t rounded, const Block& b, int64_t dim, T scale,
                           T* to) {
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t q = 0; q < b.queries; ++q) to[d * kBlock + q] = rows[q * rounded + d] * scale;
      for (int64_t q = b.queries; q < b.lanes(); ++q) to[d * kBlock + q] = 0;
    }
  }

  // scores [keys, queries] = rows [keys, dim] columns [dim, queries]
  static void score(const Block& b, const T* rows, const T* columns, int64_t dim, T* scores) {
    for (int64_t row = 0; row < b.keys;) {
      const int64_t count = tile_rows(b.keys - row);
      const int64_t first = b.first_lane(row);
      multiply<Left::kRows, Into::kNew>(
          {rows, dim, columns + first, kBlock, scores + first, kBlock, dim}, row, count,
          b.lanes() - first);
      row += count;
    }
  }

  // mixed [dim, queries] += rows [keys, dim] transposed, times weights [keys, queries]
  static void mix(const Block& b, const T* rows, const T* weights, int64_t dim, T* mixed) {
    const int64_t strip = b.diagonal ? kLanes : b.lanes();
    for (int64_t lane = 0; lane < b.lanes(); lane += strip) {
      const Product p = {rows,
                         dim,
                         weights + lane,
                         kBlock,
                         mixed + lane,
                         kBlock,
                         b.diagonal ? b.rows(lane) : b.keys};
      for (int64_t row = 0; row < dim;) {
        const int64_t count = tile_rows(dim - row);
        multiply<Left::kColumns, Into::kSum>(p, row, count, strip);
        row += count;
      }
    }
  }

  // gradients [keys, rounded] += weights [keys, queries] rows [queries, rounded]
  static void spread(const Block& b, const T* weights, const T* rows, int64_t rounded,
                     T* gradients) {
    for (int64_t row = 0; row < b.keys;) {
      const int64_t count = tile_rows(b.keys - row);
      const int64_t first = b.first_lane(row);
      multiply<Left::kRows, Into::kSum>({weights + first, kBlock, rows + first * rounded, rounded,
                                         gradients, rounded, b.queries - first},
                                        row, count, rounded);
      row += count;
    }
  }

  // Scores of keys that a query does not see: later ones, and those before its window.
  static void hide(const Block& b, T* scores) {
    const Vector hidden = L::all(-kInfinity);
    for (int64_t lane = 0; lane < b.lanes(); lane += kLanes) {
      const int64_t rows = b.tiled_rows(lane);
      T* column = scores + lane;
      for (int64_t row = lane + 1; b.diagonal && row < rows; ++row) {
        const Vector score = L::load(column + row * kBlock);
        const Vector first = L::all(static_cast<T>(row - lane));
        L::store(column + row * kBlock, L::numbers() < first ? hidden : score);
      }
      const int64_t left = lane + kLanes - b.reach;
      for (int64_t row = 0; row < left && row < rows; ++row) {
        const Vector score = L::load(column + row * kBlock);
        const Vector end = L::all(static_cast<T>(row + b.reach - lane));
        L::store(column + row * kBlock, L::numbers() < end ? score : hidden);
      }
    }
  }

  // Scores become weights relative to the greatest score so far, and what earlier blocks have given
  // is brought to the same.
  static void soften(const Block& b, const AttentionScratch<T>& s, int64_t dim) {
    for (int64_t lane = 0; lane < b.lanes(); lane += kLanes) {
      const int64_t rows = b.rows(lane);
      T* column = s.scores + lane;
      const Vector before = L::load(s.tops + lane);
      const Vector top = greatest(column, rows, before);
      Vector sum{};
      for (int64_t row = 0; row < rows; ++row) {
        const Vector weight = L::exp2(L::load(column + row * kBlock) - top);
        L::store(column + row * kBlock, weight);
        sum += weight;
      }
      const Vector shrink = L::exp2(before - top);
      L::store(s.tops + lane, top);
      L::store(s.sums + lane, L::load(s.sums + lane) * shrink + sum);
      for (int64_t d = 0; d < dim; ++d) {
        T* mixed = s.mixed + d * kBlock + lane;
        L::store(mixed, L::load(mixed) * shrink);
      }
    }
  }

  // Of `rows` vectors and `start`. Four at a time, because each comparison waits for the one
  // before.
  static Vector greatest(const T* column, int64_t rows, Vector start) {
    Vector tops[4] = {start, start, start, start};
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      for (int i = 0; i < 4; ++i) {
        tops[i] = L::greater(tops[i], L::load(column + (row + i) * kBlock));
      }
    }
    for (; row < rows; ++row) tops[0] = L::greater(tops[0], L::load(column + row * kBlock));
    return L::greater(L::greater(tops[0], tops[1]), L::greater(tops[2], tops[3]));
  }

  // The common work of both passes before queries from `begin` on meet a key.
  template <typename Pass>
  static void pack_queries(const Pass& pass, const Block& b, int64_t token, int64_t head,
                           int64_t begin, const AttentionScratch<T>& s) {
    const int64_t dim = pass.shape.head_dim;
    pack_rows(row_of(pass.q, token, head, dim), pass.q.stride, b, dim, s.rounded, pass.rotary,
              begin, s.query_rows);
    pack_columns(s.query_rows, s.rounded, b, dim, static_cast<T>(pass.shape.scale * kLog2E),
                 s.query_columns);
    fill(s.mixed, dim * kBlock, 0);
    fill(s.sums, kBlock, 0);
  }

  // Into s.scores, of keys from `key` on.
  static void see(const Block& b, int64_t key, int64_t dim, const AttentionScratch<T>& s) {
    score(b, s.keys + key * dim, s.query_columns, dim, s.scores);
    hide(b, s.scores);
  }

  static void forward_block(const AttentionForward<T>& pass, const AttentionUnit& unit,
                            int64_t head, int64_t begin, const AttentionScratch<T>& s) {
    const int64_t dim = pass.shape.head_dim;
    const int64_t token = unit.begin + begin;
    const Block own = block_at(pass.shape, unit, begin, begin);
    pack_queries(pass, own, token, head, begin, s);
    fill(s.tops, kBlock, kLowest);
    for (int64_t key = first_key(pass.shape, begin); key <= begin; key += kBlock) {
      const Block b = block_at(pass.shape, unit, begin, key);
      see(b, key, dim, s);
      soften(b, s, dim);
      mix(b, s.values + key * dim, s.scores, dim, s.mixed);
    }
    T* log_sums = pass.log_sums + head * pass.shape.tokens + token;
    for (int64_t q = 0; q < own.queries; ++q) {
      const T inverse = 1 / s.sums[q];
      T* out = row_of(pass.out, token + q, head, dim);
      for (int64_t d = 0; d < dim; ++d) out[d] = s.mixed[d * kBlock + q] * inverse;
      log_sums[q] = s.tops[q] + static_cast<T>(__builtin_log2(s.sums[q]));
    }
  }

  // Scores become weights, products of gradients and values the gradients of scores.
  static void differentiate(const Block& b, const AttentionScratch<T>& s) {
    for (int64_t lane = 0; lane < b.lanes(); lane += kLanes) {
      const int64_t rows = b.tiled_rows(lane);
      const Vector log_sum = L::load(s.tops + lane);
      const Vector product = L::load(s.sums + lane);
      T* scores = s.scores + lane;
      T* slopes = s.slopes + lane;
      for (int64_t row = 0; row < rows; ++row, scores += kBlock, slopes += kBlock) {
        const Vector weight = L::exp2(L::load(scores) - log_sum);
        L::store(scores, weight);
        L::store(slopes, weight * (L::load(slopes) - product));
      }
    }
  }

  static void backward_block(const AttentionBackward<T>& pass, const AttentionUnit& unit,
                             int64_t head, int64_t begin, const AttentionScratch<T>& s) {
    const int64_t dim = pass.shape.head_dim;
    const int64_t token = unit.begin + begin;
    const Block own = block_at(pass.shape, unit, begin, begin);
    pack_queries(pass, own, token, head, begin, s);
    pack_rows(row_of(pass.out_gradient, token, head, dim), pass.out_gradient.stride, own, dim,
              s.rounded, {}, begin, s.gradient_rows);
    pack_columns(s.gradient_rows, s.rounded, own, dim, 1, s.gradient_columns);
    fill(s.tops, kBlock, 0);
    for (int64_t q = 0; q < own.queries; ++q) {
      s.tops[q] = pass.log_sums[head * pass.shape.tokens + token + q];
      const T* out = row_of(pass.out, token + q, head, dim);
      T product = 0;
      for (int64_t d = 0; d < dim; ++d) product += out[d] * s.gradient_rows[q * s.rounded + d];
      s.sums[q] = product;
    }
    for (int64_t key = first_key(pass.shape, begin); key <= begin; key += kBlock) {
      const Block b = block_at(pass.shape, unit, begin, key);
      see(b, key, dim, s);
      score(b, s.values + key * dim, s.gradient_columns, dim, s.slopes);
      differentiate(b, s);
      mix(b, s.keys + key * dim, s.slopes, dim, s.mixed);
      spread(b, s.scores, s.gradient_rows, s.rounded, s.value_gradients + key * s.rounded);
      spread(b, s.slopes, s.query_rows, s.rounded, s.key_gradients + key * s.rounded);
    }
    const T scale = static_cast<T>(pass.shape.scale);
    for (int64_t q = 0; q < own.queries; ++q) {
      T* to = row_of(pass.q_gradient, token + q, head, dim);
      for (int64_t d = 0; d < dim; ++d) to[d] = s.mixed[d * kBlock + q] * scale;
      turn(pass.rotary, begin + q, dim, -1, to);
    }
  }
};

}  // namespace hpctl::kernels
