// SPDX-License-Identifier: Apache-2.0
// Rows and actions of the controller core, and the lines of its history: plain data, ordered
// containers, no I/O.
//
// State is rows keyed (table, key), so that the work of one step and of one transaction is
// proportional to what changed. An Action is something the shell must bring about (imperative), a
// desired state whose repetition is harmless. Actions live in the outbox table until the event
// (events.h) that acknowledges them arrives; a restarted controller loads the rows and re-issues
// what is left in the outbox.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/job/file_fault.h"
#include "common/job/ids.h"
#include "common/job/job_spec.h"
#include "common/job/lineage.h"
#include "common/job/time_spent.h"
#include "common/worker/seal.h"

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
  kTimeout,  // the scheduler's time limit
};
const char* to_string(JobState state);  // "PENDING", ...
constexpr bool has_ended(JobState s) {
  return s == JobState::kFinished || s == JobState::kFailed || s == JobState::kCancelled ||
         s == JobState::kTimeout;
}

// The stage of the preparation of the next generation. Each stage waits for named things only, and
// has a separate deadline.
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

// The activity during a loss (lost_time.h), once the fault is known.
enum class LossPart { kDecide, kWait, kRestart, kRepeat };

// What is decided of a job's end before it ends.
struct Ending {
  JobState state = JobState::kFailed;
  std::string reason;         // why, once its last generation has saved; "" = it does not end
  bool awaits_cause = false;  // only a consequence is known, and no restart is left for its cause
  bool requeues = false;      // it goes back to the queue then: the time limit has come
  int64_t by_ms = 0;          // when it goes back at the latest, saved or not
  Seq seq;                    // event that showed why
};

// Why a recovery began; the newest few are kept for the diagnosis of a job that fails.
struct Fault {
  std::string cause;      // one line
  std::string node;       // blamed; "" = none
  int32_t rank = -1;      // blamed; -1 = none
  uint64_t step = 0;      // furthest step known when it happened
  Seq seq;                // event that showed it
  bool in_order = false;  // somebody's order, nobody's fault: the workers may save what they have
  bool hang = false;      // ranks stand still: their stacks are written before they are ended
  bool damage = false;    // a checkpoint, or what was in memory, could not be used
  bool start = false;     // the node could not start its workers
  // The program ended by itself, with an exit code other than 0, and said this: its exception, or
  // its last line.
  bool exited = false;
  std::string words = {};
  bool unreachable = false;  // a node was lost because its machine did not answer
  int64_t wall_ms = 0;       // when it was seen
};

// A worker could not use a checkpoint. That is one reader's word: another node, or else the
// controller, reads the file again before anything is concluded (second_reader.cc).
struct DamageClaim {
  std::string checkpoint;  // step-N.gG, or an absolute path; "" = there is no claim
  std::string node;        // whose worker it was
  std::string what;        // the worker's words, for people
  FileFault part;          // without a file: an older worker, whose words name it
  // Nodes that were asked to read it again and gave no verdict.
  std::vector<std::string> asked = {};
};

// The abilities of a job's scheduler besides starting agents, and the durations there.
struct Backend {
  bool requeues = false;           // RequeueJob
  bool replaces = false;           // ReplaceNode
  int64_t restart_count = 0;       // how often the job was requeued so far
  Limits limits = local_limits();  // where the job says nothing else
};

