// SPDX-License-Identifier: Apache-2.0
// An action could not be carried out. Permanent failures end the job with the reason; others are
// faults like any other, within the restart budget.
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "controller/core/membership.h"
#include "controller/core/mirror.h"
#include "controller/core/prune.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"
#include "controller/core/second_reader.h"
#include "controller/core/withdrawn_records.h"

namespace hpctl::core {

namespace {

const char* what_failed(ActionKind kind) {
  switch (kind) {
    case ActionKind::kLaunchNode:
      return "could not be launched";
    case ActionKind::kFindCheckpoint:
      return "the checkpoint directory could not be read";
    case ActionKind::kRecordGeneration:
      return "the generation record could not be written";
    case ActionKind::kStartWorkers:
      return "could not start its workers";
    case ActionKind::kStopWorkers:
      return "could not stop its workers";
    case ActionKind::kEndNode:
      return "could not be ended";
    case ActionKind::kRequeueJob:
      return "the job could not be requeued";
    case ActionKind::kReplaceNode:
      return "could not be marked to be replaced or rebooted";
    case ActionKind::kPruneCheckpoints:
      return "older checkpoints stay";
    case ActionKind::kMirrorCheckpoint:
      return "the mirror is not up to date";
    case ActionKind::kConfirmDamage:
      return "could not read a checkpoint again";
  }
  return "failed";
}

}  // namespace

void on(Transition& t, const ActionFailed& e) {
  const auto it = t.state().outbox.find(e.action);
  if (it == t.state().outbox.end()) {
    t.refuse(e.job, "action " + to_string(e.action) + " was withdrawn or answered before", e.node);
    return;
  }
  const Target target = target_of(it->second.body);
  const auto* search = std::get_if<FindCheckpoint>(&it->second.body);
  const bool of_first_place = search != nullptr && !search->in_mirror;
  std::optional<ConfirmDamage> reading;
  if (const auto* order = std::get_if<ConfirmDamage>(&it->second.body)) reading = *order;
  std::optional<FirstPlace> before_mirror;
  if (search != nullptr && search->in_mirror) before_mirror = search->first;
  Job& job = *t.job(target.job);
  remember_withdrawn(t, it->second);  // e.g. the directory could not be made durable
  t.close(e.action);
  const std::string cause =
      (target.node.empty() ? "" : target.node + " ") + what_failed(target.kind) + ": " + e.reason;
  Node* node = target.node.empty() ? nullptr : t.node(target.job, target.node);
  const bool of_a_node = target.kind == ActionKind::kEndNode ||
                         target.kind == ActionKind::kLaunchNode ||
                         target.kind == ActionKind::kStopWorkers;
  HP_CHECK(node != nullptr || !of_a_node);
  if (target.kind == ActionKind::kEndNode) {
    t.set_state(*node, NodeState::kEnding, cause);  // limits.end ends the wait
  } else if (target.kind == ActionKind::kRequeueJob) {
    refuse_requeue(t, job, e.reason);
  } else if (target.kind == ActionKind::kPruneCheckpoints) {
    prune_failed(t, job, cause);
  } else if (target.kind == ActionKind::kMirrorCheckpoint) {
    mirror_failed(t, job, cause);
  } else if (reading) {
    reader_failed(t, job, *reading, e.reason);
  } else if (target.kind == ActionKind::kReplaceNode) {
    t.note("NotPossible", job, cause, target.node);
    t.facts(job.id).look_again = node != nullptr && t.has_ranks(node->key);
  } else if (target.kind == ActionKind::kLaunchNode && e.storage) {
    if (node->state == NodeState::kLaunching) postpone_launch(t, job, *node, cause);
  } else if (node != nullptr && !t.has_ranks(node->key)) {
    if (node->state == NodeState::kLaunching) lose_node(t, job, *node, cause);
  } else if (e.node_fault && node != nullptr && !job.cancel_requested &&
             can_vacate(t, job, *node)) {
    condemn(t, job, *node, {e.reason, e.hardware, e.reboot});
  } else if ((e.permanent || e.node_fault) && !job.cancel_requested) {
    t.facts(job.id).end = {JobState::kFailed, cause};
  } else if (target.kind == ActionKind::kLaunchNode || target.kind == ActionKind::kStopWorkers) {
    const bool stop_of_a_running_job = target.kind == ActionKind::kStopWorkers;
    if (stop_of_a_running_job || node->state == NodeState::kLaunching) {
      lose_node(t, job, *node, cause);
    }
  } else if (target.kind == ActionKind::kStartWorkers) {
    fault_seen(t, job,
               Fault{.cause = cause,
                     .node = target.node,
                     .step = job.furthest_step,
                     .seq = t.seq(),
                     .start = true},
               FaultKind::kCause);
  } else {
    t.facts(job.id).directory_failure = cause;
    t.facts(job.id).first_place_failed = of_first_place;
    t.facts(job.id).before_mirror = std::move(before_mirror);
  }
}

}  // namespace hpctl::core
