// SPDX-License-Identifier: Apache-2.0
#include "controller/core/plan.h"
#include "controller/core/last_generation.h"
#include "controller/core/membership.h"
#include "controller/core/mirror.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery.h"
#include "controller/core/verification.h"

#include <algorithm>
#include <set>

#include "common/base/plausible.h"
#include "controller/core/lost_time.h"

namespace hpctl::core {

namespace {

constexpr size_t kNamesShown = 4;

// Every generation that may have workers anywhere.
Generation newest_known(const Job& job) {
  return std::max(job.generation, job.directory_generation);
}

std::vector<std::string> names_of(const std::vector<Node*>& nodes) {
  std::vector<std::string> names;
  for (const Node* node : nodes) names.push_back(node->key.name);
  return names;
}

void launch_missing(Transition& t, Job& job) {
  for (const NodeKey& key : KeysOf(t.state().index.not_up, job.id)) {
    Node& node = t.state().nodes.at(key);
    if (node.state == NodeState::kDown) launch(t, job, node, node.key.name + " is down");
  }
}

// From StopWorkers on; of a command after SIGTERM, of the built-in trainer after an Abort.
int64_t sigkill_after_ms(const Job& job) {
  return job.spec.train ? job.limits.abort_ms : job.spec.recovery.grace_ms;
}

}  // namespace

void enter_stage(Transition& t, Job& job, PlanStage stage) {
  if (stage != PlanStage::kNone) forget_verifications(t, job);
  job.stage = stage;
  count_stage(t, job, stage);
  job.stage_since_ms = t.now();
  job.plan_seq = t.seq();
  t.set_deadline(job, stage_deadline(job, t.now()));
}

void learn_step(Job& job, uint64_t step) {
  const uint64_t last = job.spec.train ? static_cast<uint64_t>(job.spec.train->steps) : kMaxStep;
  if (step <= last) job.furthest_step = std::max(job.furthest_step, step);
}

bool is_preparing(const Job& job) {
  return job.stage != PlanStage::kNone && job.stage != PlanStage::kStartWorkers &&
         job.stage != PlanStage::kMeetNodes;
}

bool is_training(const Job& job) {
  return job.state == JobState::kRunning && job.stage == PlanStage::kNone;
}

bool saves_and_leaves(const Job& job) { return job.cancel_requested || job.at_limit; }

bool wants_new_processes(const Job& job) {
  return job.restarts_without_progress == kFruitlessInSameProcesses;
}

int64_t last_checkpoint_ms(const Job& job) {
  const int64_t limit_ms = job.limits.last_checkpoint_ms;
  if (!job.at_limit || job.spec.limits.last_checkpoint_ms > 0) return limit_ms;
  const int64_t noticed_ms = job.spec.slurm.warning_seconds * 1000;
  return std::max(limit_ms, noticed_ms - job.limits.end_ms - kAfterGraceMs);
}

std::string join_some(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == kNamesShown) return text + ", ...";
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return text;
}

int64_t stop_limit_ms(const Job& job) {
  const int64_t limit_ms = sigkill_after_ms(job) + job.limits.stop_ms;
  if (!job.saves_first) return limit_ms;
  return std::max(limit_ms, last_checkpoint_ms(job) + kAfterGraceMs);
}

int64_t report_limit_ms(const Job& job) {
  return std::clamp(job.spec.recovery.heartbeat_timeout_ms, kReportTimeoutMs, kMostReportMs);
}

namespace {

int64_t own_deadline(const Job& job, int64_t now_ms) {
  switch (job.stage) {
    case PlanStage::kStopWorkers:
      return now_ms + (saves_and_leaves(job) || job.saves_first
                           ? last_checkpoint_ms(job) + kAfterGraceMs
                           : std::min(sigkill_after_ms(job) + kSlowStopMs, stop_limit_ms(job)));
    case PlanStage::kWaitNodes:
      return job.not_before_ms > now_ms ? job.not_before_ms : 0;
    case PlanStage::kFindCheckpoint:
    case PlanStage::kRecordGeneration:
      return now_ms + job.limits.directory_ms;
    case PlanStage::kStartWorkers:
      return now_ms + job.limits.start_ms + job.spec.preparation_ms();
    case PlanStage::kRequeue:
      return now_ms + kRequeueTimeoutMs;
    case PlanStage::kMeetNodes:  // each node has its own
      return 0;
    case PlanStage::kNone:
      break;
  }
  if (ends_for_good(job)) return now_ms + last_checkpoint_ms(job);
  const bool waits_for_step = !has_ended(job.state) && job.state != JobState::kRunning;
  return waits_for_step ? now_ms + job.limits.first_step_ms : 0;
}

}  // namespace

int64_t stage_deadline(const Job& job, int64_t now_ms) {
  const int64_t due_ms = own_deadline(job, now_ms);
  if (!job.ending.requeues) return due_ms;
  return due_ms == 0 ? job.ending.by_ms : std::min(due_ms, job.ending.by_ms);
}

int64_t last_ranks_limit_ms(const Job& job) {
  const int64_t given = job.spec.recovery.hang_timeout_ms;
  return given > 0 ? given : kLastRanksTimeoutMs;
}

std::vector<Rank> unfinished_ranks(const Transition& t, const Job& job) {
  std::vector<Rank> ranks;
  for (const SlotKey& key : KeysOf(t.state().index.unfinished, job.id)) ranks.push_back(key.rank);
  return ranks;
}