// The effects of the job's bad steps (common/job/bad_step.h), as far as this controller received
// them; if a fault makes a decision necessary again, it counts again.
struct BadStepRecord {
  Generation generation;    // of the newest
  uint64_t number = 0;      // of the newest
  Seq stopped_seq;          // event of the one that ended the workers of `generation`; 0 = none did
  int32_t stopped_by = -1;  // rank that is to blame for that; -1 = none is, or it is not known
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

// A node whose ranks, or one of them, take longer for their part of a step than the others
// (straggler.h).
struct Straggler {
  std::string node;
  int32_t rank = -1;     // -1 = all that it has, or several
  double slowdown = 0;   // times the others' time
  std::string evidence;  // for people
  Generation generation;
};

// A node reads the newest checkpoint before older ones are deleted (verification.cc).
struct Verification {
  // The checkpoint, of the mirror an absolute path; "" = none is to be verified. Its node: the
  // first that found damage.
  DamageClaim claim;
  std::string verified_by = {};  // the node that found it sound; "" = none has
  bool for_room = false;         // of the deletion that waits for it
};

// The deletion of older checkpoints (prune.cc).
struct Pruning {
  bool due = false;         // a checkpoint was committed, or room is needed, since the last order
  bool for_room = false;    // of that order: a save found the disk full
  int64_t recorded_ms = 0;  // when the newest generation was recorded; 0 = not known
  int64_t verified_wall_ms = 0;  // when a checkpoint was last read again and found sound; 0 = never
  Verification verification = {};
};

// Training went back to `step`: saves of `generation` after it are undone.
struct UndoneSteps {
  Generation generation;  // 0 = nothing is undone
  uint64_t step = 0;
  bool operator==(const UndoneSteps&) const = default;
};

// An order to record a generation that was withdrawn, or failed (withdrawn_records.h).
struct WithdrawnRecord {
  Generation generation;
  std::string order;      // GenerationRecord
  bool is_there = false;  // a search has met the record
  bool operator==(const WithdrawnRecord& other) const {
    return generation == other.generation && order == other.order;
  }
};

// The newest order of a job with a mirror to record a generation. A place may have the record
// although its answer is lost.
struct OrderedRecord {
  Generation generation;  // 0 = there was no order
  bool in_mirror = false;
};

// The second place for checkpoints, as far as the core knows it (mirror.cc).
struct Mirror {
  bool due = false;             // a checkpoint or a generation record is to be copied
  uint64_t step = 0;            // of its newest verified checkpoint; 0 = none is known
  UndoneSteps undone;           // that the mirror may still have
  OrderedRecord ordered;        // in either place
  std::string problem;          // of the newest order; "" = it was carried out
  int64_t behind_since_ms = 0;  // a copy has been due since then; 0 = none is
  // Before older copies go. Where the mirror has no whole copy: of a checkpoint of the first place.
  Verification verification = {};
};

struct Job {
  JobId id;
  JobSpec spec;
  uint32_t owner_uid = 0;
  std::string submit_key;
  Backend backend;
  Limits limits = local_limits();  // those of the spec, completed
  int32_t active_nodes = 0;        // that train after losses; 0 = spec.nodes
  JobState state = JobState::kPending;
  std::string reason;     // of the present state; one line
  Generation generation;  // newest recorded generation; 0 = none
  // Newest generation found in the checkpoint directory; with a mirror, or ordered to be recorded
  // in the other place.
  Generation directory_generation;
  PlanStage stage = PlanStage::kNone;
  LossPart loss_part = LossPart::kDecide;  // while a loss lasts
  std::string checkpoint;  // step-N.gG the newest generation resumes from; "" = seed or memory
  // The generation in whose workers' memory the newest one goes on; 0 = it does not.
  Generation memory_of;
  std::vector<Rank>
      refilled;              // then: ranks without their part of it, ascending; who has it sends it
  int32_t former_parts = 0;  // then: Workload's
  uint64_t start_step = 0;
  uint64_t furthest_step = 0;     // highest step any worker is known to have completed
  uint64_t committed_step = 0;    // newest checkpoint known committed
  std::set<std::string> damaged;  // checkpoints not to be used again
  // Durable restart budget: monotonic times (State::now base) of the restarts still in the window.
  std::vector<int64_t> restart_times_ms;
  int64_t restarts = 0;              // all restarts, ever
  uint64_t progress_at_restart = 0;  // furthest_step when the last recovery began
  uint64_t start_at_restart = 0;     // start_step then
  int64_t restarts_without_progress = 0;
  std::string fault;                 // cause of the recovery in progress; "" = none
  bool fault_is_collateral = false;  // only kExitPeerLost seen so far; the cause may still arrive
  Seq fault_seq;                     // event that began the recovery
  std::vector<Fault> recent_faults;  // oldest first, at most kRecentFaults
  Seq plan_seq;                      // event that began the present stage or state
  int64_t not_before_ms = 0;         // back-off: the next generation is not prepared earlier
  int64_t storage_since_ms = 0;      // since when storage is waited for; 0 = it is not
  int64_t suspended_since_ms = 0;    // the scheduler has stopped all its processes; 0 = not
  std::string requeue_refusal;       // why the scheduler did not requeue; "" = not refused
  std::string scheduler_note;        // newest SchedulerObserved
  bool removed = false;              // ended and hidden; not stored, as its rows are deleted
  bool cancel_requested = false;     // stopping the workers, then CANCELLED
  std::string cancel_reason;         // "" = a person asked
  bool saves_first = false;          // the workers that are being stopped save the step under way
  bool at_limit = false;             // the time limit ends this life: in the queue, or for good
  bool without_memory = false;       // memory_of has failed: the next one starts from a checkpoint
  bool in_host_memory = false;       // a worker that ended has left its state to its node
  Ending ending;                     // what is decided of its end
  int64_t stage_since_ms = 0;        // when the present stage began
  int64_t deadline_ms = 0;           // of the present stage; 0 = none
  int64_t submitted_wall_ms = 0;     // labels
  int64_t ended_wall_ms = 0;
  int64_t running_since_ms = 0;  // when it last became RUNNING; 0 = never
  // The time that faults cost (lost_time.h).
  int64_t recovering_since_ms = 0;  // 0 = nothing is to be made good
  uint64_t regain_step = 0;         // that makes it good
  int64_t stepped_ms = 0;           // when the newest step was completed; 0 = not known
  int64_t lost_ms = 0;              // without what is not made good yet
  TimeSpent spent;                  // likewise
  int64_t part_since_ms = 0;        // since when `loss_part` lasts
  StepWaits told_waits;             // of the present generation, as far as they were told
  BadStepRecord bad_step;
  std::vector<Straggler> stragglers;  // in the order of nodes; of an older generation = over
  Pruning pruning;
  // Of storage that failed, for the metrics.
  int64_t storage_waited_ms = 0;         // in all, without the present wait
  int64_t storage_errors_directory = 0;  // attempts at a generation that ended for the directory
  int64_t storage_errors_worker = 0;     // likewise, for a worker that could not read
  DamageClaim claim;                     // until a second reader has answered
  // Exits of workers that could not read, by the name of the reported errno: errors of a broken
  // file system, "other", and "unknown" if none was reported.
  std::map<std::string, int64_t> storage_exits;
  Mirror mirror;
  std::vector<WithdrawnRecord> withdrawn;  // since the newest generation was recorded, oldest first

