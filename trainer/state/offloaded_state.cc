// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/offloaded_state.h"

#include <algorithm>
#include <type_traits>

#include "common/layout/memory_savings.h"

namespace hpctl {

OffloadedState::OffloadedState(Device& device, const ArenaGeometry& geometry,
                               const TrainSpec& train)
    : device_(device),
      seed_(train.seed),
      moment_bytes_(geometry.moment_bytes),
      rounding_(train.precision == Precision::kBf16   ? Rounding::kBf16
                : train.precision == Precision::kFp16 ? Rounding::kFp16
                                                      : Rounding::kNone),
      on_host_(offloads_parameters(train)) {
  int64_t elements = 0;
  int64_t largest = 0;
  for (size_t b = 0; b < geometry.block_capacity.size(); ++b) {
    const int64_t capacity = geometry.block_capacity[b];
    weights_begin_.push_back(elements);
    elements += capacity;
    for (int64_t first = 0; first < capacity; first += kOffloadPiece) {
      pieces_.push_back({.block = b,
                         .shard_begin = capacity * geometry.interval,
                         .first = first,
                         .count = std::min(kOffloadPiece, capacity - first)});
      largest = std::max(largest, pieces_.back().count);
    }
  }
  const auto count = static_cast<size_t>(largest);
  for (Buffers& buffers : buffers_) {
    buffers.param = DeviceArray<float>(device, count);
    buffers.exp_avg = DeviceArray<std::byte>(device, count * moment_bytes_);
    buffers.exp_avg_sq = DeviceArray<std::byte>(device, count * moment_bytes_);
    if (!on_host_ || weights_are_arenas()) continue;
    buffers.rounded = DeviceArray<std::byte>(device, count * weight_bytes());
  }
  if (weights_are_arenas()) return;
  const size_t bytes = static_cast<size_t>(elements) * weight_bytes();
  weights_ = on_host_ ? DeviceArray<std::byte>::on_host(device, bytes)
                      : DeviceArray<std::byte>(device, bytes);
}

WeightShards OffloadedState::weights(StateArena& arena) const {
  WeightShards shards;
  for (size_t b = 0; b < weights_begin_.size(); ++b) {
    const void* const values =
        weights_are_arenas() ? arena.bytes_at(0, StateKind::kParam, b, 0) : weight_at(b, 0);
    shards.push_back({values, rounding_ != Rounding::kNone, on_host_});
  }
  return shards;
}

std::byte* OffloadedState::weight_at(size_t block, int64_t first) const {
  return weights_.data() + static_cast<size_t>(weights_begin_[block] + first) * weight_bytes();
}

void OffloadedState::refresh(StateArena& arena) {
  if (weights_are_arenas()) return;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    device_.begin_upload(arena.bytes_at(0, StateKind::kParam, piece.block, piece.first),
                         buffers_[i % 2].param.data(),
                         static_cast<size_t>(piece.count) * sizeof(float));
    device_.after_uploads();
    renew_weights(i);
  }
  device_.await_downloads();
}

void OffloadedState::step(StateArena& arena, const AdamStep& adam,
                          const std::vector<std::vector<DecayRange>>& ranges,
                          const std::vector<const float*>& gradients) {
  begin_uploads(arena, 0);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const size_t block = pieces_[i].block;
    device_.after_uploads();
    // Into the buffers of the piece before, whose downloads it waits for.
    if (i + 1 < pieces_.size()) begin_uploads(arena, i + 1);
    update(i, adam, ranges[block], gradients[block]);
    renew_weights(i);
    begin_downloads(arena, i);
  }
  device_.await_downloads();
}

void OffloadedState::begin_uploads(StateArena& arena, size_t i) {
  const Piece& piece = pieces_[i];
  const Buffers& to = buffers_[i % 2];
  const auto count = static_cast<size_t>(piece.count);
  const auto from = [&](StateKind kind) {
    return arena.bytes_at(0, kind, piece.block, piece.first);
  };
  device_.begin_upload(from(StateKind::kParam), to.param.data(), count * sizeof(float));
  device_.begin_upload(from(StateKind::kExpAvg), to.exp_avg.data(), count * moment_bytes_);
  device_.begin_upload(from(StateKind::kExpAvgSq), to.exp_avg_sq.data(), count * moment_bytes_);
}

void OffloadedState::begin_downloads(StateArena& arena, size_t i) {
  const Piece& piece = pieces_[i];
  const Buffers& from = buffers_[i % 2];
  const auto count = static_cast<size_t>(piece.count);
  const auto to = [&](StateKind kind) { return arena.bytes_at(0, kind, piece.block, piece.first); };
  device_.begin_download(from.param.data(), to(StateKind::kParam), count * sizeof(float));
  device_.begin_download(from.exp_avg.data(), to(StateKind::kExpAvg), count * moment_bytes_);
  device_.begin_download(from.exp_avg_sq.data(), to(StateKind::kExpAvgSq), count * moment_bytes_);
}

void OffloadedState::update(size_t i, const AdamStep& adam, const std::vector<DecayRange>& ranges,
                            const float* gradient) {
  const Piece& piece = pieces_[i];
  const int64_t begin = piece.shard_begin + piece.first;
  const ElementRange whole = {begin, begin + piece.count};
  const auto in_place = [&](auto* exp_avg, auto* exp_avg_sq, const DecayRange& part, int64_t at) {
    float* const param = buffers_[i % 2].param.data() + at;
    using Moment = std::remove_pointer_t<decltype(exp_avg)>;
    const AdamTarget<float, Moment> to = {param, exp_avg + at, exp_avg_sq + at};
    const AdamSource<float, Moment> from = {to.param, to.exp_avg, to.exp_avg_sq,
                                            gradient + piece.first + at};
    const RandomBits bits = random_bits(seed_, adam, piece.block, part.range.begin);
    device_.adamw(adam, part.decayed, bits, part.range.size(), from, to);
  };
  void* const exp_avg = buffers_[i % 2].exp_avg.data();
  void* const exp_avg_sq = buffers_[i % 2].exp_avg_sq.data();
  for (const DecayRange& range : ranges) {
    const DecayRange part = {intersect(range.range, whole), range.decayed};
    if (part.range.empty()) continue;
    const int64_t at = part.range.begin - whole.begin;
    if (moment_bytes_ == sizeof(float)) {
      in_place(static_cast<float*>(exp_avg), static_cast<float*>(exp_avg_sq), part, at);
    } else {
      in_place(static_cast<uint16_t*>(exp_avg), static_cast<uint16_t*>(exp_avg_sq), part, at);
    }
  }
}

// From a piece's parameters on the device.
void OffloadedState::renew_weights(size_t i) {
  if (weights_are_arenas()) return;
  const Piece& piece = pieces_[i];
  const Buffers& buffers = buffers_[i % 2];
  std::byte* const weights = weight_at(piece.block, piece.first);
  void* const to = on_host_ ? buffers.rounded.data() : weights;
  if (rounding_ == Rounding::kNone) {
    device_.copy(buffers.param.data(), static_cast<float*>(to), piece.count);
  } else if (rounding_ == Rounding::kBf16) {
    device_.round_to_bf16(buffers.param.data(), static_cast<uint16_t*>(to), piece.count);
  } else {
    device_.round_to_fp16(buffers.param.data(), static_cast<uint16_t*>(to), piece.count);
  }
  if (!on_host_) return;
  device_.begin_download(to, weights, static_cast<size_t>(piece.count) * weight_bytes());
}

}  // namespace hpctl
