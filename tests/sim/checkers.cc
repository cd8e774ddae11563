// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/checkers.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "common/worker/worker_abi.h"
#include "controller/core/explain.h"

namespace hpctl::sim {

namespace {

const std::set<std::string> kBadEntries = {"NonFiniteFound", "LossSpiked", "GradientSpiked"};

std::string at(const core::NodeKey& node) { return to_string(node.job) + "/" + node.name; }

// Times of the job's recoveries, from its history.
std::vector<int64_t> recovery_times(const Store& store, JobId job) {
  std::vector<int64_t> times;
  for (const auto& entry : store.log()) {
    if (entry.job == job && entry.type == "JobRecovering")
      times.push_back(store.time_of(entry.seq));
  }
  return times;
}

// Those that spend a restart: not those for storage that could not be read, which may be known to
// be the cause only after another rank's exit.
std::vector<int64_t> spent_times(const Store& store, JobId job) {
  const std::string storage = "exited with code " + std::to_string(kExitStorage);
  std::vector<int64_t> times;
  for (const auto& entry : store.log()) {
    if (entry.job != job) continue;
    const bool is_storage = entry.cause.find(storage) != std::string::npos;
    if (entry.type == "CauseFound" && is_storage && !times.empty()) times.pop_back();
    if (entry.type == "JobRecovering" && !is_storage) times.push_back(store.time_of(entry.seq));
  }
  return times;
}

// Whether a broken node of the job went into quarantine for good. Its history knows it also where
// the controller died before anybody was told.
bool has_broken_node(const Store& store, JobId job) {
  return std::any_of(store.log().begin(), store.log().end(), [&](const core::LogEntry& entry) {
    const bool broken = entry.type == "HardwareFaultFound" || entry.type == "RecoveryRequested";
    return entry.job == job && broken;
  });
}

}  // namespace

void Checkers::worker_spawned(const core::NodeKey& node, int32_t rank,
                              const core::StartWorkers& order, const GenerationRecord* record) {
  const uint64_t generation = order.generation.value;
  const std::string who =
      at(node) + " rank " + std::to_string(rank) + " g" + std::to_string(generation);
  if (!owners_.emplace(std::tuple(node.job, rank, generation), node).second) {
    fail("two live owners: " + who);
  }
  begun_.emplace(node.job, generation);
  uint64_t& newest = newest_on_node_[node];
  if (generation < newest) fail("generation fell on its node: " + who);
  newest = generation;
  if (record == nullptr) {
    fail("started before its generation was recorded: " + who);
  } else if (record->start_step != order.start_step || record->checkpoint != order.checkpoint ||
             (record->from_memory ? record->parent : 0) != order.memory_of.value) {
    fail("started from something else than the record says: " + who);
  } else if (std::none_of(record->members.begin(), record->members.end(),
                          [&](const auto& m) { return m.rank == rank && m.node == node.name; })) {
    fail("is not where the record says: " + who);
  }
}

void Checkers::worker_gone(const core::NodeKey& node, int32_t rank, uint64_t generation) {
  owners_.erase({node.job, rank, generation});
}

void Checkers::step_trained(JobId job, uint64_t generation) {
  uint64_t& newest = newest_trained_[job];
  if (generation < newest) {
    fail("job " + to_string(job) + " trained generation " + std::to_string(generation) + " after " +
         std::to_string(newest));
  }
  newest = generation;
}

void Checkers::record_created(JobId job, const GenerationRecord& record, const PlacesBefore& before,
                              const Search& search) {
  const Directory& place = before.in_mirror ? before.mirror.directory() : before.first;
  const std::string who =
      "record of job " + to_string(job) + " g" + std::to_string(record.generation);
  // A node that was given up may be cut off with its workers alive; a member may not.
  for (auto it = owners_.lower_bound({job, 0, 0});
       it != owners_.end() && std::get<0>(it->first) == job; ++it) {
    if (std::none_of(record.members.begin(), record.members.end(),
                     [&](const auto& m) { return m.node == it->second.name; })) {
      continue;
    }
    fail("rank " + std::to_string(std::get<1>(it->first)) + " of g" +
         std::to_string(std::get<2>(it->first)) + " is still alive on " + it->second.name + ": " +
         who);
  }
  uint64_t& newest = newest_recorded_[job];
  if (record.generation <= newest) fail("generation fell: " + who);
  for (const uint64_t withdrawn : record.withdrawn) {
    if (begun_.contains({job, withdrawn})) {
      fail("leaves out g" + std::to_string(withdrawn) + ", which has begun: " + who);
    }
  }
  const auto chain = chain_before(place, record);
  const bool fresh_chain =
      !newest_trained_.contains(job) && record.parent == 0 && record.start_step == 0;
  if (!fresh_chain && !chain.empty() && record.parent != chain.front().generation) {
    fail("does not continue the chain: " + who);
  }
  from_memory_ += record.from_memory ? 1 : 0;
  from_mirror_ += before.mirror.ref_of(record.checkpoint) ? 1 : 0;
  in_mirror_ += before.in_mirror ? 1 : 0;
  const auto start = parse_checkpoint_name(record.checkpoint);
  if (record.from_memory) {
    if (!record.checkpoint.empty()) fail("starts from memory and from a checkpoint: " + who);
  } else if (record.checkpoint.empty()) {
    if (record.start_step != 0) fail("starts at a step without a checkpoint: " + who);
  } else if (before.mirror.ref_of(record.checkpoint)) {
    check_start_in_mirror(record, before, who);
  } else if (!start || start->step != record.start_step ||
             (before.first.checkpoint(*start) == nullptr && !was_lost(job, record.checkpoint)) ||
             !valid_by_lineage(*start, chain)) {
    fail("starts from a checkpoint that does not count: " + who);
  }
  const bool from_seed = !record.from_memory && record.checkpoint.empty() && !fresh_chain;
  const bool was_saved = search.told > 0 || std::any_of(chain.begin(), chain.end(), [](auto& r) {
                           return !r.checkpoint.empty() || !r.committed.empty();
                         });
  if (from_seed && was_saved) fail("starts from the seed after a checkpoint was committed: " + who);
  for (const auto& [ref, stored] : before.first.checkpoints()) {
    const auto& damaged = record.damaged;
    if (before.in_mirror) break;  // nobody can read it
    if (from_seed && stored.committed_ms <= search.at_ms && valid_by_lineage(ref, chain)) {
      fail("starts over although there is " + ref.name() + ": " + who);
    }
    if (ref.step <= record.start_step || stored.committed_ms > search.at_ms) continue;
    if (std::find(damaged.begin(), damaged.end(), ref.name()) != damaged.end()) continue;
    if (valid_by_lineage(ref, chain)) fail("gives up " + ref.name() + ": " + who);
  }
  check_steps_given_up(job, record, before, search, who);
  for (const std::string& name : record.damaged) {
    const auto ref = parse_checkpoint_name(name);
    const StoredCheckpoint* stored =
        ref ? before.first.checkpoint(*ref) : before.mirror.checkpoint(name);
    if (stored == nullptr ? !proven_.contains({job, name}) : !stored->damaged) {
      fail("calls " + name + " damaged: " + who);
    }
    if (!proven_.contains({job, name})) fail("one reader condemned " + name + ": " + who);
  }
  if (place.is_taken()) fail("is in the directory of another job: " + who);
  newest = record.generation;
  const auto on_disk = parse_checkpoint_name(record.committed);
  starts_[{job, record.generation}] = {record.start_step, record.from_memory,
                                       on_disk ? on_disk->step : 0, before.in_mirror};
}

void Checkers::damage_claimed(JobId job, const std::string& checkpoint) {
  claimed_.emplace(job, checkpoint);
}

void Checkers::damage_confirmed(JobId job, const std::string& checkpoint) {
  if (claimed_.contains({job, checkpoint})) proven_.emplace(job, checkpoint);
}

void Checkers::checkpoint_verified(JobId job, const std::string& checkpoint) {
  verified_.emplace(job, checkpoint);
}

void Checkers::checkpoints_pruned(JobId job, const core::PruneCheckpoints& order, size_t keep,
                                  const Directory& before, const Directory& after) {
  const std::string who = "job " + to_string(job) + ": ";
  const auto chain = chain_of_newest(before.records());
  const auto& stored = before.checkpoints();
  if (before.is_taken() && after.checkpoints().size() != stored.size()) {
    fail(who + "deletes in the directory of another job");
  }
  const bool by_node = !order.verified.empty();
  const bool deletes = after.checkpoints().size() != stored.size();
  if (deletes && order.asks) fail(who + "deletes before anything is verified");
  if (deletes && by_node && !verified_.contains({job, order.verified})) {
    fail(who + "deletes although no node has found " + order.verified + " sound");
  }
  size_t valid = 0;
  for (auto it = stored.rbegin(); it != stored.rend(); ++it) {
    if (!valid_by_lineage(it->first, chain)) continue;
    const bool is_kept = ++valid <= (order.for_room ? 1 : keep);
    if (is_kept && after.checkpoint(it->first) == nullptr) {
      fail(who + "deletes " + it->first.name() + ", which is to be kept");
    }
    if (!by_node && deletes && valid == 1 && it->second.damaged) {
      fail(who + "deletes although " + it->first.name() + " is damaged");
    }
    const bool is_older = !by_node || it->first < *parse_checkpoint_name(order.verified);
    if (!is_older && after.checkpoint(it->first) == nullptr) {
      fail(who + "deletes " + it->first.name() + ", which is not older than what was verified");
    }
  }
}

void Checkers::checkpoint_committed(JobId job, const CheckpointRef& ref, bool is_new) {
  if (!is_new) fail("job " + to_string(job) + " wrote " + ref.name() + " twice");
}

void Checkers::order_performed(const core::Action& action, const Store& store) {
  if (action.id.seq.value > store.last_seq()) {
    fail("action " + to_string(action.id) + " performed before its cause was durable");
  }
  if (action.reason.empty()) fail("action " + to_string(action.id) + " has no reason");
}

void Checkers::quarantined(const core::NodeKey& node, uint64_t through_seq, int64_t until_ms) {
  quarantined_[node] = {through_seq, until_ms};
  if (until_ms == INT64_MAX) broken_.insert(node.job);
}

void Checkers::may_be_quarantined(const core::NodeKey& node, int64_t until_ms) {
  const auto it = quarantined_.find(node);
  if (it != quarantined_.end()) it->second.second = std::min(it->second.second, until_ms);
}

void Checkers::registered(const core::NodeKey& node, const std::string& instance_id) {
  std::string& known = instances_[node];
  if (!known.empty() && known != instance_id) released(node);
  known = instance_id;
}

void Checkers::bound(const core::NodeKey& node, ActionId order, int64_t now_ms) {
  const auto it = quarantined_.find(node);
  if (it == quarantined_.end()) return;
  const auto [since, until] = it->second;
  if (order.seq.value > since && now_ms < until) fail("ranks on a quarantined node: " + at(node));
}

void Checkers::requeued(const core::RequeueJob& order, ActionId id) {
  const auto [it, is_new] =
      requeues_.emplace(std::pair(order.job, order.expected_restart_count), id);
  if (!is_new && it->second != id) fail("job " + to_string(order.job) + " was requeued twice");
}

void Checkers::recovered(const core::NodeKey& node, const core::ReplaceNode& order, ActionId id,
                         bool still_works) {
  if (still_works) fail(at(node) + " was taken away while it had workers");
  if (order.reboot) {
    const bool again = !reboots_.emplace(node, order.instance_id).second;
    if (again && order.reason != kPersonAsks) fail(order.instance_id + " was rebooted twice");
    return;
  }
  const auto [it, is_new] = replacements_.emplace(std::pair(node, order.instance_id), id);
  if (!is_new && it->second != id) fail(order.instance_id + " was replaced twice");
}

void Checkers::rows_lost(const std::set<JobId>& adopted) {
  adopted_.insert(adopted.begin(), adopted.end());
  told_.clear();
  mirrored_.clear();
  rows_.clear();
  lives_.clear();
  quarantined_.clear();
  requeues_.clear();
  replacements_.clear();
  reboots_.clear();
}

void Checkers::rows_committed(const core::State& state, const core::Dirty& dirty) {
  for (const JobId id : dirty.jobs) {
    const core::Job& job = state.jobs.at(id);
    auto& [generation, restarts] = rows_[id];
    if (job.generation.value < generation || job.restarts < restarts) {
      fail("generation or restarts of job " + to_string(id) + " fell");
    }
    generation = job.generation.value;
    restarts = job.restarts;
  }
  for (const core::NodeKey& key : dirty.nodes) {
    auto& [current, former] = lives_[key];
    const std::string& boot_id = state.nodes.at(key).boot_id;
    if (boot_id == current) continue;
    if (!current.empty()) former.insert(current);
    if (former.contains(boot_id)) fail("a life given up came back: " + at(key) + " " + boot_id);
    current = boot_id;
  }
}

void Checkers::causes_are_present(const Store& store) {
  // Within one step the event's own entry comes first.
  const core::LogEntry* event = nullptr;
  for (const auto& entry : store.log()) {
    if (event == nullptr || event->seq != entry.seq) event = &entry;
    const bool of_a_generation = event->type == "WorkerExited" || event->type == "WorkersExited" ||
                                 event->type == "HangDetected";
    if (entry.type != "JobRecovering" || !of_a_generation) continue;
    if (event->generation != entry.generation) {
      fail("job " + to_string(entry.job) + " gave up g" + to_string(entry.generation) +
           " for a fault of g" + to_string(event->generation));
    }
  }
}

void Checkers::budgets_held(const Store& store, const core::Job& job) {
  if (adopted_.contains(job.id)) return;  // a recovery that left no record was forgotten
  const auto times = recovery_times(store, job.id);
  const auto& recovery = job.spec.recovery;
  if (static_cast<int64_t>(times.size()) != job.restarts) {
    fail("job " + to_string(job.id) + " counts " + std::to_string(job.restarts) +
         " restarts, its history " + std::to_string(times.size()));
  }
  std::deque<int64_t> window;
  for (const int64_t time : spent_times(store, job.id)) {
    while (!window.empty() && window.front() + recovery.window_ms <= time) window.pop_front();
    window.push_back(time);
    if (static_cast<int64_t>(window.size()) > recovery.max_restarts) {
      fail("job " + to_string(job.id) + " exceeded its restart budget");
    }
  }
}

void Checkers::failure_justified(const Store& store, const core::Job& job,
                                 const Directory& directory, const Mirror& mirror,
                                 const Search& search) {
  for (const std::string& name : job.damaged) {
    if (!proven_.contains({job.id, name})) {
      fail("job " + to_string(job.id) + " condemned " + name + " on one reader's word");
    }
  }
  if (job.state != core::JobState::kFailed) return;
  if (directory.is_taken() && job.reason.find(kTakenBy) != std::string::npos) return;
  const auto recoveries = static_cast<int64_t>(recovery_times(store, job.id).size());
  const int64_t least =
      std::min(job.spec.recovery.max_restarts, int64_t{core::kMaxRestartsWithoutProgress});
  const bool broken = (broken_.contains(job.id) || has_broken_node(store, job.id)) &&
                      job.reason.find("nothing can take its place") != std::string::npos;
  // Each of them was confirmed: record_created() has looked.
  const bool damaged = !job.damaged.empty() && job.reason.starts_with("every checkpoint in ");
  const bool lost = job.reason.starts_with(kNoneIsLeft);
  loss_justified(job, directory, mirror, search);
  if (recoveries < least && !broken && !damaged && !lost) {
    fail("job " + to_string(job.id) + " gave up after " + std::to_string(recoveries) +
         " restarts: " + job.reason);
  }
}

void Checkers::history_complete(const core::Job& job, const JobPlan& plan,
                                const Directory& directory) {
  if (job.state != core::JobState::kFinished || plan.is_command) return;
  if (directory.is_taken()) return;  // the newest checkpoint is another job's
  const std::string who = "job " + to_string(job.id);
  const Found found = directory.find({job.damaged.begin(), job.damaged.end()});
  const auto ref = parse_checkpoint_name(found.name);
  if (!ref || ref->step != plan.steps) {
    fail(who + " finished but its newest valid checkpoint is \"" + found.name + "\"");
    return;
  }
  const History& history = directory.checkpoint(*ref)->history;
  if (!is_contiguous(history) || history.back().to != plan.steps) {
    fail(who + " did not train every step exactly once");
  }
  // What the weights went through is what the lineage says.
  const auto chain = chain_of_newest(directory.records());
  for (const Segment& segment : history) {
    const bool on_chain = std::any_of(chain.begin(), chain.end(), [&](const auto& record) {
      return record.generation == segment.generation && record.start_step == segment.from;
    });
    const bool undone = std::any_of(chain.begin(), chain.end(), [&](const auto& record) {
      return record.generation > segment.generation && record.start_step < segment.to;
    });
    if (!on_chain || undone) fail(who + " trained steps that its lineage does not know");
  }
}

void Checkers::everything_ended(const core::State& state) {
  for (const auto& [id, job] : state.jobs) {
    if (!core::has_ended(job.state)) {
      fail("job " + to_string(id) + " has not ended: " + core::to_string(job.state) + ", " +
           core::to_string(job.stage) + ", " + job.reason);
    }
  }
  for (const auto& [key, node] : state.nodes) {
    if (node.state != core::NodeState::kEnded) fail(at(key) + " is still " + to_string(node.state));
  }
  if (!state.outbox.empty()) fail("actions are left in the outbox");
  if (core::next_deadline(state)) fail("a deadline is left");
}

void Checkers::explained(const Store& store, const core::Job& job) {
  const auto chain = core::explain(store.log(), job.id);
  if (chain.empty() || chain.front().because != Seq{}) {
    fail("the end of job " + to_string(job.id) + " has no root cause");
  }
}

void Checkers::bad_steps_told(const Store& store, const core::Job& job, bool in_order) {
  if (adopted_.contains(job.id)) return;  // a successor does not know what was told before it
  std::set<BadStepKey> told;
  for (const auto& entry : store.log()) {
    if (entry.job != job.id || !kBadEntries.contains(entry.type)) continue;
    const size_t at = entry.cause.find(kBadReason);
    const uint64_t number = std::stoull(entry.cause.substr(at + kBadReason.size()));
    const BadStepKey key{job.id, entry.generation.value, number};
    if (!bad_steps_met_.contains(key))
      fail("job " + to_string(job.id) + " told of no bad step: " + entry.cause);
    if (!told.insert(key).second) fail("job " + to_string(job.id) + " told twice: " + entry.cause);
  }
  const core::BadStepRecord& counts = job.bad_step;
  if (counts.not_finite + counts.loss_spikes + counts.gradient_spikes != told.size()) {
    fail("job " + to_string(job.id) + " counts other bad steps than its history has");
  }
  for (const BadStepKey& key : bad_steps_heard_) {
    if (std::get<0>(key) != job.id || !in_order || told.contains(key)) continue;
    fail("job " + to_string(job.id) + " g" + std::to_string(std::get<1>(key)) + ": bad step " +
         std::to_string(std::get<2>(key)) + " was acknowledged and never told");
  }
}

}  // namespace hpctl::sim
