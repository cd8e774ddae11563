// SPDX-License-Identifier: Apache-2.0
// The messages between holder and agent proper over a SOCK_SEQPACKET pair. One packet is one
// message: u8 kind, then the fields in the order of the struct (common/net/packet.h). At most
// kMaxPacketBytes (packet_socket.h). If a message has a descriptor, it travels beside it by
// SCM_RIGHTS.
//
// The holder outlives the agent proper, so it keeps the state that must survive: boot id, highest
// generation, running workers, exit records, and the reports the controller has not acknowledged
// (as opaque bytes). A sent packet is in the holder's queue even if the sender dies at once. So the
// agent sends state that must survive here first and to the controller second.
//
// A new agent gets: Hello, WorkerState for each live process and for each process of the newest
// generation that has ended, StoredReport for each unacknowledged report in order, Exited for each
// exit that no report covers, HelloEnd. From then on events come as they happen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/job/bad_step.h"
#include "common/job/file_fault.h"
#include "common/worker/seal.h"
#include "common/worker/worker_origin.h"

namespace hpctl::holder {

inline constexpr uint32_t kProtocolVersion = 16;
// The agent proper finds its end of the pair here.
inline constexpr int kAgentSocketFd = 3;

// ---- agent -> holder ----------------------------------------------------------------------------

// The node takes part in `generation`; lower ones are refused from now on.
struct AcceptGeneration {
  uint64_t generation = 0;
};
// Answered by WorkerState or SpawnFailed. Refused while a worker takes part in a lower generation.
// An idle process of the built-in trainer joins instead of a new one: first the process of the same
// local rank, which has its state, then a standby. With rank -1 it starts a standby: for the
// trainer with no workload, for a command with agent/holder/python_standby.py.
struct Spawn {
  uint64_t generation = 0;
  int32_t rank = 0;
  int32_t local_rank = 0;
  std::vector<std::string> argv;  // argv[0] without '/' is looked up in PATH
  std::vector<std::string> env;   // NAME=value, replacing what the holder's environment has
  std::string directory;          // working directory
  std::string log_path;
  std::string workload;  // bytes of descriptor kWorkloadFd
  uint8_t python = 0;    // a command whose part a Python that stands by can take
  std::vector<std::string> hang_patterns = {};  // of a command: LogMatches tells of its lines
};
// End every worker of a generation <= `generation`: SIGTERM to its process group, SIGKILL after
// grace_ms (at once when 0). None of these generations can be spawned any more. With abort_ms a
// process of the built-in trainer leaves its generation and idles; SIGKILL for one that has not by
// then. Processes that idle already stay until End. With `stacks` the members hang: their stacks
// are written first (agent/holder/stack_taker.h), and StacksTaken says so.
struct Kill {
  uint64_t generation = 0;
  uint32_t grace_ms = 0;
  uint32_t abort_ms = 0;
  uint8_t stacks = 0;
};
// Keep a report until acknowledged. In one packet (all or nothing) it also drops the exit record
// that the report covers and notes the newest reported commit and bad step, so no crash of the
// agent makes it report any of them again.
struct KeepReport {
  uint64_t seq = 0;
  uint64_t covers_exit = 0;  // Exited::exit_id; 0 = none
  uint64_t committed_generation = 0;
  uint64_t committed_step = 0;
  uint64_t bad_step_generation = 0;
  uint64_t bad_step_number = 0;
  std::string bytes;
};
struct DropReport {
  uint64_t seq = 0;
};
// End every worker, then the holder itself.
struct End {
  int32_t exit_code = 0;
  uint32_t grace_ms = 0;
  std::string reason;
};
// An injected fault for that worker, if it still exists: a signal to its process group, or a
// message to its process to inject the fault itself.
struct Strike {
  uint64_t incarnation = 0;
  std::string fault;  // a word of common/worker/injected_fault.h
};
// The agent's loop turns; if it says nothing more within the time given, it hangs. Answered by
// AliveToo.
struct Alive {
  uint32_t next_within_ms = 0;
};

// ---- holder -> agent ----------------------------------------------------------------------------

struct Hello {
  uint32_t version = kProtocolVersion;
  std::string boot_id;
  uint64_t holder_pid = 0;
  uint64_t generation_seen = 0;
  uint64_t ended_through = 0;  // generations <= this were ended by Kill
  uint64_t last_report = 0;    // highest KeepReport::seq ever
  uint64_t committed_generation = 0;
  uint64_t committed_step = 0;
  uint64_t bad_step_generation = 0;
  uint64_t bad_step_number = 0;
  uint32_t probe_port = 0;  // agent/holder/probe_port.h; 0 = it has none
};
// The relation of a process to the generation that WorkerState names.
enum class WorkerPart : uint8_t {
  kEnded,   // it was in it; there is no process any more
  kMember,  // is in it
  kLeft,    // has left it by itself, because a peer was lost, and was not told to yet
  kIdle,    // has left it and can join another
};
// A process that was spawned. That of a member has its progress page beside it. `incarnation`
// names it: counted by the holder, never used twice. Generation and rank say what it is, or was, in
// the job; the rank of a standby is -1.
struct WorkerState {
  uint64_t incarnation = 0;
  uint64_t generation = 0;
  int32_t rank = 0;
  int32_t local_rank = 0;
  uint64_t pid = 0;
  WorkerPart part = WorkerPart::kEnded;
  uint8_t is_ready = 0;  // of a standby: it has said that it can take a part at once
  WorkerOrigin origin = WorkerOrigin::kUnknown;  // of a member
};
struct SpawnFailed {
  uint64_t generation = 0;
  int32_t rank = 0;
  uint8_t permanent = 0;  // a repetition cannot help
  std::string reason;
};
// A worker's part in a generation has ended: its process has, or stays (kLeft or kIdle) and has the
// exit code that it would have ended with, kExitPeerLost.
struct Exited {
  uint64_t exit_id = 0;
  uint64_t incarnation = 0;
  uint64_t generation = 0;
  int32_t rank = 0;
  uint64_t pid = 0;
  int32_t exit_code = 0;  // valid when signal == 0
  int32_t signal = 0;
  uint64_t last_step = 0;
  uint64_t checkpoint_step = 0;
  uint8_t by_request = 0;  // Kill was received before it ended
  uint8_t stays = 0;       // the process does
  std::string message;     // last words on the progress page, else the last line it printed
  std::vector<BadStep> bad_step = {};  // that the progress page holds
  ArenaSeals seals = {};
  FileFault fault = {};  // what the last words are about
};
struct StoredReport {
  uint64_t seq = 0;
  std::string bytes;
};
struct HelloEnd {};
// The holder's loop turns.
struct AliveToo {};
// Before the order that asked for stacks is carried out: where the ranks of this node stood and
// where that is written; one line. Not sent where nothing was written.
struct StacksTaken {
  uint64_t generation = 0;
  std::string told;
};

// The holder got SIGTERM. The workers get no signal from it as long as an order may come: the
// controller knows whether the job ends or only this node. Without an order the holder ends the
// node.
struct ToldToEnd {
  std::string reason;
};

// When a member last printed a line that matches each of its hang_patterns, in milliseconds of
// CLOCK_MONOTONIC; 0 = it has not. After its WorkerState, and after each change.
struct LogMatches {
  uint64_t incarnation = 0;
  std::vector<int64_t> matched_ms = {};
};

using ToHolder =
    std::variant<AcceptGeneration, Spawn, Kill, KeepReport, DropReport, End, Alive, Strike>;
using ToAgent = std::variant<Hello, WorkerState, SpawnFailed, Exited, StoredReport, HelloEnd,
                             AliveToo, StacksTaken, ToldToEnd, LogMatches>;

std::string encode(const ToHolder& message);
std::string encode(const ToAgent& message);
// kInvalidArgument for anything encode did not make.
Result<ToHolder> decode_to_holder(std::string_view packet);
Result<ToAgent> decode_to_agent(std::string_view packet);

}  // namespace hpctl::holder
