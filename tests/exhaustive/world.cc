// SPDX-License-Identifier: Apache-2.0
// The controller, the checkpoint directory and the scheduler.
#include "tests/exhaustive/world.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/worker/worker_abi.h"
#include "controller/core/codec.h"
#include "tests/sim/swarm.h"

namespace hpctl::exhaustive {

namespace {

constexpr char kRivalsName[] = "another controller";
constexpr char kMirrorPath[] = "/mirror/small";
constexpr int64_t kMirrorAfterMs = 1'000;
constexpr int64_t kStorageLimitMs = 10'000;  // a few attempts
constexpr uint64_t kFirstStep = 1;           // done and saved before what is explored

JobSpec spec_of(const Scope& scope) {
  JobSpec spec;
  spec.name = "small";
  spec.nodes = scope.nodes;
  spec.workers_per_node = 1;
  spec.spares = scope.spares;
  spec.checkpoint.dir = "/ckpt/small";
  spec.checkpoint.keep = static_cast<int64_t>(scope.keep);
  if (scope.mirror) {
    spec.checkpoint.mirror = {kMirrorPath, 0, kMirrorAfterMs};
    spec.limits.storage_ms = kStorageLimitMs;
  }
  spec.recovery.on_node_loss = {kOnNodeLossSpare, kOnNodeLossWait};
  spec.recovery.snapshot.replicas = 0;
  TrainSpec train;
  train.model = *model_preset("tiny");
  train.data.path = "/data";
  train.data.seq_len = 16;
  train.batch.micro = 1;
  train.batch.global = scope.nodes;
  train.steps = static_cast<int64_t>(scope.steps);
  train.strategy = scope.replicas ? Strategy::kNoShard : Strategy::kFull;
  spec.train = train;
  return spec;
}

// Faults that spend no restart.
bool is_of_storage(MoveKind kind) {
  return kind == MoveKind::kStorage || kind == MoveKind::kUnreadable || kind == MoveKind::kAway ||
         kind == MoveKind::kMirrorAway || kind == MoveKind::kBlind;
}

// Faults after which a completed step may be nowhere, or the controller cannot know of it.
bool may_lose_steps(MoveKind kind) {
  static const std::set<MoveKind> kKinds = {
      MoveKind::kEndHolder,  MoveKind::kGiveUp,  MoveKind::kHurry,       MoveKind::kDamage,
      MoveKind::kFalseClaim, MoveKind::kTakeDir, MoveKind::kDelete,      MoveKind::kWipe,
      MoveKind::kEmpty,      MoveKind::kAway,    MoveKind::kMirrorDamage};
  return kKinds.contains(kind);
}

bool contains(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

World::World(const Scope& scope)
    : scope_(&scope), mirror_(scope.mirror ? kMirrorPath : std::string()) {
  places_.resize(static_cast<size_t>(scope.nodes + scope.spares));
  commit(core::JobSubmitted{spec_of(scope), 1000, "small", {}, {}, {}});
  const CheckpointRef first{kFirstStep, 1};
  const bool saves_first = kFirstStep % scope.checkpoint_every == 0;
  while (!scope.from_submit && (job().state != core::JobState::kRunning ||
                                (saves_first && job().committed_step < first.step) ||
                                (saves_first && scope.mirror && job().mirror.step < first.step))) {
    // Nobody goes beyond the first step.
    const auto all = moves();
    const auto next = std::find_if(all.begin(), all.end(), [&](const Move& move) {
      if (move.kind != MoveKind::kSeal) return true;
      const Place& place = places_[static_cast<size_t>(move.node)];
      return runs_.at(place.worker->generation).steps.at(place.rank) < kFirstStep;
    });
    make(*next);
  }
  if (scope.lost_node) end_holder(0);
  may_lose_steps_ = scope.lost_node;
  faults_left_ = scope.faults;
}

int32_t World::index_of(const std::string& name) const { return std::stoi(name.substr(1)); }

std::string World::boot_id(int32_t node) const {
  return core::local_node_name(node) + "-" +
         std::to_string(places_[static_cast<size_t>(node)].life);
}

uint64_t World::holder_pid(int32_t node) const {
  return static_cast<uint64_t>(node) * 10'000 + places_[static_cast<size_t>(node)].life * 100;
}

// One event is one transaction. What the controller did not perform before it died is in the
// outbox.
std::string World::commit(core::EventBody body, int32_t dies_after) {
  core::Event event;
  event.seq = {state_.last_seq.value + 1};
  event.now_ms = state_.now_ms;
  event.wall_ms = state_.now_ms;
  event.body = std::move(body);
  const core::StepResult result = core::step(state_, event);
  if (result.refusal.empty()) checkers_.heard(event.body);
  store_.commit(state_, result.dirty, {});
  told_.insert(told_.end(), result.log.begin(), result.log.end());
  checkers_.rows_committed(state_, result.dirty);
  sim::Store history;  // of this event
  history.commit(state_, {}, result.log);
  checkers_.causes_are_present(history);
  remember_rows(result.dirty);
  check_ending(result.actions);
  int32_t performed = 0;
  for (const core::Action& action : result.actions) {
    if (performed++ == dies_after) break;
    checkers_.order_performed(action, store_);
    perform(action);
  }
  if (dies_after >= 0) {
    crash();
    return result.refusal;
  }
  for (const core::NodeKey& key : result.dirty.nodes) {
    const auto& former = state_.nodes.at(key).former_boot_ids;
    Place& place = places_[static_cast<size_t>(index_of(key.name))];
    const bool is_former =
        std::find(former.begin(), former.end(), boot_id(index_of(key.name))) != former.end();
    if (place.bound && is_former) end_holder(index_of(key.name));
  }
  return result.refusal;
}

void World::perform(const core::Action& action) {
  if (const auto* search = std::get_if<core::FindCheckpoint>(&action.body)) {
    return order_search(action, search->in_mirror);
  }
  const auto* recording = std::get_if<core::RecordGeneration>(&action.body);
  if (std::holds_alternative<core::MirrorCheckpoint>(action.body) ||
      (recording != nullptr && recording->in_mirror)) {
    mirror_orders_.emplace_back(action, search_);
    return;
  }
  if (recording != nullptr || std::holds_alternative<core::PruneCheckpoints>(action.body)) {
    orders_.emplace_back(action, search_);
    return;
  }
  const std::string name = std::visit(
      [](const auto& body) -> std::string {
        if constexpr (requires { body.node; }) return body.node;
        return "";
      },
      action.body);
  if (name.empty()) {
    checkers_.fail("nobody here knows the order " + std::string(core::type_name(action.body)));
    return;
  }
  Place& place = places_[static_cast<size_t>(index_of(name))];
  if (std::holds_alternative<core::LaunchNode>(action.body)) {
    place.launch = action.id;
  } else if (place.bound) {
    place.down.emplace_back(action);  // else when its agent registers
  }
}

// The rows and the outbox are all that its successor has.
void World::crash() {
  const std::string forgotten = find_forgotten();
  if (!forgotten.empty()) checkers_.fail("not marked dirty: " + forgotten);
  for (Place& place : places_) {
    close_stream(place, true);
    place.late.clear();
    place.launch.reset();
    place.end_seen = false;
  }
  orders_.clear();
  mirror_orders_.clear();
  answers_.clear();
  state_ = store_.committed();  // through the codec it went in the simulator
  core::rebuild_index(state_);
  commit(core::ControllerResumed{true});
  for (const auto& [id, action] : state_.outbox) perform(action);
}

void World::look_up(bool after_rival) {
  const Order order = orders_.front();
  orders_.pop_front();
  if (std::holds_alternative<core::FindCheckpoint>(order.action.body)) {
    find(order);
  } else if (std::holds_alternative<core::PruneCheckpoints>(order.action.body)) {
    prune(order);
  } else {
    record(order, after_rival);
  }
}

void World::prune(const Order& order) {
  const auto& wanted = std::get<core::PruneCheckpoints>(order.action.body);
  if (is_anothers(directory_)) return refuse(order);
  if (!can_save()) return fail(order);
  const sim::Directory before = directory_;
  const bool is_unverified = scope_->mutant == sim::Mutant::kUnverified;
  sim::Pruned done =
      directory_.prune(is_unverified ? sim::unverified(wanted, directory_) : wanted, scope_->keep);
  checkers_.checkpoints_pruned(JobId{1}, wanted, scope_->keep, before, directory_);
  answers_.emplace_back(core::CheckpointsPruned{order.action.id, JobId{1}, done.verified,
                                                done.deleted, done.problem, done.to_verify});
}

// The directory has another owner.
void World::refuse(const Order& order) {
  answers_.emplace_back(core::ActionFailed{order.action.id, JobId{1}, "", sim::kTakenBy, true});
}

void World::find(const Order& order) {
  const auto& search = std::get<core::FindCheckpoint>(order.action.body);
  search_ = {static_cast<int64_t>(clock_), checkers_.told(JobId{1}), false};
  if (is_anothers(directory_)) return refuse(order);
  if (is_away_ || !give_back_records(search.newest)) return fail(order);
  const std::string& claimed = search.claim.checkpoint;
  const std::string confirmed = answer_claim(claimed);
  std::vector<std::string> exclude = search.exclude;
  if (!confirmed.empty()) exclude.push_back(claimed);
  if (!confirm(claimed).empty()) checkers_.damage_confirmed(JobId{1}, claimed);
  const sim::Found found = find_in_first_place(search, exclude);
  checkers_.first_place_searched(JobId{1}, found.step);
  core::CheckpointChosen chosen{order.action.id,           search.job, found.name, found.step,
                                {found.newest_generation}, confirmed};
  chosen.lost = directory_.find_lost(job().committed_step, found, exclude);
  chosen.withdrawn = found.withdrawn;
  answers_.emplace_back(std::move(chosen));
}

void World::record(const Order& order, bool after_rival) {
  const auto& wanted = std::get<core::RecordGeneration>(order.action.body);
  sim::Directory& place = wanted.in_mirror ? mirror_.directory() : directory_;
  if (is_anothers(place)) return refuse(order);
  if (!wanted.in_mirror && !can_save()) return fail(order);
  GenerationRecord record;
  record.job = wanted.job.value;
  record.order = to_string(order.action.id);
  for (const Generation withdrawn : wanted.withdrawn) record.withdrawn.push_back(withdrawn.value);
  record.generation = wanted.generation.value;
  record.parent = wanted.parent.value;
  record.start_step = wanted.start_step;
  record.checkpoint = wanted.checkpoint;
  record.from_memory = wanted.memory_of != Generation{};
  record.committed = wanted.committed;
  record.damaged = wanted.damaged;
  for (const auto& [rank, name] : wanted.members) record.members.push_back({rank.value, name, ""});
  if (after_rival) {
    GenerationRecord rivals = record;
    rivals.order = kRivalsName;
    place.create(rivals, kRivalsName);
  }
  const sim::Directory first = directory_;
  const sim::Mirror mirror = mirror_;
  const sim::Creation creation = place.create(record, to_string(order.action.id));
  if (creation == sim::Creation::kTaken) {
    answers_.emplace_back(core::GenerationTaken{order.action.id, wanted.job, wanted.generation,
                                                place.record(record.generation)->order});
    return;
  }
  if (creation == sim::Creation::kCreated) {
    checkers_.record_created(wanted.job, record, {first, mirror, wanted.in_mirror}, order.search);
    check_record(record);
  }
  answers_.emplace_back(core::GenerationRecorded{order.action.id, wanted.job, wanted.generation});
}

// Besides what the simulator asks of a record. Its lineage rule is the code under test; here the
// rule is told again, in the words of docs/formats.md.
void World::check_record(const GenerationRecord& record) {
  const std::string who = "record of g" + std::to_string(record.generation);
  const auto name = record.checkpoint.substr(record.checkpoint.rfind('/') + 1);
  if (const auto from = parse_checkpoint_name(name)) {
    for (uint64_t g = record.parent; g > from->generation;) {
      const GenerationRecord* later = record_of(g);
      if (later->start_step < from->step) {
        checkers_.fail(who + " starts from " + record.checkpoint + ", which g" + std::to_string(g) +
                       " has undone: it started at step " + std::to_string(later->start_step));
      }
      g = later->parent;
    }
  }
  // The newest state that each rank's node has and that the controller was told of. Only another
  // controller's generation may stand between that state and this record.
  const GenerationRecord* parent = record_of(record.parent);
  const bool follows_rival = parent != nullptr && parent->order == kRivalsName;
  if (job().without_memory || follows_rival ||
      job().restarts_without_progress >= core::kMaxFruitlessFromMemory) {
    return;
  }
  uint64_t newest = 0;
  const Place& first = places_[static_cast<size_t>(index_of(record.members.front().node))];
  const auto has = [&](const GenerationMember& member, const sim::SealedState& state) {
    const Place& place = places_[static_cast<size_t>(index_of(member.node))];
    return place.arena_is_told && place.rank == member.rank &&
           std::any_of(place.arena.begin(), place.arena.end(),
                       [&](const sim::SealedState& s) { return s.history == state.history; });
  };
  for (const sim::SealedState& state : first.arena) {
    const bool is_whole =
        std::all_of(record.members.begin(), record.members.end(),
                    [&](const GenerationMember& member) { return has(member, state); });
    if (is_whole) newest = std::max(newest, state.seal.step);
  }
  if (record.start_step < newest) {
    checkers_.fail(who + " starts at step " + std::to_string(record.start_step) + ", and step " +
                   std::to_string(newest) + " is sealed on all its nodes");
  }
}

// Of a job that fails for good, or is cancelled in a recovery (decision 0113): one last generation,
// from memory, within its limit. Nothing is deleted meanwhile.
void World::check_ending(const std::vector<core::Action>& ordered) {
  if (state_.jobs.empty()) return;
  const bool ends = !job().ending.reason.empty();
  for (const core::Action& action : ordered) {
    if (ends && std::holds_alternative<core::PruneCheckpoints>(action.body)) {
      checkers_.fail("checkpoints are to be deleted while the job ends");
    }
    const auto* start = std::get_if<core::StartWorkers>(&action.body);
    if (start == nullptr) continue;
    const std::string who = "g" + to_string(start->generation);
    if (start->last != ends) checkers_.fail(who + " is to train, and the job ends, or the reverse");
    if (!start->last) continue;
    if (start->memory_of == Generation{}) checkers_.fail(who + " is the last one, from no memory");
    if (last_generation_ != 0 && last_generation_ != start->generation.value) {
      checkers_.fail(who + " is a second last generation");
    }
    last_generation_ = start->generation.value;
  }
  if (!ends || has_ended() || job().stage != core::PlanStage::kNone) return;
  const int64_t most_ms = state_.now_ms + core::last_checkpoint_ms(job());
  const bool has_limit = job().deadline_ms != 0 && job().deadline_ms <= most_ms;
  if (!has_limit) checkers_.fail("the last generation has no limit");
}

void World::launch(int32_t node) {
  Place& place = places_[static_cast<size_t>(node)];
  const ActionId id = *place.launch;
  place.launch.reset();
  if (!place.holder_alive || place.launched_by < id) {
    if (place.holder_alive) end_holder(node);
    Place next;
    next.life = place.life + 1;
    next.newest_generation = place.newest_generation;
    next.holder_alive = true;
    next.launched_by = id;
    next.late = std::move(place.late);
    place = std::move(next);
  }
  commit(core::NodeLaunched{id, JobId{1}, core::local_node_name(node), holder_pid(node)});
}

void World::wait() {
  const auto due = core::next_deadline(state_);
  state_.now_ms = std::max(state_.now_ms, *due);
  remember_all_rows();
  commit(core::Tick{});
}

void World::make(const Move& move) {
  told_.clear();
  ++clock_;
  if (move.is_fault()) --faults_left_;
  if (move.is_fault() && !is_of_storage(move.kind)) only_storage_failed_ = false;
  if (may_lose_steps(move.kind)) may_lose_steps_ = true;
  Place& place = places_[static_cast<size_t>(std::max(move.node, 0))];
  switch (move.kind) {
    case MoveKind::kTake:
      return take(move.node, move.dies_after);
    case MoveKind::kReceive:
      return receive(move.node);
    case MoveKind::kRegister:
      return register_agent(move.node, move.dies_after);
    case MoveKind::kLaunch:
      return launch(move.node);
    case MoveKind::kTakeLate: {
      core::EventBody body = std::move(place.late.front().body);
      place.late.pop_front();
      commit(std::move(body));
      return;
    }
    case MoveKind::kNotice:
      place.end_seen = true;
      commit(core::NodeLost{JobId{1}, core::local_node_name(move.node),
                            state_.nodes.at(key_of(move.node)).boot_id, "its holder exited"},
             move.dies_after);
      return;
    case MoveKind::kLookUp:
      return look_up(false);
    case MoveKind::kAnswer: {
      core::EventBody answer = std::move(answers_.front().body);
      answers_.pop_front();
      commit(std::move(answer), move.dies_after);
      return;
    }
    case MoveKind::kSeal:
      return seal(move.node);
    case MoveKind::kFinish:
      return worker_ends(move.node, 0, 0, false, true);
    case MoveKind::kEnd:
      return worker_ends(move.node, 0, SIGTERM, place.stopping.has_value(), true);
    case MoveKind::kHopeless:
      is_hopeless_ = true;
      return worker_ends(move.node, kExitDoNotRestart, 0, false, true);
    case MoveKind::kCancel:
      is_cancelled_ = true;
      commit(core::CancelRequested{JobId{1}, job().owner_uid});
      return;
    case MoveKind::kLosePeer:
      return worker_ends(move.node, kExitPeerLost, 0, false, true);
    case MoveKind::kCommit:
    case MoveKind::kLateCommit:
      return commit_checkpoint(move.generation, move.step);
    case MoveKind::kClaim:
    case MoveKind::kFalseClaim:
      return worker_ends(move.node, kExitCheckpointDamaged, 0, false, true);
    case MoveKind::kMiss:
    case MoveKind::kUnreadable:
      return worker_ends(move.node, kExitStorage, 0, false, true);
    case MoveKind::kStorage:
      return fail_order();
    case MoveKind::kMirror:
      return use_mirror();
    case MoveKind::kBack:
      return bring_back();
    case MoveKind::kDelete:
      return lose({move.step, move.generation});
    case MoveKind::kWipe:
    case MoveKind::kEmpty:
      return lose_all(move.kind == MoveKind::kEmpty);
    case MoveKind::kAway:
      is_away_ = was_away_ = true;
      return;
    case MoveKind::kMirrorAway:
      return fail_order_of_mirror();
    case MoveKind::kMirrorDamage:
      return mirror_.directory().damage({move.step, move.generation});
    case MoveKind::kNoRoom:
      return find_disk_full(move.generation);
    case MoveKind::kDamage:
      return directory_.damage({move.step, move.generation});
    case MoveKind::kTakeDir:
      return directory_.take(1, static_cast<int64_t>(clock_));
    case MoveKind::kBlind:
      return read_again(move.node, true);
    case MoveKind::kWait:
    case MoveKind::kHurry:
      return wait();
    case MoveKind::kKill:
      return worker_ends(move.node, 0, 9, false, true);
    case MoveKind::kEndHolder:
      return end_holder(move.node);
    case MoveKind::kBreak:
      close_stream(place, true);
      commit(
          core::AgentDisconnected{JobId{1}, core::local_node_name(move.node), boot_id(move.node)});
      return;
    case MoveKind::kGiveUp:
      close_stream(place, false);
      commit(core::NodeLost{JobId{1}, core::local_node_name(move.node), boot_id(move.node),
                            "it was silent"});
      return;
    case MoveKind::kCrash:
      return crash();
    case MoveKind::kRival:
      return look_up(true);
    case MoveKind::kUnfit:
      place.up.push_back({Word(core::SpareFoundUnfit{JobId{1}, core::local_node_name(move.node),
                                                     boot_id(move.node), "a hook failed"})});
      return;
  }
}

// Why the job was right not to finish; "" = it was not.
std::string World::judge_failure() const {
  if (job().state == core::JobState::kCancelled && is_cancelled_) return "a person cancelled it";
  if (job().state != core::JobState::kFailed) return "";
  if (is_hopeless_ && contains(job().reason, "says that a restart cannot help")) {
    return "a rank said that a restart cannot help";
  }
  const bool is_anothers =
      directory_.is_taken() && job().reason.find(sim::kTakenBy) != std::string::npos;
  if (is_anothers) return "the directory is another job's";
  std::vector<std::string> damaged;
  for (const auto& [ref, stored] : directory_.checkpoints()) {
    if (stored.damaged) damaged.push_back(ref.name());
  }
  const bool are_all_damaged =
      job().reason.starts_with("every checkpoint in ") && directory_.find(damaged).name.empty();
  if (are_all_damaged) return "every checkpoint is damaged";
  // Of these judge_end() asks more.
  if (job().reason.starts_with(sim::kNoneIsLeft)) return "every checkpoint was deleted";
  const bool waited = was_away_ && job().reason.starts_with("storage was not back ");
  return waited ? "the first place was away" : "";
}

// A job that was told to end, or fails for good, has saved the newest step that all ranks had, or
// says that it could not.
std::string World::judge_losses() const {
  if (may_lose_steps_) return "";
  const std::string& reason = job().reason;
  const std::string saved = " is saved as ";
  if (const size_t at = reason.find(saved); at != std::string::npos) {
    const auto ref = parse_checkpoint_name(reason.substr(at + saved.size()));
    if (!ref || directory_.checkpoint(*ref) == nullptr) return "it is not there: " + reason;
  }
  const uint64_t found = whole_directory().find({}).step;
  const bool is_told = contains(reason, " could not be saved") || contains(reason, "no checkpoint");
  if (found >= completed_ || is_told) return "";
  return "all ranks had step " + std::to_string(completed_) +
         ", the newest checkpoint is of step " + std::to_string(found) +
         ", and the job does not say so: " + reason;
}

// A job that has few faults and many restarts left has no reason not to finish.
std::string World::judge_end() const {
  const size_t explained = scope_->lost_node ? 1 : 0;
  if (only_storage_failed_ && job().restart_times_ms.size() > explained) {
    return "the job spent a restart on storage that failed";
  }
  sim::Checkers checkers = checkers_;
  if (job().state != core::JobState::kFinished) {
    checkers.loss_justified(job(), directory_, mirror_, search_);
    if (!judge_failure().empty()) {
      return checkers.violation().empty() ? judge_losses() : checkers.violation();
    }
    return std::string("the job is ") + core::to_string(job().state) + ": " + job().reason;
  }
  sim::JobPlan plan;
  plan.steps = scope_->steps;
  checkers.history_complete(job(), plan, whole_directory());
  return checkers.violation();
}

}  // namespace hpctl::exhaustive
