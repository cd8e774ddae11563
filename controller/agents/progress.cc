// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/progress.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "common/worker/worker_abi.h"
#include "controller/core/core.h"
#include "controller/core/save_notes.h"

namespace hpctl {
namespace {

constexpr int64_t kNotePauseMs = 600'000;  // between two notes of the same trouble

constexpr int64_t kWaitsWorthTellingMs = 100;

int64_t total_ms(const StepWaits& waits) { return waits.checkpoint_ms + waits.data_ms; }

bool is_stopped(const RankReport& report) { return report.process_state == "T"; }

void add_groups(const std::map<int32_t, RankProgress>& ranks, core::JobSight& job) {
  std::map<std::tuple<GroupKind, int32_t, int32_t>, size_t> places;
  for (const auto& [rank, progress] : ranks) {
    for (const GroupReport& group : progress.report.groups) {
      const auto [at, is_new] =
          places.try_emplace({group.kind, group.first, group.last}, job.groups.size());
      if (is_new) {
        job.groups.push_back(
            {core::group_name(group.kind, Rank{group.first}, Rank{group.last}), {}});
      }
      job.groups[at->second].members.push_back(
          {Rank{rank}, group.begun, group.completed, group.waits});
    }
  }
}

}  // namespace

bool waits_for_storage(const RankReport& report) {
  return report.figures && report.figures->storage_failures > 0;
}

std::string JobProgress::waiting_rank() const {
  for (const auto& [rank, progress] : ranks) {
    if (!waits_for_storage(progress.report)) continue;
    return "rank " + std::to_string(rank) + " on " + progress.node;
  }
  return "";
}

StepWaits JobProgress::waits() const {
  if (ranks.empty()) return {};
  const uint64_t ns_per_ms = 1'000'000 * ranks.size();
  return {static_cast<int64_t>(save_waits_ns / ns_per_ms),
          static_cast<int64_t>(data_waits_ns / ns_per_ms)};
}

void ProgressTable::observe(const core::Job& job, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_new = !jobs_.contains(job.id) || jobs_[job.id].shown.generation == 0;
  if (jobs_[job.id].shown.generation != job.generation.value) {
    const double loss = jobs_[job.id].shown.loss;
    const double tokens_per_second = jobs_[job.id].shown.tokens_per_second;
    const core::PlainHangs plain_hangs = jobs_[job.id].plain_hangs;
    core::BeatWatch beats = std::move(jobs_[job.id].beats);
    beats.restart();
    auto standbys = std::move(jobs_[job.id].shown.standbys);  // told when they change
    jobs_.erase(job.id);
    Entry& entry = jobs_[job.id];
    entry.plain_hangs = plain_hangs;
    entry.beats = std::move(beats);
    entry.shown.standbys = std::move(standbys);
    entry.shown.generation = job.generation.value;
    entry.shown.step = job.start_step;
    entry.shown.loss = loss;
    entry.shown.tokens_per_second = tokens_per_second;
    entry.moved_ms = now_ms;
    if (is_new && job.stage != core::PlanStage::kNone) entry.former_step = job.regain_step;
    // After a restart of the controller the core may know already that it runs.
    entry.progressed = job.spec.train.has_value() && job.state == core::JobState::kRunning;
  }
  Entry& entry = jobs_[job.id];
  const bool running = core::is_training(job) && job.suspended_since_ms == 0;
  if (running && !entry.running) entry.moved_ms = entry.ran_ms = now_ms;
  entry.running = running;
  entry.trains = job.spec.train.has_value();
  if (entry.printed.empty()) {
    for (const HangRule& rule : job.spec.recovery.hang_rules) {
      entry.printed.push_back({rule, core::first_limit_ms(rule, job.limits), {}, ""});
    }
  }
  entry.meets = entry.trains && job.stage == core::PlanStage::kMeetNodes &&
                job.state == core::JobState::kRecovering && job.suspended_since_ms == 0;
  entry.row = core::seen_in(job);
  entry.told_step = std::max(entry.told_step, job.furthest_step);
  entry.world_size = job.world_size();
  const bool counts = job.recovering_since_ms != 0 && !core::is_preparing(job);
  entry.regain_step = counts ? job.regain_step : 0;
  entry.configured_hang_ms = job.spec.recovery.hang_timeout_ms;
  entry.heartbeat_timeout_ms = job.spec.recovery.heartbeat_timeout_ms;
  entry.finds_stragglers = job.spec.train && job.spec.recovery.straggler != StragglerPolicy::kOff;
  if (entry.finds_stragglers && entry.stragglers.generation() != job.generation) {
    entry.stragglers =
        core::StragglerWatch(job.generation, job.start_step, job.world_size(), job.stragglers);
  }
  if (core::has_ended(job.state)) entry.shown.step = job.furthest_step;
}

void ProgressTable::remember(JobId job, double loss, double tokens_per_second,
                             std::optional<TimeSpent> ended_spent) {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_[job].shown.ended_spent = ended_spent;
  jobs_[job].shown.loss = loss;
  jobs_[job].shown.tokens_per_second = tokens_per_second;
}

std::optional<core::GenerationProgressed> ProgressTable::report(
    JobId job, const std::string& node, const std::vector<RankReport>& ranks, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return std::nullopt;
  Entry& entry = it->second;
  std::optional<core::GenerationProgressed> transition;
  bool any_told = false;
  bool any_moved = false;
  bool all_wait = true;
  for (const RankReport& report : ranks) {
    if (report.generation != entry.shown.generation) continue;
    if (report.rank < 0 || report.rank >= entry.world_size) continue;  // the table stays bounded
    const auto before = entry.shown.ranks.find(report.rank);
    if (before != entry.shown.ranks.end() && before->second.report.step > report.step) {
      entry.shown.step = report.step;  // went back to leave out samples
      entry.moved_ms = now_ms;
    }
    any_told = true;
    any_moved = take(entry, node, report, now_ms) || any_moved;
    take_lines(entry, report, now_ms);
    all_wait = all_wait && report.open_collectives > 0;
    if (report.first_step_unix_ns == 0 && report.step <= entry.shown.step) continue;
    if (report.step > entry.shown.step) {
      if (!entry.trains && entry.shown.stepped_ms != 0) {
        entry.pauses_ms.push_back(now_ms - entry.shown.stepped_ms);
        if (entry.pauses_ms.size() > kMedianSteps) entry.pauses_ms.pop_front();
      }
      entry.shown.step = report.step;
      entry.shown.stepped_ms = entry.moved_ms = now_ms;
      if (report.step_ns > 0) {
        entry.step_ns.push_back(report.step_ns);
        if (entry.step_ns.size() > kMedianSteps) entry.step_ns.pop_front();
        entry.shown.tokens_per_second =
            static_cast<double>(report.tokens) * 1e9 / static_cast<double>(report.step_ns);
      }
    }
    if (report.step == entry.shown.step) entry.shown.loss = report.loss;
    const bool regains = entry.regain_step != 0 && report.step >= entry.regain_step;
    if (entry.progressed && !regains) continue;
    entry.progressed = true;
    if (regains) entry.regain_step = 0;
    entry.told_step = std::max(entry.told_step, report.step);
    transition = core::GenerationProgressed{job, Generation{report.generation}, report.step};
  }
  if (any_told) entry.beats.reported(node, any_moved, all_wait, now_ms);
  if (transition) transition->waits = entry.told_waits = entry.shown.waits();
  if (!entry.ranks_by_collectives.empty()) {
    const uint64_t fewest = entry.ranks_by_collectives.begin()->first;
    if (fewest > entry.fewest_collectives) entry.moved_ms = now_ms;
    entry.fewest_collectives = fewest;
  }
  return transition;
}

void ProgressTable::report(JobId job, const std::string& node, StandbyReport standbys) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = jobs_.find(job);
  if (it != jobs_.end()) it->second.shown.standbys[node] = std::move(standbys);
}

