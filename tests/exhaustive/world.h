// SPDX-License-Identifier: Apache-2.0
// A job on two or three nodes of one rank each, small enough for every interleaving to be tried.
//
// The controller is the real core behind the simulator's store. Around it is the least that the
// contracts allow (proto/hpctl/v1): a stream per node, in order both ways; reports that a holder
// keeps until they are committed; a checkpoint directory that answers one order after the other, on
// storage that may fail; a scheduler that brings holders up and sees them end; ranks that seal a
// step when all have the one before. What happens next is always a Move, and nothing happens by
// itself: no delays and no chance. A World is a value, so an explorer copies it, makes a move, and
// comes back.
//
// Time stands still until nothing else can happen; then it is the next deadline. That it comes
// earlier is a fault, as is all that is not of a healthy cluster; Scope::faults bounds how many.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "tests/sim/checkers.h"
#include "tests/sim/directory.h"
#include "tests/sim/mutant.h"
#include "tests/sim/store.h"

namespace hpctl::exhaustive {

enum class MoveKind : uint8_t {
  // Of a healthy cluster.
  kTake,      // the controller commits the next message of the node's stream
  kTakeLate,  // likewise of a stream that is closed by now
  kReceive,   // the node gets the next order of its stream
  kRegister,  // the agent has connected, and the controller commits that
  kLaunch,    // the scheduler starts the node's holder
  kNotice,    // the scheduler sees that the holder has ended
  kLookUp,    // the directory carries out its next order
  kAnswer,    // the controller commits what came of it
  kSeal,      // the node's rank completes a step
  kFinish,    // it has all steps and exits with 0
  kEnd,       // it was told to end, or is of a last generation: all has been saved, and it ends
  kLosePeer,  // it leaves because a peer has
  kCommit,    // the checkpoint of generation and step is complete
  kClaim,     // the node's rank cannot load its checkpoint, damaged or deleted, and says so
  kMiss,      // the node's rank cannot read its checkpoint, since the place is away, and exits
  kMirror,    // the mirror carries out its next order
  kBack,      // the first place is back, or gets its records back
  kWait,      // until the next deadline
  // Faults.
  kKill,        // a worker dies
  kEndHolder,   // a holder ends, and all of its node with it
  kBreak,       // a stream breaks, and loses what is under way
  kGiveUp,      // a node is silent and judged lost, and lives on; what it said still arrives
  kCrash,       // the controller dies and starts again
  kHurry,       // a deadline passes while others are still at work
  kRival,       // another controller creates the record first
  kLateCommit,  // a checkpoint is complete after its generation is over
  kUnfit,       // a spare that is prepared finds that it cannot have ranks
  kStorage,     // the file system does not carry out the directory's next order
  kUnreadable,  // a rank that starts cannot read its files, and exits
  kNoRoom,      // a save finds the disk full; it is tried again
  kDamage,      // a checkpoint loses a bit
  kFalseClaim,  // a rank that starts calls a sound checkpoint damaged
  kTakeDir,     // another job takes the directory, and saves there
  kBlind,       // a node cannot read again what another one called damaged
  kDelete,      // a person deletes a checkpoint of the first place
  kWipe,        // a person deletes all of them
  kHopeless,    // a rank exits, and says that a restart cannot help
  kCancel,      // a person cancels the job
  // Of a job with a mirror.
  kEmpty,         // and the records
  kAway,          // the first place cannot be used until it is back
  kMirrorAway,    // the mirror does not carry out its next order; a copy stays unfinished
  kMirrorDamage,  // a copy loses a bit
};

// What happens next. `dies_after` of a move that the controller commits: it dies before it has
// performed more than so many of the actions, which is a fault; -1 = it does not.
struct Move {
  MoveKind kind = MoveKind::kWait;
  int32_t node = -1;
  uint64_t generation = 0;
  uint64_t step = 0;
  int32_t dies_after = -1;
  bool operator==(const Move&) const = default;
  bool is_fault() const { return kind >= MoveKind::kKill || dies_after >= 0; }
};
// "take0", "commit1.2", "register1^0": for a trace, and what --replay takes.
std::string to_string(const Move& move);
std::optional<Move> parse_move(const std::string& text);
// "kill", ...: the kind of a fault.
std::optional<MoveKind> parse_fault(const std::string& name);
const char* to_string(MoveKind kind);

// The world and the bounds of what is tried in it.
struct Scope {
  int32_t nodes = 2;
  int32_t spares = 0;
  bool replicas = false;  // each rank has the whole state (no_shard), else a part of its own (full)
  uint64_t steps = 3;
  uint64_t checkpoint_every = 1;
  uint64_t keep = 1;         // checkpoints
  bool mirror = false;       // the job has checkpoint.mirror
  bool readers = false;      // nodes read again what is called damaged, and before a deletion
  bool from_submit = false;  // else from the first step and its checkpoint on
  bool lost_node = false;    // then: and from the end of node 0's holder on
  int32_t faults = 1;
  std::set<MoveKind> kinds = {};  // of faults; empty = all
  sim::Mutant mutant = sim::Mutant::kNone;
};

// What somebody tells the controller.
struct Word {
  core::EventBody body;
  ActionId answers;     // which action it answers
  uint64_t digest = 0;  // of the rest
  explicit Word(core::EventBody said);
};

// What the controller wants done.
struct Order {
  core::Action action;
  sim::Search search;   // of the directory: the search that it goes back to, in moves
  uint64_t digest = 0;  // but for its number
  explicit Order(core::Action ordered, sim::Search searched = {});
};

// A message of a node's stream.
struct Message {
  Word word;
  bool is_report = false;  // kept by the holder until it is committed
};

struct Worker {
  uint64_t generation = 0;
  uint64_t pid = 0;
};

// A node and what lives there. The arena belongs to the holder's life.
struct Place {
  uint64_t life = 0;
  bool holder_alive = false;
  bool bound = false;     // its stream is open, and registered
  bool end_seen = false;  // by the scheduler, which tells it once
  uint64_t pids = 0;      // of this life
  uint64_t generation_seen = 0;
  uint64_t stopped_through = 0;
  uint64_t newest_generation = 0;  // of all lives
  ActionId launched_by;
  int32_t rank = -1;  // of the present or the last worker
  std::optional<Worker> worker;
  std::vector<sim::SealedState> arena;  // newest first
  bool arena_is_told = false;           // by the exit of its last worker, and committed
  std::optional<core::WorkersStarted> started;
  std::optional<core::WorkersStopped> stopping;  // the answer when its worker has saved and ended
  std::deque<Word> reports;                      // not committed yet
  std::deque<Message> up;
  std::deque<Word> late;  // of a stream that is closed, and arrive all the same
  std::deque<Order> down;
  std::optional<ActionId> launch;  // under way
};

// A generation as its ranks live it.
struct Run {
  uint64_t start_step = 0;
  std::string checkpoint;
  bool from_memory = false;
  bool is_last = false;      // it trains no step: it saves, and ends
  bool is_stopping = false;  // likewise, once the step under way is complete
  std::set<int32_t> refilled;
  std::map<int32_t, int32_t> homes;   // rank -> node
  std::map<int32_t, uint64_t> steps;  // rank -> completed, of those that have joined
  std::set<int32_t> gone;
  bool is_formed = false;
  bool is_broken = false;   // a rank is gone before it had all steps
  bool is_missing = false;  // its checkpoint could not be read when all ranks had come
  sim::History begun_with;
  std::set<uint64_t> saving;  // steps whose checkpoint is under way
};

class World {
 public:
  explicit World(const Scope& scope);

