// SPDX-License-Identifier: Apache-2.0
// Everything that is not the controller: nodes with their holder, agent and workers, the network
// between agents and controller, the scheduler, the training itself and the checkpoint directories.
// It keeps to the contracts of the real parts (proto/hpctl/v1) and breaks wherever they may break.
//
// Network: one stream per connection, in order within it unless the seed reorders. A broken stream
// loses what is under way, except what still arrives late; reports are repeated on the next stream
// until acknowledged, orders by the controller's outbox.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "controller/core/failure_detector.h"
#include "controller/core/hang.h"
#include "controller/core/straggler.h"
#include "tests/sim/agenda.h"
#include "tests/sim/checkers.h"
#include "tests/sim/controller.h"
#include "tests/sim/directory.h"
#include "tests/sim/swarm.h"

namespace hpctl::sim {

// How a worker hangs: until somebody kills it.
enum class HangKind {
  kNone,
  kComputes,      // an endless loop
  kInKernel,      // it waits for a file
  kStopped,       // SIGSTOP
  kInCollective,  // it has begun the same one as the others, and nothing tells it from them
};

using Hung = std::map<int32_t, HangKind>;  // by rank

struct SimWorker {
  uint64_t generation = 0;
  uint64_t pid = 0;
  HangKind hang = HangKind::kNone;

