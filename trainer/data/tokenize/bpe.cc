// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/base/rng.h"

namespace hpctl {
namespace {

constexpr size_t kCacheEntries = 1 << 16;
constexpr size_t kScanned = 48;  // longer pieces use the heap

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeModel::BpeModel(const std::array<int32_t, 256>& bytes, std::span<const BpeMerge> merges,
                   TokensByBytes whole, std::span<const uint32_t> ranks)
    : bytes_(bytes), table_(std::bit_ceil(2 * merges.size() + 2)), whole_(std::move(whole)) {
  HP_CHECK(ranks.empty() || ranks.size() == merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const BpeMerge& m = merges[i];
    const uint32_t rank = ranks.empty() ? static_cast<uint32_t>(i) : ranks[i];
    const uint64_t pair = pair_of(m.left, m.right);
    size_t slot = mix64(pair) & (table_.size() - 1);
    while (table_[slot].pair != kNoPair && table_[slot].pair != pair) {
      slot = (slot + 1) & (table_.size() - 1);
    }
    // Given twice, the later one counts: the library this format comes from fills a map in order.
    table_[slot] = Entry{pair, rank, m.result};
  }
}

const BpeModel::Entry* BpeModel::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  size_t slot = mix64(pair) & (table_.size() - 1);
  while (table_[slot].pair != pair) {
    if (table_[slot].pair == kNoPair) return nullptr;
    slot = (slot + 1) & (table_.size() - 1);
  }
  return &table_[slot];
}

BpeEncoder::BpeEncoder(const BpeModel& model) : model_(model), cache_(kCacheEntries) {}

Outcome BpeEncoder::encode(std::string_view piece, std::vector<int32_t>& ids) {
  if (piece.size() > sizeof(Cached::bytes)) return merge(piece, ids);
  Cached& cached = cache_[std::hash<std::string_view>{}(piece) % kCacheEntries];
  if (cached.size == piece.size() &&
      std::memcmp(cached.bytes.data(), piece.data(), piece.size()) == 0) {
    ids.insert(ids.end(), cached.ids.begin(), cached.ids.begin() + cached.count);
    return Ok{};
  }
  const size_t first = ids.size();
  HP_TRY(merge(piece, ids));
  const size_t count = ids.size() - first;
  if (count > cached.ids.size()) return Ok{};
  std::memcpy(cached.bytes.data(), piece.data(), piece.size());
  cached.size = static_cast<uint8_t>(piece.size());
  cached.count = static_cast<uint8_t>(count);
  std::copy(ids.begin() + static_cast<ptrdiff_t>(first), ids.end(), cached.ids.begin());
  return Ok{};
}

Outcome BpeEncoder::merge(std::string_view piece, std::vector<int32_t>& ids) {
  if (!model_.whole_.empty()) {
    if (const auto found = model_.whole_.find(piece); found != model_.whole_.end()) {
      ids.push_back(found->second);
      return Ok{};
    }
  }
  const size_t first = ids.size();
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    if (model_.bytes_[byte] < 0) {
      ids.resize(first);
      return Error{ErrorCode::kInvalidArgument,
                   "the tokenizer has no token for byte " + std::to_string(byte)};
    }
    ids.push_back(model_.bytes_[byte]);
  }
  join(ids, first);
  return Ok{};
}

void BpeEncoder::join(std::vector<int32_t>& ids, size_t first) {
  if (ids.size() - first <= kScanned) {
    scan(ids, first);
  } else {
    merge_by_heap(ids, first);
  }
}

// Merges ids[first, end), in place.
void BpeEncoder::scan(std::vector<int32_t>& ids, size_t first) const {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::array<uint32_t, kScanned> ranks;  // of the pair that begins at each symbol
  std::array<int32_t, kScanned> results;
  int32_t* const symbols = ids.data() + first;
  size_t count = ids.size() - first;
  const auto look_up = [&](size_t i) {
    const auto* entry = i + 1 < count ? model_.find(symbols[i], symbols[i + 1]) : nullptr;
    ranks[i] = entry != nullptr ? entry->rank : kNone;
    if (entry != nullptr) results[i] = entry->result;
  };
  for (size_t i = 0; i < count; ++i) look_up(i);
  while (count > 1) {
    const auto lowest = std::min_element(ranks.begin(), ranks.begin() + count);
    if (*lowest == kNone) break;
    const auto at = static_cast<size_t>(lowest - ranks.begin());
    symbols[at] = results[at];
    --count;
    for (size_t i = at + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    look_up(at);
    if (at > 0) look_up(at - 1);
  }
  ids.resize(first + count);
}

void BpeEncoder::offer(int32_t at) {
  const Symbol& symbol = symbols_[static_cast<size_t>(at)];
  if (symbol.after < 0) return;
  const int32_t right = symbols_[static_cast<size_t>(symbol.after)].id;
  const auto* entry = model_.find(symbol.id, right);
  if (entry == nullptr) return;
  heap_.push_back(Candidate{entry->rank, at, symbol.id, right, entry->result});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeEncoder::merge_by_heap(std::vector<int32_t>& ids, size_t first) {
  const auto count = static_cast<int32_t>(ids.size() - first);
  symbols_.assign(static_cast<size_t>(count), Symbol{});
  heap_.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols_[static_cast<size_t>(i)] =
        Symbol{ids[first + static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, true};
  }
  for (int32_t i = 0; i < count; ++i) offer(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<size_t>(best.at)];
    if (!left.alive || left.id != best.left || left.after < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.after)];
    if (right.id != best.right) continue;  // an older candidate of symbols that have changed
    left.id = best.result;
    left.after = right.after;
    right.alive = false;
    if (left.after >= 0) symbols_[static_cast<size_t>(left.after)].before = best.at;
    offer(best.at);
    if (left.before >= 0) offer(left.before);
  }
  ids.resize(first);
  for (int32_t i = 0; i >= 0; i = symbols_[static_cast<size_t>(i)].after) {
    ids.push_back(symbols_[static_cast<size_t>(i)].id);
  }
}

}  // namespace hpctl
