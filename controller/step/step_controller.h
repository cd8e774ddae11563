// SPDX-License-Identifier: Apache-2.0
// The shell around the core for one Slurm step: tasks in, orders out.
//
// Every task of the step is, to the core, a node with one worker, so uneven tasks per node need no
// special rule. Slurm starts a task's shim once: a second LaunchNode fails for good. Nothing is
// stored, because nothing outlives srun, whose child this is; a generation record is therefore
// durable at once. The core makes the decisions. This class decides only when supervision begins
// (every task has sent Hello) and when it ends without a verdict (Slurm ends the step, or a task is
// missing).
//
// Tasks whose programs report their steps (HPCTL_PROGRESS_FILE) are watched for hangs by the same
// table and the same rules as a job's ranks (controller/agents/progress.h, controller/core/hang.h).
//
// No I/O and no clock: the caller passes the time and carries out the orders to Outlet.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "common/worker/step_protocol.h"
#include "controller/agents/progress.h"
#include "controller/core/core.h"

namespace hpctl::step {

struct StepSettings {
  std::string run_id;  // JOB.STEP
  int64_t max_restarts = 20;
  // As recovery.hang_timeout of a job: 0 = by the steps that programs tell; kNoHangTimeoutMs =
  // never.
  int64_t hang_timeout_ms = 0;
  bool has_input = true;  // srun reads one that is not /dev/null
};
inline constexpr int64_t kNoHangTimeoutMs = int64_t{365} * 86'400'000;

class Outlet {
 public:
  virtual ~Outlet() = default;
  virtual void send(int32_t task, const ToShim& message) = 0;
  // One line for the person who reads srun's output.
  virtual void say(const std::string& line) = 0;
};

// A step whose tasks have not all said Hello this long after the first runs unsupervised.
inline constexpr int64_t kAssemblyTimeoutMs = 30'000;
// Between SIGTERM and SIGKILL for programs whose generation is over.
inline constexpr uint32_t kStopGraceMs = 1'000;
// The interval of checks whether the step hangs.
inline constexpr int64_t kHangLookMs = 500;
// After this long without a report of any task that reports its steps, time starts again: the
// machine, or the step by its scheduler, was suspended.
inline constexpr int64_t kAllSilentMs = 5'000;
// Then a task that has not ended its program is lost, and the step with it, which cannot have a
// task started again: a process with much memory takes long to die.
inline constexpr int64_t kStopPatienceMs = 60'000;

class StepController {
 public:
  StepController(StepSettings settings, Outlet& outlet)
      : settings_(std::move(settings)), outlet_(outlet) {}

  // A task with a proper token. Why it is refused; "" = welcome.
  std::string hello(const Hello& hello, int64_t now_ms);
  void message(int32_t task, const ToController& message, int64_t now_ms);
  // Said Hello, and was gone before it could be welcomed: the task runs unsupervised.
  void gave_up(const Hello& hello);
  // Its connection is gone.
  void lost(int32_t task, int64_t now_ms);
  void tick(int64_t now_ms);
  std::optional<int64_t> next_deadline() const;
  // Every task has come and gone.
  bool done() const { return !tasks_.empty() && connected_ == 0; }

 private:
  struct Task {
    Hello hello;
    uint16_t free_port = 0;
    bool connected = true;
    bool launched = false;
    std::optional<ActionId> start;
    std::optional<ActionId> stop;
  };

  // Why a generation ends; `exit_code` is what the tasks that it takes along exit with.
  struct Fault {
    std::string text;
    int32_t exit_code = 1;
  };

  void begin(int64_t now_ms);
  void release(const std::string& reason);
  void feed(core::EventBody body, int64_t now_ms);
  void step(core::EventBody body, int64_t now_ms);
  void perform(const core::Action& action);
  void launch(const core::Action& action, const std::string& node);
  void start(const core::Action& action, const core::StartWorkers& order);
  void stop(const core::Action& action, const core::StopWorkers& order);
  void report(const Exited& exited, int32_t task, int64_t now_ms);
  void report(const Progress& told, int32_t task, int64_t now_ms);
  void keep_stacks(const Stopped& stopped, int32_t task);
  void learn_steps(int64_t now_ms);
  void look_for_hangs(int64_t now_ms);
  std::string late_text() const;
  void tell_stacks();
  void tell_restart();
  void tell_end();
  void tell_goodput();
  const core::Job& job() const { return state_.jobs.at(job_id_); }
  std::string task_name(int32_t task) const;

  const StepSettings settings_;
  Outlet& outlet_;
  core::State state_;
  JobId job_id_;
  std::map<int32_t, Task> tasks_;
  size_t connected_ = 0;
  std::deque<core::EventBody> queue_;  // what performing an action brought about
  bool feeding_ = false;
  bool begun_ = false;
  bool released_ = false;
  int64_t assembly_deadline_ms_ = 0;
  int64_t told_restarts_ = 0;
  std::string stacks_;  // of the task that is blamed for a hang, else of task 0
  ProgressTable progress_;
  std::map<int32_t, uint64_t> told_steps_;  // of the present generation
  int64_t told_ms_ = 0;                     // when a task last told of itself; 0 = never
  int64_t look_at_ms_ = 0;                  // for hangs
  Fault reported_;                          // newest
  Fault decisive_;  // the one that led to the present generation or to the end
};

}  // namespace hpctl::step
