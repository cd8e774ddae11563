// SPDX-License-Identifier: Apache-2.0
// From the checkpoint directory to a running generation: which checkpoint, which number, which
// parent. The record is durable before any worker of the generation is started, so the directory
// alone tells a successor what happened.
#include <algorithm>
#include <set>
#include <tuple>

#include "common/base/lineage.h"
#include "common/base/plausible.h"
#include "common/base/snapshot_peers.h"
#include "controller/core/lost_time.h"
#include "controller/core/plan.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

constexpr size_t kSealsTried = 8;

bool resumes_from_path(const Job& job) { return job.spec.checkpoint.resume.starts_with('/'); }

// The step in the name of the checkpoint that job.yaml names; 0 when the name is not ours.
uint64_t step_of_path(const std::string& path) {
  const auto name = parse_checkpoint_name(path.substr(path.rfind('/') + 1));
  return name ? name->step : 0;
}

// A job that does not resume from the directory begins a chain of its own there (parent 0); its
// later generations belong to that chain.
Facts::Origin choose_origin(const Job& job, const CheckpointChosen& e) {
  const bool fresh_chain = job.generation == Generation{} && job.spec.checkpoint.resume != "latest";
  Facts::Origin origin{e.checkpoint, e.step, e.newest_generation};
  if (fresh_chain) origin = {};
  if (origin.checkpoint.empty() && resumes_from_path(job)) {
    origin.checkpoint = job.spec.checkpoint.resume;
    origin.step = step_of_path(origin.checkpoint);
  }
  return origin;
}

// It is of the present generation's history: sealed in it, or what it began with.
bool counts(const Job& job, const Seal& seal) {
  const bool began_with = job.memory_of != Generation{} && seal.step == job.start_step;
  return seal.generation == job.generation.value || began_with;
}

bool has_seal(const Job& job, const Slot& slot, const Seal& seal) {
  const std::vector<Seal>& own = slot.seals.own;
  return slot.generation == job.generation && std::find(own.begin(), own.end(), seal) != own.end();
}

// Of the rank whose copies it keeps. Where it has no state of its own its arena is made anew.
bool has_copy(const Job& job, const Slot& slot, const Seal& seal) {
  const std::vector<Seal>& copies = slot.seals.copies;
  return has_seal(job, slot, seal) && std::find(copies.begin(), copies.end(), seal) != copies.end();
}

// States of the present generation's history of which some rank has its part: the newest few, as
// there are more of them only where something is wrong.
std::vector<Seal> seals_in_memory(const Job& job, const std::vector<const Slot*>& slots) {
  const auto newer = [](const Seal& a, const Seal& b) {
    return std::tie(b.step, b.digest, b.generation) < std::tie(a.step, a.digest, a.generation);
  };
  std::set<Seal, decltype(newer)> seals(newer);
  for (const Slot* slot : slots) {
    for (const Seal& seal : slot->seals.own) {
      if (slot->generation == job.generation && counts(job, seal)) seals.insert(seal);
    }
  }
  std::vector<Seal> newest(seals.begin(), seals.end());
  newest.resize(std::min(newest.size(), kSealsTried));
  return newest;
}

// Every part of the state is in the memory of a rank: of one whose own part it is, or, where it is
// nobody else's own, of the rank that keeps its copy. `slots` by rank.
bool is_whole(const Job& job, const std::vector<const Slot*>& slots, const Seal& seal) {
  const int32_t parts = parts_of_state(job);
  std::set<int32_t> found;
  for (const Slot* slot : slots) {
    const int32_t rank = slot->key.rank.value;
    if (has_seal(job, *slot, seal)) found.insert(rank % parts);
    if (parts < job.world_size()) continue;
    const int32_t holder = snapshot_holder(rank, job.world_size(), job.spec.workers_per_node);
    if (has_copy(job, *slots.at(static_cast<size_t>(holder)), seal)) found.insert(rank);
  }
  return found.size() == static_cast<size_t>(parts);
}

// The job has as many ranks as its newest generation had. An exit that is reported after the number
// has changed still tells of parts of as many as there were.
bool has_its_ranks(const State& state, const Job& job) {
  int32_t ranks = 0;
  auto slot = state.slots.lower_bound(SlotKey{job.id, Rank{0}});
  for (; slot != state.slots.end() && slot->first.job == job.id; ++slot) {
    ranks += slot->second.generation == job.generation ? 1 : 0;
  }
  return ranks == job.world_size();
}

// The newest state that is whole in the ranks' memory.
std::optional<Facts::Origin> find_in_memory(Transition& t, const Job& job) {
  std::vector<const Slot*> slots;
  for (const Node* node : t.nodes(job.id)) {
    for (const Slot* slot : t.slots(*node)) slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end(),
            [](const Slot* a, const Slot* b) { return a->key.rank < b->key.rank; });
  if (slots.size() != static_cast<size_t>(job.world_size())) return std::nullopt;
  if (parts_of_state(job) == job.world_size() && !has_its_ranks(t.state(), job))
    return std::nullopt;
  for (const Seal& seal : seals_in_memory(job, slots)) {
    if (!is_whole(job, slots, seal)) continue;
    Facts::Origin origin{"", seal.step, job.generation, job.generation};
    for (const Slot* slot : slots) {
      if (!has_seal(job, *slot, seal)) origin.refilled.push_back(slot->key.rank);
    }
    return origin;
  }
  return std::nullopt;
}

// What does not bring the job further twice may be in memory, too.
bool trusts_memory(const Job& job) {
  return !job.without_memory && job.restarts_without_progress < kMaxFruitlessFromMemory;
}