  int32_t nodes() const { return active_nodes == 0 ? spec.nodes : active_nodes; }
  int32_t world_size() const { return nodes() * spec.workers_per_node; }
};

// It trains, and has checkpoint.mirror.
bool has_mirror(const Job& job);
// The state for users: "STOPPING" while a job that is to end waits for its workers to end. A job
// that goes back to the queue is RECOVERING: it goes on.
const char* shown_state(const Job& job);
// The workers end, and do not stay for the next generation: what they share across generations may
// be what fails. Their memory stays with their nodes.
bool wants_new_processes(const Job& job);
// From SIGTERM to SIGKILL of workers that save and leave. If the job leaves it open, the time limit
// gives them the time that is really left: what slurm.signal leaves, without the end of the nodes.
int64_t last_checkpoint_ms(const Job& job);
// With what is not made good yet.
int64_t lost_ms(const Job& job, int64_t now_ms);
// Likewise; `waits`: of the present generation, as far as they are known.
TimeSpent time_spent(const Job& job, int64_t now_ms, const StepWaits& waits = {});
// The built-in trainer, or a command that has told one, also before a requeue.
bool shows_steps(const Job& job);

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
  bool hardware = false;  // a verdict on the hardware: worth a replacement, or a reboot
  int64_t since_wall_ms = 0;
  int64_t until_wall_ms = 0;  // 0 = until released
  bool reboot = false;        // of hardware: the same machine is to be rebooted
  bool for_hangs = false;     // its workers hung several times in a row
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
  int64_t false_claims = 0;             // of damage that nobody else found; likewise
  std::string replaced_instance;        // instance id whose replacement or reboot was asked for
  int64_t rebooted_wall_ms = 0;         // when its newest reboot was asked for; 0 = never
  // Since when there is a request to replace or reboot the node; 0 = there is none.
  int64_t recovery_wall_ms = 0;
  // Something besides our patience says that the node is broken: it fell silent, its holder ended,
  // it could not be launched. Until it is up again.
  bool suspect = false;
  bool tells_ready = false;    // its agent says when it could take ranks at once,
  bool is_ready = false;       // and has said so since it has had none
  std::string scheduler_note;  // why the scheduler would not use it for another job; "" = it would
  bool lemon = false;          // earlier jobs speak against it: it gets ranks last
  bool confirms_damage = false;    // its agent knows ConfirmDamage
  bool beside_controller = false;  // the controller runs there
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
// Processes that a node in that role keeps ready while the job runs.
int32_t wanted_standbys(const Job& job, NodeRole role);

enum class SlotState { kPending, kRunning, kExited };
const char* to_string(SlotState state);
std::string signal_name(int32_t signal);  // "SIGKILL"; "signal 77" for those without a name here

// Slot::exit_code of a worker that ended with its node, without a report.
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
  // The seals of its arena, which outlives it, and the session of the node that holds this memory:
  // the rank may be bound elsewhere by now. Until a process fills it.
  ArenaSeals seals;
  std::string arena_boot_id;
};