  bool hangs() const { return hang != HangKind::kNone; }
};

// The memory of one place of a node, whichever rank is there.
struct SimArena {
  int32_t part = 0;  // own states are this one of
  int32_t parts = 0;
  int32_t copied_part = -1;
  std::vector<SealedState> own;  // newest first
  std::vector<SealedState> copies;
};

// One life of a node is one holder process. What it remembers ends with it.
struct SimNode {
  core::NodeKey key;
  uint64_t life = 0;  // counts holders; a task scheduled for an earlier life does nothing
  bool holder_alive = false;
  bool agent_alive = false;
  std::string boot_id;
  uint64_t instance = 1;
  int64_t booted_ms = 0;  // of the machine; 0 = before everything
  ActionId launched_by;
  uint64_t holder_pid = 0;
  uint64_t agent_pid = 0;
  uint64_t generation_seen = 0;
  uint64_t stopped_through = 0;
  std::map<int32_t, SimWorker> workers;  // by rank
  std::map<int32_t, SimArena> arenas;    // by local rank
  std::map<ActionId, core::WorkersStarted> started;
  std::map<uint64_t, core::EventBody> reports;  // not acknowledged yet
  uint64_t next_report = 1;
  uint64_t stream = 0;    // agent's side; 0 = not connected
  uint64_t bound = 0;     // controller's side: the newest stream that registered
  bool welcomed = false;  // the controller accepted the stream; agent's side
  int64_t last_contact_ms = 0;
  int64_t cut_until_ms = 0;  // partition: from the controller
  bool is_isolated = false;  // and from its peers
  int64_t busy_until_ms = 0;
  int64_t up_clear_ms = 0;  // in-order delivery
  int64_t down_clear_ms = 0;
};

// The copies at peers of a generation.
struct Snapshot {
  uint64_t everywhere = 0;
  bool is_under_way = false;
  uint64_t under_way = 0;
  std::set<int32_t> received;  // by ranks whose states they are
};

// A checkpoint that is being written.
struct Save {
  CheckpointRef ref;
  StoredCheckpoint stored;
  bool may_be_late = false;  // it lands although its generation is over
  size_t rollbacks = 0;      // how many of the run there were before
};

// One generation of one job as the workers live it.
struct Run {
  JobId job;
  uint64_t generation = 0;
  uint64_t start_step = 0;
  std::string checkpoint;
  std::set<int32_t> refilled;  // of the ranks that have nothing in memory
  bool from_memory = false;
  int32_t former_parts = 0;
  bool is_last = false;     // it trains no step: it saves, and ends
  bool is_suspect = false;  // where no job looks for it
  Snapshot snapshot;
  uint64_t step = 0;
  uint64_t bad_steps = 0;
  std::vector<uint64_t> rollbacks;  // that undid saves: to which step
  uint64_t collectives = 0;         // one for each step that was tried
  int64_t last_step_took_ms = 0;
  History begun_with;
  uint64_t digest = 0;  // of the decisions that led to the present state
  std::set<int32_t> alive;
  std::map<int32_t, core::NodeKey> homes;  // by rank
  bool broken = false;                     // a worker is gone: nobody completes a step any more
  bool finished = false;
  int64_t last_progress_ms = 0;
  int64_t stuck_since_ms = 0;       // ranks wait for one that hangs or cannot be reached; 0 = no
  std::set<core::NodeKey> cut_off;  // the latter, while they wait
};

// What the controller's table of progress knows of a job.
struct HangWatch {
  uint64_t incarnation = 0;
  uint64_t generation = 0;
  bool running = false;
  bool judged = false;
  uint64_t step = 0;
  uint64_t fewest_collectives = 0;
  int64_t moved_ms = 0;
  std::deque<int64_t> step_ms;
  std::map<int32_t, core::RankSight> ranks;
  std::map<int32_t, int64_t> heard_ms;
  core::PlainHangs plain_hangs;
  Hung hung;  // the checker: of these ranks it can be seen
  int64_t hung_since_ms = 0;
};

// What the controller's table of progress knows of the pace of a generation's ranks.
struct PaceWatch {
  uint64_t incarnation = 0;
  uint64_t generation = 0;
  core::StragglerWatch core;
  std::set<std::string> named;
  uint64_t step = 0;
  std::map<int32_t, double> slow;  // the checker: at the newest step
  bool are_all_slow = false;
  size_t steps_alike = 0;                // of all ranks, heard in a row, since that changed
  std::map<int32_t, size_t> slow_steps;  // by rank
};

// What the controller's table of silent nodes knows of one.
struct Silence {
  std::string boot_id;
  uint64_t stream = 0;  // that is silent; 0 = it has ended
  uint64_t incarnation = 0;
  int64_t since_ms = 0;
  int64_t probed_ms = -1;
  core::HolderProbe answer = core::HolderProbe::kNotAsked;
  int64_t trained_ms = -1;       // when the job was last seen to complete a step; -1 = never
  int64_t waited_since_ms = -1;  // the checker: since the others are seen to wait for it
};

// Where a job's checkpoints are.
struct Places {
  Directory first;
  Mirror mirror;
  Directory emptied;  // what a person took out of `first`, who brings the records back when healed
  int64_t first_away_until_ms = 0;
  int64_t mirror_away_until_ms = 0;
  int64_t first_clear_ms = 0;  // when the orders there are carried out
  int64_t mirror_clear_ms = 0;
  uint64_t searches = 0;  // FindCheckpoint orders so far
  Search search;          // the newest that was answered
};

class Cluster final : public World {
 public:
  Cluster(Agenda& agenda, Rng& rng, const Swarm& swarm, const std::vector<JobPlan>& workload,
          Checkers& checkers, SimController& controller)
      : agenda_(agenda),
        rng_(rng),
        swarm_(swarm),
        workload_(workload),
        checkers_(checkers),
        controller_(controller) {}

  void perform(const core::Action& action) override;
  void node_changed(const core::Node& row) override;
  void controller_died() override;
  bool is_true(const core::TrainingSeen& doubted) override;
  void controller_started() override;
  std::vector<core::JobAdopted> find_jobs(const core::State& last_known) override;

  const JobPlan& plan(JobId job) const { return plans_.at(job); }
  Directory& directory(JobId job) { return places_[job].first; }
  const Places& places(JobId job) { return places_[job]; }
  // With the records of generations that began while it was away.
  Directory whole_directory(JobId job) const;

  // Faults; each picks its victim with the seed's generator.
  void kill_worker(bool with_error);
  void hang_worker();
  void crash_agent();
  void crash_holder();
  void cut_node(int64_t for_ms);
  void busy_node();
  void break_stream();
  void quarantine_node();
  void drain_node();
  void break_hardware();
  void lose_checkpoints();
  void take_place_away(int64_t for_ms, bool is_first);
  void release_nodes();
  void heal();  // no fault from now on; partitions end

  bool all_gone() const;  // no holder is alive

