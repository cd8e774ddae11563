// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/shard_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

namespace hpctl {
namespace {

constexpr size_t kSumDigits = 8;
constexpr uint64_t kMaxOffset = uint64_t{1} << 62;
constexpr int64_t kMaxRange = int64_t{1} << 48;

void append_sum(std::string& sums, uint32_t crc) {
  std::array<char, kSumDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", crc);
  sums += digits.data();
}

std::optional<uint32_t> sum_at(std::string_view sums, size_t index) {
  const std::string_view digits = sums.substr(index * kSumDigits, kSumDigits);
  uint32_t crc = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), crc, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return crc;
}

}  // namespace

std::optional<ShardTable> table_of(std::vector<ShardEntry> entries, size_t kinds) {
  std::sort(entries.begin(), entries.end(),
            [](const ShardEntry& a, const ShardEntry& b) { return a.offset < b.offset; });
  ShardTable table;
  if (entries.empty()) return table;
  table.data = entries.front().offset;
  for (const ShardEntry& e : entries) {
    append_sum(table.sums, e.crc32c);
    if (e.kind != StateKind::kParam) continue;
    std::vector<BlockRange>& ranges = table.ranges;
    if (!ranges.empty() && ranges.back().block == e.block && ranges.back().slice == e.slice &&
        ranges.back().range.end == e.range.begin) {
      ranges.back().range.end = e.range.end;
    } else {
      ranges.push_back({e.block, e.range, e.slice});
    }
  }
  if (entries_of_table(table, entries.front().file, kinds, kStoredPiece) != entries) {
    return std::nullopt;
  }
  return table;
}

std::optional<std::vector<ShardEntry>> entries_of_table(const ShardTable& table, int32_t file,
                                                        size_t kinds, int64_t piece_elements) {
  const size_t sums = table.sums.size() / kSumDigits;
  std::vector<ShardEntry> entries;
  entries.reserve(sums);
  uint64_t offset = table.data;
  for (const StateKind kind : std::span(kStateKinds).first(kinds)) {
    for (const BlockRange& part : table.ranges) {
      if (part.range.begin < 0 || part.range.empty() || part.range.end > kMaxRange) {
        return std::nullopt;
      }
      for (int64_t at = part.range.begin; at < part.range.end; at += piece_elements) {
        const ElementRange piece{at, std::min(at + piece_elements, part.range.end)};
        if (entries.size() == sums || offset > kMaxOffset) return std::nullopt;
        const std::optional<uint32_t> crc = sum_at(table.sums, entries.size());
        if (!crc) return std::nullopt;
        entries.push_back({part.block, kind, piece, file, offset, *crc, part.slice});
        offset += static_cast<uint64_t>(piece.size()) * sizeof(float);
      }
    }
  }
  if (entries.size() * kSumDigits != table.sums.size()) return std::nullopt;
  return entries;
}

}  // namespace hpctl
