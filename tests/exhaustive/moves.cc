// SPDX-License-Identifier: Apache-2.0
// Which moves there are in a world, and their names.
#include <algorithm>
#include <array>
#include <charconv>

#include "tests/exhaustive/world.h"

namespace hpctl::exhaustive {

namespace {

// In the order of MoveKind.
constexpr std::array kNames = {
    "take",     "take-late",   "receive",  "register", "launch",      "notice",
    "look-up",  "answer",      "seal",     "finish",   "end",         "lose-peer",
    "commit",   "claim",       "miss",     "mirror",   "back",        "wait",
    "kill",     "end-holder",  "break",    "give-up",  "crash",       "hurry",
    "rival",    "late-commit", "unfit",    "storage",  "unreadable",  "no-room",
    "damage",   "false-claim", "take-dir", "blind",    "delete",      "wipe",
    "hopeless", "cancel",      "empty",    "away",     "mirror-away", "mirror-damage"};

constexpr int32_t kMostPerformed = 1;  // actions, before the controller dies in a commit

bool has_checkpoint(MoveKind kind) {
  return kind == MoveKind::kCommit || kind == MoveKind::kLateCommit || kind == MoveKind::kNoRoom ||
         kind == MoveKind::kDamage || kind == MoveKind::kDelete || kind == MoveKind::kMirrorDamage;
}

// Reads the number at the start of `text` and takes it away.
std::optional<uint64_t> take_number(std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.erase(0, static_cast<size_t>(end - text.data()));
  return number;
}

}  // namespace

const char* to_string(MoveKind kind) { return kNames.at(static_cast<size_t>(kind)); }

std::optional<MoveKind> parse_fault(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  const auto kind = static_cast<MoveKind>(found - kNames.begin());
  if (found == kNames.end() || kind < MoveKind::kKill) return std::nullopt;
  return kind;
}

std::string to_string(const Move& move) {
  std::string text = kNames.at(static_cast<size_t>(move.kind));
  if (move.node >= 0) text += std::to_string(move.node);
  if (has_checkpoint(move.kind)) {
    text += std::to_string(move.generation) + "." + std::to_string(move.step);
  }
  if (move.dies_after >= 0) text += "^" + std::to_string(move.dies_after);
  return text;
}

std::optional<Move> parse_move(const std::string& text) {
  const size_t length = std::min(text.find_first_of("0123456789^"), text.size());
  const auto name = std::find(kNames.begin(), kNames.end(), text.substr(0, length));
  if (name == kNames.end()) return std::nullopt;
  Move move;
  move.kind = static_cast<MoveKind>(name - kNames.begin());
  std::string rest = text.substr(length);
  const auto first = take_number(rest);
  if (has_checkpoint(move.kind)) {
    if (!first || !rest.starts_with('.')) return std::nullopt;
    rest.erase(0, 1);
    const auto step = take_number(rest);
    if (!step) return std::nullopt;
    move.generation = *first;
    move.step = *step;
  } else if (first) {
    move.node = static_cast<int32_t>(*first);
  }
  if (rest.starts_with('^')) {
    rest.erase(0, 1);
    const auto performed = take_number(rest);
    if (!performed) return std::nullopt;
    move.dies_after = static_cast<int32_t>(*performed);
  }
  return rest.empty() ? std::optional(move) : std::nullopt;
}

// A step takes every rank: nobody is ahead of anybody by more than one. One that is gone may have
// had its part in a step that it did not complete.
bool World::can_seal(const Place& place) const {
  const Run& run = runs_.at(place.worker->generation);
  const uint64_t step = run.steps.at(place.rank);
  const bool is_ahead = std::any_of(run.steps.begin(), run.steps.end(),
                                    [step](const auto& rank) { return rank.second > step; });
  if (run.is_last || (run.is_stopping && !is_ahead)) return false;
  return run.is_formed && step < scope_->steps &&
         std::all_of(run.steps.begin(), run.steps.end(),
                     [step](const auto& rank) { return rank.second >= step; });
}

// In the first place.
bool World::is_saved(uint64_t generation, uint64_t step) const {
  const Run& run = runs_.at(generation);
  const bool is_elsewhere = run.from_memory || run.checkpoint.starts_with('/');
  return directory_.checkpoint({step, generation}) != nullptr ||
         (!is_elsewhere && run.start_step == step);
}

bool World::can_finish(const Place& place) const {
  const uint64_t generation = place.worker->generation;
  const Run& run = runs_.at(generation);
  return run.is_formed && !run.is_last && run.steps.at(place.rank) == scope_->steps &&
         is_saved(generation, scope_->steps);
}

bool World::has_saved_its_last(uint64_t generation) const {
  const Run& run = runs_.at(generation);
  const uint64_t step = run.steps.begin()->second;
  return run.is_formed && is_saved(generation, step) &&
         std::all_of(run.steps.begin(), run.steps.end(),
                     [step](const auto& rank) { return rank.second == step; });
}

// No rank of its generation has completed a step: what it starts from is being read.
bool World::is_starting(const Place& place) const {
  if (!place.worker) return false;
  const Run& run = runs_.at(place.worker->generation);
  return std::all_of(run.steps.begin(), run.steps.end(),
                     [&run](const auto& rank) { return rank.second == run.start_step; });
}

bool World::can_claim(const Place& place) const {
  const Run& run = runs_.at(place.worker->generation);
  if (run.is_formed || run.is_missing || run.checkpoint.empty()) return false;
  const sim::StoredCheckpoint* from = stored_at(run.checkpoint);
  if (from != nullptr) return from->damaged;
  return !is_away_ && checkers_.was_lost(JobId{1}, run.checkpoint);
}

bool World::can_miss(const Place& place) const {
  const Run& run = runs_.at(place.worker->generation);
  const bool in_first = !run.checkpoint.empty() && !run.checkpoint.starts_with('/');
  if (run.is_last && run.is_formed) return !can_save();
  return !run.is_formed && (run.is_missing || (in_first && is_away_));
}

void World::add_of_place(std::vector<Move>& moves, int32_t node) const {
  const Place& place = places_[static_cast<size_t>(node)];
  const core::Node& row = state_.nodes.at(key_of(node));
  const auto add = [&](MoveKind kind) { moves.push_back({kind, node}); };
  if (!place.up.empty()) add(MoveKind::kTake);
  if (!place.late.empty()) add(MoveKind::kTakeLate);
  if (!place.down.empty()) add(MoveKind::kReceive);
  if (place.holder_alive && !place.bound) add(MoveKind::kRegister);
  if (place.launch) add(MoveKind::kLaunch);
  const bool is_believed_alive = row.state != core::NodeState::kDown &&
                                 row.state != core::NodeState::kEnded &&
                                 (row.holder_pid == 0 || row.holder_pid == holder_pid(node));
  if (place.life > 0 && !place.holder_alive && !place.end_seen && is_believed_alive) {
    add(MoveKind::kNotice);
  }
  if (!place.worker) return;
  if (can_seal(place)) add(MoveKind::kSeal);
  if (can_finish(place)) add(MoveKind::kFinish);
  if (can_claim(place)) add(MoveKind::kClaim);
  if (can_miss(place)) add(MoveKind::kMiss);
  const uint64_t generation = place.worker->generation;
  const Run& run = runs_.at(generation);
  const bool has_saved = (run.is_last || run.is_stopping) && has_saved_its_last(generation);
  const bool is_told = run.is_last || place.stopping.has_value();
  if (has_saved && is_told) add(MoveKind::kEnd);
  // One that was not told itself leaves with the others.
  if (run.is_broken || (has_saved && !is_told)) add(MoveKind::kLosePeer);
}

void World::add_healthy(std::vector<Move>& moves) const {
  for (int32_t node = 0; node < static_cast<int32_t>(places_.size()); ++node) {
    add_of_place(moves, node);
  }
  if (!orders_.empty()) moves.push_back({MoveKind::kLookUp});
  if (!mirror_orders_.empty()) moves.push_back({MoveKind::kMirror});
  if (!answers_.empty()) moves.push_back({MoveKind::kAnswer});
  if (!can_save()) moves.push_back({MoveKind::kBack});
  for (const auto& [generation, run] : runs_) {
    if (run.gone.contains(0) || !can_save()) continue;  // rank 0 completes checkpoints
    for (const uint64_t step : run.saving) {
      moves.push_back({MoveKind::kCommit, -1, generation, step});
    }
  }
  // Time goes on without the first place, too.
  const bool is_still = moves.empty() || (moves.size() == 1 && !can_save());
  if (is_still && core::next_deadline(state_)) moves.push_back({MoveKind::kWait});
}

// The outbox has what was not performed any more, and the holder what nobody acknowledged.
void World::add_deaths_in_commits(std::vector<Move>& moves,
                                  const std::vector<Move>& healthy) const {
  for (Move move : healthy) {
    const bool commits = move.kind == MoveKind::kTake || move.kind == MoveKind::kRegister ||
                         move.kind == MoveKind::kNotice || move.kind == MoveKind::kAnswer;
    for (move.dies_after = 0; commits && move.dies_after <= kMostPerformed; ++move.dies_after) {
      moves.push_back(move);
    }
  }
}

void World::add_faults_of_storage(std::vector<Move>& moves) const {
  const auto add = [&](const Move& move) {
    if (scope_->kinds.empty() || scope_->kinds.contains(move.kind)) moves.push_back(move);
  };
  if (!orders_.empty()) add({MoveKind::kStorage});
  for (int32_t node = 0; node < static_cast<int32_t>(places_.size()); ++node) {
    const Place& place = places_[static_cast<size_t>(node)];
    const bool reads_again = !place.down.empty() && std::holds_alternative<core::ConfirmDamage>(
                                                        place.down.front().action.body);
    if (reads_again) add({MoveKind::kBlind, node});
    if (!is_starting(place)) continue;
    add({MoveKind::kUnreadable, node});
    const bool loads = !runs_.at(place.worker->generation).checkpoint.empty();
    if (loads && !can_claim(place)) add({MoveKind::kFalseClaim, node});
  }
  for (const auto& [generation, run] : runs_) {
    if (run.gone.contains(0)) continue;
    for (const uint64_t step : run.saving) add({MoveKind::kNoRoom, -1, generation, step});
  }
  for (const auto& [ref, stored] : directory_.checkpoints()) {
    if (!stored.damaged) add({MoveKind::kDamage, -1, ref.generation, ref.step});
  }
  if (!directory_.is_taken() && !scope_->mirror) add({MoveKind::kTakeDir});
  add_of_first_place(moves);
  if (scope_->mirror) add_of_mirror(moves);
}

void World::add_of_first_place(std::vector<Move>& moves) const {
  const auto add = [&](const Move& move) {
    if (scope_->kinds.empty() || scope_->kinds.contains(move.kind)) moves.push_back(move);
  };
  if (!can_lose()) return;
  for (const auto& [ref, stored] : directory_.checkpoints()) {
    add({MoveKind::kDelete, -1, ref.generation, ref.step});
  }
  if (directory_.checkpoints().size() > 1) add({MoveKind::kWipe});
}

void World::add_of_mirror(std::vector<Move>& moves) const {
  const auto add = [&](const Move& move) {
    if (scope_->kinds.empty() || scope_->kinds.contains(move.kind)) moves.push_back(move);
  };
  if (can_lose()) add({MoveKind::kEmpty});
  if (can_save()) add({MoveKind::kAway});
  if (!mirror_orders_.empty()) add({MoveKind::kMirrorAway});
  for (const auto& [ref, stored] : mirror_.directory().checkpoints()) {
    if (!stored.damaged) add({MoveKind::kMirrorDamage, -1, ref.generation, ref.step});
  }
}

void World::add_faults(std::vector<Move>& moves) const {
  const std::vector<Move> healthy = moves;
  const auto add = [&](const Move& move) {
    if (scope_->kinds.empty() || scope_->kinds.contains(move.kind)) moves.push_back(move);
  };
  for (int32_t node = 0; node < static_cast<int32_t>(places_.size()); ++node) {
    const Place& place = places_[static_cast<size_t>(node)];
    const core::Node& row = state_.nodes.at(key_of(node));
    if (place.worker) add({MoveKind::kKill, node});
    if (place.worker) add({MoveKind::kHopeless, node});
    if (place.holder_alive) add({MoveKind::kEndHolder, node});
    if (place.bound) add({MoveKind::kBreak, node});
    if (place.holder_alive && row.boot_id == boot_id(node)) add({MoveKind::kGiveUp, node});
    if (place.bound && place.generation_seen == 0 && scope_->spares > 0) {
      add({MoveKind::kUnfit, node});
    }
  }
  if (!is_cancelled_) add({MoveKind::kCancel});
  add({MoveKind::kCrash});
  if (moves.back().kind == MoveKind::kCrash) add_deaths_in_commits(moves, healthy);
  if (core::next_deadline(state_) && healthy.back().kind != MoveKind::kWait) {
    add({MoveKind::kHurry});
  }
  if (!orders_.empty() &&
      std::holds_alternative<core::RecordGeneration>(orders_.front().action.body)) {
    add({MoveKind::kRival});
  }
  for (const auto& [generation, run] : runs_) {
    if (!run.gone.contains(0) || !can_save()) continue;
    for (const uint64_t step : run.saving) add({MoveKind::kLateCommit, -1, generation, step});
  }
  add_faults_of_storage(moves);
}

std::vector<Move> World::moves() const {
  std::vector<Move> moves;
  if (has_ended()) return moves;
  add_healthy(moves);
  if (faults_left_ > 0 && !moves.empty()) add_faults(moves);
  return moves;
}

}  // namespace hpctl::exhaustive
