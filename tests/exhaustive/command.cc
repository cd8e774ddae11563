// SPDX-License-Identifier: Apache-2.0
#include "tests/exhaustive/command.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/exhaustive/explorer.h"
#include "tests/exhaustive/mutants.h"

namespace {

using hpctl::exhaustive::Bounds;
using hpctl::exhaustive::Finding;
using hpctl::exhaustive::Move;
using hpctl::exhaustive::MoveKind;
using hpctl::exhaustive::Scope;
using hpctl::exhaustive::World;

constexpr int64_t kMostOfAnything = 1'000;

struct Task {
  Scope scope;
  Bounds bounds;
};

std::string options_of(const Scope& scope) {
  std::string text = "--nodes " + std::to_string(scope.nodes);
  if (scope.spares > 0) text += " --spares " + std::to_string(scope.spares);
  if (scope.replicas) text += " --replicas";
  text += " --steps " + std::to_string(scope.steps) + " --every " +
          std::to_string(scope.checkpoint_every) + " --faults " + std::to_string(scope.faults);
  std::string kinds;
  for (const auto kind : scope.kinds)
    kinds += (kinds.empty() ? " --with " : ",") + std::string(to_string(kind));
  if (scope.mirror) text += " --mirror";
  if (scope.readers) text += " --readers";
  if (scope.mutant != hpctl::sim::Mutant::kNone) {
    text += std::string(" --mutant ") + to_string(scope.mutant);
  }
  if (scope.keep != 1) text += " --keep " + std::to_string(scope.keep);
  return text + kinds + (scope.from_submit ? " --from-submit" : "") +
         (scope.lost_node ? " --lost-node" : "");
}

void print_violation(const Task& task, const Finding& found) {
  std::printf("  after %zu moves: %s\n  replay: hpctl_exhaustive %s --replay \"",
              found.trace.size(), found.violation.c_str(), options_of(task.scope).c_str());
  for (size_t i = 0; i < found.trace.size(); ++i) {
    std::printf("%s%s", i == 0 ? "" : " ", to_string(found.trace[i]).c_str());
  }
  std::printf("\"\n");
}

// Depth first finds a violation on some way; then the shortest one is looked for.
Finding shorten(const World& start, Finding found) {
  while (found.trace.size() > 1) {
    const Finding shorter = explore(start, {static_cast<int32_t>(found.trace.size()) - 1, 0});
    if (shorter.violation.empty()) break;
    found.violation = shorter.violation;
    found.trace = shorter.trace;
  }
  return found;
}

bool run(const Task& task) {
  const auto start = std::chrono::steady_clock::now();
  const World world(task.scope);
  Finding found = explore(world, task.bounds);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf(
      "exhaustive: %s: %lu states, %lu transitions, depth %d%s, %lu ends (%lu in memory, %lu "
      "from the mirror), %lu cut off, %.1f s%s\n",
      options_of(task.scope).c_str(), found.states, found.transitions, found.deepest,
      task.bounds.depth == 0 ? "" : " (the bound)", found.ends, found.ends_in_memory,
      found.ends_from_mirror, found.cut_off, took.count(),
      found.is_complete || !found.violation.empty() ? "" : "; NOT complete");
  std::fflush(stdout);
  if (found.violation.empty()) return true;
  print_violation(task, found);
  std::printf("looking for the shortest way there\n");
  std::fflush(stdout);
  print_violation(task, shorten(world, std::move(found)));
  return false;
}

// What storage and checkpoints suffer.
const std::set<MoveKind> kOfStorage = {
    MoveKind::kStorage,    MoveKind::kUnreadable, MoveKind::kNoRoom,
    MoveKind::kDamage,     MoveKind::kFalseClaim, MoveKind::kTakeDir,
    MoveKind::kLateCommit, MoveKind::kDelete,     MoveKind::kWipe};

// What the places of a job with a mirror suffer.
const std::set<MoveKind> kOfPlaces = {
    MoveKind::kStorage, MoveKind::kDamage, MoveKind::kDelete,     MoveKind::kWipe,
    MoveKind::kEmpty,   MoveKind::kAway,   MoveKind::kMirrorAway, MoveKind::kMirrorDamage};

// What ends a job early.
const std::set<MoveKind> kOfEnds = {MoveKind::kHopeless, MoveKind::kCancel};

// The scopes of the tests; each is searched to its end.
std::vector<Task> smoke() {
  return {
      {{.steps = 2}, {}},
      {{.steps = 2, .readers = true, .lost_node = true, .kinds = kOfStorage}, {}},
      {{.steps = 2, .faults = 2, .kinds = {MoveKind::kKill, MoveKind::kRival}}, {}},
      {{.steps = 2, .mirror = true, .lost_node = true, .kinds = kOfPlaces}, {}},
      {{.steps = 2, .checkpoint_every = 2, .kinds = kOfEnds}, {}},
  };
}

std::vector<Task> full() {
  return {
      {{.steps = 2, .from_submit = true}, {}},
      {{.checkpoint_every = 2}, {}},
      {{.spares = 1, .steps = 2, .checkpoint_every = 2}, {}},
      {{.spares = 1, .replicas = true, .steps = 2, .checkpoint_every = 2}, {}},
      {{.spares = 1, .steps = 1, .faults = 2, .kinds = {MoveKind::kGiveUp, MoveKind::kUnfit}}, {}},
      {{.nodes = 3, .steps = 2}, {}},
      {{.steps = 2, .faults = 2, .kinds = {MoveKind::kKill, MoveKind::kGiveUp}}, {}},
      {{.steps = 2, .faults = 2, .kinds = {MoveKind::kKill, MoveKind::kCrash}}, {}},
      {{.steps = 2,
        .checkpoint_every = 2,
        .faults = 2,
        .kinds = {MoveKind::kHopeless, MoveKind::kCancel, MoveKind::kKill, MoveKind::kCrash}},
       {}},
      {{.steps = 2,
        .checkpoint_every = 2,
        .faults = 2,
        .kinds = {MoveKind::kHopeless, MoveKind::kCancel, MoveKind::kEndHolder, MoveKind::kHurry}},
       {}},
      {{.spares = 1, .steps = 2, .readers = true, .lost_node = true, .kinds = kOfStorage}, {}},
      {{.steps = 2,
        .readers = true,
        .kinds = {MoveKind::kBlind, MoveKind::kDamage, MoveKind::kKill, MoveKind::kCrash,
                  MoveKind::kBreak, MoveKind::kHurry}},
       {}},
      {{.steps = 2, .mirror = true, .readers = true, .lost_node = true, .kinds = kOfPlaces}, {}},
      {{.steps = 2,
        .keep = 2,
        .readers = true,
        .lost_node = true,
        .faults = 2,
        .kinds = {MoveKind::kStorage, MoveKind::kDamage, MoveKind::kFalseClaim, MoveKind::kBlind}},
       {}},
      {{.steps = 2, .mirror = true, .kinds = {MoveKind::kCrash, MoveKind::kLateCommit}}, {}},
      {{.steps = 2,
        .mirror = true,
        .lost_node = true,
        .faults = 2,
        .kinds = {MoveKind::kDelete, MoveKind::kAway, MoveKind::kMirrorAway}},
       {}},
      {{.steps = 2, .faults = 2, .kinds = {MoveKind::kKill, MoveKind::kHurry}}, {}},
      {{.steps = 1,
        .checkpoint_every = 2,
        .faults = 3,
        .kinds = {MoveKind::kKill, MoveKind::kBreak}},
       {}},
  };
}

int replay(const Task& task, const std::string& text) {
  std::vector<Move> moves;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto move = hpctl::exhaustive::parse_move(word);
    if (!move) {
      std::fprintf(stderr, "hpctl_exhaustive: --replay: %s is no move\n", word.c_str());
      return 2;
    }
    moves.push_back(*move);
  }
  const std::string violation = hpctl::exhaustive::replay(World(task.scope), moves, true, true);
  std::printf("%s\n", violation.empty() ? "held" : violation.c_str());
  return violation.empty() ? 0 : 1;
}