bool ProgressTable::take(Entry& entry, const std::string& node, const RankReport& report,
                         int64_t now_ms) {
  const auto [rank, is_new] = entry.shown.ranks.try_emplace(report.rank);
  if (!is_new) {
    const auto former = entry.ranks_by_collectives.find(rank->second.report.collective);
    if (--former->second == 0) entry.ranks_by_collectives.erase(former);
  }
  ++entry.ranks_by_collectives[report.collective];
  const RankReport& before = rank->second.report;
  if (is_stopped(before)) --entry.stopped_ranks;
  if (is_stopped(report)) ++entry.stopped_ranks;
  const bool moved = before.step != report.step || before.collective != report.collective ||
                     before.open_collectives != report.open_collectives ||
                     before.phase != report.phase || before.computing != report.computing;
  if (moved && !is_new) entry.rank_moved_ms = now_ms;
  // The step that has waited has yet to be completed.
  if (waits_for_storage(before) && !waits_for_storage(report)) entry.moved_ms = now_ms;
  const StepFigures former = before.figures.value_or(StepFigures{});
  const StepFigures now = report.figures.value_or(StepFigures{});
  entry.shown.data_waits_ns += now.data_waits_ns - former.data_waits_ns;
  entry.shown.save_waits_ns += now.save_waits_ns - former.save_waits_ns;
  const bool is_news = moved || is_new;
  if (is_news) entry.news_ms = now_ms;
  // Compared ranks must be sampled as often as the ranks with a longer heartbeat interval.
  const bool is_compared = now_ms - rank->second.compared_ms >= entry.beats.seldom_ms() * 3 / 4;
  if (entry.finds_stragglers && entry.running && is_compared) {
    rank->second.compared_ms = now_ms;
    entry.stragglers.add({Rank{report.rank}, report.step, now.compute_ns, report.step_ns}, node);
  }
  const int64_t heard_ms = std::min(now_ms - rank->second.heard_ms, core::kMostPerReportMs);
  const bool is_late =
      entry.beats.may_be_late(node) && now_ms - rank->second.heard_ms > core::kHurryMs;
  RankProgress& known = rank->second;
  if (is_news) known.moved_ms = is_late && !is_new ? known.heard_ms : now_ms;
  known.report = report;
  known.node = node;
  known.heard_ms = now_ms;
  known.still_ms = is_news ? 0 : known.still_ms + heard_ms;
  return moved && !is_new;
}

