// SPDX-License-Identifier: Apache-2.0
// Reports about workers. Each names rank, generation and pid, which distinguishes new reports from
// repetitions and from late ones of an older generation.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/base/result.h"
#include "common/worker/worker_abi.h"
#include "controller/core/last_generation.h"
#include "controller/core/lost_time.h"
#include "controller/core/plan.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

std::string worker_name(const WorkerExited& e) {
  return "worker " + to_string(e.rank) + " on " + e.node;
}

std::string describe_exit(const WorkerExited& e) {
  std::string text = worker_name(e);
  if (e.signal != 0) {
    text += " died of " + signal_name(e.signal);
  } else if (e.exit_code == kExitPeerLost) {
    text += " lost a peer";
  } else {
    text += " exited with code " + std::to_string(e.exit_code);
  }
  text += " at step " + std::to_string(e.last_step);
  return e.message.empty() ? text : text + ": " + e.message;
}

// Why the report is not news about a present worker; "" = it is.
std::string find_conflict(Transition& t, const WorkerExited& e) {
  const Job* job = t.job(e.job);
  if (job == nullptr) return "there is no job " + to_string(e.job);
  if (has_ended(job->state)) return "the job has ended";
  if (e.generation != job->generation) {
    return "generation " + to_string(e.generation) + " is over; the present one is " +
           to_string(job->generation);
  }
  const Node* node = t.node(e.job, e.node);
  if (node == nullptr || node->boot_id != e.boot_id) return "not the present life of " + e.node;
  const Slot* slot = t.slot(e.job, e.rank);
  if (slot == nullptr || slot->node != e.node) {
    return "rank " + to_string(e.rank) + " does not belong to " + e.node;
  }
  if (slot->state == SlotState::kExited) return "its exit was known";
  if (slot->generation != e.generation || (slot->pid != 0 && slot->pid != e.pid)) {
    return "pid " + std::to_string(e.pid) + " is not the present process of rank " +
           to_string(e.rank);
  }
  return "";
}

// A bounded set: it becomes the label of a metric.
std::string errno_label(int32_t error) {
  if (error == 0) return "unknown";
  const bool is_known = is_storage_errno(error) || error == ENOSPC || error == EDQUOT ||
                        error == EACCES || error == EPERM || error == ENOENT;
  return is_known ? ::strerrorname_np(error) : "other";
}

// All ranks ended alike, by a step that none of them is to blame for: who is reported first says
// nothing.
bool is_of_all(const Job& job, const WorkerExited& e) {
  const BadStepRecord& unfit = job.bad_step;
  return e.signal == 0 && unfit.stopped_seq != Seq{} && unfit.generation == e.generation &&
         unfit.stopped_by < 0;
}

void exit_with_fault(Transition& t, Job& job, const WorkerExited& e) {
  const std::string what = describe_exit(e);
  const bool of_all = is_of_all(job, e);
  const bool lost_peer = e.signal == 0 && (e.exit_code == kExitPeerLost || e.peer_lost);
  const Fault fault{.cause = what,
                    .node = of_all ? "" : e.node,
                    .rank = of_all ? -1 : e.rank.value,
                    .step = e.last_step,
                    .seq = t.seq(),
                    .exited = e.signal == 0 && !lost_peer && !job.spec.train,
                    .words = e.message};
  if (e.signal == 0 && e.exit_code == kExitDoNotRestart && !job.cancel_requested) {
    t.facts(job.id).end = {
        JobState::kFailed,
        worker_name(e) + " says that a restart cannot help: " +
            (e.message.empty() ? "it left no message, see hpctl logs " + to_string(job.id) +
                                     " --rank " + to_string(e.rank)
                               : e.message),
        true};
  } else if (e.signal == 0 && e.exit_code == kExitStorage && job.spec.train) {
    job.storage_exits[errno_label(e.fault.error)] += 1;
    t.changed(job);
    fault_seen(t, job, Fault{what, "", -1, e.last_step, t.seq()}, FaultKind::kStorage);
  } else if (lost_peer) {
    fault_seen(t, job, fault, FaultKind::kCollateral);
  } else if (e.signal == 0 && e.exit_code == kExitCheckpointDamaged &&
             job.memory_of != Generation{}) {
    job.without_memory = true;
    t.changed(job);
    fault_seen(t, job, fault, FaultKind::kDamage);
  } else if (e.signal == 0 && e.exit_code == kExitCheckpointDamaged && !job.checkpoint.empty()) {
    if (job.damaged.contains(job.checkpoint) || job.claim.checkpoint == job.checkpoint) {
      fault_seen(t, job, fault, FaultKind::kCause);
      return;
    }
    job.claim = {job.checkpoint, e.node, e.message, e.fault};
    t.changed(job);
    const std::string part = e.fault.file.empty() ? "" : e.fault.file + " of ";
    t.note(
        "DamageClaimed", job,
        worker_name(e) + " cannot use " + part + job.checkpoint + "; another reader reads it again",
        e.node, e.rank.value);
    fault_seen(t, job, fault, FaultKind::kDamage);
  } else {
    fault_seen(t, job, fault, FaultKind::kCause);
  }
}

}  // namespace

