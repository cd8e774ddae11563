// SPDX-License-Identifier: Apache-2.0
// Workers and what they train. A generation advances as one: a step is complete when every rank is
// alive and none hangs. When one dies its peers notice and leave; when one hangs nobody notices.
#include <algorithm>

#include "common/job/snapshot_peers.h"
#include "common/worker/worker_abi.h"
#include "tests/sim/cluster.h"

namespace hpctl::sim {

namespace {

constexpr int64_t kOwedSaveMs = 500;  // between attempts

}  // namespace

size_t Cluster::world_size(const Run& run) {
  return record_of(run.job, run.generation)->members.size();
}

// Nobody waits for it any more: its nodes were cut off, and others have its ranks.
bool Cluster::is_given_up(const Run& run) {
  const auto& members = newest_record(run.job)->members;
  return std::none_of(members.begin(), members.end(), [&](const GenerationMember& member) {
    return std::any_of(run.homes.begin(), run.homes.end(),
                       [&](const auto& home) { return home.second.name == member.node; });
  });
}

void Cluster::start_workers(SimNode& node, ActionId id, const core::StartWorkers& order) {
  const uint64_t generation = order.generation.value;
  if (const auto it = node.started.find(id); it != node.started.end()) {
    send_up(node, it->second);
    return;
  }
  if (generation <= node.stopped_through || generation < node.generation_seen) {
    send_up(node, core::ActionFailed{id, node.key.job, node.key.name,
                                     "this node has seen a higher generation", false});
    return;
  }
  stop_generations(node, generation - 1);
  node.generation_seen = generation;
  if (strikes(swarm_.start_fails)) {
    send_up(node, core::ActionFailed{id, node.key.job, node.key.name, "fork failed", false});
    return;
  }
  core::WorkersStarted done{id, node.key.job, node.key.name, order.generation, {}};
  for (const Rank rank : order.ranks) {
    checkers_.bound(node.key, id, agenda_.now());
    done.workers.push_back({rank, order.generation, spawn(node, rank.value, order)});
  }
  node.started[id] = done;
  after_in_life(node, delay(), [this, &node, done] { send_up(node, done); });
}

void Cluster::stop_workers(SimNode& node, ActionId id, const core::StopWorkers& order) {
  const uint64_t through = order.generation.value;
  node.stopped_through = std::max(node.stopped_through, through);
  // Killed, and the kernel takes its time: they compute nothing any more.
  const bool slow = strikes(swarm_.slow_stop);
  for (auto& [rank, worker] : node.workers) {
    if (slow && worker.generation <= through && !worker.hangs()) worker.hang = HangKind::kInKernel;
  }
  const int64_t takes_ms = slow ? 1'000 + static_cast<int64_t>(rng_.below(90'000)) : delay();
  after_in_life(node, takes_ms, [this, &node, id, through] {
    stop_generations(node, through);
    send_up(node, core::WorkersStopped{id, node.key.job, node.key.name, {through}, {}});
  });
}

void Cluster::stop_generations(SimNode& node, uint64_t through) {
  core::WorkersExited together{node.key.job, node.key.name, node.boot_id, {}};
  if (rng_.chance(0.5)) together_ = &together;
  const auto workers = node.workers;
  for (const auto& [rank, worker] : workers) {
    if (worker.generation <= through) worker_ends(node, rank, worker.pid, 0, 9, true, true);
  }
  together_ = nullptr;
  if (!together.exits.empty()) report(node, together);
}

