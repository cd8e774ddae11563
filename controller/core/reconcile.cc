// SPDX-License-Identifier: Apache-2.0
#include "controller/core/reconcile.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/check.h"
#include "controller/core/last_generation.h"
#include "controller/core/membership.h"
#include "controller/core/mirror.h"
#include "controller/core/plan.h"
#include "controller/core/prune.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery.h"
#include "controller/core/withdrawn_records.h"

namespace hpctl::core {

namespace {

constexpr int kMostMoves = 1'000;  // of one event; more is a circle in the table

bool is_at(const Job& job, PlanStage stage) { return job.stage == stage; }

// No node with ranks has still to answer.
bool have_answered(Transition& t, const Job& job, ActionKind kind) {
  return unanswered(t, job, kind, 1).empty();
}

bool have_stopped(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kStopWorkers) && have_answered(t, job, ActionKind::kStopWorkers);
}

// ---- situations ---------------------------------------------------------------------------------

bool is_at_its_end(Transition& t, const Job& job) { return t.facts(job.id).end.has_value(); }

bool has_a_fault(Transition& t, const Job& job) { return !t.facts(job.id).faults.empty(); }

bool has_lost_a_node(Transition& t, const Job& job) { return !t.facts(job.id).lost.empty(); }

bool wants_a_node_back(Transition& t, const Job& job) {
  return !t.facts(job.id).brought_back.empty();
}

bool wants_no_workers(Transition& t, const Job& job) { return t.facts(job.id).stop_workers; }

bool cannot_use_its_directory(Transition& t, const Job& job) {
  return !t.facts(job.id).directory_failure.empty();
}

bool is_not_requeued(Transition&, const Job& job) {
  return is_at(job, PlanStage::kRequeue) && !job.requeue_refusal.empty();
}

bool is_cancelled(Transition& t, const Job& job) {
  return job.cancel_requested && have_stopped(t, job);
}

bool is_saved_at_its_limit(Transition& t, const Job& job) {
  return job.at_limit && have_stopped(t, job);
}

bool has_no_cause_and_no_restart(Transition& t, const Job& job) {
  return job.ending.awaits_cause && have_stopped(t, job);
}

bool has_saved_its_last(Transition& t, const Job& job) { return t.facts(job.id).last_saved; }

bool ends_and_has_stopped(Transition& t, const Job& job) {
  return ends_for_good(job) && have_stopped(t, job);
}

bool lacks_a_member(Transition& t, const Job& job) {
  const bool chooses =
      is_at(job, PlanStage::kFindCheckpoint) || is_at(job, PlanStage::kRecordGeneration);
  return chooses && !nodes_missing(t, job, 1).empty();
}

bool would_wait_at_its_end(Transition& t, const Job& job) {
  return ends_for_good(job) && (is_at(job, PlanStage::kWaitNodes) || lacks_a_member(t, job));
}

bool waits_for_what_changed(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kWaitNodes) && t.facts(job.id).look_again;
}

bool waits_beside_a_spare(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kWaitNodes) && can_promote(t, job);
}

bool has_all_nodes(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kWaitNodes) && t.now() >= job.not_before_ms &&
         nodes_missing(t, job, 1).empty();
}

bool knows_its_origin(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kFindCheckpoint) && t.facts(job.id).origin.has_value();
}

bool lacks_a_search(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kFindCheckpoint) &&
         !t.any_open(job.id, ActionKind::kFindCheckpoint) &&
         !t.any_open(job.id, ActionKind::kConfirmDamage);
}

bool is_recorded(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kRecordGeneration) && t.facts(job.id).recorded;
}

bool has_a_rival(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kRecordGeneration) &&
         !t.any_open(job.id, ActionKind::kRecordGeneration);
}

bool has_started(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kStartWorkers) && !t.any_open(job.id, ActionKind::kStartWorkers);
}

bool has_met_its_nodes(Transition& t, const Job& job) {
  return is_at(job, PlanStage::kMeetNodes) && members_are_met(t, job);
}

bool trains_on_a_drained_node(Transition& t, const Job& job) {
  return find_drained(t, job) != nullptr;
}

bool trains_on_a_straggler(Transition& t, const Job& job) {
  return find_straggler(t, job) != nullptr;
}

// ---- moves --------------------------------------------------------------------------------------