// ---- actions ------------------------------------------------------------------------------------

// Bring up an agent for the node. Precondition observed by the scheduler: no holder holds the
// node's lock. Acknowledged by NodeLaunched or ActionFailed.
struct LaunchNode {
  JobId job;
  std::string node;
};
// The answer of checkpoint.dir, before the mirror is searched.
struct FirstPlace {
  bool away = false;  // it could not be read
  std::string checkpoint;
  uint64_t step = 0;
  Generation newest_generation;
  std::string lost = {};  // CheckpointChosen
};
// Read the lineage and choose a checkpoint. With a claim, first read again what was claimed to be
// damaged. Acknowledged by CheckpointChosen or ActionFailed.
struct FindCheckpoint {
  JobId job;
  std::vector<std::string> exclude;
  DamageClaim claim = {};
  Generation newest = {};   // of the job: the lineage must have it
  bool in_mirror = false;   // search checkpoint.mirror.dir; the answer is an absolute path
  FirstPlace first = {};    // then
  UndoneSteps undone = {};  // then: not to be chosen
  // Not to be counted at the end of the lineage; records of the job are told by this.
  std::vector<WithdrawnRecord> withdrawn = {};
  std::string job_uuid = {};
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
  Generation memory_of = {};  // Job
  std::vector<Rank> refilled = {};
  int32_t former_parts = 0;
  std::string committed = {};  // from memory: the newest checkpoint on disk; "" = there is none
  bool in_mirror = false;      // checkpoint.dir is away
  std::vector<Generation> withdrawn = {};  // GenerationRecord
};
// To the node's agent. Acknowledged by WorkersStarted or ActionFailed.
struct StartWorkers {
  JobId job;
  std::string node;
  Generation generation;
  std::vector<Rank> ranks;
  std::string checkpoint;
  uint64_t start_step = 0;
  Generation memory_of = {};  // Job
  std::vector<Rank> refilled = {};
  int32_t former_parts = 0;
  bool last = false;     // they train no step: they save what memory has, and end
  bool suspect = false;  // with `last`: apart from the other checkpoints
};
// To the node's agent: end every worker of a generation <= `generation`. Acknowledged by
// WorkersStopped, ActionFailed, or made moot by NodeLost.
struct StopWorkers {
  JobId job;
  std::string node;
  Generation generation;
  bool graceful = false;
  bool stacks = false;  // they hang: first their stacks are written into the job's directory
};
// To the node's agent: the job has ended. Acknowledged by NodeEnded or made moot by NodeLost.
struct EndNode {
  JobId job;
  std::string node;
  bool stacks = false;  // as StopWorkers
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
// The operator of the cluster (HyperPod) replaces the node's instance, or reboots it. Precondition:
// the node is still that instance, has not booted since `since_wall_ms`, and there is no request
// yet. Acknowledged by NodeReplacementRequested or ActionFailed.
struct ReplaceNode {
  JobId job;
  std::string node;
  std::string instance_id;
  std::string reason;
  bool leaves = true;  // its ranks have gone elsewhere: the job lets go of it
  bool reboot = false;
  int64_t since_wall_ms = 0;  // of the verdict
};

// Delete older checkpoints of the job's chain, after the newest one has been verified.
// Precondition: `generation` is the newest in the directory; otherwise nothing happens.
// Acknowledged by CheckpointsPruned or ActionFailed.
struct PruneCheckpoints {
  JobId job;
  Generation generation;
  bool for_room = false;    // if checkpoint.keep leaves nothing to delete: the oldest of the rest
  bool unfinished = false;  // saves of older generations that have no manifest go, too
  // If something is to be deleted, only name the checkpoint that a node is to verify first.
  bool asks = false;
  // The checkpoint that the node `verified_by` found sound: what is older goes. "" = the controller
  // verifies the newest one.
  std::string verified = {};
  std::string verified_by = {};
};

// Bring checkpoint.mirror.dir up to date: generation records, then the newest valid checkpoint.
// Precondition: `generation` is the newest on record; otherwise nothing happens.
// Acknowledged by CheckpointMirrored or ActionFailed.
struct MirrorCheckpoint {
  JobId job;
  Generation generation;
  std::vector<std::string> damaged = {};  // not to be copied
  UndoneSteps undone = {};                // they go
  // As PruneCheckpoints has them, for copies; `verified` is an absolute path. With `asks` nothing
  // is deleted but what is older than `verified`.
  bool for_room = false;
  bool asks = false;
  std::string verified = {};
  std::string verified_by = {};
};

// To the node's agent: read again, past the page cache, what a worker of another node claims to be
// damaged, or the newest checkpoint before older ones are deleted. Acknowledged by DamageAnswered,
// ActionFailed, or made moot by NodeLost.
struct ConfirmDamage {
  JobId job;
  std::string node;
  DamageClaim claim = {};
  // Of the job. Where the directory lacks its record, the directory as a whole is away.
  Generation newest = {};
  bool before_delete =
      false;  // no worker complained: checkpoint.verify_before_delete says how much
};

using ActionBody =
    std::variant<LaunchNode, FindCheckpoint, RecordGeneration, StartWorkers, StopWorkers, EndNode,
                 RequeueJob, ReplaceNode, PruneCheckpoints, MirrorCheckpoint, ConfirmDamage>;

struct Action {
  ActionId id;
  std::string reason;  // why it was decided; `hpctl why` prints it
  ActionBody body;
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
  uint64_t step = 0;  // that was reached, or from which a generation starts; 0 = not told
};

}  // namespace hpctl::core
