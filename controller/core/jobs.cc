// SPDX-License-Identifier: Apache-2.0
// A job begins and ends here.
#include <algorithm>
#include <set>

#include "controller/core/last_generation.h"
#include "controller/core/lost_time.h"
#include "controller/core/membership.h"
#include "controller/core/mirror.h"
#include "controller/core/plan.h"
#include "controller/core/prune.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

// Why the job cannot be accepted; "" = it can.
std::string find_conflict(const State& state, const JobSubmitted& e) {
  const JobSpec& spec = e.spec;
  const auto problems = find_problems(spec);
  if (!problems.empty()) return problems.front().key + ": " + problems.front().message;
  const auto& index = state.index;
  if (const auto it = index.live_names.find(spec.name); it != index.live_names.end()) {
    return "name: job " + to_string(it->second) + " is called \"" + spec.name +
           "\" and has not ended; choose another name, or hpctl cancel " + to_string(it->second);
  }
  if (state.jobs.contains(e.job)) return "there is a job " + to_string(e.job) + " already";
  const std::set<std::string> names(e.nodes.begin(), e.nodes.end());
  if (!e.nodes.empty() && (names.size() != static_cast<size_t>(spec.all_nodes()) ||
                           names.size() != e.nodes.size() || names.contains(""))) {
    return "nodes: expected " + std::to_string(spec.all_nodes()) + " different names, found " +
           std::to_string(e.nodes.size()) + ": " + join_some(e.nodes);
  }
  const auto it = index.live_checkpoint_dirs.find(spec.checkpoint.dir);
  if (it != index.live_checkpoint_dirs.end()) {
    return "checkpoint.dir: " + spec.checkpoint.dir + " is in use by job " + to_string(it->second) +
           ", which has not ended; choose another directory";
  }
  return "";
}

std::vector<std::string> local_node_names(int32_t count) {
  std::vector<std::string> names;
  for (int32_t i = 0; i < count; ++i) names.push_back(local_node_name(i));
  return names;
}

Job make_job(Transition& t, const JobSubmitted& e) {
  Job job;
  job.id = e.job == JobId{} ? next_local_id(t.state()) : e.job;
  job.spec = e.spec;
  job.owner_uid = e.uid;
  job.submit_key = e.submit_key;
  job.backend = e.backend;
  job.limits = resolve(e.spec.limits, e.backend.limits);
  job.state = JobState::kStarting;
  job.reason = "nodes are coming up";
  job.submitted_wall_ms = t.event().wall_ms;
  continue_totals(t, job, e.totals);
  // Its directory, if that shows no record now, is away.
  job.generation = job.directory_generation = e.totals.generation;
  job.committed_step = e.totals.committed_step;
  return job;
}

void bind_slots(Transition& t, const Job& job, const std::vector<std::string>& names) {
  for (int32_t rank = 0; rank < job.spec.world_size(); ++rank) {
    Slot slot;
    slot.key = {job.id, Rank{rank}};
    slot.node = names.at(static_cast<size_t>(rank / job.spec.workers_per_node));
    t.add(std::move(slot));
  }
}

// Lemons come last, and behind them nodes that were to be excluded: they are the spares.
std::vector<std::string> names_of(const Job& job, const JobSubmitted& e) {
  auto names = e.nodes.empty() ? local_node_names(job.spec.all_nodes()) : e.nodes;
  for (const auto* last : {&e.lemons, &e.former.excluded}) {
    std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
      return std::find(last->begin(), last->end(), name) == last->end();
    });
  }
  return names;
}