template <typename T>
T take_first(std::deque<T>& queue) {
  T first = std::move(queue.front());
  queue.pop_front();
  return first;
}

void end(Transition& t, Job& job) {
  const Facts::End end = *std::exchange(t.facts(job.id).end, std::nullopt);
  if (ends_for_good(job)) return conclude_for_good(t, job, end.reason);
  if (end.saves_first) return fail_for_good(t, job, end.reason);
  end_job(t, job, end.state, end.reason);
}

void end_saved(Transition& t, Job& job) {
  t.facts(job.id).last_saved = false;
  conclude_for_good(t, job, "");
}

void end_unsaved(Transition& t, Job& job) { conclude_for_good(t, job, "not every node is there"); }

void judge_first_fault(Transition& t, Job& job) {
  const auto seen = take_first(t.facts(job.id).faults);
  judge_fault(t, job, seen.fault, seen.kind);
}

void judge_first_loss(Transition& t, Job& job) {
  judge_loss(t, job, take_first(t.facts(job.id).lost));
}

void bring_first_back(Transition& t, Job& job) {
  bring_back(t, job, take_first(t.facts(job.id).brought_back));
}

void try_directory_again(Transition& t, Job& job) {
  std::string cause;
  cause.swap(t.facts(job.id).directory_failure);
  const auto before_mirror = std::exchange(t.facts(job.id).before_mirror, std::nullopt);
  if (ends_for_good(job)) return conclude_for_good(t, job, cause);
  if (can_do_without_mirror(job, before_mirror)) {
    return use_first_place(t, job, *before_mirror, cause);
  }
  if (may_replace_first_place(t, job)) {
    FirstPlace away;
    away.away = true;
    return enter_find_in_mirror(t, job, away, cause);
  }
  retry_plan(t, job, cause);
}

void do_without_requeue(Transition& t, Job& job) {
  if (!job.at_limit) return enter_wait_nodes(t, job);
  const std::string unsaved = describe_unsaved(t, job);
  const std::string saved = unsaved.empty() ? "is saved and " : "";
  end_job(t, job, JobState::kTimeout,
          "the time limit has come, the job " + saved +
              "could not be requeued: " + job.requeue_refusal + unsaved);
}

void end_as_ordered(Transition& t, Job& job) {
  const std::string& given = job.cancel_reason;
  end_job(
      t, job, job.at_limit ? JobState::kTimeout : JobState::kCancelled,
      (given.empty() ? "cancelled by its owner or an operator" : given) + describe_unsaved(t, job));
}

void find_checkpoint(Transition& t, Job& job) { enter_find_checkpoint(t, job, "every node is up"); }

void find_checkpoint_again(Transition& t, Job& job) {
  const std::string number = to_string(job.directory_generation);
  const auto withdrawn = withdrawn_generations(job);
  const bool is_own =
      std::find(withdrawn.begin(), withdrawn.end(), job.directory_generation) != withdrawn.end();
  enter_find_checkpoint(t, job,
                        is_own ? "generation " + number + " was recorded by an order of before"
                               : "another controller created generation " + number);
}

void record_generation(Transition& t, Job& job) {
  const Facts::Origin& origin = *t.facts(job.id).origin;
  const bool saves = origin.memory_of != Generation{} && origin.step > job.committed_step;
  if (ends_for_good(job) && !saves) {
    return conclude_for_good(t, job, "memory has no newer step on every rank");
  }
  enter_record_generation(t, job, origin);
}

void wait_for_step(Transition& t, Job& job) {
  enter_stage(t, job, PlanStage::kNone);
  if (!job.spec.train) enter_running(t, job, "all workers of the command are up");
}

struct Row {
  const char* when;
  bool (*fits)(Transition&, const Job&);
  const char* move;
  void (*make)(Transition&, Job&);
};

