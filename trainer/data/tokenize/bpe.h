// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one piece of text (Sennrich et al. 2016, on bytes as in GPT-2): starts from
// the single bytes and joins, again and again, the neighbours whose merge has the lowest rank, the
// leftmost of equals first, until no neighbours have a merge.
//
// Short pieces are scanned, long ones kept in a heap (n log n: a file of one repeated character is
// no trap). A direct-mapped cache of short pieces makes the common words of a language cheap.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

// Allows look-up by string_view.
struct BytesHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using TokensByBytes = std::unordered_map<std::string, int32_t, BytesHash, std::equal_to<>>;

class BpeModel {
 public:
  // `bytes[b]` is the token of byte b, -1 = none. `merges` have ids >= 0, and `ranks`, or those of
  // their order where none are given. A piece that is one of `whole` gets that token at once
  // (ignore_merges).
  BpeModel(const std::array<int32_t, 256>& bytes, std::span<const BpeMerge> merges,
           TokensByBytes whole, std::span<const uint32_t> ranks = {});

 private:
  friend class BpeEncoder;
  struct Entry {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t result = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  // nullptr: the two have no merge.
  const Entry* find(int32_t left, int32_t right) const;

  std::array<int32_t, 256> bytes_;
  std::vector<Entry> table_;  // open addressing; a power of two, at most half full
  TokensByBytes whole_;
};

// One thread's use of a model, which it does not outlive.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model);
  // kInvalidArgument: the tokenizer has no token for one of the bytes.
  Outcome encode(std::string_view piece, std::vector<int32_t>& ids);
  // Joins neighbours among ids[first, end), which are those of the single characters.
  void join(std::vector<int32_t>& ids, size_t first);

 private:
  struct Cached {
    std::array<char, 15> bytes{};
    uint8_t size = 0;  // of the piece; 0 = free
    uint8_t count = 0;
    std::array<int32_t, 6> ids{};
  };
  struct Symbol {
    int32_t id = 0;
    int32_t before = 0;  // index of the neighbour, -1 = none
    int32_t after = 0;
    bool alive = true;
  };
  struct Candidate {
    uint32_t rank = 0;
    int32_t at = 0;  // the left symbol
    int32_t left = 0;
    int32_t right = 0;
    int32_t result = 0;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  Outcome merge(std::string_view piece, std::vector<int32_t>& ids);
  void scan(std::vector<int32_t>& ids, size_t first) const;
  void merge_by_heap(std::vector<int32_t>& ids, size_t first);
  void offer(int32_t at);

  const BpeModel& model_;
  std::vector<Cached> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace hpctl