std::vector<std::string> ProgressTable::nodes_of(const Entry& entry) {
  std::vector<std::string> nodes;
  std::set<std::string> known;
  for (const auto& [rank, progress] : entry.shown.ranks) {
    if (known.insert(progress.node).second) nodes.push_back(progress.node);
  }
  return nodes;
}

std::vector<core::BeatOrder> ProgressTable::take_beats(int64_t now_ms) {
  std::vector<core::BeatOrder> orders;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [job, entry] : jobs_) {
    const int64_t overdue_ms = core::overdue_after_ms(longest_pause_ms(entry));
    const bool is_overdue = overdue_ms > 0 && now_ms - entry.shown.stepped_ms > overdue_ms;
    const bool trains = entry.running && entry.progressed && !is_overdue &&
                        entry.shown.ranks.size() == static_cast<size_t>(entry.world_size);
    if (trains && !entry.beats.is_chosen()) {
      entry.beats.choose(nodes_of(entry), entry.heartbeat_timeout_ms);
    }
    const auto interval_ms = entry.beats.take_change(trains, !entry.trains, now_ms);
    if (interval_ms) orders.push_back({job, *interval_ms, entry.beats.sentinels()});
  }
  return orders;
}

std::optional<core::GenerationProgressed> ProgressTable::news(JobId job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || !it->second.running) return std::nullopt;
  Entry& entry = it->second;
  const StepWaits waits = entry.shown.waits();
  const bool waited = total_ms(waits) >= total_ms(entry.told_waits) + kWaitsWorthTellingMs;
  if (entry.shown.step <= entry.told_step && !waited) return std::nullopt;
  entry.told_step = std::max(entry.told_step, entry.shown.step);
  entry.told_waits = waits;
  return core::GenerationProgressed{job, Generation{entry.shown.generation}, entry.shown.step,
                                    entry.shown.stepped_ms, waits};
}

