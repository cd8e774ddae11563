// SPDX-License-Identifier: Apache-2.0
// StepRunner: short programs, one after another, each with a deadline, on the agent's event loop.
//
// Output goes to one log; the last line of a step that fails is its reason. Remaining children of a
// step are ended with it. The programs die with the agent proper, and their caller requests them
// again after its restart, so they must tolerate being run twice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/holder/event_loop.h"
#include "agent/holder/rank_log.h"
#include "agent/holder/spawn.h"
#include "common/base/clock.h"

namespace hpctl::agent {

struct Step {
  std::string name;  // for people: "hooks.pre 1", "preflight gpu"
  std::vector<std::string> argv;
  int64_t timeout_ms = 0;
};

struct StepFailure {
  std::string text;    // one line: name, what happened, the last line it printed
  size_t step = 0;     // index
  int exit_code = -1;  // -1 = it did not exit by itself
};

struct StepPlace {
  std::string directory;  // working directory
  std::string log_path;
  std::vector<std::string> env;  // NAME=value, on top of the agent's own
};

class StepRunner {
 public:
  // The steps that failed, in order; empty = all is well.
  using Finished = std::function<void(const std::vector<StepFailure>& failures)>;

  StepRunner(EventLoop& loop, LogWriter& logs) : loop_(loop), logs_(logs) {}
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;
  ~StepRunner() { stop(); }

  // Precondition: !running(). `finished` is called from the loop or from start() itself, once.
  void start(std::vector<Step> steps, const StepPlace& place, bool go_on_after_failure,
             Finished finished);
  // Kills the present step; `finished` is not called.
  void stop();
  bool running() const { return finished_ != nullptr; }

  // The agent's timer: ends a step that is past its deadline.
  int64_t deadline_ms() const { return process_ ? deadline_ms_ : INT64_MAX; }
  void on_time(int64_t now_ms);

 private:
  void start_next();
  void on_exit();
  void fail(const std::string& reason, int exit_code = -1);
  void forget_process();
  void end();

  EventLoop& loop_;
  LogWriter& logs_;
  const SystemClock clock_;
  StepPlace place_;
  std::vector<Step> steps_;
  size_t current_ = 0;
  bool go_on_after_failure_ = false;
  bool timed_out_ = false;
  int64_t deadline_ms_ = INT64_MAX;
  std::vector<StepFailure> failures_;
  Finished finished_;
  std::optional<SpawnedProcess> process_;
  std::unique_ptr<RankLog> log_;
};

}  // namespace hpctl::agent
