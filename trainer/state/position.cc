// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/position.h"

#include <bit>

#include "common/base/rng.h"
#include "common/net/packet.h"

namespace hpctl {

namespace {

void write(PacketWriter& w, const std::vector<double>& values) {
  w.number(static_cast<uint32_t>(values.size()));
  for (const double value : values) w.number(std::bit_cast<uint64_t>(value));
}

// The count is not believed further than there are bytes: what lacks reads as 0 and ends it.
std::vector<double> read_doubles(PacketReader& r) {
  const auto count = r.number<uint32_t>();
  std::vector<double> values;
  while (values.size() < count && !r.at_end()) {
    values.push_back(std::bit_cast<double>(r.number<uint64_t>()));
  }
  return values;
}

void write(PacketWriter& w, const Position& p) {
  w.number(p.step).number(p.sample_cursor).number(p.former_cursor);
  w.number(static_cast<uint32_t>(p.skipped.size()));
  for (const SampleRange& range : p.skipped) w.number(range.begin).number(range.end);
  w.number(p.stability.skips);
  write(w, p.stability.losses);
  write(w, p.stability.grad_norms);
  w.number(p.loss_scale.scale).number(p.loss_scale.good_steps);
  w.number(p.loss_scale.hysteresis_left).number(p.loss_scale.overflows);
}

Position read_position(PacketReader& r) {
  Position p;
  r.into(p.step);
  r.into(p.sample_cursor);
  r.into(p.former_cursor);
  const auto count = r.number<uint32_t>();
  while (p.skipped.size() < count && !r.at_end()) {
    const auto begin = r.number<uint64_t>();
    p.skipped.push_back({begin, r.number<uint64_t>()});
  }
  r.into(p.stability.skips);
  p.stability.losses = read_doubles(r);
  p.stability.grad_norms = read_doubles(r);
  r.into(p.loss_scale.scale);
  r.into(p.loss_scale.good_steps);
  r.into(p.loss_scale.hysteresis_left);
  r.into(p.loss_scale.overflows);
  return p;
}

}  // namespace

uint64_t digest_of(const Position& position) {
  PacketWriter w;
  write(w, position);
  uint64_t digest = 0;
  for (const char c : w.take()) digest = mix64(digest ^ static_cast<unsigned char>(c));
  return digest;
}

std::string encode(const SlotNotes& notes) {
  PacketWriter w;
  write(w, notes.position);
  write_environment(w, notes.environment);
  w.text(notes.inexact_reason).number(notes.max_positions).number(notes.world_size);
  w.text(notes.data.fingerprint).number(notes.data.tokens).number(notes.data.seq_len);
  return w.take();
}

Result<SlotNotes> decode_slot_notes(std::string_view bytes) {
  PacketReader r(bytes);
  SlotNotes notes;
  notes.position = read_position(r);
  notes.environment = read_environment(r);
  notes.inexact_reason = r.text();
  r.into(notes.max_positions);
  r.into(notes.world_size);
  notes.data.fingerprint = r.text();
  r.into(notes.data.tokens);
  r.into(notes.data.seq_len);
  if (r.finished()) return notes;
  return Error{ErrorCode::kDataLoss, "the notes of a sealed state are damaged"};
}

}  // namespace hpctl