// Leaves the node to end by itself or asks it to.
void end_node(Transition& t, const Job& job, Node& node) {
  if (node.state == NodeState::kDown) {
    node_ended(t, node, "was down when the job ended");
    return;
  }
  // One that is just being launched has nothing to clean up; an adopted one may.
  const bool works = node.state != NodeState::kLaunching || node.launches == 0;
  t.set_state(node, NodeState::kEnding, "the job has ended");
  t.set_deadline(node, t.now() + (works ? job.limits.end_ms + job.spec.clean_up_ms()
                                        : kEndLaunchingTimeoutMs));
  t.issue(EndNode{job.id, node.key.name, has_just_hung(t, job)},
          std::string("the job is ") + to_string(job.state));
}

// After the time limit, in the queue.
bool can_be_continued(const Job& job) {
  return job.spec.slurm.requeue_at_limit && job.backend.requeues && job.requeue_refusal.empty();
}

// A job in a recovery. Its idle workers have nothing that saves: a last generation does.
bool has_steps_in_memory_alone(const Job& job) {
  return job.state == JobState::kRecovering && job.stage != PlanStage::kRequeue &&
         may_save_memory(job);
}

std::string cause_of(const CancelRequested& e) {
  return e.reason.empty() ? "cancelled by uid " + std::to_string(e.uid) : e.reason;
}

// Its last generation goes on, and saves.
void end_instead_of_requeue(Transition& t, Job& job, const std::string& reason) {
  job.ending.requeues = false;
  job.ending.seq = t.seq();
  job.ending.state = JobState::kCancelled;
  job.ending.reason = reason;
  job.reason = reason + "; first the steps that only memory has are saved";
  t.changed(job);
}

bool has_open_action(const State& state, JobId job) {
  const auto it = state.index.open.lower_bound({job, ActionKind{}, ""});
  return it != state.index.open.end() && std::get<0>(it->first) == job;
}

// Why the job cannot be removed; "" = it can.
std::string find_removal_conflict(Transition& t, const Job* job, const JobRemoved& e) {
  const std::string name = "job " + to_string(e.job);
  if (job == nullptr || job->removed) return "there is no " + name;
  if (e.uid != 0 && e.uid != job->owner_uid) {
    return name + " belongs to uid " + std::to_string(job->owner_uid) + ", not to uid " +
           std::to_string(e.uid);
  }
  if (!has_ended(job->state)) {
    return name + " is " + shown_state(*job) + "; end it first: hpctl cancel " + to_string(e.job);
  }
  const std::vector<Node*> nodes = t.nodes(e.job);
  const bool is_ending = std::any_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return node->state != NodeState::kEnded;
  });
  if (!is_ending && !has_open_action(t.state(), e.job)) return "";
  return name + " has ended, and its nodes are still ending; try again in a minute";
}

const char* end_entry(JobState state) {
  if (state == JobState::kFinished) return "JobFinished";
  if (state == JobState::kTimeout) return "JobTimeout";
  return state == JobState::kFailed ? "JobFailed" : "JobCancelled";
}

}  // namespace

// Local numbers go past those that were given from outside.
JobId next_local_id(const State& state) {
  JobId id{state.last_local_job.value + 1};
  while (state.jobs.contains(id)) ++id.value;
  return id;
}

std::string local_node_name(int32_t index) { return "n" + std::to_string(index); }

void on(Transition& t, const JobSubmitted& e) {
  if (!e.submit_key.empty()) {
    const auto& keys = t.state().index.submit_keys;
    if (const auto it = keys.find({e.uid, e.submit_key}); it != keys.end()) {
      t.result().submitted = it->second;
      return;
    }
  }
  if (const std::string conflict = find_conflict(t.state(), e); !conflict.empty()) {
    t.refuse({}, conflict);
    return;
  }
  Job& job = t.add(make_job(t, e));
  if (e.job == JobId{}) t.state().last_local_job = job.id;
  t.result().submitted = job.id;
  t.result().log.back().job = job.id;
  const auto names = names_of(job, e);
  bind_slots(t, job, names);
  t.note("JobStarting", job,
         std::to_string(job.spec.nodes) + " nodes with " +
             std::to_string(job.spec.workers_per_node) + " workers each" +
             (job.spec.spares == 0 ? "" : ", spares: " + std::to_string(job.spec.spares)));
  for (const std::string& name : names) {
    Node node;
    node.key = {job.id, name};
    node.state = NodeState::kDown;
    remember_node(node, e.former.quarantined);
    launch(t, job, t.add(std::move(node)), "the job needs it");
  }
  if (exclude_again(t, job, e.former)) return;
  enter_stage(t, job, PlanStage::kWaitNodes);
  t.facts(job.id).look_again = true;
}

