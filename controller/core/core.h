// SPDX-License-Identifier: Apache-2.0
// Every decision of the controller, as one pure function.
//
//   Step(state, event) -> {dirty keys, actions, log entries}
//
// Total: any event in any state is handled; what does not fit is refused with a reason in the log.
// No I/O, clock, randomness, threads, locks or environment in this directory; the layout check
// enforces it. Time is Event::now_ms. Timers are rows (deadline_ms); next_deadline() tells the
// shell when to send a Tick. The shell commits {event, dirty rows, outbox changes, log entries} in
// one transaction and performs the actions only afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "controller/core/events.h"
#include "controller/core/types.h"

namespace hpctl::core {

enum class ActionKind : uint8_t {
  kLaunchNode,
  kFindCheckpoint,
  kRecordGeneration,
  kStartWorkers,
  kStopWorkers,
  kEndNode,
  kRequeueJob,
  kReplaceNode,
  kPruneCheckpoints,
  kMirrorCheckpoint,
  kConfirmDamage,
};

// Look-ups derived from the rows, so that a Step never scans tables; not stored. After loading rows
// from a store call rebuild_index() once.
struct Index {
  // (deadline, job, node); node "" = the job's own
  std::set<std::tuple<int64_t, JobId, std::string>> deadlines;
  std::map<std::pair<uint32_t, std::string>, JobId> submit_keys;
  std::map<std::string, JobId> live_names;            // of jobs that have not ended
  std::map<std::string, JobId> live_checkpoint_dirs;  // likewise
  std::map<std::tuple<JobId, ActionKind, std::string>, ActionId> open;  // the outbox by target
  std::set<NodeKey> not_up;  // nodes in another state than kUp
  std::set<NodeKey> lost;    // those of them for which is_lost() holds
  std::set<NodeKey> idle;    // nodes that are up and have no ranks
  std::set<NodeKey> quarantined;
  std::set<NodeKey> unwanted;  // the scheduler would not use them: Node::scheduler_note
  std::map<NodeKey, std::vector<Rank>> ranks;  // bound to the node, ascending
  std::set<SlotKey> unfinished;                // slots with a node that have not exited with 0
  std::set<SlotKey> unaccounted;               // slots with a node of which that is said
  bool operator==(const Index&) const = default;
};

struct State {
  Seq last_seq;
  int64_t now_ms = 0;  // of the last event
  JobId last_local_job;
  std::map<JobId, Job> jobs;
  std::map<NodeKey, Node> nodes;
  std::map<SlotKey, Slot> slots;
  std::map<ActionId, Action> outbox;  // issued and not yet acknowledged
  Index index;
};

// Derives state.index from the rows. The first event after loading rows is ControllerResumed; a
// Tick before it would fire deadlines that passed while no controller ran.
void rebuild_index(State& state);

// Rows that belong to no job are taken out of `state`, before its index is made; returns what they
// were, in words.
std::vector<std::string> drop_strays(State& state);
// The damage of a job's stored rows that would break the rules; "" = none. ControllerResumed ends
// such a job as FAILED: rows come from a file, which may be damaged.
std::string find_damage(const State& state, const Job& job);

// The shell has one more duty towards the core. After a commit it refuses and closes a stream whose
// boot id is among Node::former_boot_ids of a changed row. (The core gave that session up, for
// instance because it did not stop its workers in time.) The agent then ends its workers and
// itself.

// The rows that a Step changed; a key that is no longer in its table was deleted. `meta` stands for
// last_seq, now_ms and last_local_job.
struct Dirty {
  bool meta = false;
  std::set<JobId> jobs;
  std::set<NodeKey> nodes;
  std::set<SlotKey> slots;
  std::set<ActionId> outbox;
};

// Collects the changes of several Steps for one transaction.
void merge(Dirty& into, const Dirty& from);

struct StepResult {
  Dirty dirty;
  std::vector<Action> actions;  // new in the outbox; perform after commit
  // First the event's own entry, then decisions; none for Tick and for a commit already known.
  std::vector<LogEntry> log;
  // JobSubmitted: the job created, or the existing one of the same submit_key. Empty = refused.
  std::optional<JobId> submitted;
  // Why the event was refused; "" = accepted. JobSubmitted, CancelRequested: the answer to the
  // client. AgentRegistered: no job here owns the agent, and it must end its workers and itself.
  // Others: a stale or repeated report; it changed nothing and is acknowledged all the same.
  std::string refusal;
};

// Precondition: event.seq == state.last_seq + 1 and event.now_ms >= state.now_ms.
StepResult step(State& state, const Event& event);

// The earliest time at which a Tick is due; nullopt = none.
std::optional<int64_t> next_deadline(const State& state);
// Events for jobs that a Tick now would misjudge: jobs whose nodes are about to be lost because
// their agents have not reached this controller. If their training visibly goes on, this event
// comes before the Tick.
std::vector<TrainingSeen> doubts(const State& state, int64_t now_ms);

inline constexpr size_t kRecentFaults = 8;
inline constexpr size_t kFormerBootIds = 16;

// Local node names of a job: "n0", "n1", ...
std::string local_node_name(int32_t index);
// The number of the next job that brings none.
JobId next_local_id(const State& state);
// The value of State::last_seq before the first event of controller `epoch` (1, 2, ...) of one job,
// when it begins without rows: the names of its actions must not repeat the names of its
// predecessors' actions, which agents remember.
inline constexpr Seq seq_before_epoch(uint64_t epoch) { return Seq{(epoch - 1) << 32U}; }
NodeRole role_of(const State& state, const Node& node);
// True while no worker of a new generation can have been started: a further fault belongs to the
// recovery in progress, and steps of the generation before do not count.
bool is_preparing(const Job& job);
// No plan is under way.
bool is_training(const Job& job);
// The stragglers of the generation that trains.
std::vector<Straggler> present_stragglers(const Job& job);
// Quarantine::by where a node was left because it is slow, and of how many at once.
inline constexpr const char* kByStraggling = "hpctl, for slowness";
inline constexpr int kMostEvictions = 3;
// How long a node may take for the order.
int64_t reading_limit_ms(const Job& job, const ConfirmDamage& order);
// It has an order to end workers, and some still live.
bool is_stopping(const State& state, const Node& node);
// Its agent was to come after the controller was started, here or elsewhere, and has not: its
// reason says more.
bool is_unheard(const Node& node);
// Takes the records off the end of the lineage (ascending) that the order calls withdrawn; returns
// what they were.
std::vector<WithdrawnRecord> drop_withdrawn(std::vector<GenerationRecord>& records,
                                            const FindCheckpoint& order);
// The lineage's part of an adoption; `records` ascending, as read_lineage() gives them.
void fill_from_lineage(JobAdopted& adoption, const std::vector<GenerationRecord>& records,
                       int64_t wall_ms);

// Bounds that no job changes (those it may are Job::limits), in ms; docs/architecture.md repeats
// them.
inline constexpr int64_t kAfterGraceMs = 5'000;  // cancelled: after the grace, CANCELLED
inline constexpr int64_t kSuspendedMs = 60'000;  // a deadline of a suspended job is put off by that
inline constexpr int64_t kSlowStopMs = 5'000;    // then it is told, and a spare takes over
inline constexpr int64_t kLastRanksTimeoutMs = 1'800'000;  // of a command: others done -> all done
inline constexpr int64_t kReportTimeoutMs = 2'000;         // at least: report_limit_ms()
inline constexpr int64_t kMostReportMs = 10'000;           // and at most
inline constexpr int64_t kLastingGenerationMs = 60'000;    // of a command: counts as progress
inline constexpr int64_t kLastingLifeMs = 600'000;  // of a spare: its launch attempts count anew
inline constexpr int64_t kEndLaunchingTimeoutMs = 5'000;  // of one that has not come up yet
inline constexpr int64_t kMaxLaunchAttempts = 8;          // of a node within one restart
inline constexpr int64_t kLaunchesBeforePolicy = 3;       // before shrink or requeue, if possible
inline constexpr int64_t kExclusionAttempts = 2;       // requeues in a row without the same nodes
inline constexpr int64_t kRequeueTimeoutMs = 120'000;  // RequeueJob -> the end of this life
inline constexpr int64_t kWaitAgainMs = 300'000;       // quarantined and waited for: look again
// Of damage; then the job leaves the node, and does not ask it to read.
inline constexpr int64_t kMaxFalseClaims = 2;
inline constexpr size_t kMostReaders = 2;        // nodes asked before the controller reads
inline constexpr int64_t kQuarantineFaults = 3;  // in a row on one instance, within
inline constexpr int64_t kQuarantineWindowMs = 3'600'000;
inline constexpr int64_t kQuarantineForMs = 86'400'000;    // after that it may try again
inline constexpr int64_t kDepartedForMs = 300'000;         // a signal told the node to end
inline constexpr int64_t kRebootWindowMs = 86'400'000;     // broken again after a reboot: replaced
inline constexpr int64_t kBackoffBaseMs = 500;             // doubles with each restart that brought
inline constexpr int64_t kBackoffMaxMs = 30'000;           // no progress
inline constexpr int64_t kMaxRestartsWithoutProgress = 3;  // then FAILED with a diagnosis
// A command that exits so many times in a row without progress and says the same is FAILED.
inline constexpr size_t kAlikeExits = 3;
inline constexpr int64_t kFruitlessInSameProcesses = 2;  // from memory; then in others
inline constexpr int64_t kMaxFruitlessFromMemory = 3;    // then from a checkpoint

}  // namespace hpctl::core