struct Options {
  Task task;
  std::string trace;
  bool replays = false;
  bool is_smoke = false;
  bool is_full = false;
  bool is_mutants = false;
};

bool set_kinds(Scope& scope, const std::string& names) {
  std::istringstream words(names);
  for (std::string word; std::getline(words, word, ',');) {
    const auto kind = hpctl::exhaustive::parse_fault(word);
    if (!kind) return false;
    scope.kinds.insert(*kind);
  }
  return true;
}

bool set_mutant(Scope& scope, const std::string& name) {
  const auto mutant = hpctl::sim::parse_mutant(name);
  if (mutant) scope.mutant = *mutant;
  return mutant.has_value();
}

bool set_flag(Options& options, const std::string& name) {
  const std::map<std::string, bool*> flags = {{"--replicas", &options.task.scope.replicas},
                                              {"--from-submit", &options.task.scope.from_submit},
                                              {"--lost-node", &options.task.scope.lost_node},
                                              {"--mirror", &options.task.scope.mirror},
                                              {"--readers", &options.task.scope.readers},
                                              {"--smoke", &options.is_smoke},
                                              {"--full", &options.is_full},
                                              {"--mutants", &options.is_mutants}};
  const auto flag = flags.find(name);
  if (flag != flags.end()) *flag->second = true;
  return flag != flags.end();
}

