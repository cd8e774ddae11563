// SPDX-License-Identifier: Apache-2.0
// The slots of a training state: which one has the newest sealed state, which ones a save or a copy
// at a peer reads, and, on a GPU, to which one the state is copied.
#include <algorithm>
#include <array>
#include <string>

#include "common/base/check.h"
#include "common/base/log.h"
#include "trainer/state/training_state.h"

namespace hpctl {

// After a beginning or a checkpoint was put into the arena.
void TrainingState::seal_filled() {
  if (offloaded_) offloaded_->refresh(arena_);
  in_place_.reset();
  is_whole_ = true;
  if (!copies_) return seal();
  begin_copy();
  seal_copy();
}

std::string TrainingState::notes_of_now() const {
  return encode({now_, environment_, inexact_reason_, workload_.train.model.max_positions,
                 workload_.world_size, data_});
}

// The slot that is now the newest.
void TrainingState::seal() {
  const std::string notes = notes_of_now();
  if (!arena_.seal(slot_, seal_of_now(), notes) && arena_.device().is_host()) {
    tell_unsealed(notes.size());
  }
}

bool TrainingState::begin_copy() {
  if (!copies_ || in_place_ || !is_whole_) return true;
  seal_copy();
  const int slot = free_slot();
  if (slot == kNoSlot) return false;
  in_place_ = seal_of_now();
  copied_step_ = now_.step;
  copied_slot_ = slot;
  copies_->begin(arena_, slot, *in_place_, notes_of_now());
  return true;
}

bool TrainingState::seal_copy() {
  if (!copies_ || !copies_->is_under_way()) return false;
  if (copies_->finish()) {
    slot_ = copied_slot_;
  } else {
    tell_unsealed(notes_of_now().size());
  }
  return true;
}

void TrainingState::tell_unsealed(size_t notes_bytes) {
  if (told_unsealed_) return;
  told_unsealed_ = true;
  log_warning("step " + std::to_string(now_.step) +
              " and those after it are of no use to a recovery from memory: " +
              std::to_string(now_.skipped.size()) +
              " ranges of samples are left out, and what goes with the state takes " +
              std::to_string(notes_bytes) + " bytes, for which an arena has " +
              std::to_string(geometry().notes_bytes) +
              "; a fault goes back to the newest checkpoint: save more often");
}

int TrainingState::free_slot() const {
  if (geometry().slots == 1) return slot_;
  const std::array taken = {slot_, sent_slot_, kept_slot_, held_slot_};
  for (int slot = 0; slot < geometry().slots; ++slot) {
    if (std::find(taken.begin(), taken.end(), slot) == taken.end()) return slot;
  }
  return kNoSlot;
}

bool TrainingState::hold_newest() {
  HP_CHECK(held_slot_ == kNoSlot);
  if (geometry().slots < 3 || !begin_copy() || (copies_ && !in_place_)) return false;
  held_slot_ = copies_ ? copied_slot_ : slot_;
  return true;
}

const std::byte* TrainingState::held(StateKind kind, size_t block, ElementRange range) {
  HP_CHECK(held_slot_ != kNoSlot);
  return arena().bytes_at(held_slot_, kind, block, range.begin - padded_shard(block).begin);
}

uint64_t TrainingState::sealed_step() const {
  if (!copies_) return now_.step;
  return copies_->arena().is_sealed(slot_) ? copies_->arena().seal_of(slot_).step : 0;
}

int TrainingState::begin_snapshot() { return sent_slot_ = slot_; }

void TrainingState::end_snapshot(bool everywhere) {
  if (everywhere) kept_slot_ = sent_slot_;
  sent_slot_ = kNoSlot;
}

int TrainingState::find_copy() const {
  const StateArena& arena = sealed_arena();
  const Seal newest = arena.seal_of(slot_);
  for (int slot = geometry().slots; slot < geometry().all_slots(); ++slot) {
    if (arena.is_sealed(slot) && arena.seal_of(slot) == newest) return slot;
  }
  return kNoSlot;
}

// What a GPU has, it keeps: a survivor's newest state is mostly the one of the seal.
void TrainingState::take_in_place() {
  if (copies_ && in_place_ == arena().seal_of(slot_)) return;
  parameters_changed();
  if (!copies_) return;
  is_whole_ = false;
  copies_->restore(slot_, arena_);
  is_whole_ = true;
  in_place_ = arena().seal_of(slot_);
  copied_slot_ = slot_;
  copied_step_ = in_place_->step;
}

}  // namespace hpctl
