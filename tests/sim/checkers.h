// SPDX-License-Identifier: Apache-2.0
// The ring of invariants, apart from the workload that tries to break them. Each is told what
// happened in the simulated world, never what the core believes, and keeps its own books.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "controller/core/core.h"
#include "tests/sim/directory.h"
#include "tests/sim/mirror.h"
#include "tests/sim/store.h"
#include "tests/sim/swarm.h"

namespace hpctl::sim {

// Begins the reason of an bad step; its number follows.
inline const std::string kBadReason = "bad step ";
// The reason of a RecoveryRequested.
inline constexpr char kPersonAsks[] = "a person asks";

// Begins the reason of a job whose checkpoints are gone.
inline constexpr char kNoneIsLeft[] = "no checkpoint is left in ";

// How often it left a node that was slow, by its history.
int64_t count_evictions(const Store& store, JobId job);

// What was known when the controller looked for a checkpoint to start from.
struct Search {
  int64_t at_ms = 0;           // later commits and copies cannot be known
  uint64_t told = 0;           // newest step that the controller had been told is committed
  bool mirror_failed = false;  // the mirror was asked, and could not be read
};

// The places of a job's checkpoints before a generation is recorded there.
struct PlacesBefore {
  const Directory& first;
  const Mirror& mirror;
  bool in_mirror = false;  // the first place is away, and the record goes to the mirror
};

class Checkers {
 public:
  // The first violation; "" = none so far.
  const std::string& violation() const { return violation_; }
  // Generations that went on in their workers' memory.
  int64_t from_memory() const { return from_memory_; }
  // That started from the mirror; and that were recorded there, with the first place away.
  int64_t from_mirror() const { return from_mirror_; }
  int64_t in_mirror() const { return in_mirror_; }
  // Hangs that were found, by how.
  int64_t hangs() const { return hangs_; }
  int64_t plain_hangs() const { return plain_hangs_; }
  void hang_found(bool plain) {
    ++hangs_;
    plain_hangs_ += plain ? 1 : 0;
  }
  int64_t stragglers() const { return stragglers_; }
  int64_t stragglers_over() const { return stragglers_over_; }
  void straggler_named() { ++stragglers_; }
  void straggler_over() { ++stragglers_over_; }
  void fail(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }

  // One live owner per (job, rank, generation); a node never goes back to an older generation; a
  // worker exists only after the record of its generation.
  // `record`: nullptr = there is none.
  void worker_spawned(const core::NodeKey& node, int32_t rank, const core::StartWorkers& order,
                      const GenerationRecord* record);
  void worker_gone(const core::NodeKey& node, int32_t rank, uint64_t generation);

  // A job never trains an older generation after a newer one.
  void step_trained(JobId job, uint64_t generation);

  // Generations only grow, start from what is committed, give up nothing that is in either place,
  // and begin when no worker of an older one is alive. Nothing starts from the seed once a
  // checkpoint was committed.
  void record_created(JobId job, const GenerationRecord& record, const PlacesBefore& before,
                      const Search& search);

  // place_checkers.cc: the mirror, and checkpoints that a person deletes.
  // The controller committed this event and did not refuse it.
  void heard(const core::EventBody& event);
  // The first place answered a search. What it lacks may only be in the mirror now.
  void first_place_searched(JobId job, uint64_t found);
  uint64_t told(JobId job) const;      // newest step that it knows as committed
  uint64_t mirrored(JobId job) const;  // newest step that it knows to be in the mirror
  void checkpoint_lost(JobId job, const std::string& name) { lost_.emplace(job, name); }
  // The first place loses its records, too. The number of a record that is nowhere else may be used
  // again if it was never told to the controller, so that no worker has started for it.
  void first_place_emptied(JobId job, const Mirror& mirror);
  bool was_lost(JobId job, const std::string& name) const { return lost_.contains({job, name}); }
  const std::set<std::pair<JobId, std::string>>& lost() const { return lost_; }
  // Only whole and sound checkpoints are copied. The newest `keep` valid copies stay, nothing goes
  // before what is newer was verified, and an order names no steps as undone that were not.
  void mirror_updated(const core::MirrorCheckpoint& order, size_t keep, const Directory& first,
                      const Mirror& before, const Mirror& after);
  // A job that says that no checkpoint is left is right, and names the remedy.
  void loss_justified(const core::Job& job, const Directory& first, const Mirror& mirror,
                      const Search& search);

  void checkpoint_committed(JobId job, const CheckpointRef& ref, bool is_new);

  // A checkpoint is left out for damage only when a worker and another reader have found it.
  void damage_claimed(JobId job, const std::string& checkpoint);
  void damage_confirmed(JobId job, const std::string& checkpoint);
  const std::set<std::pair<JobId, std::string>>& claimed() const { return claimed_; }
  const std::set<std::pair<JobId, std::string>>& proven() const { return proven_; }
  const std::set<std::pair<JobId, std::string>>& verified() const { return verified_; }

  // A node found it sound before a deletion.
  void checkpoint_verified(JobId job, const std::string& checkpoint);
  // The newest `keep` checkpoints that are valid by lineage stay, whatever the order said, and
  // nothing goes before a newer one is known to be sound. With for_room one has to stay.
  void checkpoints_pruned(JobId job, const core::PruneCheckpoints& order, size_t keep,
                          const Directory& before, const Directory& after);