// A number that makes a world: 1, 2, ..., or 0 where that means something.
bool set_number(Options& options, const std::string& name, const std::string& value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size()) return false;
  Scope& scope = options.task.scope;
  Bounds& bounds = options.task.bounds;
  if (name == "--states" && number >= 0) {
    bounds.states = static_cast<uint64_t>(number);
    return true;
  }
  if (number < 0 || number > kMostOfAnything) return false;
  const auto small = static_cast<int32_t>(number);
  if (name == "--faults") scope.faults = small;
  if (name == "--spares") scope.spares = small;
  if (name == "--depth") bounds.depth = small;
  if (name == "--faults" || name == "--spares" || name == "--depth") return true;
  if (number == 0) return false;
  if (name == "--nodes") scope.nodes = small;
  if (name == "--steps") scope.steps = static_cast<uint64_t>(number);
  if (name == "--every") scope.checkpoint_every = static_cast<uint64_t>(number);
  if (name == "--keep") scope.keep = static_cast<uint64_t>(number);
  return name == "--nodes" || name == "--steps" || name == "--every" || name == "--keep";
}

bool set_option(Options& options, const std::string& name, const std::string& value) {
  if (name == "--with") return set_kinds(options.task.scope, value);
  if (name == "--mutant") return set_mutant(options.task.scope, value);
  if (name != "--replay") return set_number(options, name, value);
  options.trace = value;
  options.replays = true;
  return true;
}

}  // namespace

int hpctl::exhaustive::run_command(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (set_flag(options, argv[i])) continue;
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (!set_option(options, argv[i], value)) {
      std::fprintf(stderr, "hpctl_exhaustive: cannot use %s %s; the head of %s tells the options\n",
                   argv[i], value.c_str(), "tests/exhaustive/main.cc");
      return 2;
    }
    ++i;
  }
  if (options.is_mutants) return hpctl::exhaustive::find_all_mutants() ? 0 : 1;
  if (options.replays) return replay(options.task, options.trace);
  std::vector<Task> tasks = {options.task};
  if (options.is_smoke) tasks = smoke();
  if (options.is_full) tasks = full();
  bool held = true;
  for (const Task& task : tasks) held = run(task) && held;
  return held ? 0 : 1;
}
