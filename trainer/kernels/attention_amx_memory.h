// SPDX-License-Identifier: Apache-2.0
// Where attention_amx.cc keeps the operands of a unit and of a block, in a thread's memory. `Tile`
// is the source's Tiles (amx_tiles.h).
#pragma once

#include "trainer/kernels/attention.h"

namespace hpctl::kernels {

// Where everything lies in a thread's memory; null: how much there must be.
template <typename Tile>
struct TileMemory {
  TileMemory(const AttentionShape& shape, int64_t tokens, char* memory)
      : dim(shape.head_dim),
        steps(whole(dim, Tile::kDepth)),
        dim_tiles(whole(dim, Tile::kLines)),
        width(dim_tiles * Tile::kLines),
        next_(memory),
        begin_(memory) {
    const int64_t blocks = whole(tokens, kAttentionBlock);
    const int64_t left = (kAttentionBlock / Tile::kLines) * steps * Tile::kElements;
    const int64_t down = (kAttentionBlock / Tile::kDepth) * dim_tiles * Tile::kElements;
    const int64_t pairs = kAttentionBlock * kAttentionBlock;
    take(keys_left, blocks * left);
    take(values_left, blocks * left);
    take(keys_down, blocks * down);
    take(values_down, blocks * down);
    take(key_gradients, blocks * kAttentionBlock * width);
    take(value_gradients, blocks * kAttentionBlock * width);
    take(queries_right, left);
    take(gradients_right, left);
    take(queries_down, down);
    take(gradients_down, down);
    take(turned, kAttentionBlock * width);
    take(rows, kAttentionBlock * width);
    take(mixed, width * kAttentionBlock);
    take(scores, pairs);
    take(slopes, pairs);
    take(weights_right, pairs);
    take(weights_left, pairs);
    take(slopes_right, pairs);
    take(slopes_left, pairs);
    take(tops, kAttentionBlock);
    take(sums, kAttentionBlock);
  }

  int64_t bytes() const { return next_ - begin_; }

  int64_t dim;
  int64_t steps;      // of depth where dimensions are that
  int64_t dim_tiles;  // where they are rows or columns
  int64_t width;      // a row of dimensions in whole tiles

  uint16_t* keys_left;        // of each block [key tiles, steps], turned
  uint16_t* values_left;      // likewise; of the backward pass
  uint16_t* keys_down;        // of each block [steps of keys, dim_tiles], a left operand
  uint16_t* values_down;      // likewise
  float* key_gradients;       // [tokens, width]
  float* value_gradients;     // [tokens, width]
  uint16_t* queries_right;    // [steps, query tiles], turned
  uint16_t* gradients_right;  // likewise, of results
  uint16_t* queries_down;     // [steps of queries, dim_tiles], a right operand
  uint16_t* gradients_down;   // likewise
  uint16_t* turned;           // [block, width]
  float* rows;                // [block, width]
  float* mixed;               // [width, block]: mixed values, or gradients of queries
  float* scores;              // [keys, queries]
  float* slopes;              // likewise: gradients of weights
  uint16_t* weights_right;    // [steps of keys, query tiles]
  uint16_t* weights_left;     // [key tiles, steps of queries]
  uint16_t* slopes_right;     // gradients of scores, likewise
  uint16_t* slopes_left;
  float* tops;  // [block]: greatest scores, or logarithms of sums
  float* sums;  // [block]: sums of weights, or products of results and their gradients

 private:
  static int64_t whole(int64_t count, int64_t part) { return (count + part - 1) / part; }

  // Not a power of two in all: a load would wait for a store that lies 4096 bytes away from it.
  template <typename Element>
  void take(Element*& part, int64_t count) {
    part = reinterpret_cast<Element*>(next_);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(Element));
    next_ += (bytes + 63) / 64 * 64 + 64;
  }
  char* next_;
  char* begin_;
};

}  // namespace hpctl::kernels
