// SPDX-License-Identifier: Apache-2.0
#include "tests/exhaustive/explorer.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <limits>
#include <unordered_map>
#include <unordered_set>

namespace hpctl::exhaustive {

namespace {

constexpr int32_t kMostHealthyMoves = 1'000;  // to the end of a job; more is a circle

void print(const World& world, const Move& move) {
  std::printf("%s\n", to_string(move).c_str());
  for (const core::LogEntry& entry : world.told()) {
    std::printf("    %s g%s %s %s\n", entry.type.c_str(), to_string(entry.generation).c_str(),
                entry.node.c_str(), entry.cause.c_str());
  }
}

// In turn, so that nobody waits for ever. Returns the violation that this leads to.
std::string go_on(World& world, bool tell) {
  std::string bad;
  int32_t made = 0;
  for (; bad.empty() && !world.has_ended(); ++made) {
    std::vector<Move> moves = world.moves();
    std::erase_if(moves, [](const Move& move) { return move.is_fault(); });
    if (moves.empty()) return "nothing can happen, and the job has not ended";
    if (made == kMostHealthyMoves) return "the job does not end";
    const Move move = moves[static_cast<size_t>(made) % moves.size()];
    world.make(move);
    if (tell) print(world, move);
    bad = world.violation();
  }
  if (bad.empty()) bad = world.judge_end();
  if (bad.empty()) return "";
  return bad + " (after " + std::to_string(made) + " more moves, of a healthy cluster)";
}

class Search;
const Search* running = nullptr;

class Search {
 public:
  explicit Search(const Bounds& bounds) : bounds_(bounds) {
    running = this;
    std::signal(SIGABRT, tell_way);
  }

  Finding run(const World& start) {
    enter(start, Move{});
    while (!frames_.empty() && found_.violation.empty()) {
      if (bounds_.states != 0 && found_.states >= bounds_.states) return found_;
      Frame& frame = frames_.back();
      if (frame.next == frame.moves.size()) {
        leave();
        continue;
      }
      const Move move = frame.moves[frame.next++];
      under_way_ = move;
      // The last one needs no copy.
      World world = frame.next == frame.moves.size() ? std::move(frame.world) : frame.world;
      world.make(move);
      ++found_.transitions;
      enter(std::move(world), move);
    }
    found_.is_complete = found_.violation.empty();
    return found_;
  }

 private:
  struct Frame {
    World world;
    Move move;  // that led here
    std::vector<Move> moves;
    size_t next = 0;
    uint64_t digest = 0;
  };

  // HP_CHECK aborts, in the thread that searches.
  static void tell_way(int) {
    std::printf("aborted after: --replay \"");
    for (size_t i = 1; i < running->frames_.size(); ++i) {
      std::printf("%s ", to_string(running->frames_[i].move).c_str());
    }
    std::printf("%s\"\n", to_string(running->under_way_).c_str());
    std::fflush(stdout);
  }

  int32_t left() const {
    if (bounds_.depth == 0) return std::numeric_limits<int32_t>::max();
    return bounds_.depth - static_cast<int32_t>(frames_.size());
  }

  void fail(const Move& move, const std::string& violation) {
    found_.violation = violation;
    for (size_t i = 1; i < frames_.size(); ++i) found_.trace.push_back(frames_[i].move);
    if (!frames_.empty()) found_.trace.push_back(move);
  }

  void enter(World world, const Move& move) {
    if (!world.violation().empty()) return fail(move, world.violation());
    const uint64_t digest = world.digest();
    if (is_known(digest, move)) return;
    found_.deepest = std::max(found_.deepest, static_cast<int32_t>(frames_.size()));
    if (world.has_ended()) {
      ++found_.ends;
      found_.ends_from_mirror += world.from_mirror() > 0 ? 1 : 0;
      found_.ends_in_memory += world.from_memory() > 0 ? 1 : 0;
      if (const std::string bad = world.judge_end(); !bad.empty()) fail(move, bad);
      return;
    }
    std::vector<Move> moves = world.moves();
    if (moves.empty()) return fail(move, "nothing can happen, and the job has not ended");
    if (left() <= 0) {
      ++found_.cut_off;
      if (const std::string bad = go_on(world, false); !bad.empty()) fail(move, bad);
      return;
    }
    open_.insert(digest);
    frames_.push_back({std::move(world), move, std::move(moves), 0, digest});
  }

  void leave() {
    open_.erase(frames_.back().digest);
    frames_.pop_back();
  }

  // Whether it was tried before, with as many moves left; or is a circle, which is told.
  bool is_known(uint64_t digest, const Move& move) {
    const auto [it, is_new] = known_.emplace(digest, left());
    found_.states += is_new ? 1 : 0;
    if (is_new) return false;
    // The number of faults left is part of the digest, so no fault is on the way.
    if (open_.contains(digest)) {
      fail(move, "a circle: this world was there before, and no fault has been since");
      return true;
    }
    if (it->second >= left()) return true;
    it->second = left();
    return false;
  }

  const Bounds bounds_;
  Finding found_;
  std::vector<Frame> frames_;
  Move under_way_;
  std::unordered_map<uint64_t, int32_t> known_;  // digest -> most moves that were left
  std::unordered_set<uint64_t> open_;            // on the way to the present one
};

}  // namespace

Finding explore(const World& start, const Bounds& bounds) { return Search(bounds).run(start); }

std::string replay(World world, const std::vector<Move>& moves, bool to_the_end, bool tell) {
  for (const Move& move : moves) {
    const std::vector<Move> possible = world.moves();
    if (std::find(possible.begin(), possible.end(), move) == possible.end()) {
      std::string text = to_string(move) + " cannot happen here; what can:";
      for (const Move& other : possible) text += " " + to_string(other);
      return text;
    }
    world.make(move);
    if (tell) print(world, move);
    if (!world.violation().empty()) return world.violation();
  }
  return to_the_end ? go_on(world, tell) : "";
}

}  // namespace hpctl::exhaustive
