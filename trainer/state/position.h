// SPDX-License-Identifier: Apache-2.0
// The part of a training state outside the arena's slots, and its form as a slot's notes: a process
// that finds the arena of a dead one resumes from there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/step_samples.h"
#include "trainer/state/exactness.h"

namespace hpctl {

// Where in the run a state is. The same on all ranks.
struct Position {
  uint64_t step = 0;
  uint64_t sample_cursor = 0;
  uint64_t former_cursor = 0;  // before that step; sample_cursor where none was done
  std::vector<SampleRange> skipped;
  StabilityRecord stability;
  LossScaleRecord loss_scale;
  bool operator==(const Position&) const = default;
};

// The digest of the position in its written form.
uint64_t digest_of(const Position& position);

struct SlotNotes {
  Position position;
  Environment environment;     // of the job that sealed it
  std::string inexact_reason;  // "" = bit-exact up to here
  int64_t max_positions = 0;   // ModelSpec, as an imported checkpoint has it
  int32_t world_size = 0;      // of the generation that sealed it
  DataIdentity data;           // that it was trained on
};

std::string encode(const SlotNotes& notes);
// kDataLoss for anything encode did not make.
Result<SlotNotes> decode_slot_notes(std::string_view bytes);

}  // namespace hpctl
