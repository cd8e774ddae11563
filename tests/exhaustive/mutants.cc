// SPDX-License-Identifier: Apache-2.0
#include "tests/exhaustive/mutants.h"

#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tests/exhaustive/explorer.h"

namespace hpctl::exhaustive {

namespace {

using sim::Mutant;

// The smallest scope in which the mend matters, or the moves that lead to it where no search gets
// there.
struct Case {
  Scope scope;
  std::string moves = {};
};

// For the caller to fill.
Scope& add_scope(std::vector<Case>& cases, Mutant mutant, int64_t steps) {
  Scope& scope = cases.emplace_back().scope;
  scope.mutant = mutant;
  scope.steps = steps;
  return scope;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  // One EIO of the search started the job from the seed.
  Scope& unreadable = add_scope(all, Mutant::kErrorIsAbsence, 2);
  unreadable.lost_node = true;
  unreadable.kinds = {MoveKind::kStorage};
  // One node whose mount was missing condemned every checkpoint.
  Scope& claimed = add_scope(all, Mutant::kOneReader, 2);
  claimed.readers = true;
  claimed.lost_node = true;
  claimed.kinds = {MoveKind::kFalseClaim};
  // A second job trained on from the first one's weights.
  Scope& taken = add_scope(all, Mutant::kAnyOwner, 2);
  taken.lost_node = true;
  taken.kinds = {MoveKind::kTakeDir};
  // A commit that came after its generation was over counted.
  Scope& late = add_scope(all, Mutant::kAnyHistory, 3);
  late.spares = 1;
  late.faults = 2;
  all.back().moves =
      "seal0 seal1 give-up0 receive1 receive2 take1 take1 take2 look-up answer look-up answer "
      "look-up answer receive1 receive2 take1 take2 commit1.2 kill1";
  // Such a commit deleted the checkpoint that the controller had chosen.
  Scope& deleted = add_scope(all, Mutant::kRanksDelete, 2);
  deleted.spares = 1;
  deleted.kinds = {MoveKind::kGiveUp};
  // A damaged checkpoint was what remained.
  add_scope(all, Mutant::kUnverified, 2).kinds = {MoveKind::kDamage};
  // Copies went on the controller's own reading.
  Scope& mirrored = add_scope(all, Mutant::kMirrorUnverified, 3);
  mirrored.mirror = true;
  mirrored.readers = true;
  mirrored.faults = 0;
  // A record that nothing had begun with cost what the workers had in memory.
  Scope& withdrawn = add_scope(all, Mutant::kWithdrawnCounts, 2);
  withdrawn.faults = 2;
  withdrawn.kinds = {MoveKind::kKill, MoveKind::kHurry};
  return all;
}

std::vector<Move> moves_of(const std::string& text) {
  std::vector<Move> moves;
  std::istringstream words(text);
  for (std::string word; words >> word;) moves.push_back(parse_move(word).value());
  return moves;
}

// "" = the mutant was not found.
std::string find(const Case& mutant) {
  const World start(mutant.scope);
  if (!start.violation().empty()) return start.violation();
  if (mutant.moves.empty()) return explore(start, {}).violation;
  const std::vector<Move> moves = moves_of(mutant.moves);
  const std::string violation = replay(start, moves, true, false);
  const bool is_possible = violation.find(" cannot happen here") == std::string::npos;
  return is_possible ? violation : "";
}

}  // namespace

bool find_all_mutants() {
  bool all = true;
  for (const Case& mutant : cases()) {
    const auto start = std::chrono::steady_clock::now();
    const std::string violation = find(mutant);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("mutant %s: %s, %.1f s\n", to_string(mutant.scope.mutant),
                violation.empty() ? "NOT FOUND" : violation.c_str(), took.count());
    std::fflush(stdout);
    all = all && !violation.empty();
  }
  return all;
}

}  // namespace hpctl::exhaustive
