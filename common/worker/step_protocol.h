// SPDX-License-Identifier: Apache-2.0
// The messages between the shim of a task (agent/shim) and the controller of its step
// (controller/step), over one TCP connection per task. One frame (common/net/frame_stream.h) is
// one message: u8 kind, then the fields in the order of the struct. Both ends have the step's token
// and prove it to each other before a message counts; it does not cross the wire.
//
//   shim                          controller
//   Hello                  ->
//                          <-     Welcome           within kAnswerPatienceMs, else the shim goes on
//                                                   without a controller
//                          <-     Start{1}          once every task of the step has sent Hello
//   Started                ->
//   Progress, Progress…    ->                       once its program has reported a step
//   Exited{1}              ->                       of any task
//                          <-     Stop{1}           to every task
//   Stopped{1}             ->
//                          <-     Start{2}          a new generation; or Finish
//   Stopped{N}             ->                       if Finish asked for stacks, and there are some
//
// Release may come at any time: the controller gives up control, and the task goes on as without
// the plugin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/result.h"

namespace hpctl::step {

inline constexpr uint32_t kProtocolVersion = 4;
// How long a task waits for its step's controller before it runs without supervision: for a
// connection, which the kernel accepts, and for the answer, which a busy machine may delay.
inline constexpr int64_t kConnectPatienceMs = 1'000;
inline constexpr int64_t kAnswerPatienceMs = 5'000;

// Environment by which plugin, shim and controller find each other; the program does not see it.
// The first two travel from srun to the nodes, which with --export=NONE only SLURM_* does.
inline constexpr char kPortName[] = "SLURM_HPCTL_STEP_PORT";    // TCP port on srun's host
inline constexpr char kTokenName[] = "SLURM_HPCTL_STEP_TOKEN";  // 32 random bytes in hex
// "RANK TASKS LOCAL_RANK LOCAL_TASKS NODE_RANK NODES SIGNALS_ALL"; the last is 1 where Slurm
// signals every process of a step, and 0 where only the shim.
inline constexpr char kTaskName[] = "HPCTL_STEP_TASK";
inline constexpr char kProgramName[] = "HPCTL_STEP_PROGRAM";  // argv[0] that the shim replaced
inline constexpr char kStacksName[] = "HPCTL_STEP_STACKS";    // path of hpstacks; may not be there

// ---- shim -> controller -------------------------------------------------------------------------

struct Hello {
  uint32_t version = kProtocolVersion;
  int32_t task = 0;
  int32_t tasks = 0;
  std::string node;
  uint64_t pid = 0;        // of the shim
  std::string address;     // of the task's node, as the other nodes reach it
  uint16_t free_port = 0;  // a port that was free there a moment ago
};
struct Started {
  uint64_t generation = 0;
  uint64_t pid = 0;
};
struct StartFailed {
  uint64_t generation = 0;
  std::string reason;
};
// The reports of the program (agent/holder/progress_file.h), again and again, also unchanged.
struct Progress {
  uint64_t generation = 0;
  uint64_t pid = 0;
  uint64_t step = 0;          // completed
  uint64_t tokens = 0;        // of that step
  uint64_t step_ns = 0;       // how long it took; 0 = not known
  std::string process_state;  // of /proc/PID/stat
};
// The program ended by itself.
struct Exited {
  uint64_t generation = 0;
  uint64_t pid = 0;
  int32_t exit_code = 0;  // valid when signal == 0
  int32_t signal = 0;
};
// No process of a generation <= this is left of the task.
struct Stopped {
  uint64_t generation = 0;
  uint16_t free_port = 0;
  std::string stacks;  // where they are and what they show; "" = none were written
};
// Slurm (scancel, time limit, preemption) or the terminal ends the step; no restart is wanted.
struct Ending {
  int32_t signal = 0;
};

// ---- controller -> shim -------------------------------------------------------------------------

struct Welcome {};
struct Start {
  uint64_t generation = 0;
  int64_t restart_count = 0;
  int64_t max_restarts = 0;
  std::string run_id;
  std::string master_address;
  uint16_t master_port = 0;
};
// End the program: SIGTERM, after grace_ms SIGKILL, and everything it left.
struct Stop {
  uint64_t generation = 0;
  uint32_t grace_ms = 0;
  uint8_t stacks = 0;  // 1 = it hangs: first write where it stands
};
// The step is decided. A task whose program ended by itself ends as the program did; another ends
// its program and exits with `exit_code`.
struct Finish {
  int32_t exit_code = 0;
  uint8_t stacks = 0;  // as in Stop; Stopped then says where they are, before the task ends
};
// No supervision from here on.
struct Release {
  std::string reason;
};

using ToController = std::variant<Hello, Started, StartFailed, Progress, Exited, Stopped, Ending>;
using ToShim = std::variant<Welcome, Start, Stop, Finish, Release>;

std::string encode(const ToController& message);
std::string encode(const ToShim& message);
// kInvalidArgument for anything encode did not make.
Result<ToController> decode_to_controller(std::string_view packet);
Result<ToShim> decode_to_shim(std::string_view packet);

}  // namespace hpctl::step