uint64_t Cluster::spawn(SimNode& node, int32_t rank, const core::StartWorkers& order) {
  const uint64_t generation = order.generation.value;
  const uint64_t pid = next_pid_++;
  node.workers[rank] = {generation, pid, HangKind::kNone};
  checkers_.worker_spawned(node.key, rank, order, record_of(node.key.job, generation));
  Run& run = run_of(node.key.job, generation);
  run.job = node.key.job;
  run.generation = generation;
  run.start_step = run.step = order.start_step;
  run.checkpoint = order.checkpoint;
  run.from_memory = order.memory_of != Generation{};
  run.refilled.clear();
  for (const Rank without : order.refilled) run.refilled.insert(without.value);
  run.former_parts = order.former_parts;
  run.is_last = order.last;
  run.is_suspect = order.suspect;
  run.homes[rank] = node.key;
  if (run.from_memory && run.former_parts == 0 && !run.refilled.contains(rank)) {
    const SimArena& arena = arena_of(run, rank);
    const bool is_its_part = arena.parts == parts_of_state(run) && arena.part == rank % arena.parts;
    if (!is_its_part || state_of(arena.own, run.start_step) == nullptr) {
      checkers_.fail("rank " + std::to_string(rank) + " of g" + std::to_string(generation) +
                     " of job " + to_string(run.job) + " starts from step " +
                     std::to_string(run.start_step) + ", which its node does not have");
      return pid;
    }
  }
  if (run.refilled.contains(rank)) arena_of(run, rank) = make_arena(run, rank);
  run.last_progress_ms = agenda_.now();
  run.alive.insert(rank);
  if (run.broken) {
    end_rank_soon(run, rank, kExitPeerLost, 500);
  } else if (run.alive.size() == world_size(run)) {
    form_run(run);
  }
  return pid;
}

void Cluster::worker_ends(SimNode& node, int32_t rank, uint64_t pid, int32_t code, int32_t signal,
                          bool by_request, bool reported) {
  const auto it = node.workers.find(rank);
  if (it == node.workers.end() || it->second.pid != pid) return;
  Run& run = run_of(node.key.job, it->second.generation);
  core::WorkerExited event;
  event.job = node.key.job;
  event.node = node.key.name;
  event.boot_id = node.boot_id;
  event.rank = {rank};
  event.generation = {run.generation};
  event.pid = pid;
  event.exit_code = code;
  event.signal = signal;
  event.last_step = run.step;
  event.by_request = by_request;
  if (code == kExitCheckpointDamaged) checkers_.damage_claimed(run.job, run.checkpoint);
  const SimArena& arena = arena_of(run, rank);
  event.seals = {{}, {}, arena.part, arena.parts, arena.copied_part};
  for (const SealedState& sealed : arena.own) event.seals.own.push_back(sealed.seal);
  for (const SealedState& copy : arena.copies) event.seals.copies.push_back(copy.seal);
  node.workers.erase(it);
  checkers_.worker_gone(node.key, rank, run.generation);
  run.alive.erase(rank);
  if (reported && together_ != nullptr) {
    together_->exits.push_back(event);
  } else if (reported) {
    report(node, event);
  }
  if (!run.finished && !run.broken) break_run(run, rank);
}

// The peers' collectives fail, a little later on each. Some may just have applied the next step.
void Cluster::break_run(Run& run, int32_t first) {
  run.broken = true;
  const bool complete =
      run.alive.size() + 1 == world_size(run) && !needs_room(run) && rng_.chance(0.3);
  for (const int32_t rank : run.alive) {
    if (complete && rng_.chance(0.5)) seal(run, rank, run.step + 1);
  }
  for (const int32_t rank : run.alive) {
    if (rank != first) end_rank_soon(run, rank, kExitPeerLost, 60);
  }
}

void Cluster::end_rank_soon(const Run& run, int32_t rank, int32_t code, int64_t within_ms) {
  SimNode& node = node_of(run, rank);
  const auto it = node.workers.find(rank);
  if (it == node.workers.end() || it->second.generation != run.generation) return;
  const uint64_t pid = it->second.pid;
  after_in_life(node, 1 + static_cast<int64_t>(rng_.below(within_ms)),
                [this, &node, rank, pid, code] {
                  const auto worker = node.workers.find(rank);
                  if (worker == node.workers.end() || worker->second.hangs()) return;
                  worker_ends(node, rank, pid, code, 0, false, true);
                });
}

SimArena& Cluster::arena_of(const Run& run, int32_t rank) {
  return node_of(run, rank).arenas[rank % plans_.at(run.job).spec.workers_per_node];
}

// Nothing is sealed in it yet.
SimArena Cluster::make_arena(const Run& run, int32_t rank) {
  SimArena arena;
  if (plans_.at(run.job).is_command) return arena;
  arena.parts = parts_of_state(run);
  arena.part = rank % arena.parts;
  if (keeps_copies(run)) {
    arena.copied_part = snapshot_source(rank, static_cast<int32_t>(world_size(run)),
                                        plans_.at(run.job).spec.workers_per_node);
  }
  return arena;
}

