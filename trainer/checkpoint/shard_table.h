// SPDX-License-Identifier: Apache-2.0
// The stored ranges of one shard file, written down briefly: in a receipt, in a manifest.
//
// A rank's ranges have a checksum per piece, so that another world size reads no more than the
// pieces that it shares elements with. In a table only what cannot be computed is written: which
// elements of each block the file holds, where its first byte lies, and the checksums. The kinds
// hold the same elements; ranges follow each other without gaps in the order kind, block, slice,
// begin; a range is cut into pieces from its own begin on, a slice from its first element on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"

namespace hpctl {

// Elements, 4 MiB. Larger pieces make a rank of a larger world read more than it needs, smaller
// ones the manifest longer.
inline constexpr int64_t kStoredPiece = int64_t{1} << 20;

struct BlockRange {
  int32_t block = 0;
  ElementRange range;  // of the block's flat range; of a slice, all its elements
  int32_t slice = -1;  // as ShardEntry's
  bool operator==(const BlockRange&) const = default;
};

struct ShardTable {
  uint64_t data = 0;               // first byte of the first range
  std::vector<BlockRange> ranges;  // ascending by (block, slice, begin)
  std::string sums;                // of each piece in the order of the file: 8 hex digits, crc32c
};

// nullopt unless `entries`, of one file and in any order, are in the form above for `kinds` kinds
// and pieces of kStoredPiece.
std::optional<ShardTable> table_of(std::vector<ShardEntry> entries, size_t kinds);

// Every piece as an entry of file `file`, in the order of the file. Takes a table as untrusted:
// nullopt when the number of checksums is another or an offset is impossible.
std::optional<std::vector<ShardEntry>> entries_of_table(const ShardTable& table, int32_t file,
                                                        size_t kinds, int64_t piece_elements);

}  // namespace hpctl