core::JobSight ProgressTable::look_at(const Entry& entry, int64_t now_ms) {
  core::JobSight job;
  job.trains = entry.trains;
  job.limit_ms = entry.configured_hang_ms;
  job.world_size = entry.world_size;
  job.step = entry.shown.step;
  job.still_ms = now_ms - entry.moved_ms;
  if (!entry.step_ns.empty()) {
    std::vector<uint64_t> steps(entry.step_ns.begin(), entry.step_ns.end());
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end());
    job.median_step_ns = static_cast<int64_t>(*middle);
    job.slowest_step_ns = static_cast<int64_t>(*std::max_element(middle, steps.end()));
  }
  job.plain_hangs = entry.plain_hangs.count(now_ms);
  return job;
}

void ProgressTable::add_ranks(const Entry& entry, int64_t now_ms, core::JobSight& job) {
  job.ranks.reserve(entry.shown.ranks.size());
  for (const auto& [rank, progress] : entry.shown.ranks) {
    const RankReport& report = progress.report;
    job.ranks.push_back({Rank{rank}, progress.node, report.pid, report.step, report.collective,
                         report.open_collectives, static_cast<WorkerPhase>(report.phase),
                         report.computing, report.process_state, progress.still_ms,
                         now_ms - progress.heard_ms, waits_for_storage(report)});
  }
  add_groups(entry.shown.ranks, job);
}

std::vector<core::HangDetected> ProgressTable::take_hangs(int64_t now_ms) {
  std::vector<core::HangDetected> hangs;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [job, entry] : jobs_) {
    if (!entry.running || entry.hang_reported) continue;
    if (auto hang = printed_hang(job, entry, now_ms)) {
      hangs.push_back(std::move(*hang));
      continue;
    }
    // Before the first step the core's own limit applies.
    if (!entry.progressed) continue;
    core::JobSight sight = look_at(entry, now_ms);
    if (!core::may_hang(sight, now_ms - entry.news_ms, entry.stopped_ranks > 0)) continue;
    add_ranks(entry, now_ms, sight);
    core::HangVerdict verdict = core::judge_hang(std::move(sight));
    if (verdict.kind == core::HangVerdict::Kind::kNothing) continue;
    if (verdict.kind == core::HangVerdict::Kind::kHangsPlainly) entry.plain_hangs.add(now_ms);
    entry.hang_reported = true;
    hangs.push_back({job, Generation{entry.shown.generation}, std::move(verdict.node), verdict.rank,
                     std::move(verdict.evidence)});
  }
  return hangs;
}

void ProgressTable::take_lines(Entry& entry, const RankReport& report, int64_t now_ms) {
  if (report.line_ages_ms.size() != entry.printed.size()) return;  // an older release tells none
  for (size_t i = 0; i < entry.printed.size(); ++i) {
    if (report.line_ages_ms[i] < 0) continue;
    auto& matched_ms = entry.printed[i].matched_ms;
    matched_ms = std::max(matched_ms.value_or(INT64_MIN), now_ms - report.line_ages_ms[i]);
  }
}

core::PrintedLines ProgressTable::lines_of(const Entry& entry, const PrintedRule& printed,
                                           int64_t now_ms) {
  // A controller that has just taken over, or a job that was suspended, begins anew.
  const int64_t since_ms = std::max(entry.ran_ms, printed.matched_ms.value_or(INT64_MIN));
  return {printed.rule, printed.first_ms, printed.matched_ms.has_value(), now_ms - since_ms};
}

std::string ProgressTable::find_overdue(const Entry& entry, const PrintedRule& printed,
                                        int64_t now_ms) {
  core::PrintedLines lines = lines_of(entry, printed, now_ms);
  if (!core::is_overdue(lines)) return "";
  if (entry.shown.ranks.size() != static_cast<size_t>(entry.world_size)) return "";
  // A rank that has not been heard since may have printed.
  int64_t heard_ms = now_ms;
  for (const auto& [rank, progress] : entry.shown.ranks) {
    if (progress.report.line_ages_ms.size() != entry.printed.size()) return "";
    heard_ms = std::min(heard_ms, progress.heard_ms);
  }
  lines.silent_ms -= now_ms - heard_ms;
  return core::is_overdue(lines) ? core::describe_overdue(lines) : "";
}

