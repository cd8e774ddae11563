// SPDX-License-Identifier: Apache-2.0
// From the checkpoint directory to a running generation: which checkpoint, which number, which
// parent. The record is durable before any worker of the generation is started, so the directory
// alone tells a successor what happened.
#include <algorithm>

#include "common/base/plausible.h"
#include "common/job/lineage.h"
#include "controller/core/last_generation.h"
#include "controller/core/lost_time.h"
#include "controller/core/mirror.h"
#include "controller/core/plan.h"
#include "controller/core/quarantine.h"
#include "controller/core/rules.h"
#include "controller/core/second_reader.h"
#include "controller/core/withdrawn_records.h"

namespace hpctl::core {

namespace {

bool resumes_from_path(const Job& job) { return job.spec.checkpoint.resume.starts_with('/'); }

// The step in the name of the checkpoint that job.yaml names; 0 when the name is not ours.
uint64_t step_of_path(const std::string& path) {
  const auto name = parse_checkpoint_name(path.substr(path.rfind('/') + 1));
  return name ? name->step : 0;
}

// A job that does not resume from the directory begins a new chain there (parent 0); its later
// generations belong to that chain.
bool begins_chain(const Job& job) {
  return job.generation == Generation{} && job.spec.checkpoint.resume != "latest";
}

Facts::Origin choose_origin(const Job& job, const CheckpointChosen& e) {
  Facts::Origin origin{e.checkpoint, e.step, e.newest_generation};
  if (begins_chain(job)) origin = {};
  if (origin.checkpoint.empty() && resumes_from_path(job)) {
    origin.checkpoint = job.spec.checkpoint.resume;
    origin.step = step_of_path(origin.checkpoint);
  }
  return origin;
}

// A state that leads to no progress may be bad in memory, too, but two faults in a short time prove
// nothing against it: other processes try it once more (wants_new_processes()).
bool trusts_memory(const Job& job) {
  return !job.without_memory && job.restarts_without_progress < kMaxFruitlessFromMemory;
}

// No completed step is repeated if the workers' memory is at least as new as the disk, and no other
// controller has created a generation since.
void prefer_memory(Transition& t, const Job& job, Facts::Origin& origin) {
  if (!trusts_memory(job) || origin.parent != job.generation) return;
  if (!job.spec.train) return;
  auto found = find_in_memory(t, job);
  if (!found || found->step < origin.step) return;
  found->committed = origin.checkpoint.starts_with('/') ? "" : origin.checkpoint;
  origin = *std::move(found);
}

// ", from step-10.g1"; "" of a command, which finds its own.
std::string describe_origin(const Job& job, const Facts::Origin& origin,
                            const std::string& separator) {
  if (!job.spec.train) return "";
  std::string text = separator + "from ";
  if (origin.memory_of != Generation{}) {
    text += "the memory of generation " + to_string(origin.memory_of);
    if (origin.former_parts > 0) {
      return text + " (" + std::to_string(origin.former_parts) + " parts become " +
             std::to_string(parts_of_state(job)) + ")";
    }
    if (origin.refilled.empty()) return text;
    std::vector<std::string> ranks;
    for (const Rank rank : origin.refilled) ranks.push_back(to_string(rank));
    const bool copies = parts_of_state(job) == job.world_size();
    return text + (copies ? " (copies at peers: " : " (that of replicas: ") +
           (ranks.size() == 1 ? "rank " : "ranks ") + join_some(ranks) + ")";
  }
  text += origin.checkpoint.empty() ? "the seed" : origin.checkpoint;
  if (!job.damaged.empty()) {
    text += " (damaged and not used: " + join_some({job.damaged.begin(), job.damaged.end()}) + ")";
  }
  return text;
}

// `arenas`: by rank. An arena stays as it is until a worker of this generation has begun there,
// which WorkersStarted or that worker's exit tells. Until then another fault may need what is in
// it.
void start_workers_on(Transition& t, const Job& job, const Node& node,
                      const std::vector<ArenaSeals>& arenas) {
  StartWorkers action{job.id,          node.key.name,  job.generation, {},
                      job.checkpoint,  job.start_step, job.memory_of,  job.refilled,
                      job.former_parts};
  action.last = ends_for_good(job);
  action.suspect = action.last && is_state_accused(job);
  for (Slot* slot : t.slots(node)) {
    action.ranks.push_back(slot->key.rank);
    const auto rank = static_cast<size_t>(slot->key.rank.value);
    t.set_slot(*slot, SlotState::kPending, job.generation, 0, 0, 0);
    if (rank < arenas.size() && arenas[rank].parts > 0) {
      t.set_seals(*slot, arenas[rank], node.boot_id);
    }
  }
  t.issue(std::move(action), "generation " + to_string(job.generation) + " is recorded");
}

}  // namespace

void enter_find_checkpoint(Transition& t, Job& job, const std::string& reason) {
  t.withdraw_all(job.id, ActionKind::kRecordGeneration);
  enter_stage(t, job, PlanStage::kFindCheckpoint);
  t.facts(job.id).origin.reset();
  t.withdraw_all(job.id, ActionKind::kFindCheckpoint);
  if (ask_second_reader(t, job, reason)) return;
  const std::string text = reason + (job.spec.train ? "; looking for the checkpoint to start from"
                                                    : "; looking for the newest generation");
  FindCheckpoint order{job.id, {job.damaged.begin(), job.damaged.end()}, job.claim, job.generation};
  order.withdrawn = job.withdrawn;
  order.job_uuid = job.submit_key;
  t.issue(std::move(order), text);
  t.note("FindCheckpoint", job, text);
}

void enter_record_generation(Transition& t, Job& job, const Facts::Origin& origin) {
  // Two records of one generation, one in each place, would stop the mirror for good. In the same
  // place the number is ordered again: it is taken if a record was created since the search.
  const OrderedRecord& before = job.mirror.ordered;
  if (before.in_mirror != origin.in_mirror) {
    job.directory_generation = std::max(job.directory_generation, before.generation);
  }
  const Generation newest = std::max(job.generation, job.directory_generation);
  if (newest.value >= kMaxGeneration) {
    end_job(t, job, JobState::kFailed,
            "no generation can follow " + to_string(newest) + ", which an agent or a record in " +
                job.spec.checkpoint.dir +
                "/generations names; submit again with an empty checkpoint.dir, or with "
                "checkpoint.resume");
    return;
  }
  enter_stage(t, job, PlanStage::kRecordGeneration);
  RecordGeneration action;
  action.job = job.id;
  action.generation = {newest.value + 1};
  if (has_mirror(job)) job.mirror.ordered = {action.generation, origin.in_mirror};
  action.parent = origin.parent;
  action.start_step = origin.step;
  action.checkpoint = origin.checkpoint;
  action.memory_of = origin.memory_of;
  action.refilled = origin.refilled;
  action.former_parts = origin.former_parts;
  action.committed = origin.committed;
  action.in_mirror = origin.in_mirror;
  action.withdrawn = withdrawn_generations(job);
  action.reason = job.fault.empty() ? "job submitted" : job.fault;
  action.restarts_used = job.restarts;
  action.damaged.assign(job.damaged.begin(), job.damaged.end());
  for (const Node* node : t.nodes(job.id)) {
    for (const Slot* slot : t.slots(*node)) {
      action.members.emplace_back(slot->key.rank, node->key.name);
    }
  }
  std::sort(action.members.begin(), action.members.end());
  action.quarantined = quarantined_nodes(t, job);
  const std::string what = "generation " + to_string(action.generation) + " starts" +
                           (job.spec.train ? " at step " + std::to_string(origin.step) : "") +
                           describe_origin(job, origin, " ");
  t.issue(std::move(action), what);
  t.note("RecordGeneration", job, what).step = origin.step;
}

namespace {

// What earlier jobs of the chain have found. A job that begins a chain has nothing to do with it.
void learn_recorded_damage(Transition& t, Job& job, const CheckpointChosen& e) {
  if (job.generation != Generation{} || job.spec.checkpoint.resume != "latest") return;
  if (e.damaged.empty()) return;
  job.damaged.insert(e.damaged.begin(), e.damaged.end());
  t.changed(job);
  t.note("CheckpointDamaged", job,
         "an earlier job or generation has found damaged: " + join_some(e.damaged));
}

// The seed, or the path that the job once began with, would give up all steps in silence.
std::string find_want_of_checkpoint(const Job& job, const Facts::Origin& origin,
                                    const std::string& lost) {
  if (job.damaged.contains(origin.checkpoint)) {
    return "checkpoint.resume names " + origin.checkpoint +
           ", which is damaged; name another checkpoint and submit again";
  }
  if (!job.spec.train || origin.memory_of != Generation{}) return "";
  if (!lost.empty() && !begins_chain(job) && job.damaged.empty()) {
    return "no checkpoint is left in " + job.spec.checkpoint.dir + ", where " + lost +
           " was committed; restore it and submit again, or start over with checkpoint.resume: "
           "none and hpctl submit --fresh";
  }
  if (!origin.checkpoint.empty() || job.damaged.empty()) return "";
  return "every checkpoint in " + job.spec.checkpoint.dir +
         " is damaged: " + join_some({job.damaged.begin(), job.damaged.end()}) +
         "; see hpctl checkpoint verify, restore one of them, or start over with hpctl submit "
         "--fresh";
}

// Steps are lost that were on disk, and the job goes on all the same: people must hear of it.
void tell_of_lost_checkpoint(Transition& t, const Job& job, const Facts::Origin& origin,
                             const std::string& lost) {
  const bool is_older = !origin.checkpoint.empty() && origin.memory_of == Generation{};
  if (!is_older || lost.empty() || begins_chain(job)) return;
  t.note("CheckpointGone", job,
         lost + " was committed and is gone from " + job.spec.checkpoint.dir +
             "; the job goes on from " + origin.checkpoint)
      .step = origin.step;
}

// Where a checkpoint was found, the job goes on from it, and is not out of checkpoints.
std::string lost_without_another(const std::string& found, const std::string& lost) {
  return found.empty() ? lost : "";
}

// `in_directory`: what the places have; its parent is the newest generation there.
void use_origin(Transition& t, Job& job, const Facts::Origin& origin,
                const Facts::Origin& in_directory, const std::string& lost) {
  if (const std::string want = find_want_of_checkpoint(job, origin, lost); !want.empty()) {
    t.facts(job.id).end = {JobState::kFailed, want};
    return;
  }
  job.directory_generation = std::max(job.directory_generation, in_directory.parent);
  // A newer one that is damaged counts no more; what is in memory is on no disk. A directory that
  // is away still has what was committed there.
  const bool is_known = origin.memory_of != Generation{} && !origin.in_mirror;
  if (is_known) job.committed_step = in_directory.step;
  t.facts(job.id).origin = origin;
}

// Why the mirror cannot take the place of a directory that is away; "" = it can. A step that the
// directory may still have is given up only where its loss is proven.
std::string find_want_of_mirror(const Job& job, const Facts::Origin& origin) {
  if (origin.parent < job.generation) {
    return "the mirror lacks the record of generation " + to_string(job.generation);
  }
  // The directory may have a checkpoint whose commit nobody told.
  const bool from_seed = origin.checkpoint.empty() && origin.memory_of == Generation{};
  if (from_seed) return "the mirror has no checkpoint";
  // A copy is made of what the directory has, perhaps before a worker tells of the commit.
  const uint64_t committed = std::max(job.committed_step, job.mirror.step);
  if (origin.step < committed) {
    const bool from_memory = origin.memory_of != Generation{};
    return std::string(from_memory ? "the workers' memory" : "the mirror") + " has step " +
           std::to_string(origin.step) + ", and step " + std::to_string(committed) + " is in " +
           job.spec.checkpoint.dir;
  }
  return "";
}

void choose_in_mirror(Transition& t, const FindCheckpoint& order, const CheckpointChosen& e) {
  const FirstPlace& first = order.first;
  Job& job = *t.job(e.job);
  t.close(e.action);
  learn_withdrawn(t, job, e.withdrawn);
  if (!order.claim.checkpoint.empty()) {
    settle_claim(t, job, order.claim, "the controller", e.confirmed);
  }
  if (job.stage != PlanStage::kFindCheckpoint) return;
  Facts::Origin origin{e.checkpoint, e.step, e.newest_generation};
  if (!first.away && first.step >= e.step) {
    origin = {first.checkpoint, first.step, first.newest_generation};
  }
  const Facts::Origin in_directory = origin;
  prefer_memory(t, job, origin);
  if (first.away) {
    if (const std::string want = find_want_of_mirror(job, origin); !want.empty()) {
      t.facts(job.id).directory_failure = want + "; " + job.spec.checkpoint.dir + " is away";
      return;
    }
    origin.in_mirror = true;
  }
  const bool is_older = origin.step < job.committed_step || origin.checkpoint == first.checkpoint;
  if (is_older) tell_of_lost_checkpoint(t, job, origin, first.lost);
  use_origin(t, job, origin, in_directory, lost_without_another(origin.checkpoint, first.lost));
}

}  // namespace

void use_first_place(Transition& t, Job& job, const FirstPlace& first, const std::string& cause) {
  t.withdraw_all(job.id, ActionKind::kFindCheckpoint);
  t.note("MirrorNotUsed", job, cause + "; the mirror has never held a checkpoint of the job");
  const Facts::Origin in_first{first.checkpoint, first.step, first.newest_generation};
  Facts::Origin origin = in_first;
  prefer_memory(t, job, origin);
  tell_of_lost_checkpoint(t, job, origin, first.lost);
  use_origin(t, job, origin, in_first, lost_without_another(first.checkpoint, first.lost));
}

void on(Transition& t, const CheckpointChosen& e) {
  const Action* action = t.open<FindCheckpoint>(e.action);
  if (action == nullptr) {
    t.refuse(e.job, "search " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  const FindCheckpoint order = std::get<FindCheckpoint>(action->body);
  if (order.in_mirror) return choose_in_mirror(t, order, e);
  const DamageClaim& claim = order.claim;
  Job& job = *t.job(e.job);
  t.close(e.action);
  learn_withdrawn(t, job, e.withdrawn);
  if (e.newest_generation < job.generation) {
    const std::string missing =
        "the record of generation " + to_string(job.generation) +
        " is gone from the checkpoint directory (newest there: " + to_string(e.newest_generation) +
        "); restore " + job.spec.checkpoint.dir;
    t.facts(job.id).directory_failure = missing;
    return;
  }
  if (!claim.checkpoint.empty()) settle_claim(t, job, claim, "the controller", e.confirmed);
  if (job.stage != PlanStage::kFindCheckpoint) return;
  learn_recorded_damage(t, job, e);
  const Facts::Origin in_first = choose_origin(job, e);
  Facts::Origin origin = in_first;
  prefer_memory(t, job, origin);
  if (may_be_in_mirror(job, origin)) {
    enter_find_in_mirror(
        t, job, FirstPlace{false, in_first.checkpoint, in_first.step, in_first.parent, e.lost},
        job.spec.checkpoint.dir + " has lost a committed checkpoint");
    return;
  }
  if (!e.checkpoint.empty()) tell_of_lost_checkpoint(t, job, origin, e.lost);
  use_origin(t, job, origin, {e.checkpoint, e.step, e.newest_generation},
             lost_without_another(e.checkpoint, e.lost));
}

void on(Transition& t, const GenerationRecorded& e) {
  const Action* action = t.open<RecordGeneration>(e.action);
  if (action == nullptr) {
    t.refuse(e.job, "record " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  Job& job = *t.job(e.job);
  // Only now: a late exit of the generation before still speaks of the checkpoint that one used.
  const auto& record = std::get<RecordGeneration>(action->body);
  job.generation = record.generation;
  job.told_waits = {};
  job.pruning.recorded_ms = t.now();
  want_mirror_of_record(t, job);
  job.checkpoint = record.checkpoint;
  job.memory_of = record.memory_of;
  job.refilled = record.refilled;
  job.former_parts = record.former_parts;
  job.without_memory = false;
  job.start_step = record.start_step;
  // A damaged newer one counts no more.
  if (job.memory_of == Generation{}) job.committed_step = record.start_step;
  job.mirror.step = std::min(job.mirror.step, record.start_step);
  job.furthest_step = std::max(job.furthest_step, record.start_step);
  job.directory_generation = std::max(job.directory_generation, job.generation);
  job.withdrawn.clear();
  t.close(e.action);
  t.facts(job.id).recorded = true;
}

void start_generation(Transition& t, Job& job) {
  enter_stage(t, job, PlanStage::kStartWorkers);
  const std::vector<ArenaSeals> arenas = find_arenas_left(t, job);
  for (const Node* node : t.nodes(job.id)) {
    if (t.has_ranks(node->key)) start_workers_on(t, job, *node, arenas);
  }
  t.note(
      "StartWorkers", job,
      "generation " + to_string(job.generation) + ": " + std::to_string(job.world_size()) +
          " workers on " + std::to_string(job.nodes()) + " nodes" +
          describe_origin(
              job, {job.checkpoint, 0, {}, job.memory_of, job.refilled, job.former_parts}, ", "));
}

void on(Transition& t, const GenerationTaken& e) {
  if (t.open<RecordGeneration>(e.action) == nullptr) {
    t.refuse(e.job, "record " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  Job& job = *t.job(e.job);
  t.close(e.action);
  job.directory_generation = std::max(job.directory_generation, e.generation);
  learn_withdrawn(t, job, {{e.generation, e.order}});
  t.changed(job);
}

void on(Transition& t, const GenerationProgressed& e) {
  Job* job = t.job(e.job);
  if (job == nullptr || has_ended(job->state) || e.generation != job->generation) {
    t.refuse(e.job, "progress of a generation that is not the present one");
    return;
  }
  if (is_preparing(*job) || job->cancel_requested || ends_for_good(*job)) {
    t.refuse(e.job, "generation " + to_string(e.generation) + " is being stopped");
    return;
  }
  const bool is_news = e.step > job->furthest_step;
  const bool has_waited = count_waits(*job, e.waits);
  if (job->state == JobState::kRunning && !is_news && !has_waited && !is_made_good(*job, e.step)) {
    t.refuse(e.job, "step " + std::to_string(e.step) + " was known");
    return;
  }
  learn_step(*job, e.step);
  count_step(*job, e.step, e.stepped_ms == 0 ? t.now() : std::min(e.stepped_ms, t.now()));
  t.changed(*job);
  // One node's word does not tell whether the others of an adopted generation live: end_meeting().
  if (job->state == JobState::kRunning || job->stage == PlanStage::kMeetNodes) return;
  enter_running(
      t, *job,
      "generation " + to_string(e.generation) + " completed step " + std::to_string(e.step));
}

void on(Transition& t, const CheckpointCommitted& e) {
  Job* job = t.job(e.job);
  if (job == nullptr || has_ended(job->state) || e.generation != job->generation) {
    t.refuse(e.job, "a checkpoint of generation " + to_string(e.generation) +
                        ", which is not the present one, does not count");
    return;
  }
  if (ends_for_good(*job) && is_state_accused(*job)) {
    t.refuse(e.job, "a suspect checkpoint does not count");
    return;
  }
  if (e.step <= job->committed_step) {  // every node reports it; the history tells it once
    t.result().refusal = "checkpoint step-" + std::to_string(e.step) + " was known";
    t.result().log.clear();
    return;
  }
  job->committed_step = e.step;
  job->pruning.due = true;
  want_mirror_of_checkpoint(t, *job);
  if (e.step > job->furthest_step) count_step(*job, e.step, t.now());
  learn_step(*job, e.step);
  t.changed(*job);
}

}  // namespace hpctl::core