// No completed step is done again where the workers' memory is at least as new as the disk, and
// nobody else has created a generation since.
void prefer_memory(Transition& t, const Job& job, Facts::Origin& origin) {
  if (!trusts_memory(job) || origin.parent != job.generation) return;
  if (!job.spec.train) return;
  const auto found = find_in_memory(t, job);
  if (found && found->step >= origin.step) origin = *found;
}

// ", from step-10.g1"; "" of a command, which finds its own.
std::string describe_origin(const Job& job, const Facts::Origin& origin,
                            const std::string& separator) {
  if (!job.spec.train) return "";
  std::string text = separator + "from ";
  if (origin.memory_of != Generation{}) {
    text += "the memory of generation " + to_string(origin.memory_of);
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

void start_workers_on(Transition& t, const Job& job, const Node& node) {
  StartWorkers action{job.id,         node.key.name,  job.generation, {},
                      job.checkpoint, job.start_step, job.memory_of,  job.refilled};
  for (Slot* slot : t.slots(node)) {
    action.ranks.push_back(slot->key.rank);
    t.set_slot(*slot, SlotState::kPending, job.generation, 0, 0, 0);
  }
  t.issue(std::move(action), "generation " + to_string(job.generation) + " is recorded");
}

}  // namespace

int32_t parts_of_state(const Job& job) {
  const TrainSpec& train = *job.spec.train;
  if (train.strategy == Strategy::kNoShard) return 1;
  if (train.strategy != Strategy::kHybrid) return job.world_size();
  return train.shard_group > 0 ? static_cast<int32_t>(train.shard_group)
                               : job.spec.workers_per_node;
}

void enter_find_checkpoint(Transition& t, Job& job, const std::string& reason) {
  t.withdraw_all(job.id, ActionKind::kRecordGeneration);
  enter_stage(t, job, PlanStage::kFindCheckpoint);
  t.facts(job.id).origin.reset();
  const std::string text = reason + (job.spec.train ? "; looking for the checkpoint to start from"
                                                    : "; looking for the newest generation");
  t.issue(FindCheckpoint{job.id, {job.damaged.begin(), job.damaged.end()}}, text);
  t.note("FindCheckpoint", job, text);
}

void enter_record_generation(Transition& t, Job& job, const Facts::Origin& origin) {
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
  action.parent = origin.parent;
  action.start_step = origin.step;
  action.checkpoint = origin.checkpoint;
  action.memory_of = origin.memory_of;
  action.refilled = origin.refilled;
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

void on(Transition& t, const CheckpointChosen& e) {
  if (t.open<FindCheckpoint>(e.action) == nullptr) {
    t.refuse(e.job, "search " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  Job& job = *t.job(e.job);
  t.close(e.action);
  if (e.newest_generation < job.generation) {
    const std::string missing =
        "the record of generation " + to_string(job.generation) +
        " is gone from the checkpoint directory (newest there: " + to_string(e.newest_generation) +
        "); restore " + job.spec.checkpoint.dir;
    t.facts(job.id).directory_failure = missing;
    return;
  }
  Facts::Origin origin = choose_origin(job, e);
  prefer_memory(t, job, origin);
  if (job.damaged.contains(origin.checkpoint)) {
    t.facts(job.id).end = {JobState::kFailed,
                           "checkpoint.resume names " + origin.checkpoint +
                               ", which is damaged; name another checkpoint and submit again"};
    return;
  }
  job.directory_generation = std::max(job.directory_generation, e.newest_generation);
  t.facts(job.id).origin = origin;
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
  job.checkpoint = record.checkpoint;
  job.memory_of = record.memory_of;
  job.refilled = record.refilled;
  job.without_memory = false;
  job.start_step = record.start_step;
  // A damaged newer one counts no more.
  if (job.memory_of == Generation{}) job.committed_step = record.start_step;
  job.furthest_step = std::max(job.furthest_step, record.start_step);
  job.directory_generation = std::max(job.directory_generation, job.generation);
  job.plan_attempts = 0;
  t.close(e.action);
  t.facts(job.id).recorded = true;
}

void start_generation(Transition& t, Job& job) {
  enter_stage(t, job, PlanStage::kStartWorkers);
  for (const Node* node : t.nodes(job.id)) {
    if (t.has_ranks(node->key)) start_workers_on(t, job, *node);
  }
  t.note("StartWorkers", job,
         "generation " + to_string(job.generation) + ": " + std::to_string(job.world_size()) +
             " workers on " + std::to_string(job.nodes()) + " nodes" +
             describe_origin(job, {job.checkpoint, 0, {}, job.memory_of, job.refilled}, ", "));
}

void on(Transition& t, const GenerationTaken& e) {
  if (t.open<RecordGeneration>(e.action) == nullptr) {
    t.refuse(e.job, "record " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  Job& job = *t.job(e.job);
  t.close(e.action);
  job.directory_generation = std::max(job.directory_generation, e.generation);
  t.changed(job);
}

void on(Transition& t, const GenerationProgressed& e) {
  Job* job = t.job(e.job);
  if (job == nullptr || has_ended(job->state) || e.generation != job->generation) {
    t.refuse(e.job, "progress of a generation that is not the present one");
    return;
  }
  if (is_preparing(*job) || job->cancel_requested) {
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
  if (e.step <= job->committed_step) {  // every node reports it; the history tells it once
    t.result().refusal = "checkpoint step-" + std::to_string(e.step) + " was known";
    t.result().log.clear();
    return;
  }
  job->committed_step = e.step;
  if (e.step > job->furthest_step) count_step(*job, e.step, t.now());
  learn_step(*job, e.step);
  t.changed(*job);
}

}  // namespace hpctl::core