  // What became of a step that the trainer did not apply is told once, and nothing else is.
  void bad_step_met(const core::BadStepFound& e);
  // By a commit of the controller.
  void bad_step_acknowledged(const core::BadStepFound& e) { bad_steps_heard_.insert(key_of(e)); }

  // Orders reach the world only after their cause is durable, and carry a reason.
  void order_performed(const core::Action& action, const Store& store);

  // No rank goes to a quarantined node: by an order of a later event than the quarantine.
  void quarantined(const core::NodeKey& node, uint64_t through_seq, int64_t until_ms);
  // A request that replaces an earlier one may be committed and nobody told.
  void may_be_quarantined(const core::NodeKey& node, int64_t until_ms);
  void released(const core::NodeKey& node) { quarantined_.erase(node); }
  // It belongs to the instance that the controller knows, and ends when another one registers.
  void registered(const core::NodeKey& node, const std::string& instance_id);
  void bound(const core::NodeKey& node, ActionId order, int64_t now_ms);
  // Each at most once per cause, and a replacement or reboot only when the work has left. An
  // instance is rebooted once, then replaced, unless a person asks.
  void requeued(const core::RequeueJob& order, ActionId id);
  void recovered(const core::NodeKey& node, const core::ReplaceNode& order, ActionId id,
                 bool still_works);
  // A successor starts without rows: what is not in the lineage is forgotten.
  void rows_lost(const std::set<JobId>& adopted);

  // A slow node is left only on request, for a spare, while a restart and an eviction are left.
  void straggler_left(const core::State& state, const std::vector<core::LogEntry>& log);

  // Rows: generation and restarts of a job never fall; a life given up never comes back.
  void rows_committed(const core::State& state, const core::Dirty& dirty);

  // At the end of a run.
  void causes_are_present(const Store& store);  // no generation ends for a fault of another
  void budgets_held(const Store& store, const core::Job& job);
  void failure_justified(const Store& store, const core::Job& job, const Directory& directory,
                         const Mirror& mirror, const Search& search);
  void history_complete(const core::Job& job, const JobPlan& plan, const Directory& directory);
  void everything_ended(const core::State& state);
  void explained(const Store& store, const core::Job& job);
  void stragglers_borne(const Store& store, const core::Job& job);
  // `in_order`: no report overtook another one of its stream.
  void bad_steps_told(const Store& store, const core::Job& job, bool in_order);

 private:
  // A rollback of its generation went further back.
  bool may_be_undone(JobId job, const CheckpointRef& ref) const;
  // What a generation begins with.
  struct Start {
    uint64_t step = 0;
    bool from_memory = false;
    uint64_t on_disk = 0;    // then: the newest checkpoint
    bool in_mirror = false;  // the first place was away
  };
  void check_start_in_mirror(const GenerationRecord& record, const PlacesBefore& before,
                             const std::string& who);
  void check_steps_given_up(JobId job, const GenerationRecord& record, const PlacesBefore& before,
                            const Search& search, const std::string& who);

  using BadStepKey = std::tuple<JobId, uint64_t, uint64_t>;  // generation, number
  static BadStepKey key_of(const core::BadStepFound& e) {
    return {e.job, e.generation.value, e.number};
  }

  int64_t from_memory_ = 0;
  int64_t from_mirror_ = 0;
  int64_t in_mirror_ = 0;
  int64_t hangs_ = 0;
  int64_t plain_hangs_ = 0;
  int64_t stragglers_ = 0;
  int64_t stragglers_over_ = 0;
  std::string violation_;
  std::map<std::tuple<JobId, int32_t, uint64_t>, core::NodeKey> owners_;
  std::map<core::NodeKey, std::pair<uint64_t, int64_t>> quarantined_;  // since, until
  std::map<core::NodeKey, std::string> instances_;                     // as registered last
  std::set<JobId> broken_;  // had a node in quarantine for good
  std::set<JobId> adopted_;
  std::set<BadStepKey> bad_steps_met_;
  std::set<BadStepKey> bad_steps_heard_;
  std::map<std::pair<JobId, int64_t>, ActionId> requeues_;
  std::map<std::pair<core::NodeKey, std::string>, ActionId> replacements_;
  std::set<std::pair<core::NodeKey, std::string>> reboots_;
  std::map<core::NodeKey, uint64_t> newest_on_node_;
  std::map<JobId, uint64_t> newest_trained_;
  std::map<JobId, uint64_t> newest_recorded_;
  std::set<std::pair<JobId, std::string>> claimed_;     // checkpoints, by a worker that read them
  std::set<std::pair<JobId, std::string>> proven_;      // and by another reader
  std::set<std::pair<JobId, uint64_t>> begun_;          // generations of which a worker lived
  std::set<std::pair<JobId, std::string>> verified_;    // sound for a node, before a deletion
  std::map<JobId, std::pair<uint64_t, int64_t>> rows_;  // generation, restarts
  std::map<JobId, uint64_t> told_;
  std::map<JobId, uint64_t> mirrored_;
  std::map<std::pair<JobId, uint64_t>, Start> starts_;      // by generation
  std::map<std::pair<JobId, uint64_t>, uint64_t> resumed_;  // by generation: after a rollback
  std::map<std::pair<JobId, uint64_t>, uint64_t> undone_;   // those that the controller heard of
  std::set<std::pair<JobId, std::string>> lost_;            // checkpoints that a person deleted
  std::map<core::NodeKey, std::pair<std::string, std::set<std::string>>> lives_;  // present, former
};

}  // namespace hpctl::sim