const SealedState* Cluster::state_of(const std::vector<SealedState>& slots, uint64_t step) {
  const auto found = std::find_if(slots.begin(), slots.end(), [step](const SealedState& sealed) {
    return sealed.seal.step == step;
  });
  return found == slots.end() ? nullptr : &*found;
}

History Cluster::history_of(const Run& run) const {
  History history = run.begun_with;
  history.push_back({run.generation, run.start_step, run.step});
  return history;
}

// After another step of the run; the oldest slot that may be is overwritten.
void Cluster::seal(const Run& run, int32_t rank, uint64_t step) {
  if (plans_.at(run.job).is_command) return;
  std::vector<SealedState>& arena = arena_of(run, rank).own;
  SealedState state{{step, run.digest, run.generation}, history_of(run)};
  state.history.back().to = step;
  if (arena.size() == (keeps_copies(run) ? kOwnSlots : 2)) {
    const auto oldest = std::find_if(arena.rbegin(), arena.rend(), [&run](const SealedState& s) {
      return s.seal.step != run.snapshot.under_way && s.seal.step != run.snapshot.everywhere;
    });
    arena.erase(std::prev(oldest.base()));
  }
  arena.insert(arena.begin(), std::move(state));
}

// What was in the arenas is of a history that ended.
void Cluster::load_everywhere(Run& run) {
  run.snapshot = {};
  for (const int32_t rank : run.alive) {
    arena_of(run, rank) = make_arena(run, rank);
    seal(run, rank, run.step);
  }
}

// Of the built-in trainer: hybrid's groups are those of a node here.
int32_t Cluster::parts_of_state(const Run& run) {
  const JobPlan& plan = plans_.at(run.job);
  if (plan.spec.train->strategy == Strategy::kNoShard) return 1;
  if (plan.spec.train->strategy == Strategy::kFull) return static_cast<int32_t>(world_size(run));
  return plan.spec.workers_per_node;
}

bool Cluster::keeps_copies(const Run& run) {
  const JobPlan& plan = plans_.at(run.job);
  if (plan.is_command || plan.spec.recovery.snapshot.replicas == 0) return false;
  const auto world = static_cast<int32_t>(world_size(run));
  return parts_of_state(run) == world && world > plan.spec.workers_per_node;
}

int32_t Cluster::holder_of(const Run& run, int32_t rank) {
  return snapshot_holder(rank, static_cast<int32_t>(world_size(run)),
                         plans_.at(run.job).spec.workers_per_node);
}

// The copy of a rank's state that is under way has come.
void Cluster::receive_copy(Run& run, int32_t rank) {
  const SealedState* sealed = state_of(arena_of(run, rank).own, run.snapshot.under_way);
  std::vector<SealedState>& copies = arena_of(run, holder_of(run, rank)).copies;
  std::erase_if(copies, [&run](const SealedState& copy) {
    return copy.seal.step != run.snapshot.everywhere;
  });
  copies.insert(copies.begin(), *sealed);
  run.snapshot.received.insert(rank);
}

// The next step needs the slot of what is under way.
bool Cluster::needs_room(const Run& run) {
  return run.snapshot.is_under_way && run.step > run.snapshot.under_way;
}

// Before a step's apply(): some copies have come, and where all have, all ranks hear of it. A step
// that needs the slot waits for them.
void Cluster::conclude_copies(Run& run) {
  if (!run.snapshot.is_under_way) return;
  for (const int32_t rank : run.alive) {
    if (run.snapshot.received.contains(rank)) continue;
    if (needs_room(run) || rng_.chance(0.6)) receive_copy(run, rank);
  }
  if (run.snapshot.received.size() < run.alive.size()) return;
  const uint64_t everywhere = run.snapshot.under_way;
  run.snapshot = {};
  run.snapshot.everywhere = everywhere;
}

void Cluster::begin_copies(Run& run) {
  if (!keeps_copies(run) || run.snapshot.is_under_way || !rng_.chance(0.5)) return;
  run.snapshot.is_under_way = true;
  run.snapshot.under_way = run.step;
  run.snapshot.received.clear();
}