std::optional<core::HangDetected> ProgressTable::printed_hang(JobId job, Entry& entry,
                                                              int64_t now_ms) {
  for (const PrintedRule& printed : entry.printed) {
    if (printed.rule.action != HangAction::kRestart) continue;
    std::string overdue = find_overdue(entry, printed, now_ms);
    if (overdue.empty()) continue;
    entry.hang_reported = true;
    return core::HangDetected{job, Generation{entry.shown.generation}, "", Rank{-1},
                              std::move(overdue)};
  }
  return std::nullopt;
}

std::vector<std::string> ProgressTable::hang_notes(Entry& entry, int64_t now_ms) {
  std::vector<std::string> notes;
  entry.shown.hang_warning.clear();
  for (PrintedRule& printed : entry.printed) {
    if (printed.rule.action != HangAction::kWarn) continue;
    if (!entry.running) {
      printed.warning.clear();
    } else if (printed.warning.empty()) {
      printed.warning = find_overdue(entry, printed, now_ms);
      // A rule that is stricter than the program's pauses is broken in each of them.
      const bool is_often = printed.noted_ms && now_ms - *printed.noted_ms < kNotePauseMs;
      printed.is_noted = !printed.warning.empty() && !is_often;
      if (printed.is_noted) {
        printed.noted_ms = now_ms;
        notes.push_back("may hang: " + printed.warning);
      }
    } else if (const core::PrintedLines lines = lines_of(entry, printed, now_ms);
               core::is_overdue(lines)) {
      printed.warning = core::describe_overdue(lines);
    } else {
      printed.warning.clear();
      if (printed.is_noted) {
        notes.push_back("a rank has printed a line again that matches " +
                        core::pattern_text(printed.rule));
      }
    }
    if (entry.shown.hang_warning.empty()) entry.shown.hang_warning = printed.warning;
  }
  return notes;
}

std::vector<core::EventBody> ProgressTable::take_stragglers() {
  std::vector<core::EventBody> events;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [job, entry] : jobs_) {
    if (!entry.finds_stragglers || !entry.running || !entry.stragglers.is_round_over()) continue;
    core::StragglerNews news = entry.stragglers.judge();
    for (core::Straggler& straggler : news.found) {
      events.emplace_back(core::StragglerFound{job, std::move(straggler)});
    }
    for (std::string& node : news.over) {
      events.emplace_back(
          core::StragglerOver{job, Generation{entry.shown.generation}, std::move(node)});
    }
  }
  return events;
}

int64_t ProgressTable::longest_pause_ms(const Entry& entry) {
  if (entry.pauses_ms.size() < core::kLeastPauses) return 0;
  return std::max<int64_t>(1, *std::max_element(entry.pauses_ms.begin(), entry.pauses_ms.end()));
}

void ProgressTable::add_steps(const Entry& entry, const std::set<std::string>& silent,
                              core::NodeObservation& seen) {
  seen.is_command = !entry.trains;
  const int64_t pause_ms = longest_pause_ms(entry);
  const int64_t newest_ms = entry.shown.stepped_ms - core::overdue_after_ms(pause_ms);
  for (const auto& [rank, progress] : entry.shown.ranks) {
    const bool told_them = progress.report.step > 0 && progress.moved_ms >= newest_ms;
    if (told_them && !silent.contains(progress.node)) seen.longest_pause_ms = pause_ms;
  }
}

std::map<std::string, core::NodeObservation> ProgressTable::sight(
    JobId job, const std::set<std::string>& silent, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return {};
  const Entry& entry = it->second;
  core::NodeObservation seen = entry.row;
  std::map<std::string, core::NodeObservation> nodes;
  if (!entry.meets && (!entry.running || !entry.progressed)) {
    for (const std::string& node : silent) nodes.emplace(node, seen);
    return nodes;
  }
  int64_t moved_ms = 0;
  int64_t heard_moved_ms = 0;
  std::set<std::string> with_ranks;
  seen.peers_wait = true;
  for (const auto& [rank, progress] : entry.shown.ranks) {
    moved_ms = std::max(moved_ms, progress.moved_ms);
    if (silent.contains(progress.node)) {
      with_ranks.insert(progress.node);
      continue;
    }
    seen.training = core::TrainingSight::kSeen;  // where nobody is heard, nothing is
    heard_moved_ms = std::max(heard_moved_ms, progress.moved_ms);
    seen.peers_wait = seen.peers_wait && progress.report.open_collectives > 0;
  }
  seen.still_ms = now_ms - heard_moved_ms;
  add_steps(entry, silent, seen);
  for (const std::string& node : silent) {
    const auto facts = nodes.emplace(node, seen).first;
    if (with_ranks.contains(node)) {
      facts->second.trained_ms = now_ms - moved_ms;
    } else {
      facts->second.longest_pause_ms = 0;  // no step waits for it
    }
    // It has not reported its ranks; a step takes them all.
    if (entry.meets && entry.rank_moved_ms) {
      facts->second.trained_ms = now_ms - *entry.rank_moved_ms;
    }
  }
  return nodes;
}

