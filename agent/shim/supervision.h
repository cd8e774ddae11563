// SPDX-License-Identifier: Apache-2.0
// One task under supervision: it carries out the orders of the step's controller, and ends as the
// program ended.
//
// Signals. A signal that reached only the shim is passed on to the program. A terminal signals the
// whole foreground group, `kill 0` the whole group, and Slurm, by its kind of process tracking,
// either every process of the step or only those it started itself. SIGTERM, SIGINT, SIGQUIT and
// SIGHUP from Slurm or the terminal mean that the step is ending: from then on nothing is
// restarted.
//
// Without a controller (never there, gone, or released) the task behaves as without the plugin: the
// program runs on, and the shim ends as it ends.
#pragma once

#include <sys/signalfd.h>

#include <cstdint>
#include <optional>
#include <string>

#include "agent/shim/program.h"
#include "agent/shim/task_progress.h"
#include "agent/shim/task_settings.h"
#include "agent/shim/task_stacks.h"
#include "agent/shim/task_standby.h"
#include "common/base/clock.h"
#include "common/net/frame_stream.h"

namespace hpctl::shim {

class Supervision {
 public:
  // `signals` is a non-blocking signalfd of every blocked signal.
  Supervision(TaskSettings settings, ProgramPlan plan, FrameStream controller, UniqueFd signals);
  [[noreturn]] void run();

 private:
  void wait();
  void read_controller();
  void lose_controller();
  void on(const step::Welcome&) {}
  void on(const step::Start& order);
  // The process, from its start or from now on.
  Result<pid_t> begin_program(const ProgramPlan& plan, StartFailure& failure);
  void on(const step::Stop& order);
  void on(const step::Finish& order);
  void on(const step::Release& order);
  void read_signals();
  void on_signal(const signalfd_siginfo& info);
  bool has_reached_program(const signalfd_siginfo& info) const;
  void reap();
  void program_ended(int status);
  void report_overdue_exit();
  void begin_progress(ProgramPlan& plan);
  void report_progress();
  void end_progress();
  bool start_stacks(int64_t grace_ms);
  void finish_stacks();
  void end_program(int64_t grace_ms);
  void kill_overdue();
  bool has_unconfirmed_stop() const { return stopping_ && pid_ <= 0 && !stacks_; }
  void confirm_stop();
  [[noreturn]] void finish();
  void release();
  void report(const step::ToController& message);
  void say(const std::string& line) const;
  std::string mark() const;  // of the present generation; no other task's begins with it
  std::string boot_id() const;
  bool sweep() const;  // ends what the program left; false while some is there

  const SystemClock clock_;
  const TaskSettings settings_;
  ProgramPlan plan_;
  std::optional<FrameStream> controller_;
  UniqueFd signals_;
  uint64_t generation_ = 0;
  uint64_t incarnation_ = 0;  // programs started so far: the number of the newest
  std::string run_id_;
  pid_t pid_ = -1;
  std::optional<int> status_;             // of the last program that ended
  bool by_request_ = false;               // it was ended by an order
  bool was_dying_ = false;                // when the order came
  int64_t kill_at_ms_ = 0;                // SIGKILL is due then; 0 = not asked to end
  std::optional<TaskProgress> progress_;  // of the program that runs
  int64_t progress_at_ms_ = 0;            // to be looked at
  std::optional<step::Exited> unreported_;
  int64_t report_at_ms_ = 0;
  std::optional<uint64_t> stopping_;  // generation of a Stop to confirm
  std::optional<TaskStacks> stacks_;  // that are being written; the program ends afterwards
  int64_t grace_ms_ = 0;              // it then has
  std::string told_stacks_;
  std::optional<int32_t> finish_code_;  // Finish was received
  bool released_ = false;
  TaskStandby standby_;
  std::string standby_mark_;  // that the program was started with; "" = it did not stand by
};

}  // namespace hpctl::shim
