// SPDX-License-Identifier: Apache-2.0
// The controller process around the real core: inbox, batches, one transaction per batch, actions
// only after the commit. It can die at every store boundary; what the store holds is all it has
// when it comes back.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "controller/core/core.h"
#include "tests/sim/agenda.h"
#include "tests/sim/checkers.h"
#include "tests/sim/store.h"
#include "tests/sim/swarm.h"

namespace hpctl::sim {

// What the controller does to the world, and what the world does when a controller comes or goes.
class World {
 public:
  virtual ~World() = default;
  virtual void perform(const core::Action& action) = 0;
  virtual void node_changed(const core::Node& row) = 0;  // committed
  virtual void controller_died() = 0;
  // Whether the controller sees it.
  virtual bool is_true(const core::TrainingSeen& doubted) = 0;
  virtual void controller_started() = 0;
  // What a successor without rows finds out about the jobs that had not ended.
  virtual std::vector<core::JobAdopted> find_jobs(const core::State& last_known) = 0;
};

class SimController {
 public:
  using Done = std::function<void(const core::StepResult&)>;

  SimController(Agenda& agenda, Rng& rng, const Swarm& swarm, Checkers& checkers)
      : agenda_(agenda), rng_(rng), swarm_(swarm), checkers_(checkers) {}
  void start(World& world);

  // An event for the inbox; lost when the controller is down. `done` runs after its commit, and
  // never when the controller dies before.
  void post(core::EventBody body, Done done = nullptr);
  // The same, for the result of work that the process `incarnation` began: lost with it.
  void post_from(uint64_t incarnation, core::EventBody body);

  bool is_up() const { return up_; }
  bool is_stalled() const { return agenda_.now() < stalled_until_ms_; }
  bool knows_its_jobs() const { return up_ && adoptions_.empty(); }
  uint64_t incarnation() const { return incarnation_; }
  int64_t up_since_ms() const { return up_since_ms_; }
  const core::State& state() const { return state_; }
  const Store& store() const { return store_; }
  uint64_t digest() const { return digest_; }
  uint64_t events() const { return events_; }

  void kill(int64_t down_ms);
  void stall(int64_t for_ms);
  void stop_faults() { faults_ = false; }
  std::function<void(const std::string&)> trace;  // told each line of the history

 private:
  struct Incoming {
    core::EventBody body;
    Done done;
  };
  void restart();
  void wake(int64_t after_ms);
  void run_batch();
  core::StepResult step(core::EventBody body);
  bool dies_here();
  void wake_for_deadline();

  Agenda& agenda_;
  Rng& rng_;
  const Swarm& swarm_;
  Checkers& checkers_;
  World* world_ = nullptr;
  Store store_;
  core::State state_;
  std::deque<Incoming> inbox_;
  std::vector<core::EventBody> heard_;  // in this batch, and not refused
  bool up_ = false;
  bool faults_ = true;
  bool wake_pending_ = false;
  bool was_stalled_ = false;
  bool was_restarted_ = false;
  bool lost_rows_ = false;
  std::vector<core::JobAdopted> adoptions_;
  int64_t stalled_until_ms_ = 0;
  int64_t up_since_ms_ = 0;
  int64_t armed_ms_ = 0;  // wake-up for a deadline already on the agenda; 0 = none
  uint64_t incarnation_ = 0;
  uint64_t digest_ = 0;
  uint64_t events_ = 0;
  uint64_t batches_ = 0;
};

}  // namespace hpctl::sim