namespace {

// "a standby on n1 has taken the place of rank 2"
std::string stepped_in_text(const std::string& node, const std::vector<Rank>& ranks) {
  constexpr size_t kShown = 8;
  const bool several = ranks.size() > 1;
  std::string text = (several ? "standbys on " : "a standby on ") + node +
                     (several ? " have taken the places of ranks" : " has taken the place of rank");
  for (size_t i = 0; i < std::min(kShown, ranks.size()); ++i) {
    text += (i == 0 ? " " : ", ") + to_string(ranks[i]);
  }
  return ranks.size() > kShown ? text + " ..." : text;
}

}  // namespace

void on(Transition& t, const WorkersStarted& e) {
  const Action* action = t.open<StartWorkers>(e.action);
  if (action == nullptr) {
    t.refuse(e.job, "start " + to_string(e.action) + " was withdrawn or answered before", e.node);
    return;
  }
  const Generation generation = std::get<StartWorkers>(action->body).generation;
  Job& job = *t.job(e.job);
  Node& node = *t.node(e.job, e.node);
  t.close(e.action);
  std::vector<Rank> stepped_in;
  for (const LiveWorker& worker : e.workers) {
    Slot* slot = t.slot(e.job, worker.rank);
    if (slot == nullptr || slot->node != e.node || slot->state != SlotState::kPending) continue;
    t.set_slot(*slot, SlotState::kRunning, generation, worker.pid, 0, 0);
    if (worker.origin == WorkerOrigin::kStandby) stepped_in.push_back(worker.rank);
  }
  // With a command, every node has them.
  if (job.spec.train && !stepped_in.empty()) {
    t.note_because(e.action.seq, "StandbySteppedIn", job, stepped_in_text(e.node, stepped_in),
                   e.node);
  }
  bool unaccounted = false;
  for (Slot* slot : t.slots(node)) {
    if (slot->state != SlotState::kPending) continue;
    t.set_unaccounted(*slot, true);  // gone before it was counted: its exit report is on the way
    unaccounted = true;
  }
  if (unaccounted && node.connected) t.set_deadline(node, t.now() + report_limit_ms(job));
}

namespace {

// A node's report of the places of its ranks is useful from the blamed node; without blame, from
// the node of rank 0.
bool is_telling(Transition& t, const Job& job, const std::string& node) {
  if (job.recent_faults.empty() || !job.recent_faults.back().hang) return false;
  const std::string& blamed = job.recent_faults.back().node;
  return node == (blamed.empty() ? t.slot(job.id, Rank{0})->node : blamed);
}

}  // namespace

