// SPDX-License-Identifier: Apache-2.0
// Rows, events and actions of the controller core: plain data, ordered containers, no I/O.
//
// State is rows keyed (table, key), so that the work of one Step and of one transaction is
// proportional to what changed. An Event is something that happened (past tense); an Action is
// something the shell must bring about (imperative), a desired state whose repetition is harmless.
// Actions live in the outbox table until the event that acknowledges them arrives; a restarted
// controller loads the rows and re-issues what is left in the outbox.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/base/job_spec.h"
#include "common/base/lineage.h"
#include "common/base/unfit_step.h"

namespace hpctl::core {

// ---- rows ---------------------------------------------------------------------------------------

enum class JobState {
  kPending,     // accepted, nothing started
  kStarting,    // nodes or the first generation are coming up
  kRunning,     // the current generation has completed a step (train) or started (command)
  kRecovering,  // a fault was seen; the next generation is being prepared or has not stepped yet
  kFinished,
  kFailed,
  kCancelled,
};
const char* to_string(JobState state);  // "PENDING", ...
constexpr bool has_ended(JobState s) {
  return s == JobState::kFinished || s == JobState::kFailed || s == JobState::kCancelled;
}

// Where the preparation of the next generation stands. Each stage waits for named things only, and
// has a deadline of its own.
enum class PlanStage {
  kNone,              // no generation is being prepared
  kStopWorkers,       // waiting until every node has no worker of an older generation
  kWaitNodes,         // waiting until every slot has a node that is up
  kFindCheckpoint,    // waiting for CheckpointChosen
  kRecordGeneration,  // waiting for the durable generation record
  kStartWorkers,      // waiting for every node's ActionDone
  kMeetNodes,         // adopted: waiting for the nodes of a generation that may be running
  kRequeue,           // waiting for the scheduler to requeue the job, which ends everything
};
const char* to_string(PlanStage stage);

// Why a recovery began; the newest few are kept for the diagnosis of a job that fails.
struct Fault {
  std::string cause;  // one line
  std::string node;   // blamed; "" = none
  int32_t rank = -1;  // blamed; -1 = none
  uint64_t step = 0;  // furthest step known when it happened
  Seq seq;            // event that showed it
};

// What the scheduler of a job can do besides starting agents.
struct Backend {
  bool requeues = false;      // RequeueJob
  bool replaces = false;      // ReplaceNode
  int64_t restart_count = 0;  // how often the job was requeued so far
};

// What the job's unfit steps (common/base/unfit_step.h) came to, as far as this controller heard; a
// decision that a fault made necessary again counts again.
struct UnfitRecord {
  Generation generation;  // of the newest
  uint64_t number = 0;    // of the newest
  Seq stopped_seq;        // event of the one that ended the workers of `generation`; 0 = none did
  uint64_t not_finite = 0;
  uint64_t loss_spikes = 0;
  uint64_t gradient_spikes = 0;
  uint64_t same_results = 0;  // executed again
  uint64_t hardware_suspected = 0;
  uint64_t skipped_steps = 0;  // with those of rollbacks
  uint64_t skipped_samples = 0;
  uint64_t rollbacks = 0;
  uint64_t stops = 0;
};

struct Job {
  JobId id;
  JobSpec spec;
  uint32_t owner_uid = 0;
  std::string submit_key;
  Backend backend;
  int32_t active_nodes = 0;  // that train after losses; 0 = spec.nodes
  JobState state = JobState::kPending;
  std::string reason;               // of the present state; one line
  Generation generation;            // newest recorded generation; 0 = none
  Generation directory_generation;  // newest generation found in the checkpoint directory
  PlanStage stage = PlanStage::kNone;
  std::string checkpoint;  // step-N.gG the newest generation resumes from; "" = seed
  uint64_t start_step = 0;
  uint64_t furthest_step = 0;     // highest step any worker is known to have completed
  uint64_t committed_step = 0;    // newest checkpoint known committed
  std::set<std::string> damaged;  // checkpoints not to be used again
  // Durable restart budget: monotonic times (State::now base) of the restarts still in the window.
  std::vector<int64_t> restart_times_ms;
  int64_t restarts = 0;              // all restarts, ever
  uint64_t progress_at_restart = 0;  // furthest_step when the last recovery began
  int64_t restarts_without_progress = 0;
  std::string fault;                 // cause of the recovery in progress; "" = none
  bool fault_is_collateral = false;  // only kExitPeerLost seen so far; the cause may still arrive
  Seq fault_seq;                     // event that began the recovery
  std::vector<Fault> recent_faults;  // oldest first, at most kRecentFaults
  Seq plan_seq;                      // event that began the present stage or state
  int64_t not_before_ms = 0;         // back-off: the next generation is not prepared earlier
  int64_t plan_attempts = 0;         // directory failures while preparing this generation
  std::string requeue_refusal;       // why the scheduler did not requeue; "" = not refused
  std::string scheduler_note;        // newest SchedulerObserved
  bool cancel_requested = false;     // stopping the workers, then CANCELLED
  std::string cancel_reason;         // "" = a person asked
  int64_t deadline_ms = 0;           // of the present stage; 0 = none
  int64_t submitted_wall_ms = 0;     // labels
  int64_t ended_wall_ms = 0;
  int64_t running_since_ms = 0;     // when it last became RUNNING; 0 = never
  int64_t recovering_since_ms = 0;  // 0 = not recovering
  int64_t lost_ms = 0;              // sum over finished recoveries
  UnfitRecord unfit;

