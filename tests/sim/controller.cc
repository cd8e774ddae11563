// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/controller.h"

#include <set>
#include <utility>
#include <vector>

#include "controller/core/codec.h"

namespace hpctl::sim {

namespace {

constexpr size_t kBatch = 16;
constexpr uint64_t kCompareEvery = 512;  // batches between comparisons of memory and store

}  // namespace

void SimController::start(World& world) {
  world_ = &world;
  restart();
}

void SimController::post(core::EventBody body, Done done) {
  if (!up_) return;
  inbox_.push_back({std::move(body), std::move(done)});
  wake(0);
}

void SimController::post_from(uint64_t incarnation, core::EventBody body) {
  if (incarnation == incarnation_) post(std::move(body));
}

void SimController::wake(int64_t after_ms) {
  if (wake_pending_) return;
  wake_pending_ = true;
  agenda_.after(after_ms, [this, mine = incarnation_] {
    if (!up_ || mine != incarnation_) return;
    wake_pending_ = false;
    run_batch();
  });
}

core::StepResult SimController::step(core::EventBody body) {
  core::Event event;
  event.seq = {state_.last_seq.value + 1};
  event.now_ms = agenda_.now();
  event.wall_ms = agenda_.now();
  event.body = std::move(body);
  core::StepResult result = core::step(state_, event);
  if (result.refusal.empty()) heard_.push_back(event.body);
  ++events_;
  checkers_.straggler_left(state_, result.log);
  digest_ = mix64(digest_ ^ mix64(event.body.index() * 1'000'003 + event.seq.value));
  digest_ = mix64(digest_ ^ static_cast<uint64_t>(event.now_ms) ^ (result.actions.size() << 48));
  if (trace) {
    for (const auto& entry : result.log) {
      trace(to_string(entry.seq.value == 0 ? JobId{} : entry.job) + " " +
            std::to_string(entry.seq.value) + " " + entry.type + " g" +
            to_string(entry.generation) + " " + entry.cause);
    }
  }
  return result;
}

bool SimController::dies_here() {
  if (!faults_ || !rng_.chance(swarm_.controller_crash_at_boundary)) return false;
  kill(static_cast<int64_t>(100 + rng_.below(8'000)));
  return true;
}

void SimController::run_batch() {
  if (agenda_.now() < stalled_until_ms_) {
    wake(stalled_until_ms_ - agenda_.now());
    return;
  }
  core::Dirty dirty;
  std::vector<core::LogEntry> log;
  std::vector<core::Action> actions;
  std::vector<std::pair<Done, core::StepResult>> answers;
  const auto take = [&](core::EventBody body, Done done) {
    core::StepResult result = step(std::move(body));
    merge(dirty, result.dirty);
    log.insert(log.end(), result.log.begin(), result.log.end());
    actions.insert(actions.end(), result.actions.begin(), result.actions.end());
    if (done) answers.emplace_back(std::move(done), std::move(result));
  };
  if (std::exchange(was_stalled_, false)) take(core::ControllerResumed{false}, nullptr);
  if (std::exchange(was_restarted_, false)) {
    take(core::ControllerResumed{true}, nullptr);
    for (const auto& [id, action] : state_.outbox) actions.push_back(action);
  }
  for (core::JobAdopted& adoption : std::exchange(adoptions_, {})) {
    take(std::move(adoption), [this](const core::StepResult& result) {
      if (!result.submitted) checkers_.fail("adoption refused: " + result.refusal);
    });
  }
  for (const core::TrainingSeen& doubted : core::doubts(state_, agenda_.now())) {
    if (world_->is_true(doubted)) take(doubted, nullptr);
  }
  if (const auto due = core::next_deadline(state_); due && *due <= agenda_.now()) {
    take(core::Tick{}, nullptr);
  }
  for (size_t n = 0; n < kBatch && !inbox_.empty(); ++n) {
    Incoming next = std::move(inbox_.front());
    inbox_.pop_front();
    take(std::move(next.body), std::move(next.done));
  }
  if (dies_here()) return;  // before the commit: as if nothing of this batch had arrived
  store_.commit(state_, dirty, log);
  for (const core::EventBody& event : std::exchange(heard_, {})) checkers_.heard(event);
  checkers_.rows_committed(state_, dirty);
  if (++batches_ % kCompareEvery == 0) {
    const std::string forgotten = store_.difference(state_);
    if (!forgotten.empty()) checkers_.fail("not marked dirty: " + forgotten);
  }
  if (dies_here()) return;  // committed, nothing performed yet
  const size_t last = faults_ && rng_.chance(swarm_.controller_crash_at_boundary)
                          ? rng_.below(actions.size() + 1)
                          : actions.size() + 1;  // how many it performs before it dies
  for (size_t i = 0; i < actions.size(); ++i) {
    if (i == last) return kill(static_cast<int64_t>(100 + rng_.below(8'000)));
    const core::Action& action = actions[i];
    if (!state_.outbox.contains(action.id)) continue;  // withdrawn later in the batch
    checkers_.order_performed(action, store_);
    world_->perform(action);
  }
  for (const core::NodeKey& key : dirty.nodes) world_->node_changed(state_.nodes.at(key));
  if (dies_here()) return;  // performed, nobody told yet
  for (const auto& [done, result] : answers) {
    done(result);
    if (!up_ || dies_here()) return;
  }
  if (!inbox_.empty()) wake(0);
  wake_for_deadline();
}

void SimController::wake_for_deadline() {
  const auto due = core::next_deadline(state_);
  if (!due) return;
  const int64_t at = std::max(*due, agenda_.now() + 1);
  if (armed_ms_ > agenda_.now() && armed_ms_ <= at) return;
  armed_ms_ = at;
  agenda_.after(at - agenda_.now(), [this, mine = incarnation_] {
    if (!up_ || mine != incarnation_) return;
    armed_ms_ = 0;
    wake(0);
  });
}

void SimController::kill(int64_t down_ms) {
  if (!up_) return;
  up_ = false;
  inbox_.clear();
  heard_.clear();
  ++incarnation_;
  wake_pending_ = false;
  was_stalled_ = false;
  stalled_until_ms_ = 0;
  lost_rows_ = lost_rows_ || (faults_ && rng_.chance(swarm_.lost_database));
  world_->controller_died();
  agenda_.after(down_ms, [this] { restart(); });
}

void SimController::stall(int64_t for_ms) {
  if (!up_) return;
  stalled_until_ms_ = agenda_.now() + for_ms;
  was_stalled_ = true;
}

void SimController::restart() {
  up_ = true;
  up_since_ms_ = agenda_.now();
  armed_ms_ = 0;
  std::string problem;
  if (std::exchange(lost_rows_, false)) {
    adoptions_ = world_->find_jobs(store_.committed());
    std::set<JobId> adopted;
    for (const core::JobAdopted& adoption : adoptions_) adopted.insert(adoption.job);
    checkers_.rows_lost(adopted);
    store_.lose_rows();
  }
  state_ = store_.load(problem);
  if (!problem.empty()) checkers_.fail("after a restart: " + problem);
  was_restarted_ = true;
  wake(0);
  world_->controller_started();
}

}  // namespace hpctl::sim