// The first row that fits is made. The event's own consequences come before the conditions of
// stages.
constexpr std::array kTable = {
    Row{"the event ends the job", is_at_its_end, "end it", end},
    Row{"the last generation has saved", has_saved_its_last, "end it", end_saved},
    Row{"a fault was seen", has_a_fault,
        "a recovery within the budget, or the end; while one is prepared it belongs to that one",
        judge_first_fault},
    Row{"a node with ranks was lost", has_lost_a_node,
        "a fault; one that was launched for this recovery: patience, then on_node_loss",
        judge_first_loss},
    Row{"a node is to come back", wants_a_node_back,
        "launch it, unless a spare or a back-off stands against it", bring_first_back},
    Row{"workers are not to live on", wants_no_workers, "stop the workers", enter_stop_workers},
    Row{"the checkpoint directory could not be used", cannot_use_its_directory,
        "wait and look again, a bounded number of times", try_directory_again},
    Row{"the scheduler does not requeue the job", is_not_requeued,
        "wait for nodes; at the time limit: TIMEOUT", do_without_requeue},
    Row{"cancelled, and all workers have stopped", is_cancelled, "end it", end_as_ordered},
    Row{"at the time limit, and all workers have stopped", is_saved_at_its_limit, "requeue the job",
        requeue_saved},
    Row{"no restart is left, and all workers have stopped without a cause",
        has_no_cause_and_no_restart, "end it with the consequence", end_without_cause},
    Row{"it ends for good, and all workers have stopped", ends_and_has_stopped,
        "find what memory has", find_last_state},
    Row{"all workers have stopped", have_stopped, "wait for nodes", enter_wait_nodes},
    Row{"it ends for good, and would wait for a node", would_wait_at_its_end, "end it",
        end_unsaved},
    Row{"a member is missing before the generation is recorded", lacks_a_member,
        "wait for nodes again", enter_wait_nodes},
    Row{"what is waited for may have changed", waits_for_what_changed, "look at the nodes again",
        enter_wait_nodes},
    Row{"a spare is up beside a lost or quarantined member", waits_beside_a_spare,
        "the spare takes its ranks", promote_spares},
    Row{"every member is up, and no back-off", has_all_nodes, "find the checkpoint",
        find_checkpoint},
    Row{"the checkpoint is chosen", knows_its_origin, "record the generation", record_generation},
    Row{"a claim of damage is settled, or who was to read again is lost or late", lacks_a_search,
        "ask the next reader, or find the checkpoint", find_checkpoint},
    Row{"the generation is recorded", is_recorded, "start its workers", start_generation},
    Row{"the generation's number is taken", has_a_rival, "find the checkpoint again",
        find_checkpoint_again},
    Row{"every node has started its workers", has_started, "wait for the first step",
        wait_for_step},
    Row{"every member of an adopted generation was met", has_met_its_nodes,
        "it goes on, or a fault says why not", end_meeting},
    Row{"a node that trains is drained by the scheduler, and a lasting spare is up",
        trains_on_a_drained_node, "save, and move to the spare", leave_drained},
    Row{"a node that trains holds the others up, the job evicts stragglers, and a lasting spare is "
        "up",
        trains_on_a_straggler, "save, and move to the spare", leave_straggler},
    Row{"a shrunk job trains, and could do so on more nodes", can_grow,
        "to them at a step boundary, which is no restart", grow_at_boundary},
    Row{"a job trains, and a checkpoint was committed or a save needs room", can_prune,
        "verify the newest checkpoint and delete older ones", order_prune},
    Row{"a job trains, and its mirror is to be brought up to date", can_mirror,
        "copy generation records and the newest checkpoint", order_mirror},
};

const Row* find_row(Transition& t, const Job& job) {
  if (has_ended(job.state)) return nullptr;
  const auto row = std::find_if(kTable.begin(), kTable.end(),
                                [&](const Row& candidate) { return candidate.fits(t, job); });
  return row == kTable.end() ? nullptr : row;
}

}  // namespace

void reconcile(Transition& t, Job& job) {
  int moves = 0;
  while (const Row* row = find_row(t, job)) {
    HP_CHECK(++moves < kMostMoves);
    row->make(t, job);
  }
  t.forget_facts(job.id);
}

std::string unsettled(const State& state, JobId job) {
  State copy = state;
  StepResult nothing;
  const Event event{copy.last_seq, copy.now_ms, 0, Tick{}};
  Transition t(copy, event, nothing);
  const Row* row = find_row(t, *t.job(job));
  return row == nullptr ? "" : row->when;
}

std::vector<Situation> situations() {
  std::vector<Situation> all;
  for (const Row& row : kTable) all.push_back({row.when, row.move});
  return all;
}

}  // namespace hpctl::core