  // What can happen next, faults last.
  std::vector<Move> moves() const;
  // Precondition: among moves().
  void make(const Move& move);

  bool has_ended() const { return core::has_ended(job().state); }
  const core::Job& job() const { return state_.jobs.begin()->second; }
  // The first rule that was broken; "" = none.
  const std::string& violation() const { return checkers_.violation(); }
  // Of the job's end, which only faults could have kept from being a good one.
  std::string judge_end() const;
  int32_t faults_left() const { return faults_left_; }
  uint64_t from_mirror() const { return static_cast<uint64_t>(checkers_.from_mirror()); }
  uint64_t from_memory() const { return static_cast<uint64_t>(checkers_.from_memory()); }
  // The job's history that the last move made.
  const std::vector<core::LogEntry>& told() const { return told_; }
  // Two worlds with the same digest have the same futures (digest.cc).
  uint64_t digest() const;

 private:
  // world.cc: the controller, the directory and the scheduler.
  // Why the core refused it; "" = it did not.
  std::string commit(core::EventBody body, int32_t dies_after = -1);
  void perform(const core::Action& action);
  void crash();
  void look_up(bool after_rival);
  void prune(const Order& order);
  void refuse(const Order& order);
  void find(const Order& order);
  void record(const Order& order, bool after_rival);
  void check_record(const GenerationRecord& record);
  void check_ending(const std::vector<core::Action>& ordered);
  void launch(int32_t node);
  void wait();