void on(Transition& t, const WorkersStopped& e) {
  const Action* action = t.open<StopWorkers>(e.action);
  if (action == nullptr) {
    t.refuse(e.job, "stop " + to_string(e.action) + " was withdrawn or answered before", e.node);
    return;
  }
  const Generation through = std::get<StopWorkers>(action->body).generation;
  t.close(e.action);
  if (const Job& job = *t.job(e.job); !e.stacks.empty() && is_telling(t, job, e.node)) {
    t.note_because(job.fault_seq, "StacksTaken", job, e.stacks, e.node);
  }
  for (Slot* slot : t.slots(*t.node(e.job, e.node))) {
    if (slot->state != SlotState::kRunning || slot->generation > through) continue;
    t.set_slot(*slot, SlotState::kPending, slot->generation, 0, 0, 0);
  }
}

namespace {

// Precondition: no conflict.
void take_exit(Transition& t, const WorkerExited& e) {
  Job& job = *t.job(e.job);
  Slot& slot = *t.slot(e.job, e.rank);
  t.set_slot(slot, SlotState::kExited, e.generation, e.pid, e.exit_code, e.signal);
  t.set_seals(slot, e.seals, e.boot_id);
  if (!e.seals.own.empty()) job.in_host_memory = true;
  if (e.last_step > job.furthest_step && !is_preparing(job)) {
    count_step(job, e.last_step, t.now());  // when it did, is not known any better
  }
  learn_step(job, e.last_step);
  t.changed(job);
  const bool stopping = is_preparing(job) || job.cancel_requested;
  if (e.by_request) {
    if (stopping) return;
    const std::string what =
        worker_name(e) + " was stopped by an order that did not come from here";
    fault_seen(t, job, Fault{what, e.node, e.rank.value, e.last_step, t.seq()}, FaultKind::kCause);
  } else if (ends_for_good(job) && stopping) {
    return;  // the first that was reported has told why
  } else if (ends_for_good(job) && e.signal == SIGTERM) {
    t.facts(job.id).last_saved = have_all_exited(t, job);
  } else if (e.exit_code != 0 || e.signal != 0) {
    exit_with_fault(t, job, e);
  } else if (!job.cancel_requested && unfinished_ranks(t, job).empty()) {
    t.facts(job.id).end = {JobState::kFinished,
                           "every worker finished; last step " + std::to_string(job.furthest_step)};
  } else if (const int64_t until = last_ranks_deadline(t, job); until != 0) {
    t.set_deadline(job, until);
  }
}

}  // namespace

void on(Transition& t, const WorkerExited& e) {
  if (const std::string conflict = find_conflict(t, e); !conflict.empty()) {
    t.refuse(e.job, conflict, e.node, e.rank.value);
    return;
  }
  take_exit(t, e);
}

void on(Transition& t, const WorkersExited& e) {
  std::string first_conflict;
  size_t conflicts = 0;
  for (const WorkerExited& exit : e.exits) {
    const std::string conflict = find_conflict(t, exit);
    if (conflict.empty()) {
      take_exit(t, exit);
    } else if (++conflicts == 1) {
      first_conflict = "worker " + to_string(exit.rank) + ": " + conflict;
    }
  }
  if (conflicts == 0) return;
  const std::string others = " (and " + std::to_string(conflicts - 1) + " more)";
  t.refuse(e.job, first_conflict + (conflicts > 1 ? others : ""), e.node);
}

void on(Transition& t, const HangDetected& e) {
  Job* job = t.job(e.job);
  if (job == nullptr || has_ended(job->state) || e.generation != job->generation) {
    t.refuse(e.job, "a hang of a generation that is not the present one", e.node, e.rank.value);
    return;
  }
  if (job->stage != PlanStage::kNone) {
    t.refuse(e.job, "generation " + to_string(e.generation) + " is being stopped or started",
             e.node, e.rank.value);
    return;
  }
  std::string who = "the job hangs: ";
  if (!e.node.empty()) who = "workers on " + e.node + " hang: ";
  if (e.rank.value >= 0) who = "worker " + to_string(e.rank) + " on " + e.node + " hangs: ";
  const std::string what = who + e.evidence;
  fault_seen(t, *job,
             Fault{.cause = what,
                   .node = e.node,
                   .rank = e.rank.value,
                   .step = job->furthest_step,
                   .seq = t.seq(),
                   .hang = true},
             FaultKind::kCause);
}

}  // namespace hpctl::core