// Ranks without a part get it from a replica, or from who keeps its copy.
bool Cluster::refill(Run& run) {
  const auto world = static_cast<int32_t>(world_size(run));
  const int32_t parts = parts_of_state(run);
  for (const int32_t rank : run.refilled) {
    const SealedState* source = nullptr;
    for (int32_t r = rank % parts; r < world && source == nullptr; r += parts) {
      if (!run.refilled.contains(r)) source = state_of(arena_of(run, r).own, run.start_step);
    }
    if (source == nullptr && keeps_copies(run)) {
      source = state_of(arena_of(run, holder_of(run, rank)).copies, run.start_step);
    }
    if (source == nullptr) {
      checkers_.fail("no replica of rank " + std::to_string(rank) + " of g" +
                     std::to_string(run.generation) + " of job " + to_string(run.job) +
                     " has step " + std::to_string(run.start_step));
      return false;
    }
    arena_of(run, rank).own = {*source};
  }
  return true;
}

// Each rank gets its new part of what is whole in the ranks' memory. Where one of them dies before
// all have overwritten what they had, some have the former division and some the new one.
bool Cluster::divide_anew(Run& run) {
  // By generation and digest, and by former part: a rank may have that step of an undone history.
  std::map<std::pair<uint64_t, uint64_t>, std::map<int32_t, const SealedState*>> states;
  for (const int32_t rank : run.alive) {
    const SimArena& arena = arena_of(run, rank);
    if (arena.parts != run.former_parts) continue;
    const auto offer = [&](const SealedState* state, int32_t part) {
      if (state != nullptr) states[{state->seal.generation, state->seal.digest}][part] = state;
    };
    offer(state_of(arena.own, run.start_step), arena.part);
    offer(state_of(arena.copies, run.start_step), arena.copied_part);
  }
  const auto whole = std::find_if(states.rbegin(), states.rend(), [&run](const auto& sources) {
    return sources.second.size() == static_cast<size_t>(run.former_parts);
  });
  if (whole == states.rend()) {
    checkers_.fail("step " + std::to_string(run.start_step) + " of job " + to_string(run.job) +
                   " is not whole in the memory of g" + std::to_string(run.generation));
    return false;
  }
  const SealedState state = *whole->second.begin()->second;
  const bool is_cut_short = rng_.chance(0.1);
  for (const int32_t rank : run.alive) {
    if (is_cut_short && rng_.chance(0.5)) continue;
    arena_of(run, rank) = make_arena(run, rank);
    arena_of(run, rank).own = {state};
  }
  if (!is_cut_short) return true;
  const int32_t dies = *run.alive.begin();
  SimNode& node = node_of(run, dies);
  worker_ends(node, dies, node.workers.at(dies).pid, 0, 9, false, true);
  return false;
}

// One rank ends with `code` before the first step, and the others lose their peer.
void Cluster::fail_to_begin(Run& run, int32_t code) {
  run.broken = true;
  const int32_t first = *run.alive.begin();
  for (const int32_t rank : run.alive) {
    end_rank_soon(run, rank, rank == first ? code : kExitPeerLost, 200);
  }
}

void Cluster::form_run(Run& run) {
  if (!plans_.at(run.job).is_command && strikes(swarm_.unreadable)) {
    return fail_to_begin(run, kExitStorage);
  }
  if (run.from_memory) {
    if (!(run.former_parts > 0 ? divide_anew(run) : refill(run))) return;
    const SealedState begin = *state_of(arena_of(run, 0).own, run.start_step);
    run.begun_with = begin.history;
    run.digest = begin.seal.digest;
    for (const int32_t rank : run.alive) {
      const auto is_other = [&begin](const SealedState& s) { return s.seal != begin.seal; };
      std::erase_if(arena_of(run, rank).own, is_other);
      std::erase_if(arena_of(run, rank).copies, is_other);
    }
    if (strikes(swarm_.damaged_checkpoint)) {
      run.broken = true;
      for (const int32_t rank : run.alive) end_rank_soon(run, rank, kExitCheckpointDamaged, 200);
      return;
    }
  }
  if (!run.checkpoint.empty()) {
    const StoredCheckpoint* stored = stored_in(places(run.job), run.checkpoint);
    if (is_place_away(run.job, run.checkpoint)) return fail_to_begin(run, kExitStorage);
    if (stored == nullptr && checkers_.was_lost(run.job, run.checkpoint)) {
      return fail_to_begin(run, kExitCheckpointDamaged);
    }
    if (stored == nullptr) {
      checkers_.fail("generation " + std::to_string(run.generation) + " of job " +
                     to_string(run.job) + " starts from a checkpoint that does not exist");
      return;
    }
    if (stored->damaged) {
      run.broken = true;
      for (const int32_t rank : run.alive) end_rank_soon(run, rank, kExitCheckpointDamaged, 200);
      return;
    }
    if (strikes(swarm_.false_claim)) return fail_to_begin(run, kExitCheckpointDamaged);
    run.begun_with = stored->history;
    run.digest = stored->digest;
  }
  if (!run.from_memory) load_everywhere(run);
  if (run.is_last) return save_last(run);
  // A last step that only memory or the mirror has is still to be saved.
  const bool is_elsewhere = run.from_memory || run.checkpoint.starts_with('/');
  if (is_elsewhere && run.step >= plans_.at(run.job).steps) commit_checkpoint(run);
  schedule_step(run);
}

