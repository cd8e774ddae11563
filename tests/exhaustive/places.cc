// SPDX-License-Identifier: Apache-2.0
// Nodes: their streams, their holders, and the ranks that train there.
#include <algorithm>
#include <csignal>
#include <utility>

#include "common/worker/worker_abi.h"
#include "tests/exhaustive/world.h"

namespace hpctl::exhaustive {

namespace {

constexpr size_t kSlots = 2;  // of an arena without copies of peers

const sim::SealedState* state_of(const Place& place, uint64_t step) {
  const auto found =
      std::find_if(place.arena.begin(), place.arena.end(),
                   [step](const sim::SealedState& sealed) { return sealed.seal.step == step; });
  return found == place.arena.end() ? nullptr : &*found;
}

sim::History history_of(uint64_t generation, const Run& run, uint64_t step) {
  sim::History history = run.begun_with;
  history.push_back({generation, run.start_step, step});
  return history;
}

}  // namespace

void World::report(Place& place, Word word) {
  place.reports.push_back(word);
  if (place.bound) place.up.push_back({std::move(word), true});
}

void World::close_stream(Place& place, bool loses) {
  place.bound = false;
  place.down.clear();
  for (Message& message : place.up) {
    if (!loses) place.late.push_back(std::move(message.word));
  }
  place.up.clear();
}

// What the node says is of the moment in which it is committed: what happens to it meanwhile is
// reported afterwards, so an earlier word would be the same history.
void World::register_agent(int32_t node, int32_t dies_after) {
  Place& place = places_[static_cast<size_t>(node)];
  core::AgentRegistered hello{JobId{1},
                              core::local_node_name(node),
                              "i-" + core::local_node_name(node),
                              boot_id(node),
                              holder_pid(node),
                              holder_pid(node) + 1,
                              {place.generation_seen},
                              {}};
  hello.confirms_damage = scope_->readers;
  if (place.worker) {
    hello.workers.push_back({Rank{place.rank}, {place.worker->generation}, place.worker->pid});
  }
  const std::string refusal = commit(hello, dies_after);
  if (dies_after >= 0) return;
  if (!refusal.empty()) return end_holder(node);
  place.bound = true;
  for (const Word& word : place.reports) place.up.push_back({word, true});
  if (place.worker && place.rank == 0) {  // a controller's table of progress begins anew
    const Run& run = runs_.at(place.worker->generation);
    const uint64_t step = run.steps.at(0);
    if (step > run.start_step) {
      place.up.push_back(
          {Word(core::GenerationProgressed{JobId{1}, {place.worker->generation}, step})});
    }
  }
  for (const auto kind : {core::ActionKind::kStartWorkers, core::ActionKind::kStopWorkers,
                          core::ActionKind::kEndNode, core::ActionKind::kConfirmDamage}) {
    const auto it = state_.index.open.find({JobId{1}, kind, core::local_node_name(node)});
    if (it != state_.index.open.end()) place.down.emplace_back(state_.outbox.at(it->second));
  }
}

// A report leaves the holder when it is committed; where the controller dies then, nobody tells the
// holder, and it comes again.
void World::take(int32_t node, int32_t dies_after) {
  Place& place = places_[static_cast<size_t>(node)];
  Message message = std::move(place.up.front());
  place.up.pop_front();
  if (message.is_report && dies_after < 0) place.reports.pop_front();
  const auto* exited = std::get_if<core::WorkerExited>(&message.word.body);
  const bool of_last = exited != nullptr && !place.worker && !place.arena.empty() &&
                       exited->boot_id == boot_id(node) &&
                       exited->pid == holder_pid(node) + 1 + place.pids;
  const std::string refusal = commit(std::move(message.word.body), dies_after);
  if (of_last && refusal.empty()) place.arena_is_told = true;
}

void World::end_holder(int32_t node) {
  Place& place = places_[static_cast<size_t>(node)];
  if (place.worker) worker_ends(node, 0, 9, false, false);
  const bool was_bound = place.bound;
  close_stream(place, false);
  if (was_bound) {
    place.late.emplace_back(
        core::AgentDisconnected{JobId{1}, core::local_node_name(node), boot_id(node)});
  }
  place.holder_alive = false;
  place.reports.clear();
  place.arena.clear();
  place.arena_is_told = false;
  place.started.reset();
  place.stopping.reset();
}

void World::receive(int32_t node) {
  Place& place = places_[static_cast<size_t>(node)];
  const core::Action action = place.down.front().action;
  if (std::holds_alternative<core::ConfirmDamage>(action.body)) return read_again(node, false);
  place.down.pop_front();
  if (std::holds_alternative<core::StartWorkers>(action.body)) return start(node, action);
  const auto* stop_order = std::get_if<core::StopWorkers>(&action.body);
  if (stop_order == nullptr) return end_holder(node);  // EndNode
  const uint64_t through = stop_order->generation.value;
  place.stopped_through = std::max(place.stopped_through, through);
  const core::WorkersStopped answer{
      action.id, JobId{1}, core::local_node_name(node), {through}, {}};
  place.stopping.reset();
  if (stop_order->graceful && begin_to_end(node, through)) {
    place.stopping = answer;
    return;
  }
  stop(node, through);
  place.up.push_back({Word(answer)});
}

// Whether the rank saves first. All ranks hear of it in the step under way. A generation that has
// not begun is killed: its peers may never come.
bool World::begin_to_end(int32_t node, uint64_t through) {
  const Place& place = places_[static_cast<size_t>(node)];
  if (!place.worker || place.worker->generation > through) return false;
  Run& run = runs_.at(place.worker->generation);
  if (!run.is_formed || run.is_broken) return false;
  run.is_stopping = true;
  save_common_step(place.worker->generation);
  return true;
}

// Once all ranks have the same.
void World::save_common_step(uint64_t generation) {
  Run& run = runs_.at(generation);
  const uint64_t step = run.steps.begin()->second;
  const bool is_common = std::all_of(run.steps.begin(), run.steps.end(),
                                     [step](const auto& rank) { return rank.second == step; });
  if (is_common && !is_saved(generation, step)) run.saving.insert(step);
}

void World::read_again(int32_t node, bool is_blind) {
  Place& place = places_[static_cast<size_t>(node)];
  const core::Action action = place.down.front().action;
  place.down.pop_front();
  const auto& order = std::get<core::ConfirmDamage>(action.body);
  const std::string& name = order.claim.checkpoint;
  const std::string damage = order.before_delete ? confirm(name) : answer_claim(name);
  core::DamageAnswered answer{action.id, JobId{1}, core::local_node_name(node)};
  is_blind = is_blind || (!name.starts_with('/') && !can_save());
  if (!is_blind) {
    answer.verdict = damage.empty() ? core::DamageVerdict::kSound : core::DamageVerdict::kDamaged;
    if (order.before_delete && damage.empty()) checkers_.checkpoint_verified(JobId{1}, name);
    const bool proves = !order.before_delete && !confirm(name).empty();
    if (proves) checkers_.damage_confirmed(JobId{1}, name);
  }
  answer.what = is_blind ? sim::kStorageError : damage;
  place.up.push_back({Word(answer)});
}

void World::stop(int32_t node, uint64_t through) {
  const Place& place = places_[static_cast<size_t>(node)];
  if (place.worker && place.worker->generation <= through) {
    worker_ends(node, 0, 9, true, true);
  }
}

void World::start(int32_t node, const core::Action& action) {
  const auto& order = std::get<core::StartWorkers>(action.body);
  Place& place = places_[static_cast<size_t>(node)];
  const uint64_t generation = order.generation.value;
  if (place.started && place.started->action == action.id) {
    place.up.push_back({Word(*place.started)});
    return;
  }
  if (generation <= place.stopped_through || generation < place.generation_seen) {
    place.up.push_back({Word(core::ActionFailed{action.id, JobId{1}, core::local_node_name(node),
                                                "this node has seen a higher generation", false})});
    return;
  }
  stop(node, generation - 1);
  place.generation_seen = generation;
  place.newest_generation = std::max(place.newest_generation, generation);
  const int32_t rank = order.ranks.front().value;
  place.worker = Worker{generation, holder_pid(node) + 2 + place.pids++};
  place.rank = rank;
  place.arena_is_told = false;
  checkers_.worker_spawned(key_of(node), rank, order, record_of(generation));
  Run& run = runs_[generation];
  run.start_step = order.start_step;
  run.checkpoint = order.checkpoint;
  run.from_memory = order.memory_of != Generation{};
  run.is_last = order.last;
  run.refilled.clear();
  for (const Rank without : order.refilled) run.refilled.insert(without.value);
  run.homes[rank] = node;
  run.steps[rank] = order.start_step;
  if (run.refilled.contains(rank)) place.arena.clear();
  if (run.from_memory && !run.refilled.contains(rank) &&
      state_of(place, run.start_step) == nullptr) {
    checkers_.fail("rank " + std::to_string(rank) + " of g" + std::to_string(generation) +
                   " starts from step " + std::to_string(run.start_step) +
                   ", which its node does not have");
    return;
  }
  place.started = core::WorkersStarted{action.id,
                                       JobId{1},
                                       core::local_node_name(node),
                                       order.generation,
                                       {{Rank{rank}, order.generation, place.worker->pid}}};
  place.up.push_back({Word(*place.started)});
  const bool all_live = run.gone.empty() && run.steps.size() == static_cast<size_t>(scope_->nodes);
  if (all_live) form(generation, run);
}

void World::worker_ends(int32_t node, int32_t code, int32_t signal, bool by_request,
                        bool reported) {
  Place& place = places_[static_cast<size_t>(node)];
  const Worker worker = *place.worker;
  Run& run = runs_.at(worker.generation);
  core::WorkerExited exited;
  exited.job = JobId{1};
  exited.node = core::local_node_name(node);
  exited.boot_id = boot_id(node);
  exited.rank = Rank{place.rank};
  exited.generation = {worker.generation};
  exited.pid = worker.pid;
  exited.exit_code = code;
  exited.signal = signal;
  exited.last_step = run.steps.at(place.rank);
  exited.by_request = by_request;
  if (code == kExitCheckpointDamaged) checkers_.damage_claimed(JobId{1}, run.checkpoint);
  if (!place.arena.empty()) exited.seals = {{}, {}, place.rank % parts(), parts()};
  for (const sim::SealedState& sealed : place.arena) exited.seals.own.push_back(sealed.seal);
  place.worker.reset();
  checkers_.worker_gone(key_of(node), place.rank, worker.generation);
  run.gone.insert(place.rank);
  const bool in_order = code == kExitPeerLost || signal == SIGTERM;
  run.is_broken = run.is_broken || ((code != 0 || signal != 0) && !in_order);
  if (reported) report(place, Word(exited));
  if (place.stopping && reported && place.bound) place.up.push_back({Word(*place.stopping)});
  place.stopping.reset();
}

// Who has no part gets it from a replica.
void World::refill(Run& run) {
  for (const int32_t rank : run.refilled) {
    const auto source = std::find_if(run.homes.begin(), run.homes.end(), [&](const auto& home) {
      return !run.refilled.contains(home.first) &&
             state_of(place_of(run, home.first), run.start_step) != nullptr;
    });
    if (source == run.homes.end()) {
      checkers_.fail("no replica of rank " + std::to_string(rank) + " has step " +
                     std::to_string(run.start_step));
      return;
    }
    place_of(run, rank).arena = {*state_of(place_of(run, source->first), run.start_step)};
  }
}

// All ranks have met: they have the same state, or something was mixed up.
void World::form(uint64_t generation, Run& run) {
  const bool loads = !run.checkpoint.empty();
  const sim::StoredCheckpoint* from = stored_at(run.checkpoint);
  if (from != nullptr && from->damaged) return;  // its ranks say so
  run.is_missing = loads && from == nullptr && is_away_;
  const bool is_lost = from == nullptr && checkers_.was_lost(JobId{1}, run.checkpoint);
  if (run.is_missing || is_lost) return;  // likewise
  run.is_formed = true;
  if (generation == runs_.rbegin()->first) completed_ = run.start_step;
  const std::string who = "g" + std::to_string(generation);
  if (run.from_memory) {
    refill(run);
    if (!violation().empty()) return;
    const sim::SealedState begin = *state_of(place_of(run, 0), run.start_step);
    for (const auto& [rank, node] : run.homes) {
      Place& place = places_[static_cast<size_t>(node)];
      if (state_of(place, run.start_step)->history != begin.history) {
        checkers_.fail("ranks 0 and " + std::to_string(rank) + " of " + who +
                       " go on from states of two histories");
      }
      std::erase_if(place.arena,
                    [&](const sim::SealedState& s) { return s.seal.step != run.start_step; });
    }
    run.begun_with = begin.history;
    // A last step that is in memory only is still to be saved.
    if (run.start_step == scope_->steps || run.is_last) run.saving.insert(run.start_step);
    return;
  }
  if (loads && from == nullptr) {
    checkers_.fail(who + " starts from " + run.checkpoint + ", which there is not");
    return;
  }
  if (loads) run.begun_with = from->history;
  if (run.checkpoint.starts_with('/') && run.start_step == scope_->steps) {
    run.saving.insert(run.start_step);  // likewise where only the mirror has it
  }
  for (const auto& [rank, node] : run.homes) {
    places_[static_cast<size_t>(node)].arena = {
        {{run.start_step, 0, generation}, history_of(generation, run, run.start_step)}};
  }
}

void World::seal(int32_t node) {
  Place& place = places_[static_cast<size_t>(node)];
  const uint64_t generation = place.worker->generation;
  Run& run = runs_.at(generation);
  const uint64_t step = ++run.steps.at(place.rank);
  place.arena.insert(place.arena.begin(),
                     {{step, 0, generation}, history_of(generation, run, step)});
  place.arena.resize(std::min(place.arena.size(), kSlots));
  const bool is_given_up = state_.nodes.at(key_of(node)).boot_id != boot_id(node);
  if (!is_given_up) {
    checkers_.step_trained(JobId{1}, generation);
    trained_ = std::max(trained_, generation);
  }
  if (place.rank == 0 && step == run.start_step + 1 && place.bound) {
    place.up.push_back({Word(core::GenerationProgressed{JobId{1}, {generation}, step})});
  }
  const bool is_complete = std::all_of(run.steps.begin(), run.steps.end(),
                                       [step](const auto& rank) { return rank.second >= step; });
  const bool is_due = step % scope_->checkpoint_every == 0 || step == scope_->steps;
  if (is_complete && is_due) run.saving.insert(step);
  if (is_complete && generation == runs_.rbegin()->first) completed_ = std::max(completed_, step);
  if (run.is_stopping) save_common_step(generation);
}

// Its progress page says so, which is no report: it may be lost.
void World::find_disk_full(uint64_t generation) {
  Place& writer = place_of(runs_.at(generation), 0);
  if (writer.bound) writer.up.push_back({Word(core::CheckpointRoomNeeded{JobId{1}, {generation}})});
}

void World::commit_checkpoint(uint64_t generation, uint64_t step) {
  Run& run = runs_.at(generation);
  run.saving.erase(step);
  sim::StoredCheckpoint stored;
  stored.history = history_of(generation, run, step);
  stored.committed_ms = static_cast<int64_t>(clock_);
  const CheckpointRef ref{step, generation};
  checkers_.checkpoint_committed(JobId{1}, ref, directory_.commit(ref, stored));
  if (scope_->mutant == sim::Mutant::kRanksDelete) {
    const auto stored_ones = directory_.checkpoints();
    for (const auto& [older, of_older] : stored_ones) {
      if (older < ref) directory_.remove(older);
    }
  }
  Place& writer = place_of(run, 0);
  if (writer.worker && writer.worker->generation == generation) {
    report(writer, Word(core::CheckpointCommitted{JobId{1}, {generation}, step}));
  }
}

}  // namespace hpctl::exhaustive
