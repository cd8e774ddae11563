// SPDX-License-Identifier: Apache-2.0
// Events of the controller core: what happened (past tense), and all that step() learns of the
// world. Plain data; the log keeps the JSON of codec.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/job/bad_step.h"
#include "common/job/file_fault.h"
#include "common/job/ids.h"
#include "common/job/job_spec.h"
#include "common/job/lineage.h"
#include "common/worker/injected_fault.h"
#include "common/worker/worker_origin.h"
#include "controller/core/types.h"

namespace hpctl::core {

// The result of the job's session before its requeue.
struct RequeueCarryover {
  // Without whom it was to go on, and how many requeues in a row asked for that. The scheduler may
  // not have listened.
  std::vector<std::string> excluded = {};
  int64_t exclusion_attempt = 0;
  std::vector<QuarantinedNode> quarantined = {};
};
// The job's totals before this controller, from the newest status file.
struct JobTotals {
  int64_t submitted_wall_ms = 0;  // 0 = not known
  int64_t restarts = 0;
  int64_t lost_ms = 0;
  uint64_t furthest_step = 0;
  bool interrupted = false;  // the newest loss was not made good
  // Until when lost_ms counts: where nothing was interrupted, when the newest step was completed.
  int64_t counted_wall_ms = 0;  // 0 = not known
  TimeSpent spent = {};         // its losses are lost_ms
  StepWaits told_waits = {};    // Job; they are in `spent`
  Generation generation = {};   // newest that the job has recorded; 0 = none, or not known
  uint64_t committed_step = 0;  // likewise
};
struct JobSubmitted {
  JobSpec spec;
  uint32_t uid = 0;
  std::string submit_key;
  JobId job = {};  // of the Slurm job; 0 = the next local number
  // spec.all_nodes() names, those that train first; empty = local names.
  std::vector<std::string> nodes = {};
  Backend backend = {};
  RequeueCarryover former = {};
  JobTotals totals = {};
  std::vector<std::string> lemons = {};  // of `nodes`, those that earlier jobs speak against
};
// A controller without the job's rows takes it over: from the job's document, the lineage and the
// scheduler. The nodes are waited for; workers of `generation` that are alive go on undisturbed.
// fill_from_lineage() fills in what the lineage knows; see seq_before_epoch() as well. Refused when
// the job is known already.
struct JobAdopted {
  JobId job;
  JobSpec spec;
  uint32_t uid = 0;
  std::string submit_key;
  std::vector<std::string> nodes;  // that the job has now; may lack members of the generation
  Backend backend;
  std::string cause;      // why it is taken over
  Generation generation;  // newest record of the lineage; 0 = none, then it begins
  uint64_t start_step = 0;
  std::string checkpoint;
  std::vector<std::pair<Rank, std::string>> members;
  std::vector<std::string> damaged;
  int64_t restarts = 0;
  std::vector<int64_t> restart_ages_ms;  // of the restarts in the lineage, oldest first
  int64_t restarts_without_progress = 0;
  uint64_t furthest_step = 0;
  uint64_t committed_step = 0;  // newest valid checkpoint
  RequeueCarryover former =
      {};  // its quarantines are those of the lineage where there was no requeue
  JobTotals totals = {};
  Generation memory_of = {};  // Job
};
struct CancelRequested {
  JobId job;
  uint32_t uid = 0;
  std::string reason = {};  // "" = a person asked
  bool time_limit = false;  // the scheduler's is near
};
// The user wants to hear no more of a job that has ended.
struct JobRemoved {
  JobId job;
  uint32_t uid = 0;
};
struct NodeLaunched {
  ActionId action;
  JobId job;
  std::string node;
  uint64_t holder_pid = 0;
};
struct LiveWorker {
  Rank rank;
  Generation generation;
  uint64_t pid = 0;
  WorkerOrigin origin = WorkerOrigin::kUnknown;
};
struct AgentRegistered {
  JobId job;
  std::string node;
  std::string instance_id;
  std::string boot_id;
  uint64_t holder_pid = 0;
  uint64_t agent_pid = 0;
  Generation generation_seen;
  std::vector<LiveWorker> workers;
  std::string address = {};
  bool tells_ready = false;  // SpareReady will come of it, where it is a spare of a job that trains
  bool lemon = false;        // earlier jobs speak against it (common/job/node_record.h)
  bool confirms_damage = false;    // it knows ConfirmDamage
  bool beside_controller = false;  // the controller runs on that node
};
// The stream closed. Not a loss by itself: the agent may have been killed and be coming back.
struct AgentDisconnected {
  JobId job;
  std::string node;
  std::string boot_id;
};
// The node is gone: its holder exited, or its heartbeat deadline passed.
struct NodeLost {
  JobId job;
  std::string node;
  std::string boot_id;  // "" = whichever life is current
  std::string cause;
  bool taken = false;        // the scheduler took the node from the job: Node::taken
  bool given_up = false;     // because it did not respond; not: an operator wanted it
  bool unreachable = false;  // its machine did not answer a probe either
  bool refused = false;  // the scheduler refused its launch for what the job asks: not its fault
};
// The node's holder got SIGTERM, and other nodes did not: the node will end, and has time to save.
struct NodeDeparts {
  JobId job;
  std::string node;
  std::string boot_id;
  std::string cause;  // "signal 15"
};
struct NodeEnded {
  JobId job;
  std::string node;
  std::string boot_id;
};
struct CheckpointChosen {
  ActionId action;
  JobId job;
  std::string checkpoint;  // "" = none: start from the seed
  uint64_t step = 0;
  Generation newest_generation;  // newest record in the directory; 0 = none
  // The second reader's result for the claim in the order; "" = it found no damage, or there was no
  // claim.
  std::string confirmed = {};
  std::vector<std::string> damaged = {};  // checkpoints that the chain has recorded as damaged
  // A checkpoint newer than `checkpoint` that was committed on this chain, by the records or by the
  // job's row, and is gone; "" = none is. Releases before told it only without a checkpoint.
  std::string lost = {};
  // Records newer than `newest_generation` that the order says are withdrawn.
  std::vector<WithdrawnRecord> withdrawn = {};
};
struct GenerationRecorded {
  ActionId action;
  JobId job;
  Generation generation;
};
// A record of this generation with other content was there first: of another controller, or of an
// order that was withdrawn.
struct GenerationTaken {
  ActionId action;
  JobId job;
  Generation generation;
  std::string order = {};  // of the record that is there, if the job made it
};
struct WorkersStarted {
  ActionId action;
  JobId job;
  std::string node;
  Generation generation;
  std::vector<LiveWorker> workers;
};
struct WorkersStopped {
  ActionId action;
  JobId job;
  std::string node;
  Generation generation;
  std::string stacks;  // of a hang: where its ranks stood and where that is written; one line
};
struct WorkerExited {
  JobId job;
  std::string node;
  std::string boot_id;
  Rank rank;
  Generation generation;
  uint64_t pid = 0;
  int32_t exit_code = 0;
  int32_t signal = 0;
  uint64_t last_step = 0;
  std::string message;
  bool by_request = false;
  bool peer_lost = false;  // by its own words a consequence of another death, as kExitPeerLost
  ArenaSeals seals = {};
  FileFault fault = {};  // what the message is about, of workers that say so in fields
};
// Exits of workers of one node that were reported together.
struct WorkersExited {
  JobId job;
  std::string node;
  std::string boot_id;
  std::vector<WorkerExited> exits;  // each names the same job, node and boot id
};
// First completed step of a generation, seen by the progress table; repeated with a later step
// when that is worth recording (before NodeLost and HangDetected, say, or Job::regain_step).
struct GenerationProgressed {
  JobId job;
  Generation generation;
  uint64_t step = 0;
  int64_t stepped_ms = 0;  // when it was completed, in the time of events; 0 = now
  StepWaits waits = {};    // of the generation so far
};
struct CheckpointCommitted {
  JobId job;
  Generation generation;
  uint64_t step = 0;
};
// A save of the newest generation found the disk full, and will be tried again.
struct CheckpointRoomNeeded {
  JobId job;
  Generation generation;
};
// PruneCheckpoints was carried out.
struct CheckpointsPruned {
  ActionId action;
  JobId job;
  std::string verified = {};              // the newest checkpoint; "" = nothing was to be deleted
  std::vector<std::string> deleted = {};  // names, oldest first
  std::string problem = {};               // why nothing was deleted; "" = nothing is wrong
  std::string to_verify = {};  // a node is to read this one first; then nothing was deleted
};
// MirrorCheckpoint was carried out.
struct CheckpointMirrored {
  ActionId action;
  JobId job;
  std::string checkpoint = {};            // the newest that the mirror holds; "" = none
  uint64_t step = 0;                      // of it
  uint64_t copied_bytes = 0;              // 0 = it was there already
  std::vector<std::string> deleted = {};  // older ones in the mirror
  std::string problem = {};               // why the newest was not copied; "" = nothing is wrong
  std::string verified = {};   // a path: what older ones were deleted after; "" = none were to be
  std::string to_verify = {};  // a path: a node is to read it before older ones go
  bool for_room = false;       // then: the mirror is full
};
// What a second reader says of a claim of damage.
enum class DamageVerdict {
  kSound,
  kDamaged,     // or missing, or of another size
  kUnreadable,  // it cannot be read there now, which proves nothing
};
// ConfirmDamage was carried out.
struct DamageAnswered {
  ActionId action;
  JobId job;
  std::string node;
  DamageVerdict verdict = DamageVerdict::kUnreadable;
  std::string what = {};  // what is damaged, or why it cannot be read
};
// No step completed for the hang timeout. With node "" and rank -1 there is no blame; a node
// without a rank has several suspects.
struct HangDetected {
  JobId job;
  Generation generation;
  std::string node;
  Rank rank{-1};
  std::string evidence;
};
struct ActionFailed {
  ActionId action;
  JobId job;
  std::string node;  // "" = none
  std::string reason;
  bool permanent = false;
  bool node_fault = false;  // of StartWorkers: the node is unfit; another may do
  bool hardware = false;    // of a node fault: a verdict on the hardware
  bool reboot = false;      // of that: a reboot may mend it
  bool storage = false;     // of LaunchNode: the controller could not use the node's directory
};
// The scheduler accepted to requeue the job; its end follows.
struct JobRequeued {
  ActionId action;
  JobId job;
};
// Requested by us, or (no action) seen at a node that is known to be broken.
struct NodeReplacementRequested {
  ActionId action;
  JobId job;
  std::string node;
  std::string what;  // in words of the scheduler
  bool reboot = false;
};
// A word of the scheduler for the history: a pending reason, a change of the allocation.
struct SchedulerObserved {
  JobId job;
  std::string node;  // "" = none
  std::string what;
  bool unusable = false;  // it would not give the node to another job
};
// The scheduler can use the node again (rebooted, replaced, undrained).
struct NodeReturned {
  JobId job;
  std::string node;
  std::string cause;
};
struct QuarantineRequested {
  JobId job;
  std::string node;
  uint32_t uid = 0;
  std::string reason;
  int64_t for_ms = 0;       // 0 = until released
  bool asks_first = false;  // refused where the job would be requeued
};
struct ReleaseRequested {
  JobId job;
  std::string node;
  uint32_t uid = 0;
};
// A verdict on the hardware of the node, with evidence (not: it was silent).
struct HardwareFaultFound {
  JobId job;
  std::string node;
  std::string boot_id;
  std::string reason;
  std::string evidence;
  bool reboot = false;  // which may mend it
};
// A node without ranks, which was prepared for some while the job trains, cannot take them.
struct SpareFoundUnfit {
  JobId job;
  std::string node;
  std::string boot_id;
  std::string reason;
  bool hardware = false;  // a verdict on the hardware
  bool reboot = false;    // which may mend it
};
// A node without ranks could take some at once: it is prepared, and has what standbys it will have.
struct SpareReady {
  JobId job;
  std::string node;
  std::string boot_id;
};
// A request to reboot or replace the node once its work has left.
struct RecoveryRequested {
  JobId job;
  std::string node;
  uint32_t uid = 0;
  std::string reason;
  bool reboot = false;
  bool asks_first = false;  // QuarantineRequested
};
// A step was not applied, and the job's stability policy acted. Told in the history under the name
// of what was found: NonFiniteFound, LossSpiked or GradientSpiked.
struct BadStepFound {
  JobId job;
  std::string node;  // that reports it
  Generation generation;
  uint64_t number = 0;  // 1, 2, ... within the generation
  uint64_t step = 0;
  uint64_t resumed_step = 0;
  uint64_t samples = 0;
  BadStepFinding finding = BadStepFinding::kNotFinite;
  BadStepVerdict verdict = BadStepVerdict::kNotRepeated;
  BadStepOutcome outcome = BadStepOutcome::kStopped;
  int32_t blamed_rank = -1;
  std::string reason;
  uint64_t missed = 0;  // so many before it were not seen
};
// A node has been slow, in all of some steps in a row (straggler.h).
struct StragglerFound {
  JobId job;
  Straggler straggler;
};
// It is as fast as the others again.
struct StragglerOver {
  JobId job;
  Generation generation;
  std::string node;
};
// The scheduler stops all processes of the job, or lets them go on.
struct SuspensionChanged {
  JobId job;
  bool suspended = false;
};
// A fault that is injected right after this is recorded. For readers of the history alone: the
// fault is found and judged like any other.
struct FaultInjected {
  JobId job;
  uint32_t uid = 0;
  InjectedFault fault = {};
  std::string node;  // of a node's fault
  Rank rank{-1};     // of a worker's
};
// The target was gone before it could be done.
struct FaultNotInjected {
  JobId job;
  std::string node;
  Seq injected;  // the event FaultInjected
  std::string reason;
};
// A controller's note about itself, for the history, without consequences.
struct ControllerNoted {
  JobId job;
  std::string what;
};
// Ranks of this generation moved a moment ago: a step takes every rank, so all its nodes train, one
// whose agent has not reached this controller too. Told before such a node would be lost.
struct TrainingSeen {
  JobId job;
  Generation generation;
  int64_t within_ms = 0;  // in which they moved: recovery.heartbeat_timeout
};
// The controller process started and loaded these rows, or its loop stalled for more than half a
// heartbeat timeout: deadlines are re-armed, not fired.
struct ControllerResumed {
  bool restarted = false;  // false = stalled
};
// A deadline the core asked for has passed.
struct Tick {};

using EventBody =
    std::variant<JobSubmitted, CancelRequested, NodeLaunched, AgentRegistered, AgentDisconnected,
                 NodeLost, NodeEnded, CheckpointChosen, GenerationRecorded, GenerationTaken,
                 WorkersStarted, WorkersStopped, WorkerExited, GenerationProgressed,
                 CheckpointCommitted, HangDetected, ActionFailed, ControllerResumed, Tick,
                 JobAdopted, JobRequeued, NodeReplacementRequested, SchedulerObserved, NodeReturned,
                 QuarantineRequested, ReleaseRequested, HardwareFaultFound, BadStepFound,
                 RecoveryRequested, SuspensionChanged, ControllerNoted, TrainingSeen, FaultInjected,
                 FaultNotInjected, StragglerFound, StragglerOver, WorkersExited, SpareFoundUnfit,
                 SpareReady, CheckpointRoomNeeded, CheckpointsPruned, CheckpointMirrored,
                 DamageAnswered, NodeDeparts, JobRemoved>;

struct Event {
  Seq seq;              // assigned by the shell: State::last_seq + 1
  int64_t now_ms = 0;   // persisted base + monotonic; never falls
  int64_t wall_ms = 0;  // label
  EventBody body;
};

}  // namespace hpctl::core
