// SPDX-License-Identifier: Apache-2.0
// The ladder that prepares a generation (PlanStage), and the ways a job leaves it.
//
//   first generation:           kWaitNodes → kFindCheckpoint → kRecordGeneration → kStartWorkers
//   recovery:    kStopWorkers → kWaitNodes → …
//   a node lost, or the directory unusable:  kFindCheckpoint, kRecordGeneration → kWaitNodes
//   number taken by another:    kRecordGeneration → kFindCheckpoint
//   a fault after the record:   recovery again
//   an end that saves first:    kStopWorkers → kFindCheckpoint → kRecordGeneration → kStartWorkers
//
// This file has the moves of reconcile() and their parts. A move completes the rows of one stage
// and issues its actions; the table decides whether another follows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/job/duration_text.h"
#include "controller/core/transition.h"

namespace hpctl::core {

// ---- stages (plan.cc) ---------------------------------------------------------------------------

void enter_stage(Transition& t, Job& job, PlanStage stage);
void enter_stop_workers(Transition& t, Job& job);
void enter_wait_nodes(Transition& t, Job& job);
void enter_find_checkpoint(Transition& t, Job& job, const std::string& reason);
void enter_record_generation(Transition& t, Job& job, const Facts::Origin& origin);
void start_generation(Transition& t, Job& job);
// The number of parts of the state of a job that trains; replicas have the same one
// (Mesh::part() in common/layout/mesh.h). If each rank has a different part, copies may be at
// peers (common/job/snapshot_peers.h).
int32_t parts_of_state(const Job& job);
// The newest state that is whole in what the newest generation's ranks left in memory, where the
// ranks of the coming one are.
std::optional<Facts::Origin> find_in_memory(Transition& t, const Job& job);
// For a generation that starts from memory, before its workers start: by rank, the seals of its
// place's arena. Empty if it does not.
std::vector<ArenaSeals> find_arenas_left(Transition& t, const Job& job);
// Brings up a node that is down, unless the job or the node is backing off.
void launch(Transition& t, Job& job, Node& node, const std::string& reason);
// The generation has completed a step (train) or all its workers are up (command).
void enter_running(Transition& t, Job& job, const std::string& reason);
// How long the present stage may take, as a deadline; 0 = it has none.
int64_t stage_deadline(const Job& job, int64_t now_ms);
// For a running command with some ranks that exited with 0: the deadline for the others; 0 = it has
// no such limit. Nothing else shows that a rank of a command hangs.
int64_t last_ranks_deadline(const Transition& t, const Job& job);
int64_t last_ranks_limit_ms(const Job& job);
// The ranks that have not exited with 0, in order.
std::vector<Rank> unfinished_ranks(const Transition& t, const Job& job);
// The limit for workers before the next generation.
int64_t stop_limit_ms(const Job& job);
// From an agent's word that a worker is gone to the report of its exit: the agent may be busy.
int64_t report_limit_ms(const Job& job);
// Nodes with ranks whose action of this kind is open.
std::vector<std::string> unanswered(Transition& t, const Job& job, ActionKind kind,
                                    size_t most = SIZE_MAX);
// "n1, n3, ...": at most a few names.
std::string join_some(const std::vector<std::string>& names);

// A worker says that it has completed the step; one past the end of the job is not believed.
void learn_step(Job& job, uint64_t step);

// The workers that are being stopped save the step under way, and no others follow here.
bool saves_and_leaves(const Job& job);

// ---- which node has which ranks (membership.cc) -------------------------------------------------

// Nodes with ranks that are not up, or quarantined: the next generation cannot start with them.
std::vector<Node*> nodes_missing(Transition& t, const Job& job, size_t most = SIZE_MAX);
// A spare is up, and recovery.on_node_loss lets it take over.
bool has_spare(Transition& t, const Job& job);
// One that the scheduler does not drain.
bool has_lasting_spare(Transition& t, const Job& job);
// Spares that are up take the ranks of nodes whose workers take long to die.
void relieve(Transition& t, Job& job, const std::vector<std::string>& slow);
// While a generation is prepared: spares that are up take the ranks of lost and quarantined nodes.
bool can_promote(Transition& t, const Job& job);
void promote_spares(Transition& t, Job& job);
// A shrunk job takes back nodes without ranks.
void grow(Transition& t, Job& job);
// A shrunk job trains, and could do so on more nodes: it interrupts itself at a step boundary for
// that, which is no restart.
bool can_grow(Transition& t, const Job& job);
void grow_at_boundary(Transition& t, Job& job);
// How often a lost node is launched before the next reaction.
int64_t launch_patience(Transition& t, const Job& job);
// The node did not come back: recovery.on_node_loss, or another restart of the job.
void give_up_node(Transition& t, Job& job, Node& node, const Fault& fault);
// Nodes with ranks that are quarantined, or taken from the job, and no spare is left: the same.
void vacate_quarantined(Transition& t, Job& job);
// The scheduler took a node without ranks from the job.
void tell_spares_left(Transition& t, const Job& job, const Node& taken);
// Could the job go on without that node?
bool can_vacate(Transition& t, const Job& job, const Node& node);
// Why an order to leave the node is refused if it `asks_first`: the job would be requeued. "" =
// not.
std::string unasked_requeue(Transition& t, const Job& job, const Node& node, bool asks_first);
// The consequence of leaving the node: "the job is requeued ...".
std::string consequence_of_leaving(Transition& t, const Job& job, const Node& node);
// After a requeue that was to exclude nodes: where the job has some of them nevertheless and needs
// them, it is requeued once more. False = it goes on.
bool exclude_again(Transition& t, Job& job, const RequeueCarryover& former);
void refuse_requeue(Transition& t, Job& job, const std::string& reason);
// The job is to go on after its time limit: its workers save and end, then it is requeued.
void save_for_requeue(Transition& t, Job& job, const std::string& reason);
void requeue_saved(Transition& t, Job& job);

// ---- adoption (adopt.cc) ------------------------------------------------------------------------

// While nodes of an adopted generation are met: what lives there.
void meet_workers(Transition& t, const Job& job, Node& node, const AgentRegistered& e);
// Every member is up, and what lives there is known.
bool members_are_met(Transition& t, const Job& job);
void end_meeting(Transition& t, Job& job);

// ---- quarantine (quarantine.cc) -----------------------------------------------------------------

void quarantine(Transition& t, const Job& job, Node& node, const Quarantine& why);
// The ranks of a node that was quarantined go elsewhere, in a new generation.
// `in_order`: it works as yet, so what was computed is saved before.
void vacate(Transition& t, Job& job, Node& node, const std::string& cause, bool in_order = false);
// Why `uid` may not order something about the job; "" = it may.
std::string order_conflict(const Job* job, JobId id, uint32_t uid);
// Why nothing can be ordered about the node. Not only the job's owner may: operators are let in by
// controller/access.
std::string order_conflict(const Job* job, const Node* node, JobId id, const std::string& name);
void expire_quarantines(Transition& t, const Job& job);
// Quarantine::by where the scheduler drains a node that works.
inline constexpr const char* kByScheduler = "the scheduler";
// A member that trains and that the scheduler drains, while a spare can take its ranks and the job
// can afford to move; nullptr = there is none.
Node* find_drained(Transition& t, const Job& job);
void leave_drained(Transition& t, Job& job);
// The scheduler would use it again.
void end_drain(Transition& t, Job& job, Node& node);
// A worker on a node is to blame; too often in a row, and the node is quarantined.
void count_fault(Transition& t, Job& job, const Fault& fault);
// A node's own report that it cannot have ranks.
struct Unfitness {
  std::string reason;
  bool hardware = false;  // a verdict on the hardware
  bool reboot = false;    // which may mend it
};
// It is quarantined, and its ranks, if it has any, go elsewhere.
void condemn(Transition& t, Job& job, Node& node, const Unfitness& unfit);
// A successor, and the job's next life, must know them.
std::vector<QuarantinedNode> quarantined_nodes(Transition& t, const Job& job);

// ---- slow nodes (slow_nodes.cc) -----------------------------------------------------------------

// A member that holds the others up, while recovery.straggler evicts, a spare can take its ranks,
// and the job can afford to move; nullptr = there is none.
Node* find_straggler(Transition& t, const Job& job);
void leave_straggler(Transition& t, Job& job);

// ---- broken nodes (hardware.cc) -----------------------------------------------------------------

// A row that begins: what was known of the node before a requeue, or by another controller.
void remember_node(Node& row, const std::vector<QuarantinedNode>& known);
// The node registered as this instance; another one than before has no history.
void change_instance(Transition& t, const Job& job, Node& node, const std::string& instance_id);
// A recent reboot was requested: it is the same instance, and needs more than another reboot.
bool was_rebooted(const Transition& t, const Node& node);
// Completes a verdict on the hardware: a reboot, where that may help, first.
void choose_remedy(const Transition& t, const Node& node, bool reboot, Quarantine& why);
// The scheduler got no answer of the node for so long that this is a verdict on the machine.
void give_up_hardware(Transition& t, Job& job, Node& node, const std::string& evidence);
// Asks for a reboot or another instance, once, when the hardware is broken and the work has left:
// `leaves` when its ranks are to have other nodes, else its workers have ended and the ranks stay.
void recover_hardware(Transition& t, Job& job, Node& node, bool leaves);
// The node is the same instance as before and can be used again, as requested (a reboot).
void give_back(Transition& t, const Job& job, Node& node);

// ---- the mirror (mirror.cc) ---------------------------------------------------------------------

// A checkpoint was committed, or a generation recorded.
void want_mirror_of_checkpoint(Transition& t, Job& job);
void want_mirror_of_record(Transition& t, Job& job);
// Training went back to this step.
void undo_in_mirror(Transition& t, Job& job, uint64_t step);
bool can_mirror(Transition& t, const Job& job);
void order_mirror(Transition& t, Job& job);
void mirror_failed(Transition& t, Job& job, const std::string& cause);
// A recovery needs the storage: the copy is ordered again when the job trains.
void withdraw_mirror(Transition& t, Job& job);
// The first place has lost a checkpoint that was committed: the mirror may have it.
bool may_be_in_mirror(const Job& job, const Facts::Origin& origin);
// The first place could not be searched for checkpoint.mirror.after.
bool may_replace_first_place(Transition& t, const Job& job);
// The mirror could not be searched after this answer, and has never held a checkpoint of the job:
// nothing is lost without it.
bool can_do_without_mirror(const Job& job, const std::optional<FirstPlace>& first);
void use_first_place(Transition& t, Job& job, const FirstPlace& first, const std::string& cause);
void enter_find_in_mirror(Transition& t, Job& job, const FirstPlace& first,
                          const std::string& reason);

// ---- claims of damage (second_reader.cc) --------------------------------------------------------

// The node that reads next: another one than the claimer and those that were asked, and not the
// controller's if there is a choice. nullptr = the controller.
const Node* find_reader(Transition& t, const Job& job, const DamageClaim& claim);
// Before a search: has another node read again what a worker called damaged. False = there is no
// claim, or the controller is to read, with the search.
bool ask_second_reader(Transition& t, Job& job, const std::string& reason);
// The order of the node that was asked and has not answered; nullptr = there is none.
const ConfirmDamage* present_reading(const Transition& t, JobId job);
// It is lost or late; nothing happens where the node was not asked.
void pass_over_reader(Transition& t, Job& job, const std::string& node);
// It cannot read now, which proves nothing.
void reader_failed(Transition& t, Job& job, const ConfirmDamage& order, const std::string& why);
// `damage`: what the second reader found; "" = the checkpoint is sound.
void settle_claim(Transition& t, Job& job, const DamageClaim& claim, const std::string& reader,
                  const std::string& damage);
// The checkpoint is sound for `reader`: the fault is the claimer's own.
void count_false_claim(Transition& t, const Job& job, const DamageClaim& claim,
                       const std::string& reader);

// ---- older checkpoints (prune.cc) ---------------------------------------------------------------

// The job trains, a newer checkpoint was committed or room is needed, and no order is open.
bool can_prune(Transition& t, const Job& job);
// The next order of the deletion: to name the checkpoint to verify, to verify it, or to delete.
void order_prune(Transition& t, Job& job);
// The node has answered, or will not.
void verification_answered(Transition& t, Job& job, const ConfirmDamage& order,
                           DamageVerdict verdict, const std::string& what);
// While a node reads for a deletion; 0 = none does.
int64_t verification_deadline(const Transition& t, const Job& job);
// A generation is prepared, or steps are undone: what was to be verified may count no more.
void forget_verification(Transition& t, Job& job);
// The job has finished while a node was to verify: its nodes end, and the controller does it.
void finish_verification(Transition& t, Job& job);
// The order could not be carried out; the next commit gives another one.
void prune_failed(Transition& t, Job& job, const std::string& cause);

// ---- faults (recovery.cc) -----------------------------------------------------------------------

// A rule reports a fault; what becomes of it is judged afterwards.
void fault_seen(Transition& t, const Job& job, const Fault& fault, FaultKind kind);
void judge_fault(Transition& t, Job& job, const Fault& fault, FaultKind kind);
// A new generation is prepared although nothing is wrong: it counts as no restart, and the workers
// save first where their memory will not do for it.
void recover_in_order(Transition& t, Job& job, const std::string& reason);
// It has come further since the last recovery.
bool has_progressed(const Transition& t, const Job& job);
// A restart now would neither be the last nor follow another one without progress between.
bool can_afford_restart(const Transition& t, const Job& job);
// No cause of the consequence was reported while the workers stopped: the job ends with that one.
void end_without_cause(Transition& t, Job& job);
// The checkpoint directory could not be used: looks again after a back-off, for limits.storage;
// then the job has failed.
void retry_plan(Transition& t, Job& job, const std::string& cause);
// The evidence against a lost node.
enum class Evidence {
  kSlow,         // only that a limit has passed
  kBroken,       // it fell silent, ended, or could not be launched
  kUnreachable,  // it fell silent, and its machine does not answer
};
// The node's present life is over: its slots, actions and state say so.
void lose_node(Transition& t, Job& job, Node& node, const std::string& cause,
               Evidence evidence = Evidence::kBroken);
// This very event has shown a hang: of what is ended because of it, stacks are of use.
bool has_just_hung(const Transition& t, const Job& job);
void judge_loss(Transition& t, Job& job, const Facts::LostNode& lost);
void bring_back(Transition& t, Job& job, const Facts::LostNode& lost);

// ---- the last generation (last_generation.cc) ---------------------------------------------------

// It ends, and first the steps are saved that only its workers' memory has.
bool ends_for_good(const Job& job);
// A bad step has ended the generation whose memory the last one saves.
bool is_state_accused(const Job& job);
// Memory may have steps after the newest checkpoint, and nobody saves them yet.
bool may_save_memory(const Job& job);
// It ends so after a last generation. Precondition: may_save_memory().
void begin_ending(Transition& t, Job& job, JobState state, const std::string& reason);
// The time limit has come in a recovery: a last generation, then the queue. Likewise.
void save_memory_for_requeue(Transition& t, Job& job);
// Of a job whose workers were to save and end: that the step which memory has is in no checkpoint,
// and why. "" = nothing is lost, or memory cannot tell.
std::string describe_unsaved(Transition& t, const Job& job);
// FAILED, after a last generation where there is something to save.
void fail_for_good(Transition& t, Job& job, const std::string& reason);
// The end: the last generation has saved, or could not for `obstacle`.
void conclude_for_good(Transition& t, Job& job, const std::string& obstacle);
// Once the workers have stopped.
void find_last_state(Transition& t, Job& job);
// Every rank, in whatever way.
bool have_all_exited(Transition& t, const Job& job);

// ---- the end (jobs.cc) --------------------------------------------------------------------------

// The node is gone for good, and its workers with it.
void node_ended(Transition& t, Node& node, const std::string& reason);
void end_job(Transition& t, Job& job, JobState state, const std::string& reason);

}  // namespace hpctl::core