  // storage.cc: what the places of the checkpoints suffer, and the mirror.
  void order_search(const core::Action& action, bool in_mirror);
  void fail(const Order& order);
  void fail_order();
  bool is_emptied() const {
    return directory_.records().empty() && emptied_.newest_generation() > 0;
  }
  bool can_save() const { return !is_away_ && !is_emptied(); }
  std::string confirm(const std::string& checkpoint) const;
  std::string answer_claim(const std::string& checkpoint) const;
  bool is_anothers(const sim::Directory& place) const;
  sim::Found find_in_first_place(const core::FindCheckpoint& search,
                                 const std::vector<std::string>& exclude) const;
  const sim::StoredCheckpoint* stored_at(const std::string& checkpoint) const;
  const GenerationRecord* record_of(uint64_t generation) const;
  sim::Directory whole_directory() const;
  bool give_back_records(Generation newest);
  void use_mirror();
  void copy(const Order& order);
  void find_in_mirror(const Order& order);
  void fail_order_of_mirror();
  void lose(const CheckpointRef& ref);
  void lose_all(bool with_records);
  void bring_back();
  bool can_lose() const;

  // places.cc: nodes and their ranks.
  void register_agent(int32_t node, int32_t dies_after);
  void take(int32_t node, int32_t dies_after);
  static void close_stream(Place& place, bool loses);
  void end_holder(int32_t node);
  void receive(int32_t node);
  void read_again(int32_t node, bool is_blind);
  void start(int32_t node, const core::Action& action);
  void stop(int32_t node, uint64_t through);
  bool begin_to_end(int32_t node, uint64_t through);
  void save_common_step(uint64_t generation);
  void worker_ends(int32_t node, int32_t code, int32_t signal, bool by_request, bool reported);
  static void report(Place& place, Word word);
  void form(uint64_t generation, Run& run);
  void refill(Run& run);
  void seal(int32_t node);
  void commit_checkpoint(uint64_t generation, uint64_t step);
  void find_disk_full(uint64_t generation);

  // moves.cc
  void add_healthy(std::vector<Move>& moves) const;
  void add_of_place(std::vector<Move>& moves, int32_t node) const;
  void add_faults(std::vector<Move>& moves) const;
  void add_deaths_in_commits(std::vector<Move>& moves, const std::vector<Move>& healthy) const;
  bool can_seal(const Place& place) const;
  bool can_finish(const Place& place) const;
  bool is_saved(uint64_t generation, uint64_t step) const;
  bool has_saved_its_last(uint64_t generation) const;
  bool can_claim(const Place& place) const;
  bool can_miss(const Place& place) const;
  void add_of_first_place(std::vector<Move>& moves) const;
  void add_of_mirror(std::vector<Move>& moves) const;
  bool is_starting(const Place& place) const;
  void add_faults_of_storage(std::vector<Move>& moves) const;

  // digest.cc
  void remember_rows(const core::Dirty& dirty);
  void remember_all_rows();
  // What differs between the rows in memory and those that were committed; "" = nothing.
  std::string find_forgotten() const;
  bool is_withdrawn(const std::string& order) const;

  int32_t index_of(const std::string& name) const;
  Place& place_of(const Run& run, int32_t rank) {
    return places_[static_cast<size_t>(run.homes.at(rank))];
  }
  core::NodeKey key_of(int32_t node) const { return {JobId{1}, core::local_node_name(node)}; }
  std::string boot_id(int32_t node) const;
  uint64_t holder_pid(int32_t node) const;
  std::string judge_failure() const;
  std::string judge_losses() const;
  int32_t parts() const { return scope_->replicas ? 1 : scope_->nodes; }

  const Scope* scope_;  // outlives the world
  core::State state_;
  sim::Store store_;
  sim::Checkers checkers_;
  sim::Directory directory_;
  std::vector<Place> places_;
  std::map<uint64_t, Run> runs_;  // by generation
  sim::Mirror mirror_;
  sim::Directory emptied_;  // what a person took out of the first place
  std::deque<Order> orders_;
  std::deque<Order> mirror_orders_;  // neither queue waits for the other
  std::deque<Word> answers_;
  uint64_t clock_ = 1;  // moves so far
  sim::Search search_;  // the newest one
  bool is_away_ = false;
  bool was_away_ = false;  // or emptied, some time
  uint64_t trained_ = 0;   // newest generation that completed a step
  int32_t faults_left_ = 0;
  bool only_storage_failed_ = true;  // of the faults so far
  bool is_hopeless_ = false;         // a rank has said so
  bool is_cancelled_ = false;
  bool may_lose_steps_ = false;   // faults have taken memory or checkpoints
  uint64_t completed_ = 0;        // newest step that all ranks of the newest generation have
  uint64_t last_generation_ = 0;  // 0 = there was none
  std::vector<core::LogEntry> told_;
  // Digests of rows, kept up to date by remember_rows().
  std::map<JobId, uint64_t> job_digests_;
  std::map<core::NodeKey, uint64_t> node_digests_;
  std::map<core::SlotKey, uint64_t> slot_digests_;
  std::map<ActionId, uint64_t> action_digests_;
};

}  // namespace hpctl::exhaustive