 private:
  int64_t delay() { return 1 + static_cast<int64_t>(rng_.below(swarm_.delay_ms_max)); }
  bool strikes(double probability) { return faults_ && rng_.chance(probability); }
  SimNode* random_node(bool with_workers);
  void after_in_life(SimNode& node, int64_t ms, std::function<void()> task);

  // network.cc
  void connect(SimNode& node);
  void register_agent(SimNode& node);
  void registered(SimNode& node, uint64_t stream, const core::StepResult& result);
  void prepare_as_spare(SimNode& node, uint64_t stream);
  void refuse(SimNode& node);
  void close_stream(SimNode& node);
  void send_up(SimNode& node, core::EventBody body, SimController::Done done = nullptr);
  void send_down(SimNode& node, std::function<void()> task);
  void report(SimNode& node, core::EventBody body);
  void send_report(SimNode& node, uint64_t number);
  void watch_orphan(SimNode& node);

  // failure_detector.cc
  bool is_cut(const SimNode& node) const { return agenda_.now() < node.cut_until_ms; }
  bool is_silent(const SimNode& node) const {
    return is_cut(node) || agenda_.now() < node.busy_until_ms;
  }
  void falls_silent(SimNode& node);
  void watch_silence(SimNode& node, const Silence& silence);
  bool is_still_watched(const SimNode& node, const Silence& silence) const;
  bool is_lost_by_silence(const SimNode& node, Silence& silence);
  core::NodeObservation see(const SimNode& node, Silence& silence);
  static bool has_rank_of(const Run& run, const SimNode& node);
  core::HolderProbe probe(const SimNode& node, const Silence& silence) const;
  void check_verdict(const SimNode& node, Silence& silence, const core::NodeObservation& facts,
                     const core::FailureVerdict& verdict);

  // hangs.cc
  void watch_job(JobId job);
  void watch_for_hangs(const core::Job& row, const Run& run);
  bool is_heard(const SimNode& node) const;
  void hear(const Run& run, HangWatch& watch);
  core::RankSight say(const Run& run, int32_t rank) const;
  core::JobSight look_at(const core::Job& row, const HangWatch& watch) const;
  void check_verdict(const Run& run, HangWatch& watch, const core::JobSight& facts,
                     const core::HangVerdict& verdict);
  bool all_are_heard(const Run& run) const;
  bool any_hangs(const Run& run) const;
  Hung hung_in_sight(const Run& run) const;
  bool is_guilty(const Run& run, const std::string& node) const;

  // stragglers.cc
  int64_t own_part_ns(const Run& run, int32_t rank, uint64_t step) const;
  int64_t next_step_ms(const Run& run) const;
  std::map<int32_t, double> slow_ranks(const Run& run) const;
  void watch_for_stragglers(const core::Job& row, const Run& run);
  void hear_steps(const Run& run, PaceWatch& watch);
  void check_named(const Run& run, const PaceWatch& watch, const core::Straggler& found);
  void check_told(const Run& run, const PaceWatch& watch);

  // cluster.cc
  void add_job(JobId job);  // at its first order
  void launch(const core::Action& action, const core::LaunchNode& order);
  void start_holder(SimNode& node, ActionId by);
  void end_holder(SimNode& node);
  void holder_exit_seen(const SimNode& node, uint64_t pid);
  void requeue(const core::Action& action, const core::RequeueJob& order);
  void replace(const core::Action& action, const core::ReplaceNode& order);
  std::string instance_id(const SimNode& node) const {
    return "i-" + node.key.name + "-" + std::to_string(node.instance);
  }
  void receive(SimNode& node, const core::Action& action);
  void read_again(SimNode& node, ActionId id, const core::ConfirmDamage& order);

