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

std::vector<Case> cases() {
  std::vector<Case> all;
  // One EIO of the search started the job from the seed.
  all.push_back({{.steps = 2,
                  .lost_node = true,
                  .kinds = {MoveKind::kStorage},
                  .mutant = Mutant::kErrorIsAbsence}});
  // One node whose mount was missing condemned every checkpoint.
  all.push_back({{.steps = 2,
                  .readers = true,
                  .lost_node = true,
                  .kinds = {MoveKind::kFalseClaim},
                  .mutant = Mutant::kOneReader}});
  // A second job trained on from the first one's weights.
  all.push_back({{.steps = 2,
                  .lost_node = true,
                  .kinds = {MoveKind::kTakeDir},
                  .mutant = Mutant::kAnyOwner}});
  // A commit that came after its generation was over counted.
  all.push_back(
      {{.spares = 1, .steps = 3, .faults = 2, .mutant = Mutant::kAnyHistory},
       "seal0 seal1 give-up0 receive1 receive2 take1 take1 take2 look-up answer look-up answer "
       "look-up answer receive1 receive2 take1 take2 commit1.2 kill1"});
  // Such a commit deleted the checkpoint that the controller had chosen.
  all.push_back(
      {{.spares = 1, .steps = 2, .kinds = {MoveKind::kGiveUp}, .mutant = Mutant::kRanksDelete}});
  // A damaged checkpoint was what remained.
  all.push_back({{.steps = 2, .kinds = {MoveKind::kDamage}, .mutant = Mutant::kUnverified}});
  // Copies went on the controller's own reading.
  all.push_back({{.steps = 3,
                  .mirror = true,
                  .readers = true,
                  .faults = 0,
                  .mutant = Mutant::kMirrorUnverified}});
  // A record that nothing had begun with cost what the workers had in memory.
  all.push_back({{.steps = 2,
                  .faults = 2,
                  .kinds = {MoveKind::kKill, MoveKind::kHurry},
                  .mutant = Mutant::kWithdrawnCounts}});
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
