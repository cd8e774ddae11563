// SPDX-License-Identifier: Apache-2.0
// Deadlines. Each is a field of a row; State::index orders them. A deadline that passed is a fault
// that names what was waited for. After the controller was away, nothing fires: everybody gets a
// fresh deadline first, because it was the controller that was late.
#include <algorithm>

#include "common/job/duration_text.h"
#include "controller/core/last_generation.h"
#include "controller/core/lost_time.h"
#include "controller/core/membership.h"
#include "controller/core/plan.h"
#include "controller/core/reconcile.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"
#include "controller/core/second_reader.h"
#include "controller/core/verification.h"

namespace hpctl::core {

namespace {

constexpr char kTrainsUnheard[] = "trains; its agent has not reached this controller";

void passed(Transition& t, const Job& job, const std::string& what) {
  t.note_because(job.plan_seq, "DeadlinePassed", job, what);
}

void passed(Transition& t, const Job& job, const Node& node, const std::string& what) {
  t.note_because(node.deadline_seq, "DeadlinePassed", job, what, node.key.name);
}

// The nodes that did not answer are lost, one by one: the first may make an answer of the others
// needless.
void lose_late_nodes(Transition& t, Job& job, ActionKind kind, const std::string& what) {
  const auto late = unanswered(t, job, kind);
  passed(t, job, join_some(late) + " " + what);
  for (const std::string& name : late) {
    if (has_ended(job.state)) return;
    if (t.open(job.id, kind, name) == nullptr) continue;  // moot since the first was lost
    lose_node(t, job, *t.node(job.id, name), name + " " + what, Evidence::kSlow);
    reconcile(t, job);
  }
}

// The command's other ranks are done. A single remaining rank is to blame; among several it is
// unknown.
void last_ranks_are_late(Transition& t, Job& job) {
  const std::vector<Rank> ranks = unfinished_ranks(t, job);
  const Slot& first = *t.slot(job.id, ranks.front());
  std::vector<std::string> names;
  for (const Rank rank : ranks) names.push_back(to_string(rank));
  const bool alone = ranks.size() == 1;
  const std::string who = alone ? "worker " + names[0] + " on " + first.node + " has"
                                : "workers " + join_some(names) + " have";
  const std::string what = who + " not ended " + duration_text(last_ranks_limit_ms(job)) +
                           " after the last of the others exited with code 0 "
                           "(recovery.hang_timeout)";
  passed(t, job, what);
  fault_seen(t, job,
             Fault{.cause = what,
                   .node = alone ? first.node : "",
                   .rank = alone ? ranks[0].value : -1,
                   .step = job.furthest_step,
                   .seq = t.seq(),
                   .hang = true},
             FaultKind::kCause);
}

// Their agents answer and SIGKILL is on its way: the kernel still frees what the workers had. Such
// a node is not lost for it. One that falls silent meanwhile is, by its heartbeats.
void bear_with_slow_nodes(Transition& t, Job& job, int64_t until_ms) {
  const auto slow = unanswered(t, job, ActionKind::kStopWorkers);
  t.note_because(job.plan_seq, "StillStopping", job,
                 join_some(slow) + (slow.size() == 1 ? " still ends its" : " still end their") +
                     " workers; that may take " + duration_text(job.limits.stop_ms) +
                     " (limits.stop)");
  t.set_deadline(job, until_ms);
  relieve(t, job, slow);
}

void leave_unconfirmed(Transition& t, Job& job) {
  passed(t, job,
         "workers did not end within " + duration_text(last_checkpoint_ms(job) + kAfterGraceMs));
  if (!job.cancel_requested) {  // to be requeued
    t.withdraw_all(job.id, ActionKind::kStopWorkers);
    return;
  }
  t.facts(job.id).end = {job.at_limit ? JobState::kTimeout : JobState::kCancelled,
                         std::string(job.at_limit ? "the time limit has come" : "cancelled") +
                             "; some workers did not confirm their end" + describe_unsaved(t, job)};
}

// False: no node reads a checkpoint again.
bool pass_over_late_reader(Transition& t, Job& job) {
  const ConfirmDamage* order = present_reading(t, job.id);
  if (order == nullptr) return false;
  const std::string reader = order->node;
  passed(t, job,
         reader + " did not read " + order->claim.checkpoint + " again within " +
             duration_text(reading_limit_ms(job, *order)));
  pass_over_reader(t, job, reader);
  return true;
}

void job_deadline(Transition& t, Job& job) {
  t.set_deadline(job, 0);
  if (job.ending.requeues && t.now() >= job.ending.by_ms) {
    return conclude_for_good(t, job, "the time limit is too near");
  }
  switch (job.stage) {
    case PlanStage::kStopWorkers:
      if (saves_and_leaves(job)) return leave_unconfirmed(t, job);
      if (const int64_t until_ms = job.stage_since_ms + stop_limit_ms(job); t.now() < until_ms) {
        bear_with_slow_nodes(t, job,
                             job.ending.requeues ? std::min(until_ms, job.ending.by_ms) : until_ms);
        return;
      }
      lose_late_nodes(t, job, ActionKind::kStopWorkers,
                      "did not stop the workers within " + duration_text(stop_limit_ms(job)));
      return;
    case PlanStage::kStartWorkers:
      lose_late_nodes(t, job, ActionKind::kStartWorkers,
                      "did not start its workers within " +
                          duration_text(job.limits.start_ms + job.spec.preparation_ms()));
      return;
    case PlanStage::kWaitNodes:
      passed(t, job, "looking again at what is waited for");
      t.facts(job.id).look_again = true;
      return;
    case PlanStage::kFindCheckpoint:
    case PlanStage::kRecordGeneration: {
      if (pass_over_late_reader(t, job)) return;
      const Action* open = t.open(job.id, ActionKind::kFindCheckpoint, "");
      const auto* search = open == nullptr ? nullptr : &std::get<FindCheckpoint>(open->body);
      const bool in_mirror = search != nullptr && search->in_mirror;
      const CheckpointSpec& places = job.spec.checkpoint;
      const std::string what = "the checkpoint directory " +
                               (in_mirror ? places.mirror.dir : places.dir) +
                               " did not answer within " + duration_text(job.limits.directory_ms);
      Facts& facts = t.facts(job.id);
      if (in_mirror) facts.before_mirror = search->first;
      facts.first_place_failed = search != nullptr && !in_mirror;
      passed(t, job, what);
      facts.directory_failure = what;
      return;
    }
    case PlanStage::kRequeue:
      passed(t, job,
             "the requeue did not end this life of the job within " +
                 duration_text(kRequeueTimeoutMs));
      refuse_requeue(t, job, "the scheduler did not do it");
      return;
    case PlanStage::kMeetNodes:
      return;
    case PlanStage::kNone: {
      if (pass_over_late_reader(t, job)) return;
      if (job.state == JobState::kRunning) return last_ranks_are_late(t, job);
      const std::string what =
          "generation " + to_string(job.generation) +
          (ends_for_good(job)
               ? " did not save within " + duration_text(last_checkpoint_ms(job))
               : " completed no step within " + duration_text(job.limits.first_step_ms));
      passed(t, job, what);
      fault_seen(
          t, job,
          Fault{.cause = what, .node = "", .step = job.furthest_step, .seq = t.seq(), .hang = true},
          FaultKind::kCause);
      return;
    }
  }
}

// The agent reconnected, or answered, without some workers and without reporting their exits.
void lose_unaccounted(Transition& t, Job& job, Node& node) {
  for (Slot* slot : t.slots(node)) {
    if (!slot->unaccounted) continue;
    const int32_t rank = slot->key.rank.value;
    t.set_slot(*slot, SlotState::kPending, slot->generation, 0, 0, 0);
    const std::string what = "worker " + std::to_string(rank) + " on " + node.key.name +
                             " is gone and its exit was not reported";
    passed(t, job, node, what);
    if (!is_preparing(job)) {
      fault_seen(t, job, Fault{what, node.key.name, rank, job.furthest_step, t.seq()},
                 FaultKind::kCause);
    }
  }
}

std::string lateness(const Job& job, const Node& node) {
  if (node.state == NodeState::kUp) return " did not register again in time";
  if (node.launches == 0) return " did not register with the new controller in time";
  return " did not register within " + duration_text(job.limits.launch_ms);
}

void node_deadline(Transition& t, Job& job, Node& node) {
  const std::string& name = node.key.name;
  t.set_deadline(node, 0);
  std::string what;
  if (node.state == NodeState::kDown) {
    if (job.cancel_requested) return;
    passed(t, job, node, "time for another attempt to bring up " + name);
    t.facts(job.id).brought_back.push_back(
        {name, "attempt " + std::to_string(node.launch_attempts + 1)});
  } else if (node.state == NodeState::kUp && node.connected) {
    lose_unaccounted(t, job, node);
  } else if (node.state == NodeState::kUp || node.state == NodeState::kLaunching) {
    what = name + lateness(job, node);
    const bool was_launched = node.state == NodeState::kLaunching && node.launches > 0;
    passed(t, job, node, what);
    lose_node(t, job, node, what, was_launched ? Evidence::kSlow : Evidence::kBroken);
  } else if (node.state == NodeState::kEnding) {
    node_ended(t, node, "did not confirm its end in time");
  }
}

// Movement proves that the generation's nodes live. It is unknown for a command, and after a fault
// its ranks are stopped.
bool proves_by_moving(const Job& job) {
  const bool lives = is_training(job) || job.stage == PlanStage::kMeetNodes;
  return job.spec.train && lives && !job.cancel_requested;
}

void put_off(Transition& t, Job& job, const std::string& node) {
  const int64_t until_ms = t.now() + kSuspendedMs;
  if (node.empty()) {
    t.set_deadline(job, until_ms);
  } else {
    t.set_deadline(*t.node(job.id, node), until_ms);
  }
}

void resume_node(Transition& t, const Job& job, Node& node, bool restarted) {
  if (node.state == NodeState::kLaunching) {
    t.set_deadline(node, t.now() + job.limits.launch_ms);
  } else if (node.state == NodeState::kEnding) {
    t.set_deadline(node, t.now() + job.limits.end_ms + job.spec.clean_up_ms());
    if (restarted) node.connected = false;
  } else if (node.state == NodeState::kUp && restarted) {
    node.connected = false;
    t.set_state(node, node.state, "expected since the controller was started again");
    t.set_deadline(
        node, t.now() + std::max(job.spec.recovery.heartbeat_timeout_ms, job.limits.register_ms));
  } else if (node.deadline_ms != 0) {
    t.set_deadline(node, t.now() + report_limit_ms(job));
  }
}

// The rules cannot work on rows that lack what they rely on; other jobs go on.
void end_damaged_jobs(Transition& t) {
  for (auto& [id, job] : t.state().jobs) {
    if (has_ended(job.state)) continue;
    const std::string damage = find_damage(t.state(), job);
    if (damage.empty()) continue;
    std::vector<ActionId> open;
    for (const auto& [action_id, action] : t.state().outbox) {
      if (target_of(action.body).job == id) open.push_back(action_id);
    }
    for (const ActionId action : open) t.close(action);
    end_job(t, job, JobState::kFailed,
            "what the controller has stored of the job is damaged (" + damage +
                "); submit it again, it resumes from its checkpoints");
  }
}

// The end of a back-off may have passed unseen: look once more at what is waited for.
void resume_job(Transition& t, Job& job) {
  const bool waits = job.stage == PlanStage::kWaitNodes;
  job.stage_since_ms = t.now();
  const int64_t due =
      waits ? std::max(job.not_before_ms, t.now() + 1) : stage_deadline(job, t.now());
  t.set_deadline(job, std::max({due, last_ranks_deadline(t, job), verification_deadline(t, job)}));
}

}  // namespace

bool is_unheard(const Node& node) {
  const bool was_up = node.state == NodeState::kUp && !node.connected;
  const bool was_taken_over = node.state == NodeState::kLaunching && node.launches == 0;
  return node.deadline_ms != 0 && (was_up || was_taken_over);
}

void on(Transition& t, const ControllerResumed& e) {
  if (e.restarted) end_damaged_jobs(t);
  for (auto& [key, node] : t.state().nodes) {
    if (node.state != NodeState::kEnded) resume_node(t, *t.job(key.job), node, e.restarted);
  }
  for (auto& [id, job] : t.state().jobs) {
    if (!has_ended(job.state)) resume_job(t, job);
  }
}

void on(Transition& t, const SuspensionChanged& e) {
  Job* job = t.job(e.job);
  if (job == nullptr || has_ended(job->state) ||
      (job->suspended_since_ms != 0) == e.suspended) {  // told by each look at the scheduler
    t.result().refusal = "was known";
    t.result().log.clear();
    return;
  }
  if (e.suspended) {
    job->suspended_since_ms = t.now();
    job->reason = "suspended by the scheduler";
    t.changed(*job);
    return;
  }
  job->reason = "goes on after " + duration_text(t.now() - job->suspended_since_ms) +
                " in which the scheduler had suspended it";
  end_suspension(*job, t.now());
  for (Node* node : t.nodes(e.job)) {
    // One that has not registered since the controller was started again.
    const bool is_awaited =
        node->state == NodeState::kUp && !node->connected && node->deadline_ms != 0;
    if (node->state != NodeState::kEnded) resume_node(t, *job, *node, is_awaited);
  }
  resume_job(t, *job);
}

void on(Transition& t, const TrainingSeen& e) {
  const Job* job = t.job(e.job);
  if (job == nullptr || has_ended(job->state) || e.generation != job->generation ||
      !proves_by_moving(*job)) {
    t.refuse(e.job, "training of a generation that is not the present one");
    return;
  }
  bool was_known = true;
  for (Node* node : t.nodes(e.job)) {
    if (!is_unheard(*node) || !t.has_ranks(node->key)) continue;
    was_known = was_known && node->reason == kTrainsUnheard;
    t.set_state(*node, node->state, kTrainsUnheard);
    const Seq awaited_since = node->deadline_seq;
    t.set_deadline(*node, t.now() + job->limits.register_ms);
    node->deadline_seq = awaited_since;
  }
  if (was_known) t.result().log.clear();  // told once, and true for hours
}

void on(Transition& t, const Tick&) {
  auto& deadlines = t.state().index.deadlines;
  while (!deadlines.empty() && std::get<0>(*deadlines.begin()) <= t.now()) {
    const auto [at, id, name] = *deadlines.begin();
    Job& job = *t.job(id);
    if (job.suspended_since_ms != 0) {
      put_off(t, job, name);
    } else if (name.empty()) {
      job_deadline(t, job);
    } else {
      node_deadline(t, job, *t.node(id, name));
    }
    reconcile(t, job);
  }
}

std::vector<TrainingSeen> doubts(const State& state, int64_t now_ms) {
  std::vector<TrainingSeen> found;
  for (const auto& [at, id, name] : state.index.deadlines) {
    if (at > now_ms) break;
    const Job& job = state.jobs.at(id);
    if (name.empty() || !proves_by_moving(job) || !state.index.ranks.contains({id, name})) continue;
    const bool is_new = std::none_of(found.begin(), found.end(),
                                     [&](const TrainingSeen& seen) { return seen.job == job.id; });
    if (is_new && is_unheard(state.nodes.at({id, name}))) {
      found.push_back({id, job.generation, job.spec.recovery.heartbeat_timeout_ms});
    }
  }
  return found;
}

std::optional<int64_t> next_deadline(const State& state) {
  const auto& deadlines = state.index.deadlines;
  if (deadlines.empty()) return std::nullopt;
  return std::get<0>(*deadlines.begin());
}

}  // namespace hpctl::core
