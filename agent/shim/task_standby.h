// SPDX-License-Identifier: Apache-2.0
// The Python standby for a task with a Python program (decision 1514): a second child of the shim,
// started like the program, so with its group, session, limits and environment. It has imported the
// modules of HPCTL_STANDBY_IMPORTS, ignores signals for the program, and writes no output. In the
// next generation it becomes the program (agent/holder/python_standby.py), if it is ready and
// answers. Otherwise it is ended, and the program starts as usual.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/shim/program.h"
#include "agent/shim/task_settings.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/net/packet_socket.h"
#include "common/process/python_command.h"

namespace hpctl::shim {

class TaskStandby {
 public:
  using Say = std::function<void(const std::string& line)>;

  // For the program of `plan`. Reports why there is no standby if one is requested and impossible.
  TaskStandby(const TaskSettings& settings, const ProgramPlan& plan, Say say);

  // A program runs. `boot_id` begins the marks of what is started (agent/holder/worker_mark.h).
  void begin_generation(const std::string& boot_id, int64_t now_ms);
  // The program has told a step: from the first in a generation on there is one.
  void told_step(int64_t now_ms);
  // The program will end, and a waiting standby will take its place: it must answer whether it can.
  // None is started until then.
  void end_generation(int64_t now_ms);

  // The process that has become the program of `plan`, with the mark that it was started with;
  // nothing: start the program.
  struct Taken {
    pid_t pid = -1;
    std::string mark;
  };
  std::optional<Taken> take_part(const ProgramPlan& plan, uint64_t generation);

  // Readable when there is something to read() (-1 = there is none), and when look() is due
  // (INT64_MAX = never).
  int control_fd() const { return waiting_ ? waiting_->control.fd() : -1; }
  int output_fd() const { return waiting_ ? waiting_->output.get() : -1; }
  int64_t due_ms() const;
  void read(int64_t now_ms);
  // Starts one that is due, asks the one that waits, and ends it where it does not answer.
  void look(int64_t now_ms);
  // After a SIGCHLD.
  void reap(int64_t now_ms);
  // There is none from here on.
  void end();

 private:
  struct Waiting {
    pid_t pid = -1;
    PacketSocket control;
    UniqueFd output;
    std::string mark;
    bool is_ready = false;
    int64_t ask_at_ms = 0;  // or the answer is due then
    uint64_t asked = 0;     // the number of the question that it has not answered; 0 = none
  };

  Result<Waiting> start();
  void start_or_say(int64_t now_ms);
  void read_control(int64_t now_ms);
  void read_output();
  void ask(int64_t now_ms);
  bool answers();
  Outcome tell_part(const ProgramPlan& plan, uint64_t generation);
  // Ends it, and what it has started.
  void discard();
  void lost(const std::string& why, int64_t now_ms);
  void say_once(const std::string& line);

  const StandbyTimes times_;
  const PingTimes ping_times_;
  const InheritedSignals signals_;
  const std::vector<std::string> command_;  // of the task
  const Say say_;
  const std::vector<int> ignored_;       // the signals
  std::string modules_;                  // as IMPORTS of the text has them
  std::optional<PythonCommand> python_;  // nullopt: none is to be
  std::optional<Waiting> waiting_;
  std::string boot_id_;
  int64_t start_at_ms_ = INT64_MAX;
  bool is_running_ = false;  // the generation
  bool has_told_ = false;    // the program, in this generation
  int32_t replaced_ = 0;     // in this generation
  uint64_t started_ = 0;
  uint64_t last_question_ = 0;
  std::string printed_;  // the end of what it printed
  bool has_said_ = false;
};

}  // namespace hpctl::shim
