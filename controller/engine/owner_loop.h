// SPDX-License-Identifier: Apache-2.0
// The one thread that owns the controller's state.
//
// It takes a batch of events from a bounded queue, steps the core for each, writes one transaction,
// and only then lets anything be seen: actions performed, reports acknowledged, RPCs answered,
// watchers woken. So everything that a client or an agent has received is on disk, and a crash at
// any instruction loses only state that has not been sent. A failed commit ends the process: it
// must not continue with state that is not stored.
//
// Time: now_ms() = the last stored now + monotonic time since start; it never falls, also over
// restarts. When a turn comes later than half a heartbeat timeout after it was due, the loop (or
// the machine) stalled, and ControllerResumed re-arms all deadlines before any of them fires.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "controller/core/core.h"
#include "controller/engine/store.h"

namespace hpctl {

// Exit code after a commit that failed: of this process, not of any job.
inline constexpr int kExitStoreFailed = 4;

// The result of one transaction; valid during the call that gets it.
struct Committed {
  const core::State& state;
  const core::Dirty& dirty;
  const std::vector<StoredEntry>& entries;
  double seconds;  // of the transaction
  size_t events;
};

// The effects of the loop. Every call comes from the owner thread.
class OwnerEffects {
 public:
  virtual ~OwnerEffects() = default;
  // After each commit, before its actions are performed.
  virtual void committed(const Committed& batch) = 0;
  // Must not block. Repetition is harmless.
  virtual void perform(const core::Action& action, const core::State& state) = 0;
  // Events of the soft tables that are due (missed heartbeats, hangs).
  virtual std::vector<core::EventBody> sweep(int64_t now_ms) = 0;
  // A Tick is about to take `doubted` for untrue. Returns what of it is true.
  virtual std::vector<core::TrainingSeen> confirm(std::vector<core::TrainingSeen> doubted,
                                                  int64_t now_ms) {
    (void)doubted, (void)now_ms;
    return {};
  }
  // The loop was away: soft deadlines start again.
  virtual void stalled(int64_t now_ms) = 0;
};

class OwnerLoop {
 public:
  // The event, made on the owner thread from the state it will meet; nullopt = nothing to record.
  using MakeEvent = std::function<std::optional<core::EventBody>(const core::State&)>;
  // After the commit that contains the event. `result` is null when MakeEvent made none, and
  // `state` too when the loop stopped before the event was taken.
  using Done = std::function<void(const core::StepResult* result, const core::State* state)>;
  using Query = std::function<void(const core::State* state)>;

  // Takes over the loaded state.
  OwnerLoop(std::unique_ptr<Store> store, core::State state, const Clock& clock,
            OwnerEffects& effects);
  ~OwnerLoop();
  OwnerLoop(const OwnerLoop&) = delete;
  OwnerLoop& operator=(const OwnerLoop&) = delete;

  // Commits ControllerResumed{restarted} and performs what is left in the outbox, on the caller's
  // thread; then starts the owner thread.
  void start();
  // Finishes the batch in hand, answers what is queued with null, and ends the thread.
  void stop();

  // Any thread. Waits while the queue is full, except on the owner thread. After stop() `done` is
  // called with nulls at once.
  void post(MakeEvent make, Done done = {});
  void post(core::EventBody body, Done done = {});
  // Reads the state between two commits.
  void ask(Query query);

  int64_t now_ms() const { return base_ms_ + clock_.monotonic_ms() - started_ms_; }

 private:
  struct Command {
    MakeEvent make;  // null for a query
    Done done;
    Query query;
  };
  struct Answer {
    Done done;
    std::optional<core::StepResult> result;
  };

  void enqueue(Command command);
  void run();
  bool is_stopping();
  static void refuse(std::deque<Command> commands);  // answers with null
  std::deque<Command> take(int64_t due_ms);
  int64_t next_turn() const;
  bool has_live_job() const;
  void detect_stall(int64_t due_ms);
  void turn(std::deque<Command> commands);
  void fire_deadlines(int64_t now_ms);
  void step(core::EventBody body, Done done);
  void commit_batch();

  std::unique_ptr<Store> store_;
  core::State state_;
  const Clock& clock_;
  OwnerEffects& effects_;
  const int64_t base_ms_;
  const int64_t started_ms_;

  // For the current batch; owner thread only.
  core::Dirty dirty_;
  std::vector<StoredEntry> entries_;
  std::vector<core::Action> actions_;
  std::vector<Answer> answers_;
  size_t events_ = 0;
  int64_t last_sweep_ms_ = 0;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable room_;
  std::deque<Command> queue_;
  bool stopping_ = false;
  std::atomic<std::thread::id> owner_;
  std::thread thread_;
};

}  // namespace hpctl