  // places.cc
  bool is_away(int64_t until_ms) const { return agenda_.now() < until_ms; }
  bool can_save(JobId job) const;
  void mend(Places& places);
  static const StoredCheckpoint* stored_in(const Places& places, const std::string& name);
  bool is_place_away(JobId job, const std::string& checkpoint) const;
  bool is_out_of_reach(JobId job, const std::string& checkpoint) const;  // of a second reader
  const GenerationRecord* record_of(JobId job, uint64_t generation) const;
  const GenerationRecord* newest_record(JobId job) const;
  Places* random_places(JobId& job);
  bool is_refused(ActionId order, JobId job);
  void in_lane(JobId job, bool in_mirror, std::function<void()> task);
  void find_checkpoint(const core::Action& action, const core::FindCheckpoint& order);
  void find_in_first_place(const core::Action& action, const core::FindCheckpoint& order);
  void find_in_mirror(const core::Action& action, const core::FindCheckpoint& order);
  void prune_checkpoints(const core::Action& action, const core::PruneCheckpoints& order);
  void mirror_checkpoint(const core::Action& action, const core::MirrorCheckpoint& order);
  void copy_to_mirror(ActionId id, const core::MirrorCheckpoint& order, bool is_wanted);
  void record_generation(const core::Action& action, const core::RecordGeneration& order);
  GenerationRecord make_record(ActionId id, const core::RecordGeneration& order);
  std::string answer_claim(const std::string& claimed, const std::string& damage) const;
  bool is_anothers(const Directory& place) const;

  // training.cc
  void start_workers(SimNode& node, ActionId id, const core::StartWorkers& order);
  void stop_workers(SimNode& node, ActionId id, const core::StopWorkers& order);
  void stop_generations(SimNode& node, uint64_t through);
  // Its pid. As the last of its run it may bring another of this node to its end at once.
  uint64_t spawn(SimNode& node, int32_t rank, const core::StartWorkers& order);
  void worker_ends(SimNode& node, int32_t rank, uint64_t pid, int32_t code, int32_t signal,
                   bool by_request, bool reported);
  core::WorkersExited* together_ = nullptr;  // what its agent will report at once, as it is made
  void break_run(Run& run, int32_t first);
  void end_rank_soon(const Run& run, int32_t rank, int32_t code, int64_t within_ms);
  void fail_to_begin(Run& run, int32_t code);
  void form_run(Run& run);
  int32_t parts_of_state(const Run& run);
  bool refill(Run& run);
  bool divide_anew(Run& run);
  SimArena& arena_of(const Run& run, int32_t rank);
  SimArena make_arena(const Run& run, int32_t rank);
  static const SealedState* state_of(const std::vector<SealedState>& slots, uint64_t step);
  bool keeps_copies(const Run& run);
  int32_t holder_of(const Run& run, int32_t rank);
  static bool needs_room(const Run& run);
  void receive_copy(Run& run, int32_t rank);
  void conclude_copies(Run& run);
  void begin_copies(Run& run);
  History history_of(const Run& run) const;
  void seal(const Run& run, int32_t rank, uint64_t step);
  void load_everywhere(Run& run);
  void save_last(Run& run);
  void schedule_step(Run& run);
  void complete_step(Run& run);
  void meet_bad_step(Run& run);
  void commit_checkpoint(Run& run);
  void land(Run& run, Save save);
  uint64_t step_to_go_back_to(Run& run);
  Run& run_of(JobId job, uint64_t generation) { return runs_[{job, generation}]; }
  SimNode& node_of(const Run& run, int32_t rank) { return nodes_.at(run.homes.at(rank)); }
  const SimNode& node_of(const Run& run, int32_t rank) const {
    return nodes_.at(run.homes.at(rank));
  }
  size_t world_size(const Run& run);
  bool is_given_up(const Run& run);

  Agenda& agenda_;
  Rng& rng_;
  const Swarm& swarm_;
  const std::vector<JobPlan>& workload_;
  Checkers& checkers_;
  SimController& controller_;
  std::map<JobId, JobPlan> plans_;
  std::map<JobId, Places> places_;
  std::map<core::NodeKey, SimNode> nodes_;
  std::vector<core::NodeKey> names_;
  std::map<std::pair<JobId, uint64_t>, Run> runs_;
  std::map<JobId, HangWatch> hang_watches_;
  std::map<JobId, PaceWatch> pace_watches_;
  bool faults_ = true;
  uint64_t next_pid_ = 1000;
  uint64_t next_stream_ = 1;
};

}  // namespace hpctl::sim
