// SPDX-License-Identifier: Apache-2.0
// The consequence of a fault: a recovery within the restart budget, or the end with a diagnosis.
//
// Three limits. `recovery.max_restarts` within `recovery.window` bounds how often a job may disturb
// the cluster. kMaxRestartsWithoutProgress bounds how long one step may be retried, because a fault
// that repeats at the same step is permanent; a command that each time exits with the same
// exception has kAlikeExits generations. Failing storage costs no restart: `limits.storage`
// bounds how long the job waits for it. All are counted in the job's row, so a restart of the
// controller does not renew them.
#include "controller/core/recovery.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/check.h"
#include "common/job/duration_text.h"
#include "controller/core/last_generation.h"
#include "controller/core/lost_time.h"
#include "controller/core/membership.h"
#include "controller/core/plan.h"
#include "controller/core/quarantine.h"
#include "controller/core/second_reader.h"

namespace hpctl::core {

namespace {

void remember(const Transition& t, Job& job, const Fault& fault) {
  job.recent_faults.push_back(fault);
  job.recent_faults.back().wall_ms = t.event().wall_ms;
  if (job.recent_faults.size() > kRecentFaults) {
    job.recent_faults.erase(job.recent_faults.begin());
  }
}

void set_fault(Job& job, const Fault& fault, bool collateral) {
  job.fault = fault.cause;
  job.fault_is_collateral = collateral;
  job.fault_seq = fault.seq;
  job.reason = fault.cause;
}

// A cause that arrives after its consequence takes its place in the history.
void adopt_cause(Transition& t, Job& job, const Fault& fault) {
  const std::string consequence = job.fault;
  const Seq consequence_seq = job.fault_seq;
  set_fault(job, fault, false);
  if (!job.recent_faults.empty()) {
    job.recent_faults.back() = fault;
    job.recent_faults.back().wall_ms = t.event().wall_ms;
  }
  t.changed(job);
  count_fault(t, job, fault);
  t.note_because(consequence_seq, "CauseFound", job,
                 fault.cause + "; this explains: " + consequence, fault.node)
      .rank = fault.rank;
}

bool is_in_window(const Transition& t, const Job& job, int64_t restarted_ms) {
  return restarted_ms + job.spec.recovery.window_ms > t.now();
}

// Numbers in an exception (a pid, a port, an address) differ from one time to the next.
std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

// The newest kAlikeExits faults are exits of a command that each time said the same.
bool exits_alike(const Job& job) {
  const auto& faults = job.recent_faults;
  if (faults.size() < kAlikeExits || faults.back().words.empty()) return false;
  const std::string words = without_digits(faults.back().words);
  return std::all_of(faults.end() - static_cast<std::ptrdiff_t>(kAlikeExits), faults.end(),
                     [&](const Fault& f) { return f.exited && without_digits(f.words) == words; });
}

// "each on n1 ...", "on n0, n1": whether to look at the hardware or at the program.
std::string suspect(const Job& job, size_t count) {
  std::set<std::string> nodes;
  std::set<uint64_t> steps;
  bool all_exited = true;
  const size_t first = job.recent_faults.size() - std::min(count, job.recent_faults.size());
  for (size_t i = first; i < job.recent_faults.size(); ++i) {
    if (!job.recent_faults[i].node.empty()) nodes.insert(job.recent_faults[i].node);
    steps.insert(job.recent_faults[i].step);
    all_exited = all_exited && job.recent_faults[i].exited;
  }
  if (nodes.size() == 1) {
    const std::string where = "each on " + *nodes.begin();
    if (job.nodes() == 1) return where + ", the only node with ranks: look at the program";
    if (all_exited) return where + ", where the program exited by itself: look at the program";
    return where + ": suspect that node, or what only its ranks do";
  }
  if (nodes.size() > 1 && steps.size() == 1) {
    return "on different nodes (" + join_some({nodes.begin(), nodes.end()}) +
           ") at the same step: suspect the program or its data, not the hardware";
  }
  if (nodes.empty()) {
    return "no node is to blame: suspect the network, the shared storage or the program";
  }
  return "on " + join_some({nodes.begin(), nodes.end()});
}

std::string where_to_look(const Job& job, const Fault& last) {
  const std::string logs = "hpctl logs " + to_string(job.id);
  const std::string stacks = last.hang ? ", the stacks in the job's directory" : "";
  return "see " + (last.rank < 0 ? logs : logs + " --rank " + std::to_string(last.rank)) + stacks +
         " and hpctl why " + to_string(job.id);
}

void fail_without_progress(Transition& t, Job& job) {
  const Fault last = job.recent_faults.back();
  const auto count = static_cast<size_t>(kMaxRestartsWithoutProgress) + 1;
  fail_for_good(
      t, job,
      (shows_steps(job) ? "no progress past step " + std::to_string(job.furthest_step) + " in "
                        : std::string("the command did not last a minute in ")) +
          std::to_string(count) + " generations in a row, " + suspect(job, count) +
          "; last: " + last.cause + "; " + where_to_look(job, last));
}

void fail_alike(Transition& t, Job& job) {
  const Fault last = job.recent_faults.back();
  const std::string where =
      job.furthest_step == 0
          ? "your program fails at start: "
          : "your program fails after step " + std::to_string(job.furthest_step) + " each time: ";
  const std::string rank =
      last.rank < 0 ? "" : ", last rank " + std::to_string(last.rank) + " on " + last.node;
  end_job(t, job, JobState::kFailed,
          where + last.words + " (" + std::to_string(kAlikeExits) + " times in a row" + rank +
              "); no node is suspected; " + where_to_look(job, last));
}

void fail_budget_spent(Transition& t, Job& job) {
  const Fault last = job.recent_faults.back();
  fail_for_good(t, job,
                "the restart budget is spent (" + std::to_string(job.spec.recovery.max_restarts) +
                    " within " + duration_text(job.spec.recovery.window_ms) + "), faults " +
                    suspect(job, kRecentFaults) + "; last: " + last.cause + "; " +
                    where_to_look(job, last) + ", or raise recovery.max_restarts");
}

void remember_progress(Job& job) {
  job.progress_at_restart = job.furthest_step;
  job.start_at_restart = job.start_step;
}

// For as many generations without progress.
bool fails_alike(const Job& job) {
  return job.restarts_without_progress >= static_cast<int64_t>(kAlikeExits) && exits_alike(job);
}

// Whether spend_budget() would not end the job for a consequence.
bool has_budget(const Transition& t, const Job& job) {
  const auto& times = job.restart_times_ms;
  const auto recent = std::count_if(times.begin(), times.end(),
                                    [&](int64_t at) { return is_in_window(t, job, at); });
  const bool may_retry =
      has_progressed(t, job) || job.restarts_without_progress < kMaxRestartsWithoutProgress;
  return may_retry && recent < job.spec.recovery.max_restarts;
}

// Counts the restart; false when the job may not restart again and fails.
bool spend_budget(Transition& t, Job& job, FaultKind kind) {
  auto& times = job.restart_times_ms;
  const bool progressed = has_progressed(t, job) || kind == FaultKind::kDamage;
  std::erase_if(times, [&](int64_t at) { return !is_in_window(t, job, at); });
  job.restarts_without_progress = progressed ? 0 : job.restarts_without_progress + 1;
  remember_progress(job);
  if (fails_alike(job)) {
    fail_alike(t, job);
    return false;
  }
  if (job.restarts_without_progress > kMaxRestartsWithoutProgress) {
    fail_without_progress(t, job);
    return false;
  }
  if (static_cast<int64_t>(times.size()) >= job.spec.recovery.max_restarts) {
    fail_budget_spent(t, job);
    return false;
  }
  times.push_back(t.now());
  job.restarts += 1;
  return true;
}

// After the n-th attempt in a row that brought nothing.
int64_t backoff_ms(int64_t attempts) {
  if (attempts == 0) return 0;
  const int64_t doublings = std::min<int64_t>(attempts - 1, 10);
  return std::min(kBackoffBaseMs << doublings, kBackoffMaxMs);
}

// Why the job waits for storage no longer; "" = it waits.
std::string find_end_of_wait(Transition& t, Job& job, const std::string& cause) {
  if (job.storage_since_ms == 0) job.storage_since_ms = t.now();
  t.changed(job);
  if (t.now() - job.storage_since_ms >= job.limits.storage_ms) {
    return "storage was not back within " + duration_text(job.limits.storage_ms) +
           " (limits.storage); last: " + cause + describe_steps_at_risk(job);
  }
  job.reason = "waiting for storage: " + cause;
  return "";
}

// The longer storage has been away, the longer the next attempt waits.
int64_t storage_backoff_ms(const Transition& t, const Job& job) {
  return std::clamp(t.now() - job.storage_since_ms, kBackoffBaseMs, kBackoffMaxMs);
}

// False when the job has waited for limits.storage, and has been ended.
bool wait_for_storage(Transition& t, Job& job, const std::string& cause) {
  if (const std::string end = find_end_of_wait(t, job, cause); !end.empty()) {
    end_job(t, job, JobState::kFailed, end);
    return false;
  }
  job.not_before_ms = t.now() + storage_backoff_ms(t, job);
  return true;
}

// The consequence was reported first and was counted as a fault. Its cause counts differently.
void count_cause_instead(Transition& t, Job& job, const Fault& fault, FaultKind kind) {
  if (kind == FaultKind::kDamage) job.restarts_without_progress = 0;
  if (kind != FaultKind::kStorage) return;
  if (!job.restart_times_ms.empty()) job.restart_times_ms.pop_back();
  job.restarts_without_progress = std::max<int64_t>(0, job.restarts_without_progress - 1);
  job.storage_errors_worker += 1;
  wait_for_storage(t, job, fault.cause);
}

// Decides when the next generation may be prepared; false when the job has been ended instead.
bool may_try_again(Transition& t, Job& job, const Fault& fault, FaultKind kind, Seq previous) {
  if (kind == FaultKind::kStorage) {
    job.restarts += 1;
    job.storage_errors_worker += 1;
    return wait_for_storage(t, job, fault.cause);
  }
  if (!spend_budget(t, job, kind)) {
    // The chain that led to the end goes on to the fault before this one.
    t.note_because(previous, "RestartsExhausted", job,
                   std::to_string(job.restarts) + " restarts before this");
    return false;
  }
  job.not_before_ms = t.now() + backoff_ms(job.restarts_without_progress);
  return true;
}

// No restart was left for a consequence: what is known of its cause by now decides.
void judge_awaited(Transition& t, Job& job, const Fault& fault, FaultKind kind, Seq previous) {
  job.ending.awaits_cause = false;
  if (!may_try_again(t, job, fault, kind, previous)) return;
  t.note("JobRecovering", job, fault.cause, fault.node).step = job.furthest_step;
}

void recover(Transition& t, Job& job, const Fault& fault, FaultKind kind) {
  const bool progressed = has_progressed(t, job);
  const Seq previous = job.fault_seq;
  remember(t, job, fault);
  job.saves_first = fault.in_order && is_training(job);
  set_fault(job, fault, kind == FaultKind::kCollateral);
  t.changed(job);
  const bool fails_at_start = !progressed && exits_alike(job);
  if (kind == FaultKind::kCause && !fails_at_start) count_fault(t, job, fault);
  // The report of its cause may be a moment late, and a job ends with its cause.
  job.ending.awaits_cause = kind == FaultKind::kCollateral && !has_budget(t, job);
  if (!job.ending.awaits_cause && !may_try_again(t, job, fault, kind, previous)) return;
  const bool adopted = job.stage == PlanStage::kMeetNodes;
  if (job.state == JobState::kRunning || adopted) begin_loss(t, job);
  job.state = JobState::kRecovering;
  // A fault that repeats without progress is part of the explanation of the present one.
  const Seq because = progressed || previous == Seq{} ? t.seq() : previous;
  LogEntry& told = t.note_because(
      because, job.ending.awaits_cause ? "CauseAwaited" : "JobRecovering", job,
      fault.cause + (job.ending.awaits_cause ? "; no restart is left for its cause" : ""),
      fault.node);
  told.step = job.furthest_step;
  if (!job.fault_is_collateral) told.rank = fault.rank;
  enter_stop_workers(t, job);
}

// What would be done about the fault (recovery.observe).
std::string what_would_be_done(Transition& t, const Job& job, const Fault& fault) {
  std::string all = "all ranks would be restarted";
  if (fault.rank >= 0 || fault.hang || fault.start || fault.node.empty()) return all;
  return (has_spare(t, job) ? "a spare would take the ranks of " + fault.node
                            : fault.node + " would be launched again") +
         ", and " + all;
}

bool has_running_rank(Transition& t, const Job& job) {
  const auto& slots = t.state().slots;
  for (auto it = slots.lower_bound({job.id, Rank{0}}); it != slots.end() && it->first.job == job.id;
       ++it) {
    if (it->second.state == SlotState::kRunning) return true;
  }
  return false;
}

// A hang ends nothing, and a consequence waits for its cause as long as ranks run.
void observe(Transition& t, Job& job, const Fault& fault, FaultKind kind) {
  remember(t, job, fault);
  t.changed(job);
  const std::string done = what_would_be_done(t, job, fault);
  t.note("WouldRecover", job, done + ": " + fault.cause, fault.node).rank = fault.rank;
  const bool waits = kind == FaultKind::kCollateral && has_running_rank(t, job);
  if (fault.hang || waits) return;
  end_job(t, job, JobState::kFailed,
          fault.cause + "; " + done + ", but for recovery.observe; " + where_to_look(job, fault));
}

}  // namespace

bool has_progressed(const Transition& t, const Job& job) {
  const bool has_stepped = job.state == JobState::kRunning;
  if (!shows_steps(job)) {  // a generation that lasted counts as progress
    return has_stepped && t.now() - job.running_since_ms >= kLastingGenerationMs;
  }
  if (job.furthest_step > job.progress_at_restart) return true;
  // After a fall back to an older checkpoint steps are done again. They count where this generation
  // began with some of them and completed others: nothing is retried at one step.
  return has_stepped && job.start_step > job.start_at_restart;
}

void recover_in_order(Transition& t, Job& job, const std::string& reason) {
  const Fault order{reason, "", -1, job.furthest_step, t.seq(), true};
  // A state that is divided by the number of ranks is resharded in host memory, if it is there: on
  // a GPU it ends with the processes.
  job.saves_first = parts_of_state(job) == job.world_size() && !job.in_host_memory;
  set_fault(job, order, false);
  remember_progress(job);
  job.not_before_ms = 0;
  begin_loss(t, job);
  job.state = JobState::kRecovering;
  t.note("JobGrows", job, reason).step = job.furthest_step;
  enter_stop_workers(t, job);
}

bool can_afford_restart(const Transition& t, const Job& job) {
  const auto recent = std::count_if(job.restart_times_ms.begin(), job.restart_times_ms.end(),
                                    [&](int64_t at) { return is_in_window(t, job, at); });
  return recent + 1 < job.spec.recovery.max_restarts && has_progressed(t, job);
}

bool has_just_hung(const Transition& t, const Job& job) {
  return !job.recent_faults.empty() && job.recent_faults.back().hang &&
         job.recent_faults.back().seq == t.seq();
}

void fault_seen(Transition& t, const Job& job, const Fault& fault, FaultKind kind) {
  Fault seen = fault;
  seen.damage = kind == FaultKind::kDamage;
  t.facts(job.id).faults.push_back({std::move(seen), kind});
}

void judge_fault(Transition& t, Job& job, const Fault& fault, FaultKind kind) {
  if (job.cancel_requested) return;
  if (ends_for_good(job)) {  // what is reported while the workers stop changes nothing
    if (!is_preparing(job)) conclude_for_good(t, job, fault.cause);
    return;
  }
  if (job.spec.recovery.observe && !fault.in_order) {
    if (!has_ended(job.state)) observe(t, job, fault, kind);
    return;
  }
  if (!is_preparing(job) || kind == FaultKind::kRepeated) {
    recover(t, job, fault, kind);
    return;
  }
  const bool explains = job.fault_is_collateral && kind != FaultKind::kCollateral;
  if (explains) {
    const Seq consequence = job.fault_seq;
    adopt_cause(t, job, fault);
    if (job.ending.awaits_cause) {
      judge_awaited(t, job, fault, kind, consequence);
    } else {
      count_cause_instead(t, job, fault, kind);
    }
  }
  const bool goes_on = job.stage == PlanStage::kStopWorkers || job.stage == PlanStage::kRequeue;
  if (has_ended(job.state) || goes_on) return;
  // The chosen checkpoint is no longer valid, or the wait has become longer.
  const bool begins_anew = kind == FaultKind::kDamage || (explains && kind == FaultKind::kStorage);
  if (begins_anew) enter_wait_nodes(t, job);
}

void end_without_cause(Transition& t, Job& job) {
  const Fault last = job.recent_faults.back();
  judge_awaited(t, job, last, FaultKind::kCollateral, job.fault_seq);
}

void retry_plan(Transition& t, Job& job, const std::string& cause) {
  job.storage_errors_directory += 1;
  if (!wait_for_storage(t, job, cause)) return;
  t.note("Retry", job, cause);
  enter_wait_nodes(t, job);
}

namespace {

// The life is over: what belonged to it goes with it.
void close_life(Transition& t, Job& job, Node& node, const std::string& cause) {
  t.set_deadline(node, 0);
  t.set_state(node, NodeState::kDown, cause);
  if (!node.boot_id.empty()) {
    node.former_boot_ids.push_back(node.boot_id);
    if (node.former_boot_ids.size() > kFormerBootIds) {
      node.former_boot_ids.erase(node.former_boot_ids.begin());
    }
    node.boot_id.clear();
  }
  node.connected = false;
  pass_over_reader(t, job, node.key.name);
  for (const auto kind :
       {ActionKind::kLaunchNode, ActionKind::kStopWorkers, ActionKind::kStartWorkers}) {
    t.withdraw(job.id, kind, node.key.name);
  }
  for (Slot* slot : t.slots(node)) {
    t.set_slot(*slot, SlotState::kPending, slot->generation, 0, 0, 0);
  }
  t.note("NodeDown", job, cause, node.key.name);
}

// A spare is brought back in the background: no rank is on it. After a session that lasted, the
// attempts count from zero again.
void want_spare_back(Transition& t, Job& job, Node& node, const std::string& cause) {
  if (has_ended(job.state) || job.cancel_requested) return;
  if (node.taken) {
    tell_spares_left(t, job, node);
    return;
  }
  if (t.now() - node.launched_ms >= kLastingLifeMs) node.launch_attempts = 0;
  if (node.launch_attempts >= kMaxLaunchAttempts) {
    t.note("SpareGivenUp", job,
           node.key.name + " stays down after " + std::to_string(node.launch_attempts) +
               " attempts, until the next recovery",
           node.key.name);
    return;
  }
  t.set_deadline(node, t.now() + backoff_ms(node.launch_attempts));
  t.facts(job.id).brought_back.push_back({node.key.name, cause});
}

}  // namespace

void lose_node(Transition& t, Job& job, Node& node, const std::string& cause, Evidence evidence) {
  node.suspect = node.suspect || evidence != Evidence::kSlow;
  close_life(t, job, node, cause);
  if (t.has_ranks(node.key)) {
    t.facts(job.id).lost.push_back({node.key.name, cause, evidence == Evidence::kUnreachable});
  } else {
    want_spare_back(t, job, node, cause);
  }
}

void postpone_launch(Transition& t, Job& job, Node& node, const std::string& cause) {
  node.launch_attempts = std::max<int64_t>(0, node.launch_attempts - 1);
  t.set_state(node, NodeState::kDown, cause);
  t.note("Retry", job, cause, node.key.name);
  int64_t wait_ms = kBackoffMaxMs;  // a spare's
  if (is_preparing(job) && t.has_ranks(node.key)) {
    job.storage_errors_directory += 1;
    const std::string end = find_end_of_wait(t, job, cause);
    if (!end.empty()) t.facts(job.id).end = {JobState::kFailed, end};
    wait_ms = storage_backoff_ms(t, job);
  }
  t.set_deadline(node, t.now() + wait_ms);
}

void judge_loss(Transition& t, Job& job, const Facts::LostNode& lost) {
  if (job.stage == PlanStage::kRequeue) return;
  if (ends_for_good(job)) return conclude_for_good(t, job, lost.cause);
  Node& node = *t.node(job.id, lost.name);
  const Fault fault{.cause = lost.cause,
                    .node = lost.name,
                    .step = job.furthest_step,
                    .seq = t.seq(),
                    .unreachable = lost.unreachable};
  const bool is_back = node.state != NodeState::kDown;  // as another life
  // Launched for this very recovery and lost again: try some more, with growing patience, before
  // that counts as another restart of the job.
  const bool again = is_preparing(job) && node.launched_for == job.restarts && !has_spare(t, job);
  // Ranks can only move once the workers everywhere have ended.
  const bool in_vain = node.taken && can_vacate(t, job, node);
  // The length of the patience depends on all nodes.
  const bool early = job.stage == PlanStage::kStopWorkers ||
                     (!in_vain && node.launch_attempts < kLaunchesBeforePolicy);
  const bool patient = early || (!in_vain && node.launch_attempts < launch_patience(t, job));
  if (!again) {
    fault_seen(t, job, fault, FaultKind::kCause);
  } else if (is_back) {
    return;
  } else if (patient) {
    t.set_deadline(node, t.now() + backoff_ms(node.launch_attempts));
  } else {
    give_up_node(t, job, node, fault);
  }
  t.facts(job.id).brought_back.push_back(lost);
}

void bring_back(Transition& t, Job& job, const Facts::LostNode& lost) {
  Node& node = *t.node(job.id, lost.name);
  if (job.stage == PlanStage::kRequeue) return;
  promote_spares(t, job);
  if (node.state == NodeState::kDown) launch(t, job, node, lost.cause);
}

}  // namespace hpctl::core
