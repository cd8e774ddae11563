// SPDX-License-Identifier: Apache-2.0
// hpctl_exhaustive: the controller core in a small world, in every order of events.
//
//   hpctl_exhaustive                          the scopes of the test
//   hpctl_exhaustive --nodes N [--spares N] [--replicas] [--steps N] [--every N] [--faults N]
//                    [--from-submit] [--depth N] [--states N]       one scope
//   ... --replay "kill0 take0 ..."            the moves of a trace, with what the core made of them
//
// Exit code 0 = every world held; 1 = a violation, printed with the moves that lead to it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/exhaustive/explorer.h"

namespace {

using hpctl::exhaustive::Bounds;
using hpctl::exhaustive::Finding;
using hpctl::exhaustive::Move;
using hpctl::exhaustive::Scope;
using hpctl::exhaustive::World;

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
  return scope.from_submit ? text + " --from-submit" : text;
}

void print_violation(const Task& task, const Finding& found) {
  std::printf("  violation after %zu moves: %s\n  replay: hpctl_exhaustive %s --replay \"",
              found.trace.size(), found.violation.c_str(), options_of(task.scope).c_str());
  for (size_t i = 0; i < found.trace.size(); ++i) {
    std::printf("%s%s", i == 0 ? "" : " ", to_string(found.trace[i]).c_str());
  }
  std::printf("\"\n");
}

// Searching depth first finds a violation on some way; then the shortest one is looked for.
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
  std::printf("exhaustive: %s: %lu states, %lu transitions, depth %d%s, %lu ends, %lu cut off, %.1f s%s\n",
              options_of(task.scope).c_str(), found.states, found.transitions, found.deepest,
              task.bounds.depth == 0 ? "" : " (the bound)", found.ends, found.cut_off, took.count(),
              found.is_complete || !found.violation.empty() ? "" : "; NOT complete");
  std::fflush(stdout);
  if (found.violation.empty()) return true;
  print_violation(task, shorten(world, std::move(found)));
  return false;
}

std::vector<Task> smoke() {
  Scope scope;
  return {{scope, {}}};
}

int replay(const Task& task, const std::string& text) {
  std::vector<Move> moves;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto move = hpctl::exhaustive::parse_move(word);
    if (!move) {
      std::printf("%s is no move\n", word.c_str());
      return 1;
    }
    moves.push_back(*move);
  }
  const std::string violation =
      hpctl::exhaustive::replay(World(task.scope), moves, true, true);
  std::printf("%s\n", violation.empty() ? "held" : violation.c_str());
  return violation.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Task task;
  bool is_one = false;
  const char* trace = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "0";
    is_one = true;
    if (option == "--nodes") task.scope.nodes = std::atoi(value);
    if (option == "--spares") task.scope.spares = std::atoi(value);
    if (option == "--replicas") task.scope.replicas = true;
    if (option == "--steps") task.scope.steps = std::strtoull(value, nullptr, 10);
    if (option == "--every") task.scope.checkpoint_every = std::strtoull(value, nullptr, 10);
    if (option == "--faults") task.scope.faults = std::atoi(value);
    if (option == "--from-submit") task.scope.from_submit = true;
    if (option == "--depth") task.bounds.depth = std::atoi(value);
    if (option == "--states") task.bounds.states = std::strtoull(value, nullptr, 10);
    if (option == "--replay") trace = value;
  }
  if (trace != nullptr) return replay(task, trace);
  bool held = true;
  for (const Task& each : is_one ? std::vector<Task>{task} : smoke()) held = run(each) && held;
  return held ? 0 : 1;
}