  int32_t nodes() const { return active_nodes == 0 ? spec.nodes : active_nodes; }
  int32_t world_size() const { return nodes() * spec.workers_per_node; }
};

enum class NodeState {
  kLaunching,  // asked for, agent not registered yet
  kUp,         // agent registered and within its heartbeat deadline
  kDown,       // lost; a replacement has not registered
  kEnding,     // EndNode sent
  kEnded,
};
const char* to_string(NodeState state);  // "launching", ...

// Why no rank may be bound to a node. Belongs to the instance: another one under the same name
// starts clean.
struct Quarantine {
  std::string by;  // "uid 1000", "hpctl"; "" = not quarantined
  std::string reason;
  std::string evidence;
  bool hardware = false;  // a verdict on the hardware: worth replacing
  int64_t since_wall_ms = 0;
  int64_t until_wall_ms = 0;  // 0 = until released
};

struct NodeKey {
  JobId job;
  std::string name;
  auto operator<=>(const NodeKey&) const = default;
};
struct Node {
  NodeKey key;
  NodeState state = NodeState::kLaunching;
  std::string instance_id;
  std::string boot_id;
  std::string address;  // where other nodes reach it; "" = this machine only
  uint64_t holder_pid = 0;
  uint64_t agent_pid = 0;
  bool connected = false;  // a stream is open; a closed stream alone is not a loss
  int64_t launches = 0;
  int64_t launched_for = -1;    // Job::restarts when it was last launched
  int64_t launch_attempts = 0;  // of those launches that were for the same restart
  int64_t launched_ms = 0;      // when that was
  Seq launch_seq;               // event that led to that launch
  Generation generation_seen;   // newest that its agent said it had accepted
  Quarantine quarantine;
  std::vector<int64_t> fault_times_ms;  // faults of its workers, while it is the same instance
  std::string replaced_instance;        // instance id whose replacement was asked for
  // Somebody's request to replace or reboot the node stands since then; 0 = none does.
  int64_t recovery_wall_ms = 0;
  bool taken = false;  // the scheduler took it from the job: in this allocation it does not return
  // Lives that are over, newest last, at most kFormerBootIds: their messages are refused.
  std::vector<std::string> former_boot_ids;
  // To register, to reconnect, to report the exit of unaccounted workers, to be launched once more
  // (kDown), or to end; 0 = none.
  int64_t deadline_ms = 0;
  Seq deadline_seq;  // event that set it
  std::string reason;
};

// active: has ranks. lost: down, or being brought back after a loss.
enum class NodeRole { kActive, kSpare, kLost, kQuarantined };
const char* to_string(NodeRole role);

enum class SlotState { kPending, kRunning, kExited };
const char* to_string(SlotState state);
std::string signal_name(int32_t signal);  // "SIGKILL"; "signal 77" for those without a name here

// Slot::exit_code of a worker that ended with its node, without a report of its own.
inline constexpr int32_t kEndedUnreported = -1;

struct SlotKey {
  JobId job;
  Rank rank;
  auto operator<=>(const SlotKey&) const = default;
};
// A rank of the job: which node it is bound to and which process fills it now.
struct Slot {
  SlotKey key;
  std::string node;  // "" = not part of the present world size
  SlotState state = SlotState::kPending;
  Generation generation;  // of the process
  uint64_t pid = 0;
  int32_t exit_code = 0;
  int32_t signal = 0;
  bool unaccounted = false;  // its agent no longer has it and has not reported its exit yet
};

// ---- actions ------------------------------------------------------------------------------------

// Bring up an agent for the node. Precondition observed by the scheduler: no holder holds the
// node's lock. Acknowledged by NodeLaunched or ActionFailed.
struct LaunchNode {
  JobId job;
  std::string node;
};
// Read the lineage and choose a checkpoint. Acknowledged by CheckpointChosen or ActionFailed.
struct FindCheckpoint {
  JobId job;
  std::vector<std::string> exclude;
};
// Create generations/G.json. Acknowledged by GenerationRecorded, GenerationTaken or ActionFailed.
struct RecordGeneration {
  JobId job;
  Generation generation;
  Generation parent;
  uint64_t start_step = 0;
  std::string checkpoint;
  std::string reason;
  int64_t restarts_used = 0;
  std::vector<std::string> damaged;
  std::vector<std::pair<Rank, std::string>> members;  // rank -> node
  std::vector<QuarantinedNode> quarantined;
};
// To the node's agent. Acknowledged by WorkersStarted or ActionFailed.
struct StartWorkers {
  JobId job;
  std::string node;
  Generation generation;
  std::vector<Rank> ranks;
  std::string checkpoint;
  uint64_t start_step = 0;
};
// To the node's agent: end every worker of a generation <= `generation`. Acknowledged by
// WorkersStopped, ActionFailed, or made moot by NodeLost.
struct StopWorkers {
  JobId job;
  std::string node;
  Generation generation;
  bool graceful = false;
};
// To the node's agent: the job has ended. Acknowledged by NodeEnded or made moot by NodeLost.
struct EndNode {
  JobId job;
  std::string node;
};

// The scheduler ends everything and starts the job again on other nodes. Precondition: the job was
// requeued expected_restart_count times so far; more often = done already. Acknowledged by
// JobRequeued or ActionFailed.
struct RequeueJob {
  JobId job;
  std::vector<std::string> exclude;
  int64_t expected_restart_count = 0;
  std::vector<QuarantinedNode> quarantined = {};  // for the job's next life
  int64_t attempt = 1;  // of as many requeues in a row that excluded the same nodes
};
// The operator of the cluster (HyperPod) puts another instance in the node's place. Precondition:
// the node is still that instance, and nobody has asked yet. Acknowledged by
// NodeReplacementRequested or ActionFailed.
struct ReplaceNode {
  JobId job;
  std::string node;
  std::string instance_id;
  std::string reason;
  bool leaves = true;  // its ranks have gone elsewhere: the job lets go of it
};

using ActionBody = std::variant<LaunchNode, FindCheckpoint, RecordGeneration, StartWorkers,
                                StopWorkers, EndNode, RequeueJob, ReplaceNode>;

struct Action {
  ActionId id;
  std::string reason;  // why it was decided; `hpctl why` prints it
  ActionBody body;
};

// ---- events -------------------------------------------------------------------------------------

struct JobSubmitted {
  JobSpec spec;
  uint32_t uid = 0;
  std::string submit_key;
  JobId job = {};  // of the Slurm job; 0 = the next local number
  // spec.all_nodes() names, those that train first; empty = local names.
  std::vector<std::string> nodes = {};
  Backend backend = {};
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
  std::vector<QuarantinedNode> quarantined;
  int64_t restarts = 0;
  std::vector<int64_t> restart_ages_ms;  // of the restarts in the lineage, oldest first
  int64_t restarts_without_progress = 0;
  uint64_t furthest_step = 0;
  // Without whom the requeue was to go on, and how many requeues in a row asked for that. The
  // scheduler may not have listened.
  std::vector<std::string> excluded;
  int64_t exclusion_attempt = 0;
};
struct CancelRequested {
  JobId job;
  uint32_t uid = 0;
  std::string reason = {};  // "" = a person asked
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
  bool taken = false;     // the scheduler took the node from the job: Node::taken
  bool given_up = false;  // because it did not respond; not: an operator wanted it
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
};
struct GenerationRecorded {
  ActionId action;
  JobId job;
  Generation generation;
};
// Another controller created this generation with other content.
struct GenerationTaken {
  ActionId action;
  JobId job;
  Generation generation;
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
};
// First completed step of a generation, seen by the progress table; repeated with a later step
// when that is worth recording (before NodeLost and HangDetected, say).
struct GenerationProgressed {
  JobId job;
  Generation generation;
  uint64_t step = 0;
};
struct CheckpointCommitted {
  JobId job;
  Generation generation;
  uint64_t step = 0;
};
// No step completed for the hang timeout; the progress table names the suspect and the evidence.
struct HangDetected {
  JobId job;
  Generation generation;
  std::string node;
  Rank rank;
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
};
// The scheduler accepted to requeue the job; its end follows.
struct JobRequeued {
  ActionId action;
  JobId job;
};
// Whether by us, as asked for, or (no action) seen at a node that is known to be broken.
struct NodeReplacementRequested {
  ActionId action;
  JobId job;
  std::string node;
  std::string what;  // in words of the scheduler
};
// A word of the scheduler for the history: a pending reason, a change of the allocation.
struct SchedulerObserved {
  JobId job;
  std::string node;  // "" = none
  std::string what;
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
  int64_t for_ms = 0;  // 0 = until released
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
};
// A step was not applied, and the job's stability policy acted. Told in the history under the name
// of what was found: NonFiniteFound, LossSpiked or GradientSpiked.
struct UnfitStepFound {
  JobId job;
  std::string node;  // that reports it
  Generation generation;
  uint64_t number = 0;  // 1, 2, ... within the generation
  uint64_t step = 0;
  uint64_t resumed_step = 0;
  uint64_t samples = 0;
  UnfitFinding finding = UnfitFinding::kNotFinite;
  UnfitVerdict verdict = UnfitVerdict::kNotRepeated;
  UnfitOutcome outcome = UnfitOutcome::kStopped;
  int32_t blamed_rank = -1;
  std::string reason;
  uint64_t missed = 0;  // so many before it were not seen
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
                 QuarantineRequested, ReleaseRequested, HardwareFaultFound, UnfitStepFound>;

struct Event {
  Seq seq;              // assigned by the shell: State::last_seq + 1
  int64_t now_ms = 0;   // persisted base + monotonic; never falls
  int64_t wall_ms = 0;  // label
  EventBody body;
};

// ---- log entries: what `hpctl events` and `hpctl why` show --------------------------------------

// One line of the history, produced by the core for each event and each action.
struct LogEntry {
  Seq seq;
  std::string type;  // "WorkerExited", "StartWorkers", "Refused", ...
  JobId job;
  Generation generation;
  std::string node;
  int32_t rank = -1;
  std::string cause;  // one line for people
  Seq because;        // the event that led here; 0 = outside
};

}  // namespace hpctl::core