bool ProgressTable::has_moved(JobId job, Generation generation, int64_t within_ms, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || it->second.shown.generation != generation.value) return false;
  const auto moved_ms = it->second.rank_moved_ms;
  return moved_ms && now_ms - *moved_ms <= within_ms;
}

std::optional<std::string> ProgressTable::storage_note(JobId job, Entry& entry) {
  const std::string waiting = entry.shown.waiting_rank();
  if (waiting.empty() == entry.told_waiting.empty()) return std::nullopt;
  const std::string was = std::exchange(entry.told_waiting, waiting);
  const std::string step = "after step " + std::to_string(entry.shown.step);
  if (waiting.empty()) return was + " does not wait for storage any more (" + step + ")";
  return waiting + " waits for storage " + step +
         ": it cannot read samples or write the ledger; see hpctl logs " + to_string(job);
}

std::vector<core::ControllerNoted> ProgressTable::take_notes(int64_t now_ms) {
  std::vector<core::ControllerNoted> notes;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [job, entry] : jobs_) {
    if (const auto note = storage_note(job, entry)) notes.push_back({job, *note});
    for (std::string& note : hang_notes(entry, now_ms)) notes.push_back({job, std::move(note)});
    const auto rank0 = entry.shown.ranks.find(0);
    if (rank0 == entry.shown.ranks.end() || !rank0->second.report.figures) continue;
    const bool fail = rank0->second.report.figures->saves_without_room > 0;
    if (fail == entry.told_fail) continue;
    // A disk at its limit takes every other checkpoint.
    if (fail && entry.fail_note_ms && now_ms - *entry.fail_note_ms < kNotePauseMs) continue;
    entry.told_fail = fail;
    if (fail) entry.fail_note_ms = now_ms;
    const std::string step = std::to_string(rank0->second.report.step);
    notes.push_back({job, fail ? std::string(core::kSavesFail) + " (step " + step +
                                     "): training goes on without; see the log of rank 0"
                               : std::string(core::kSavesWork) + " (step " + step +
                                     "): a checkpoint is durable"});
  }
  return notes;
}

std::vector<core::CheckpointRoomNeeded> ProgressTable::take_room_needed() {
  std::vector<core::CheckpointRoomNeeded> needed;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [job, entry] : jobs_) {
    const auto rank0 = entry.shown.ranks.find(0);
    if (rank0 == entry.shown.ranks.end() || !rank0->second.report.figures) continue;
    const uint64_t now = rank0->second.report.figures->saves_out_of_space;
    const uint64_t before = std::exchange(entry.saves_out_of_space, now);
    if (now > before) needed.push_back({job, {entry.shown.generation}});
  }
  return needed;
}

void ProgressTable::rearm(int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [job, entry] : jobs_) {
    entry.moved_ms = entry.news_ms = entry.ran_ms = now_ms;
    for (auto& [rank, progress] : entry.shown.ranks) {
      progress.moved_ms = progress.heard_ms = now_ms;
      progress.still_ms = 0;
    }
  }
}

JobProgress ProgressTable::of(JobId job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return {};
  JobProgress shown = it->second.shown;
  if (shown.ranks.empty()) shown.step = std::max(shown.step, it->second.former_step);
  shown.step_ms = static_cast<double>(look_at(it->second, 0).median_step_ns) / 1e6;
  return shown;
}

}  // namespace hpctl
