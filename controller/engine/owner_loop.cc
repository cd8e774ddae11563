// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/owner_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "controller/core/failure_detector.h"

namespace hpctl {
namespace {

constexpr size_t kQueueLimit = 65'536;
constexpr size_t kBatchLimit = 512;
constexpr int64_t kSweepMs = core::kBeatMs;
constexpr int64_t kIdleTurnMs = 3'600'000;

}  // namespace

OwnerLoop::OwnerLoop(std::unique_ptr<Store> store, core::State state, const Clock& clock,
                     OwnerEffects& effects)
    : store_(std::move(store)),
      state_(std::move(state)),
      clock_(clock),
      effects_(effects),
      base_ms_(state_.now_ms),
      started_ms_(clock.monotonic_ms()) {}

OwnerLoop::~OwnerLoop() { stop(); }

void OwnerLoop::start() {
  // Outbox first: what the resumption itself issues is performed by its own commit.
  const auto left = state_.outbox;
  step(core::ControllerResumed{true}, {});
  commit_batch();
  for (const auto& [id, action] : left) {
    if (state_.outbox.contains(id)) effects_.perform(action, state_);
  }
  last_sweep_ms_ = now_ms();
  thread_ = std::thread([this] { run(); });
}

void OwnerLoop::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_all();
  room_.notify_all();
  const bool ran = thread_.joinable();  // else the start was given up
  if (ran) thread_.join();
  std::deque<Command> rest;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rest.swap(queue_);
  }
  refuse(std::move(rest));
  if (!ran) return;
  if (const auto moved = store_->checkpoint(); !moved.ok()) log_warning(moved.error().message);
}

void OwnerLoop::post(core::EventBody body, Done done) {
  post([body = std::move(body)](const core::State&) { return std::optional(body); },
       std::move(done));
}

void OwnerLoop::post(MakeEvent make, Done done) { enqueue({std::move(make), std::move(done), {}}); }

void OwnerLoop::ask(Query query) { enqueue({{}, {}, std::move(query)}); }

void OwnerLoop::enqueue(Command command) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (std::this_thread::get_id() != owner_.load()) {
      room_.wait(lock, [this] { return stopping_ || queue_.size() < kQueueLimit; });
    }
    if (!stopping_) {
      queue_.push_back(std::move(command));
      lock.unlock();
      arrived_.notify_one();
      return;
    }
  }
  if (command.query) command.query(nullptr);
  if (command.done) command.done(nullptr, nullptr);
}

bool OwnerLoop::has_live_job() const {
  return std::any_of(state_.jobs.begin(), state_.jobs.end(),
                     [](const auto& job) { return !core::has_ended(job.second.state); });
}

int64_t OwnerLoop::next_turn() const {
  int64_t due = now_ms() + kIdleTurnMs;
  if (has_live_job()) due = last_sweep_ms_ + kSweepMs;
  if (const auto deadline = core::next_deadline(state_)) due = std::min(due, *deadline);
  return due;
}

std::deque<OwnerLoop::Command> OwnerLoop::take(int64_t due_ms) {
  std::deque<Command> batch;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto wait = std::chrono::milliseconds(std::max<int64_t>(due_ms - now_ms(), 0));
  arrived_.wait_for(lock, wait, [this] { return stopping_ || !queue_.empty(); });
  while (!queue_.empty() && batch.size() < kBatchLimit) {
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  lock.unlock();
  room_.notify_all();
  return batch;
}

void OwnerLoop::detect_stall(int64_t due_ms) {
  int64_t limit = kIdleTurnMs;
  for (const auto& [id, job] : state_.jobs) {
    if (!core::has_ended(job.state)) {
      limit = std::min(limit, job.spec.recovery.heartbeat_timeout_ms / 2);
    }
  }
  const int64_t late_ms = now_ms() - due_ms;
  if (late_ms <= limit) return;
  log_warning("the controller was away for " + std::to_string(late_ms) +
              " ms; deadlines start again");
  effects_.stalled(now_ms());
  step(core::ControllerResumed{false}, {});
}

void OwnerLoop::run() {
  owner_ = std::this_thread::get_id();
  for (;;) {
    const int64_t due_ms = next_turn();
    auto commands = take(due_ms);
    if (is_stopping()) {
      refuse(std::move(commands));  // taken, but not begun
      break;
    }
    detect_stall(due_ms);
    turn(std::move(commands));
  }
}

bool OwnerLoop::is_stopping() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stopping_;
}

void OwnerLoop::refuse(std::deque<Command> commands) {
  for (Command& command : commands) {
    if (command.query) command.query(nullptr);
    if (command.done) command.done(nullptr, nullptr);
  }
}

void OwnerLoop::turn(std::deque<Command> commands) {
  std::vector<Query> queries;
  for (Command& command : commands) {
    if (command.query) {
      queries.push_back(std::move(command.query));
      continue;
    }
    if (auto body = command.make(state_)) {
      step(std::move(*body), std::move(command.done));
    } else {
      answers_.push_back({std::move(command.done), std::nullopt});
    }
  }
  const int64_t now = now_ms();
  if (has_live_job() && now >= last_sweep_ms_ + kSweepMs) {
    last_sweep_ms_ = now;
    for (core::EventBody& body : effects_.sweep(now)) step(std::move(body), {});
  }
  fire_deadlines(now);
  commit_batch();
  for (const Query& query : queries) query(&state_);
}

void OwnerLoop::fire_deadlines(int64_t now_ms) {
  const auto is_due = [&] {
    const auto deadline = core::next_deadline(state_);
    return deadline && *deadline <= now_ms;
  };
  if (!is_due()) return;
  if (auto doubted = core::doubts(state_, now_ms); !doubted.empty()) {
    for (const auto& seen : effects_.confirm(std::move(doubted), now_ms)) step(seen, {});
  }
  if (is_due()) step(core::Tick{}, {});
}

void OwnerLoop::step(core::EventBody body, Done done) {
  const core::Event event{Seq{state_.last_seq.value + 1}, std::max(now_ms(), state_.now_ms),
                          clock_.wall_ms(), std::move(body)};
  core::StepResult result = core::step(state_, event);
  ++events_;
  merge(dirty_, result.dirty);
  for (const core::LogEntry& entry : result.log) entries_.push_back({0, event.wall_ms, entry});
  actions_.insert(actions_.end(), result.actions.begin(), result.actions.end());
  answers_.push_back({std::move(done), std::move(result)});
}

void OwnerLoop::commit_batch() {
  if (events_ > 0) {
    const auto begin = std::chrono::steady_clock::now();
    if (const auto written = store_->commit(state_, dirty_, entries_); !written.ok()) {
      // Streams and sockets close with the process; agents keep their workers running.
      log_error("stopping: " + written.error().message);
      std::_Exit(kExitStoreFailed);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    effects_.committed({state_, dirty_, entries_, took.count(), events_});
  }
  for (const core::Action& action : actions_) {
    // Withdrawn within the batch that issued it: never performed.
    if (!state_.outbox.contains(action.id)) continue;
    HP_FAILPOINT("controller.action.before");
    effects_.perform(action, state_);
    HP_FAILPOINT("controller.action.after");
  }
  for (const Answer& answer : answers_) {
    if (!answer.done) continue;
    HP_FAILPOINT("controller.answer.before");
    answer.done(answer.result ? &*answer.result : nullptr, &state_);
    HP_FAILPOINT("controller.answer.after");
  }
  dirty_ = {};
  entries_.clear();
  actions_.clear();
  answers_.clear();
  events_ = 0;
}

}  // namespace hpctl