int64_t last_ranks_deadline(const Transition& t, const Job& job) {
  if (job.spec.train || !is_training(job) || job.cancel_requested) return 0;
  const auto left = static_cast<int32_t>(unfinished_ranks(t, job).size());
  return left > 0 && left < job.world_size() ? t.now() + last_ranks_limit_ms(job) : 0;
}

void launch(Transition& t, Job& job, Node& node, const std::string& reason) {
  if (t.now() < job.not_before_ms || t.now() < node.deadline_ms) return;
  const bool given_up = node.launched_for == job.restarts &&
                        node.launch_attempts >= kMaxLaunchAttempts && !t.has_ranks(node.key);
  const bool ends = saves_and_leaves(job) || ends_for_good(job);
  if (given_up || job.stage == PlanStage::kRequeue || ends) return;
  // In vain, as long as anything else can be done.
  if (node.taken && can_vacate(t, job, node)) return;
  node.launches += 1;
  t.set_state(node, NodeState::kLaunching, reason);
  t.set_deadline(node, t.now() + job.limits.launch_ms);
  if (node.launched_for != job.restarts) node.launch_attempts = 0;
  node.launch_attempts += 1;
  node.launched_for = job.restarts;
  node.launched_ms = t.now();
  node.launch_seq = t.seq();
  t.issue(LaunchNode{job.id, node.key.name}, reason);
  t.note("LaunchNode", job, "launching " + node.key.name + ": " + reason, node.key.name);
}

std::vector<std::string> unanswered(Transition& t, const Job& job, ActionKind kind, size_t most) {
  std::vector<std::string> names;
  const auto& open = t.state().index.open;
  for (auto it = open.lower_bound({job.id, kind, ""});
       it != open.end() && std::get<0>(it->first) == job.id && std::get<1>(it->first) == kind;
       ++it) {
    if (names.size() == most) break;
    if (t.has_ranks({job.id, std::get<2>(it->first)})) names.push_back(std::get<2>(it->first));
  }
  return names;
}

void enter_stop_workers(Transition& t, Job& job) {
  t.facts(job.id).stop_workers = false;
  std::set<std::string> relieved;  // their workers still die; they get no others before
  for (const Node* node : t.nodes(job.id)) {
    if (is_stopping(t.state(), *node) && !t.has_ranks(node->key)) relieved.insert(node->key.name);
  }
  for (const auto kind :
       {ActionKind::kFindCheckpoint, ActionKind::kRecordGeneration, ActionKind::kStartWorkers,
        ActionKind::kStopWorkers, ActionKind::kRequeueJob, ActionKind::kPruneCheckpoints,
        ActionKind::kConfirmDamage}) {
    t.withdraw_all(job.id, kind);
  }
  withdraw_mirror(t, job);
  enter_stage(t, job, PlanStage::kStopWorkers);
  if (!saves_and_leaves(job)) promote_spares(t, job);
  std::vector<std::string> asked;
  const Generation through = newest_known(job);
  const bool graceful = saves_and_leaves(job) || job.saves_first;
  const bool stacks = has_just_hung(t, job);
  for (Node* node : t.nodes(job.id)) {
    if (node->state == NodeState::kDown) {
      launch(t, job, *node, node->key.name + " is down");
    }
    if (node->state != NodeState::kUp || through == Generation{}) continue;
    if (!t.has_ranks(node->key) && !relieved.contains(node->key.name)) continue;
    t.issue(StopWorkers{job.id, node->key.name, through, graceful, stacks}, job.reason);
    asked.push_back(node->key.name);
  }
  if (!asked.empty()) {
    t.note("StopWorkers", job,
           "workers up to generation " + to_string(through) +
               (graceful ? " save and end" : " end") + " on " + join_some(asked) +
               (stacks ? "; first their stacks are written" : ""));
  }
}

void enter_wait_nodes(Transition& t, Job& job) {
  t.facts(job.id).look_again = false;
  t.withdraw_all(job.id, ActionKind::kConfirmDamage);
  t.withdraw_all(job.id, ActionKind::kFindCheckpoint);
  t.withdraw_all(job.id, ActionKind::kRecordGeneration);
  t.withdraw_all(job.id, ActionKind::kRequeueJob);
  enter_stage(t, job, PlanStage::kWaitNodes);
  expire_quarantines(t, job);
  promote_spares(t, job);
  vacate_quarantined(t, job);
  if (job.stage != PlanStage::kWaitNodes) return;
  grow(t, job);
  launch_missing(t, job);
  if (t.now() < job.not_before_ms) {
    t.note("BackOff", job,
           "the next attempt waits " + std::to_string(job.not_before_ms - t.now()) + " ms");
  } else if (const auto missing = nodes_missing(t, job); !missing.empty()) {
    t.note("WaitNodes", job, "waiting for " + join_some(names_of(missing)));
  }
}

void enter_running(Transition& t, Job& job, const std::string& reason) {
  if (!shows_steps(job)) {
    end_loss(job, t.now());
    job.stepped_ms = 0;
  }
  begin_steps(t, job);
  job.state = JobState::kRunning;
  end_storage_wait(job, t.now());
  job.running_since_ms = t.now();
  job.reason = reason;
  job.plan_seq = t.seq();
  if (job.stage == PlanStage::kNone) t.set_deadline(job, last_ranks_deadline(t, job));
  t.changed(job);
  t.note("JobRunning", job, reason);
}

}  // namespace hpctl::core