// The last generation: all ranks die of SIGTERM once the checkpoint is there, or tell that storage
// failed.
void Cluster::save_last(Run& run) {
  run.last_progress_ms = agenda_.now();
  if (!can_save(run.job)) return fail_to_begin(run, kExitStorage);
  run.finished = true;
  Save save{{run.step, run.generation}, {}, false, run.rollbacks.size()};
  save.stored.history = history_of(run);
  save.stored.digest = run.digest;
  if (!run.is_suspect) land(run, std::move(save));
  for (const int32_t rank : run.alive) {
    SimNode& node = node_of(run, rank);
    const uint64_t pid = node.workers.at(rank).pid;
    after_in_life(node, 1 + static_cast<int64_t>(rng_.below(300)), [this, &node, rank, pid] {
      const auto worker = node.workers.find(rank);
      if (worker == node.workers.end() || worker->second.hangs()) return;
      worker_ends(node, rank, pid, 0, 15, false, true);
    });
  }
}

void Cluster::schedule_step(Run& run) {
  const JobPlan& plan = plans_.at(run.job);
  if (run.step >= plan.steps) {
    run.finished = true;
    for (const int32_t rank : run.alive) end_rank_soon(run, rank, kExitFinished, 300);
    return;
  }
  agenda_.after(next_step_ms(run), [this, &run] { complete_step(run); });
}

void Cluster::complete_step(Run& run) {
  const JobPlan& plan = plans_.at(run.job);
  if (run.broken) return;
  bool hangs = false;
  run.cut_off.clear();
  for (const int32_t rank : run.alive) {
    const SimNode& node = node_of(run, rank);
    hangs = hangs || node.workers.at(rank).hangs();
    if (is_cut(node) && node.is_isolated) run.cut_off.insert(node.key);
  }
  if (hangs || !run.cut_off.empty()) {
    if (run.stuck_since_ms == 0) run.stuck_since_ms = agenda_.now();
    if (!hangs) agenda_.after(plan.step_ms, [this, &run] { complete_step(run); });
    return;
  }
  run.stuck_since_ms = 0;
  ++run.collectives;
  if (plan.poison_step == run.step + 1) {
    SimNode& node = node_of(run, 0);
    worker_ends(node, 0, node.workers.at(0).pid, 1, 0, false, true);
    return;
  }
  if (!plan.is_command && strikes(swarm_.bad_step)) {
    meet_bad_step(run);
    return;
  }
  conclude_copies(run);
  ++run.step;
  for (const int32_t rank : run.alive) seal(run, rank, run.step);
  begin_copies(run);
  run.last_step_took_ms = agenda_.now() - run.last_progress_ms;
  run.last_progress_ms = agenda_.now();
  if (!is_given_up(run)) checkers_.step_trained(run.job, run.generation);
  const bool due = run.step % plan.checkpoint_every == 0 || run.step == plan.steps;
  if (due && !plan.is_command) commit_checkpoint(run);
  schedule_step(run);
}

// Mostly the newest save. Or the one before it, and what was saved since is undone.
uint64_t Cluster::step_to_go_back_to(Run& run) {
  const JobPlan& plan = plans_.at(run.job);
  const uint64_t newest = std::max(run.start_step, run.step - run.step % plan.checkpoint_every);
  if (!strikes(swarm_.deep_rollback) || is_given_up(run) || !can_save(run.job)) return newest;
  Directory& place = directory(run.job);
  std::vector<CheckpointRef> own;
  for (const auto& [ref, stored] : place.checkpoints()) {
    if (ref.generation == run.generation && !stored.damaged) own.push_back(ref);
  }
  if (own.size() < 2 || place.is_taken()) return newest;
  const uint64_t resumed = own[own.size() - 2].step;
  const auto stored = place.checkpoints();
  for (const auto& [ref, checkpoint] : stored) {
    if (ref.generation != run.generation || ref.step <= resumed) continue;
    checkers_.checkpoint_lost(run.job, ref.name());
    place.remove(ref);
  }
  run.rollbacks.push_back(resumed);
  return resumed;
}