void on(Transition& t, const CancelRequested& e) {
  Job* job = t.job(e.job);
  if (const std::string conflict = order_conflict(job, e.job, e.uid); !conflict.empty()) {
    t.refuse(e.job, conflict);
  } else if (job->ending.requeues) {
    if (!e.time_limit) end_instead_of_requeue(t, *job, cause_of(e));
  } else if (e.time_limit && can_be_continued(*job) && !ends_for_good(*job)) {
    if (has_steps_in_memory_alone(*job)) {
      save_memory_for_requeue(t, *job);
    } else if (!saves_and_leaves(*job)) {
      save_for_requeue(
          t, *job, "the time limit is near: the job saves what it has and goes back to the queue");
    }
  } else if (has_steps_in_memory_alone(*job)) {
    begin_ending(t, *job, e.time_limit ? JobState::kTimeout : JobState::kCancelled, cause_of(e));
  } else if (!job->cancel_requested) {
    job->cancel_requested = true;
    job->at_limit = e.time_limit;
    job->cancel_reason = e.reason;
    job->reason = cause_of(e) + "; workers are stopping";
    t.facts(job->id).stop_workers = true;
  }
}

void on(Transition& t, const JobRemoved& e) {
  Job* job = t.job(e.job);
  if (const std::string conflict = find_removal_conflict(t, job, e); !conflict.empty()) {
    t.refuse(e.job, conflict);
    return;
  }
  job->removed = true;
  t.changed(*job);
}

void node_ended(Transition& t, Node& node, const std::string& reason) {
  t.withdraw(node.key.job, ActionKind::kEndNode, node.key.name);
  t.set_deadline(node, 0);
  t.set_state(node, NodeState::kEnded, reason);
  node.connected = false;
  for (Slot* slot : t.slots(node)) {
    if (slot->state == SlotState::kExited) continue;
    t.set_slot(*slot, SlotState::kExited, slot->generation, slot->pid, kEndedUnreported, 0);
  }
}

void end_job(Transition& t, Job& job, JobState state, const std::string& reason) {
  end_suspension(job, t.now());
  end_loss(job, t.now());
  end_storage_wait(job, t.now());
  job.state = state;
  job.reason = reason;
  job.stage = PlanStage::kNone;
  job.plan_seq = t.seq();
  job.ended_wall_ms = t.event().wall_ms;
  t.release_names(job);
  t.set_deadline(job, 0);
  for (const auto kind :
       {ActionKind::kLaunchNode, ActionKind::kFindCheckpoint, ActionKind::kRecordGeneration,
        ActionKind::kStartWorkers, ActionKind::kStopWorkers, ActionKind::kRequeueJob,
        ActionKind::kConfirmDamage}) {
    t.withdraw_all(job.id, kind);
  }
  if (state != JobState::kFinished) {
    t.withdraw_all(job.id, ActionKind::kPruneCheckpoints);
    t.withdraw_all(job.id, ActionKind::kMirrorCheckpoint);
  }
  // The exits of a last generation explain nothing.
  const Seq because = job.ending.reason.empty() ? t.seq() : job.ending.seq;
  t.note_because(because, end_entry(state), job, reason);
  for (Node* node : t.nodes(job.id)) end_node(t, job, *node);
  if (state != JobState::kFinished) return;
  finish_prune(t, job);
  finish_mirror(t, job);
}

}  // namespace hpctl::core
