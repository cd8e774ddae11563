// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/job_view.h"

#include <unistd.h>

#include <algorithm>

#include "common/rpc/job_summary_wire.h"
#include "common/worker/worker_abi.h"
#include "controller/core/hang.h"

namespace hpctl {
namespace {

WorkerView make_worker_view(const core::Slot& slot, const JobProgress& progress) {
  WorkerView view;
  view.rank = slot.key.rank.value;
  view.node = slot.node;
  view.pid = slot.pid;
  view.generation = slot.generation.value;
  view.state = core::to_string(slot.state);
  const auto rank = progress.ranks.find(view.rank);
  if (rank != progress.ranks.end() && rank->second.report.generation == view.generation) {
    view.phase = core::phase_name(static_cast<WorkerPhase>(rank->second.report.phase));
    view.step = rank->second.report.step;
  } else {
    view.phase = "starting";
  }
  if (slot.state == core::SlotState::kExited && slot.exit_code == 0 && slot.signal == 0) {
    view.phase = "finished";
  }
  return view;
}

// For the present session of the node, if there are any.
std::optional<StandbyView> make_standby_view(const core::Job& job, core::NodeRole role,
                                             const core::Node& node, const JobProgress& progress) {
  const auto told = progress.standbys.find(node.key.name);
  const bool is_known = node.state == core::NodeState::kUp && told != progress.standbys.end() &&
                        told->second.boot_id == node.boot_id;
  if (!is_known) return std::nullopt;
  const StandbyReport& report = told->second;
  const auto wanted = static_cast<uint32_t>(core::wanted_standbys(job, role));
  if (wanted + report.ready + report.loading == 0) return std::nullopt;
  return StandbyView{wanted, report.ready, report.loading, report.memory_bytes};
}

// Why the scheduler would not use it, why it is awaited, or why it gets no ranks.
std::string note_of(const core::Node& node) {
  if (!node.scheduler_note.empty()) return node.scheduler_note;
  return core::is_unheard(node) ? node.reason : node.quarantine.reason;
}

StepWaits waits_in(const JobProgress& progress, const core::Job& job) {
  return progress.generation == job.generation.value ? progress.waits() : StepWaits{};
}

// A rank that moves without completing a step evaluates, or leaves steps out.
int64_t still_ms(const core::Job& job, const JobProgress& progress, int64_t now_ms) {
  const bool trains = job.state == core::JobState::kRunning && !job.cancel_requested;
  const int64_t stepped_ms = std::max(job.stepped_ms, progress.stepped_ms);
  if (!trains || job.suspended_since_ms != 0 || stepped_ms == 0) return 0;
  int64_t most_ms = 0;
  for (const auto& [rank, seen] : progress.ranks) most_ms = std::max(most_ms, seen.still_ms);
  return std::clamp<int64_t>(most_ms, 0, std::max<int64_t>(0, now_ms - stepped_ms));
}

// In a row, as rank 0 tells.
uint64_t failed_saves(const core::Job& job, const JobProgress& progress) {
  const auto rank0 = progress.ranks.find(0);
  const bool trains = job.state == core::JobState::kRunning;
  if (!trains || rank0 == progress.ranks.end() || !rank0->second.report.figures) return 0;
  return rank0->second.report.figures->saves_without_room;
}

int64_t mirror_behind_ms(const core::Job& job, int64_t now_ms) {
  const int64_t since_ms = job.mirror.behind_since_ms;
  return since_ms == 0 ? 0 : std::max<int64_t>(0, now_ms - since_ms);
}

JobMargins make_margins(const core::Job& job, const JobView& view, const JobProgress& progress,
                        int64_t now_ms) {
  constexpr int64_t kHourMs = 3'600'000;
  const auto since = [&](int64_t window_ms) {
    return std::count_if(job.restart_times_ms.begin(), job.restart_times_ms.end(),
                         [&](int64_t at_ms) { return at_ms + window_ms > now_ms; });
  };
  JobMargins margins;
  margins.max_restarts = job.spec.recovery.max_restarts;
  margins.window_ms = job.spec.recovery.window_ms;
  margins.recent_restarts = since(margins.window_ms);
  margins.hour_restarts = since(std::min(margins.window_ms, kHourMs));
  if (margins.recent_restarts > 0) {
    margins.since_restart_ms = std::max<int64_t>(1, now_ms - job.restart_times_ms.back());
  }
  margins.spares_wanted = static_cast<uint32_t>(job.spec.spares);
  for (const NodeView& node : view.nodes) {
    if (node.role == "quarantined") margins.quarantined.push_back(node.name);
    // A node that was lost and is launched again has no ranks when it is back.
    const bool is_there = node.role == "spare" && (node.state == "up" || node.state == "stopping");
    const bool is_coming = node.state == "launching" && node.role != "active";
    if (is_there || is_coming) ++margins.spares_left;
  }
  for (const StragglerView& straggler : view.stragglers) margins.slow.push_back(straggler.node);
  margins.still_ms = still_ms(job, progress, now_ms);
  if (job.recovering_since_ms != 0 && job.suspended_since_ms == 0) {
    margins.recovering_ms = std::max<int64_t>(0, now_ms - job.recovering_since_ms);
  }
  margins.requeue_refusal = job.requeue_refusal;
  if (job.storage_since_ms != 0 && job.suspended_since_ms == 0) {
    margins.storage_ms = std::max<int64_t>(0, now_ms - job.storage_since_ms);
  }
  margins.failed_saves = failed_saves(job, progress);
  margins.mirror_behind_ms = mirror_behind_ms(job, now_ms);
  if (job.state == core::JobState::kRunning) margins.hang_warning = progress.hang_warning;
  return margins;
}

}  // namespace

NodeView make_node_view(const core::State& state, const core::Node& node,
                        const JobProgress& progress) {
  const core::NodeRole role = core::role_of(state, node);
  return {node.key.name,
          core::to_string(role),
          core::is_stopping(state, node) ? "stopping" : core::to_string(node.state),
          node.instance_id,
          node.boot_id,
          node.holder_pid,
          node.agent_pid,
          note_of(node),
          make_standby_view(state.jobs.at(node.key.job), role, node, progress)};
}

JobView make_job_view(const core::State& state, JobId id, const JobProgress& progress,
                      const std::string& controller_node, int64_t now_ms) {
  const core::Job& job = state.jobs.at(id);
  JobView view;
  view.job = id.value;
  view.name = job.spec.name;
  view.state = core::shown_state(job);
  view.generation = job.generation.value;
  view.step = progress.step;
  view.loss = progress.loss;
  view.restarts = job.restarts;
  view.controller_pid = static_cast<uint64_t>(::getpid());
  view.controller_node = controller_node;
  view.reason = job.reason;
  view.total_steps = job.spec.train ? static_cast<uint64_t>(job.spec.train->steps) : 0;
  const bool trains = job.state == core::JobState::kRunning && !job.cancel_requested;
  if (const std::string waiting = progress.waiting_rank(); trains && !waiting.empty()) {
    view.reason = "waiting for storage: " + waiting +
                  " cannot read samples or write the ledger; see hpctl logs " + to_string(id);
  } else if (trains && !progress.hang_warning.empty()) {
    view.reason = "may hang: " + progress.hang_warning;
  }
  view.tokens_per_second = trains ? progress.tokens_per_second : 0.0;
  const auto rank0 = progress.ranks.find(0);
  if (trains && rank0 != progress.ranks.end() && rank0->second.report.figures) {
    view.mfu = rank0->second.report.figures->mfu;
    view.snapshot_step = rank0->second.report.figures->snapshot_step;
  }
  for (const core::Straggler& straggler : core::present_stragglers(job)) {
    view.stragglers.push_back(
        {straggler.node, straggler.rank, straggler.slowdown, straggler.evidence});
  }
  view.checkpoint_step = job.committed_step;
  view.checkpoint_dir = job.spec.checkpoint.dir;
  if (core::has_mirror(job)) {
    view.mirror = {job.spec.checkpoint.mirror.dir, job.mirror.step, mirror_behind_ms(job, now_ms),
                   job.mirror.problem};
  }
  view.job_uuid = job.submit_key;
  view.submitted_at = WallTime(job.submitted_wall_ms);
  view.ended_at = WallTime(job.ended_wall_ms);
  view.lost_ms = core::lost_ms(job, now_ms);
  view.spent = core::time_spent(job, now_ms, waits_in(progress, job));
  if (view.ended_at.is_known() && progress.ended_spent) view.spent = *progress.ended_spent;
  view.faults = static_cast<int32_t>(job.restarts);
  view.owner = std::to_string(job.owner_uid);
  view.chaos = job.spec.chaos;
  view.chosen = job.spec.chosen;
  view.step_ms = trains ? progress.step_ms : 0.0;
  if (!job.recent_faults.empty()) view.last_fault = job.recent_faults.back().cause;
  for (auto it = state.nodes.lower_bound({id, ""}); it != state.nodes.end() && it->first.job == id;
       ++it) {
    view.nodes.push_back(make_node_view(state, it->second, progress));
  }
  view.workers.reserve(static_cast<size_t>(std::max(job.world_size(), 0)));
  for (auto it = state.slots.lower_bound({id, Rank{0}});
       it != state.slots.end() && it->first.job == id; ++it) {
    if (it->second.node.empty()) continue;  // the world is smaller now
    view.workers.push_back(make_worker_view(it->second, progress));
  }
  view.margins = make_margins(job, view, progress, now_ms);
  view.storage = {job.storage_waited_ms + view.margins->storage_ms, job.storage_errors_directory,
                  job.storage_errors_worker, WallTime(job.pruning.verified_wall_ms),
                  job.storage_exits};
  return view;
}

void note_lemons(JobView& view, const std::vector<LemonScore>& scores) {
  if (view.ended_at.is_known() || !view.margins) return;
  for (const NodeView& node : view.nodes) {
    if (node.role != "active" && node.role != "spare") continue;
    const LemonScore* score = find_lemon_score(scores, node.name, node.instance_id);
    if (score != nullptr && score->is_lemon()) view.margins->lemons.push_back(node.name);
  }
}

void note_totals(JobView& view, const core::State& state, const JobProgress& progress,
                 int64_t now_ms, int64_t wall_ms) {
  const core::Job& job = state.jobs.at(JobId{view.job});
  view.furthest_step = std::max({job.furthest_step, job.regain_step, progress.step});
  view.interrupted = job.recovering_since_ms != 0;
  const StepWaits waits = waits_in(progress, job);
  view.told_waits = {std::max(job.told_waits.checkpoint_ms, waits.checkpoint_ms),
                     std::max(job.told_waits.data_ms, waits.data_ms)};
  int64_t counted_ms = std::max(job.stepped_ms, progress.stepped_ms);
  if (view.interrupted) counted_ms = now_ms;  // as core::lost_ms
  if (!view.interrupted && !core::shows_steps(job) && job.state == core::JobState::kRunning) {
    counted_ms = now_ms;
  }
  view.counted_at = WallTime(counted_ms == 0 ? 0 : wall_ms - (now_ms - counted_ms));
}

void fill(const NodeView& view, uint64_t job, v1::NodeStatus& status) {
  status.set_name(view.name);
  status.set_role(view.role);
  status.set_state(view.state);
  status.set_instance_id(view.instance_id);
  status.set_boot_id(view.boot_id);
  status.set_holder_pid(view.holder_pid);
  status.set_agent_pid(view.agent_pid);
  status.set_job(job);
  status.set_note(view.note);
  if (!view.standbys) return;
  v1::Standbys& standbys = *status.mutable_standbys();
  standbys.set_ready(view.standbys->ready);
  standbys.set_loading(view.standbys->loading);
  standbys.set_memory_bytes(view.standbys->memory_bytes);
  standbys.set_wanted(view.standbys->wanted);
}

void fill(const JobView& view, v1::JobStatus& status) {
  status.set_job(view.job);
  status.set_name(view.name);
  status.set_state(view.state);
  status.set_generation(view.generation);
  status.set_step(view.step);
  status.set_loss(view.loss);
  status.set_restarts(view.restarts);
  status.set_controller_pid(view.controller_pid);
  status.set_controller_node(view.controller_node);
  for (const NodeView& node : view.nodes) fill(node, view.job, *status.add_nodes());
  for (const WorkerView& worker : view.workers) {
    v1::WorkerStatus& row = *status.add_workers();
    row.set_rank(worker.rank);
    row.set_node(worker.node);
    row.set_pid(worker.pid);
    row.set_generation(worker.generation);
    row.set_state(worker.state);
    row.set_phase(worker.phase);
    row.set_step(worker.step);
  }
  status.set_reason(view.reason);
  status.set_total_steps(view.total_steps);
  status.set_tokens_per_second(view.tokens_per_second);
  status.set_mfu(view.mfu);
  status.set_checkpoint_step(view.checkpoint_step);
  status.set_snapshot_step(view.snapshot_step);
  for (const StragglerView& straggler : view.stragglers) {
    v1::Straggler& row = *status.add_stragglers();
    row.set_node(straggler.node);
    row.set_rank(straggler.rank);
    row.set_slowdown(straggler.slowdown);
    row.set_evidence(straggler.evidence);
  }
  status.set_checkpoint_dir(view.checkpoint_dir);
  if (!view.mirror.dir.empty()) {
    v1::MirrorStatus& mirror = *status.mutable_mirror();
    mirror.set_dir(view.mirror.dir);
    mirror.set_step(view.mirror.step);
    mirror.set_behind_ms(view.mirror.behind_ms);
    mirror.set_problem(view.mirror.problem);
  }
  status.set_job_uuid(view.job_uuid);
  status.set_submitted_wall_ms(view.submitted_at.unix_ms());
  status.set_ended_wall_ms(view.ended_at.unix_ms());
  status.set_lost_ms(view.lost_ms);
  fill(view.spent, *status.mutable_spent());
  status.set_faults(view.faults);
  status.set_owner(view.owner);
  status.set_chaos(view.chaos);
  status.set_step_ms(view.step_ms);
  status.set_last_fault(view.last_fault);
  for (const ChosenValue& value : view.chosen.values) {
    v1::ChosenValue& row = *status.add_chosen();
    row.set_key(value.key);
    row.set_value(value.value);
    row.set_reason(value.reason);
  }
  status.set_chosen_for(view.chosen.basis);
  if (view.margins) fill(*view.margins, *status.mutable_margins());
}

EventView make_event_view(const StoredEntry& stored) {
  const core::LogEntry& entry = stored.entry;
  return {entry.seq.value, stored.wall_ms, entry.type,  entry.job.value,     entry.generation.value,
          entry.node,      entry.rank,     entry.cause, entry.because.value, entry.step};
}

void fill(const StoredEntry& stored, v1::Event& event) {
  const core::LogEntry& entry = stored.entry;
  event.set_seq(entry.seq.value);
  event.set_wall_ms(stored.wall_ms);
  event.set_type(entry.type);
  event.set_job(entry.job.value);
  event.set_generation(entry.generation.value);
  event.set_node(entry.node);
  event.set_rank(entry.rank);
  event.set_cause(entry.cause);
  event.set_because_seq(entry.because.value);
  event.set_step(entry.step);
}

}  // namespace hpctl