// A step that the trainer does not apply, and what its policy does then: rank 0 speaks for all.
void Cluster::meet_bad_step(Run& run) {
  SimNode& node = node_of(run, 0);
  core::BadStepFound found;
  found.job = run.job;
  found.node = node.key.name;
  found.generation = {run.generation};
  found.number = ++run.bad_steps;
  found.step = run.step + 1;
  found.finding = static_cast<BadStepFinding>(1 + rng_.below(3));
  found.verdict = static_cast<BadStepVerdict>(rng_.below(3));
  found.outcome = found.verdict == BadStepVerdict::kOtherResult
                      ? BadStepOutcome::kStopped
                      : static_cast<BadStepOutcome>(1 + rng_.below(4));
  if (found.outcome == BadStepOutcome::kRolledBack) run.step = step_to_go_back_to(run);
  found.resumed_step = run.step;
  run.digest = mix64(run.digest ^ found.step);
  if (found.outcome == BadStepOutcome::kRolledBack) load_everywhere(run);
  found.blamed_rank = static_cast<int32_t>(rng_.below(world_size(run) + 1)) - 1;
  const bool goes_on =
      found.outcome == BadStepOutcome::kSkipped || found.outcome == BadStepOutcome::kRolledBack;
  found.samples = goes_on ? 1 : 0;
  found.reason = kBadReason + std::to_string(found.number);
  checkers_.bad_step_met(found);
  report(node, found);
  if (goes_on) {
    run.last_progress_ms = agenda_.now();
    schedule_step(run);
  } else {
    worker_ends(node, 0, node.workers.at(0).pid, 1, 0, false, true);
  }
}

// Written in the background; the last one is awaited. A commit may land although its generation is
// over: the lineage rule, not a race, decides whether it counts.
void Cluster::commit_checkpoint(Run& run) {
  const JobPlan& plan = plans_.at(run.job);
  const CheckpointRef ref{run.step, run.generation};
  Save save{ref, {}, false, run.rollbacks.size()};
  save.stored.history = history_of(run);
  save.stored.digest = run.digest;
  save.stored.damaged = strikes(swarm_.damaged_checkpoint) && ref.step != plan.steps;
  save.may_be_late = strikes(swarm_.late_commit);
  if (ref.step == plan.steps) {
    mend(places_[run.job]);  // or the job would wait for it until limits.storage
    save.may_be_late = true;
    return land(run, std::move(save));
  }
  if (strikes(swarm_.disk_full)) {
    controller_.post(core::CheckpointRoomNeeded{run.job, {run.generation}});
  }
  const auto within = static_cast<int64_t>(10 + rng_.below(save.may_be_late ? 8'000 : 400));
  agenda_.after(within, [this, &run, save] {
    if (!run.broken || save.may_be_late) land(run, save);
  });
}

// A save that the first place cannot take is owed. One of steps that were undone is given up.
void Cluster::land(Run& run, Save save) {
  const CheckpointRef ref = save.ref;
  const auto since = run.rollbacks.begin() + static_cast<std::ptrdiff_t>(save.rollbacks);
  const bool is_undone =
      std::any_of(since, run.rollbacks.end(), [&](uint64_t resumed) { return resumed < ref.step; });
  if (is_undone) return;
  if (!can_save(run.job)) {
    agenda_.after(kOwedSaveMs, [this, &run, save] {
      if (!run.broken || save.may_be_late) land(run, save);
    });
    return;
  }
  save.stored.committed_ms = agenda_.now();
  checkers_.checkpoint_committed(run.job, ref, directory(run.job).commit(ref, save.stored));
  SimNode& writer = node_of(run, 0);
  if (run.alive.contains(0)) {
    report(writer, core::CheckpointCommitted{run.job, {ref.generation}, ref.step});
  }
}

}  // namespace hpctl::sim
