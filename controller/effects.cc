// SPDX-License-Identifier: Apache-2.0
// The effects of decisions: actions are carried out on threads that may block, and changes are
// shown to all watchers. Also the controller's own findings that lead to decisions: silence, hangs,
// stragglers. All of it runs on the owner thread (owner_loop.h), except tasks posted to lanes.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/submitted_environment.h"
#include "controller/agents/holder_probe.h"
#include "controller/agents/worker_order.h"
#include "controller/controller.h"
#include "controller/engine/checkpoint_dir_actions.h"
#include "controller/engine/damage.h"
#include "controller/engine/mirror.h"
#include "controller/engine/prune.h"
#include "controller/leadership/directory_claim.h"
#include "controller/publish/job_view.h"

namespace hpctl {
namespace {

constexpr auto kProbePatience = std::chrono::milliseconds(300);
constexpr int64_t kProgressFileMs = 1'000;
constexpr int64_t kSeldomFileMs = 5'000;
constexpr int64_t kShowsShare = 50;  // one part in so many of the owner's time goes into pictures
constexpr int64_t kLookAtAllMs = 200;

// Separate from the lane of checkpoint.dir: neither waits for the other.
std::string mirror_lane(const core::Job& job) {
  return "the mirror " + job.spec.checkpoint.mirror.dir;
}

}  // namespace

void Controller::perform(const core::Action& action, const core::State& state) {
  if (mode_.stands_back()) return;
  if (agent_of(action)) {
    agents_->perform(action, state);
    return;
  }
  if (const auto* launch = std::get_if<core::LaunchNode>(&action.body)) {
    const std::string& uuid = state.jobs.at(launch->job).submit_key;
    auto task = [this, id = action.id, launch = *launch, uuid] {
      Outcome ready = job_directories_->check(launch.job);
      if (ready.ok()) ready = mode_.before_launch(launch.job, uuid);
      loop_->post(ready.ok() ? scheduler_->launch(id, launch)
                             : launch_failed(id, launch, ready.error()));
    };
    starts_->post("the start of node " + launch->node + " of job " + to_string(launch->job),
                  launches_.watched(action.id, *launch, std::move(task)));
  } else if (const auto* requeue = std::get_if<core::RequeueJob>(&action.body)) {
    starts_->post("the scheduler", [this, id = action.id, requeue = *requeue] {
      loop_->post(scheduler_->requeue(id, requeue));
    });
  } else if (const auto* replace = std::get_if<core::ReplaceNode>(&action.body)) {
    starts_->post("the scheduler", [this, id = action.id, replace = *replace] {
      loop_->post(scheduler_->replace(id, replace));
    });
  } else if (const auto* find = std::get_if<core::FindCheckpoint>(&action.body)) {
    const core::Job& job = state.jobs.at(find->job);
    interrupt(prunes_, job.id);
    interrupt(mirrors_, job.id);
    if (find->in_mirror) {
      directories_->post(mirror_lane(job), [this, id = action.id, find = *find, job] {
        if (claim_mirror_of(id, job)) loop_->post(find_in_mirror(id, find, job.spec));
      });
      return;
    }
    const auto fault = take_directory_fault(job);
    if (is_away_on_purpose(action.id, job, fault)) return;
    directories_->post(job.spec.checkpoint.dir, [this, id = action.id, find = *find, job, fault] {
      if (!claim(id, job, true)) return;
      core::EventBody found = find_checkpoint(id, find, job.spec, job.committed_step);
      if (fault) damage(fault->told, found, job.spec.checkpoint.dir);
      loop_->post(std::move(found));
    });
  } else if (const auto* record = std::get_if<core::RecordGeneration>(&action.body)) {
    const core::Job& job = state.jobs.at(record->job);
    const CheckpointSpec& places = job.spec.checkpoint;
    recording_[job.id] = action.id;
    directories_->post(record->in_mirror ? mirror_lane(job) : places.dir,
                       [this, id = action.id, record = *record, job,
                        content = make_record(action.id, *record, state, clock_.wall_ms()),
                        is_wanted = begin(records_, job.id)] {
                         if (!mode_.may_record()) return;
                         if (!(record.in_mirror ? claim_mirror_of(id, job) : claim(id, job, false)))
                           return;
                         if (!is_wanted()) return;
                         const CheckpointSpec& places = job.spec.checkpoint;
                         core::EventBody done = record_generation(
                             id, record, content, record.in_mirror ? places.mirror.dir : places.dir,
                             paths_);
                         ports_.learn(paths_, record.job, record.generation);
                         loop_->post(std::move(done));
                       });
  } else if (const auto* order = std::get_if<core::PruneCheckpoints>(&action.body)) {
    const core::Job& job = state.jobs.at(order->job);
    directories_->post(job.spec.checkpoint.dir, [this, id = action.id, order = *order, job,
                                                 goes_on = begin(prunes_, job.id)] {
      if (!goes_on() || !mode_.may_record() || !claim(id, job, false)) return;
      auto done = prune_checkpoints(id, order, job.spec, goes_on);
      if (done) loop_->post(std::move(*done));
    });
  } else if (const auto* copy = std::get_if<core::MirrorCheckpoint>(&action.body)) {
    const core::Job& job = state.jobs.at(copy->job);
    directories_->post(mirror_lane(job), [this, id = action.id, copy = *copy, job,
                                          goes_on = begin(mirrors_, job.id)] {
      if (!goes_on() || !mode_.may_record() || !claim_mirror_of(id, job)) return;
      auto done = mirror_checkpoint(id, copy, job.spec, goes_on);
      if (done) loop_->post(std::move(*done));
    });
  }
}

// False: the mirror is not the job's, or is unavailable, and the core has the event.
bool Controller::claim_mirror_of(ActionId action, const core::Job& job) {
  ClaimOutcome claimed = claim_mirror(action, job, mode_);
  if (claimed.failure) loop_->post(std::move(*claimed.failure));
  return !claimed.failure;
}

// The new order uses this to check whether it is still wanted.
std::function<bool()> Controller::begin(WantedOrders& orders, JobId job) {
  interrupt(orders, job);
  auto wanted = std::make_shared<std::atomic<bool>>(true);
  orders[job] = wanted;
  return [wanted] { return wanted->load(); };
}

// A recovery does not wait until a large checkpoint has been verified or copied.
void Controller::interrupt(WantedOrders& orders, JobId job) {
  const auto running = orders.find(job);
  if (running != orders.end()) running->second->store(false);
}

// The order may wait for a silent directory. What it would create, a search would only leave out.
void Controller::interrupt_withdrawn_records(const core::State& state) {
  std::erase_if(recording_, [&](const auto& order) {
    if (state.outbox.contains(order.second)) return false;
    interrupt(records_, order.first);
    return true;
  });
}

// False: the directory is not the job's, or is in a directory of the job that is gone, and the core
// has the event.
bool Controller::claim(ActionId action, const core::Job& job, bool tells_former_owner) {
  if (job.spec.checkpoint.dir.starts_with(paths_.job(job.id) + "/")) {
    if (const Outcome there = job_directories_->check(job.id); !there.ok()) {
      loop_->post(core::ActionFailed{action, job.id, "", there.error().message, false});
      return false;
    }
  }
  ClaimOutcome claimed = claim_for(action, job, mode_);
  if (tells_former_owner && !claimed.note.empty())
    loop_->post(core::ControllerNoted{job.id, claimed.note});
  if (claimed.failure) loop_->post(std::move(*claimed.failure));
  return !claimed.failure;
}

// For the generation that has just ended; a surviving generation no longer has one.
std::optional<Controller::DirectoryFault> Controller::take_directory_fault(const core::Job& job) {
  const auto ordered = directory_faults_.extract(job.id);
  if (ordered.empty() || ordered.mapped().told.generation != job.generation) return std::nullopt;
  return ordered.mapped();
}

// storage-away: then the search has failed already.
bool Controller::is_away_on_purpose(ActionId search, const core::Job& job,
                                    const std::optional<DirectoryFault>& fault) {
  const int64_t now_ms = clock_.monotonic_ms();
  if (fault && fault->fault == InjectedFault::kStorageAway) {
    away_until_ms_[job.id] = now_ms + kDiskTroubleMs;
  }
  const auto away = away_until_ms_.find(job.id);
  if (away == away_until_ms_.end()) return false;
  if (now_ms >= away->second) {
    away_until_ms_.erase(away);
    return false;
  }
  const Error error = errno_error("cannot list " + job.spec.checkpoint.dir + ", on purpose", EIO);
  loop_->post(core::ActionFailed{search, job.id, "", error.message, false});
  return true;
}

void Controller::damage(const core::LogEntry& told, const core::EventBody& found,
                        const std::string& directory) {
  const auto* chosen = std::get_if<core::CheckpointChosen>(&found);
  const std::string name = chosen == nullptr ? "" : chosen->checkpoint;
  const Outcome done = name.empty() ? Error{ErrorCode::kNotFound, "there is no checkpoint to read"}
                                    : damage_checkpoint(directory + "/" + name);
  if (done.ok()) {
    log_warning("a fault on purpose: a byte of " + name + " is inverted");
  } else {
    loop_->post(core::FaultNotInjected{told.job, told.node, told.seq, done.error().message});
  }
}

void Controller::committed(const Committed& batch) {
  interrupt_withdrawn_records(batch.state);
  for (const ActionId id : batch.dirty.outbox) {
    if (!batch.state.outbox.contains(id)) launches_.over(id);
  }
  for (const JobId id : batch.dirty.jobs) observe_job(batch, id);
  std::set<JobId> changed = batch.dirty.jobs;
  for (const core::NodeKey& key : batch.dirty.nodes) changed.insert(key.job);
  for (const core::SlotKey& key : batch.dirty.slots) changed.insert(key.job);
  for (const core::NodeKey& key : batch.dirty.nodes) {
    const core::NodeState state = batch.state.nodes.at(key).state;
    if (!core::is_watched(state)) {
      liveness_.given_up(key, state == core::NodeState::kLaunching);
    } else if (agents_) {
      agents_->stand_by(key, batch.state);  // it may have been released
    }
  }
  for (const JobId id : changed) {
    Shown& shown = shown_[id];
    const core::Job& job = batch.state.jobs.at(id);
    shown.stale = true;
    const bool transition = shown.state != job.state || shown.generation != job.generation ||
                            core::has_ended(job.state);
    const int64_t now = loop_ ? loop_->now_ms() : 0;
    if (transition && agents_ && job.state == core::JobState::kRunning) {
      agents_->trains(id, batch.state);
    }
    if (transition || is_to_be_shown(shown, now)) show(batch.state, id);
    if (core::has_ended(job.state)) conclude(batch.state, id);
  }
  append_event_files(batch);
  notify_of(batch);
  if (agents_) agents_->refuse_former_lives(batch.state, batch.dirty);
  has_work_ = !batch.state.outbox.empty() || !batch.state.index.deadlines.empty() ||
              std::any_of(batch.state.jobs.begin(), batch.state.jobs.end(),
                          [](const auto& job) { return !core::has_ended(job.second.state); });
  if (metrics_) {
    metrics_->transaction(batch.seconds, batch.events);
    metrics_->controller(agents_ ? agents_->connected() : 0, batch.state.outbox.size());
  }
  feed_->committed(batch);
}

void Controller::observe_job(const Committed& batch, JobId id) {
  const core::Job& job = batch.state.jobs.at(id);
  progress_.observe(job, loop_->now_ms());
  const auto [entry, is_new] = shown_.try_emplace(id);
  Shown& shown = entry->second;
  if (is_new) shown.losses.recall(job);
  if (is_new && former_losses_ && options_.job == id.value) {
    shown.losses.go_on_from(*std::exchange(former_losses_, std::nullopt));
  }
  const bool suspended = job.suspended_since_ms != 0 && !core::has_ended(job.state);
  if (std::exchange(shown.suspended, suspended) != suspended) {
    if (suspended) {
      liveness_.suspend(id);
    } else {
      liveness_.rearm(id, loop_->now_ms());
    }
  }
  if (!std::exchange(shown.spec_written, true) && mode_.accepts_jobs()) {
    status_files_->spec(id, job.spec);
  }
  shown.losses.count(job, metrics_.get());
}

void Controller::append_event_files(const Committed& batch) {
  std::map<JobId, std::vector<EventView>> by_job;
  for (const StoredEntry& stored : batch.entries) {
    by_job[stored.entry.job].push_back(make_event_view(stored));
  }
  for (auto& [id, events] : by_job) {
    const auto job = batch.state.jobs.find(id);
    if (job == batch.state.jobs.end() || job->second.removed) continue;
    status_files_->events(id, job->second.spec.checkpoint.dir, std::move(events));
  }
}

// A picture has every node and rank in it: of a job with very many it is taken less often.
bool Controller::is_to_be_shown(const Shown& shown, int64_t now_ms) {
  const int64_t wait_ms = std::clamp(kShowsShare * shown.took_ms, kProgressFileMs, kSeldomFileMs);
  return now_ms - shown.at_ms >= wait_ms;
}

void Controller::show(const core::State& state, JobId id) {
  const core::Job& job = state.jobs.at(id);
  if (job.removed) return;  // its files are being removed, too
  const int64_t wall_ms = clock_.wall_ms();
  Shown& shown = shown_[id];
  shown.at_ms = loop_->now_ms();
  JobProgress progress = progress_.of(id);
  JobView view = make_job_view(state, id, progress, mode_.node(), shown.at_ms);
  note_totals(view, state, progress, shown.at_ms, wall_ms);
  view.losses = shown.losses.counts();
  shown.stale = false;
  shown.state = job.state;
  shown.generation = job.generation;
  const std::vector<LemonScore> lemons = history_->scores();
  note_lemons(view, lemons);
  JobSnapshot snapshot = snapshot_of(view, WallTime(wall_ms));
  snapshot.lost_directory = job_directories_->lost(id);
  const std::vector<Finding> found = shown.watch.look(snapshot, WallTime(wall_ms));
  notify(job, shown.notices.take(found, job, view.step, wall_ms));
  if (page_answers_) page_answers_->sample(view, progress, found, lemons, wall_ms);
  if (metrics_) metrics_->job(view);
  // A command tells its steps, too, if it likes.
  if (metrics_ && core::shows_steps(job)) {
    metrics_->train(view, std::move(progress), job.bad_step);
  }
  history_->observe(state, job);
  history_->refresh(shown.at_ms);
  if (metrics_) {
    metrics_->lemons(view, lemons);
    metrics_->findings(view, found);
  }
  if (core::has_ended(shown.state)) scrape_linger_.shown(shown.state == core::JobState::kFailed);
  status_files_->status(std::move(view));
  shown.took_ms = loop_->now_ms() - shown.at_ms;
}

void Controller::notify(const core::Job& job, const std::vector<Notice>& notices) {
  const std::string log = paths_.job(job.id) + "/notify.log";
  for (const Notice& notice : notices) notifier_->post(job.spec.notify, notice, log);
}

void Controller::notify_of(const Committed& batch) {
  if (mode_.stands_back()) return;
  for (const StoredEntry& stored : batch.entries) {
    const auto job = batch.state.jobs.find(stored.entry.job);
    if (job == batch.state.jobs.end()) continue;
    notify(job->second, shown_[job->first].notices.take(stored.entry, job->second, stored.wall_ms));
  }
}

// The verdict comes before any node is ordered to end, and its directory may block.
void Controller::conclude(const core::State& state, JobId id) {
  Shown& shown = shown_[id];
  if (shown.is_being_said) return;
  if (!mode_.has_last_word()) {
    let_nodes_end(state, id);
    return;
  }
  shown.is_being_said = true;
  if (!shown.is_said) agents_->hold_ends(id);
  JobView last = make_job_view(state, id, progress_.of(id), mode_.node(), loop_->now_ms());
  last.losses = shown.losses.counts();
  directories_->post(paths_.job(id), [this, id, job = state.jobs.at(id), view = std::move(last)] {
    mode_.job_ended(job, view);
    loop_->ask([this, id](const core::State* now) {
      if (now == nullptr) return;
      shown_[id].is_being_said = false;
      shown_[id].is_said = true;
      agents_->release_ends(id, *now);
      let_nodes_end(*now, id);
    });
  });
}

// When the job's end is complete, rendezvous files are of no more use, nor is the environment that
// it was submitted with.
void Controller::let_nodes_end(const core::State& state, JobId id) {
  if (mode_.stands_back()) return;
  for (auto it = state.nodes.lower_bound({id, ""}); it != state.nodes.end() && it->first.job == id;
       ++it) {
    if (it->second.state != core::NodeState::kEnded) return;
  }
  mode_.nodes_ended(id);
  directories_->post(paths_.job(id), [this, id] {
    for (const Outcome& removed :
         {remove_tree(paths_.job(id) + "/rdzv"), remove_submitted_environment(paths_, id)}) {
      if (!removed.ok()) log_warning(removed.error().message);
    }
  });
}

// Silence of all nodes at once: a question to the scheduler before a loss is believed.
void Controller::ask_whether_suspended(JobId job) {
  starts_->post("suspension", [this, job] {
    if (scheduler_->is_suspended(job).value_or(false)) {
      loop_->post(core::SuspensionChanged{job, true});
    } else {
      liveness_.answered(job);
    }
  });
}

// The answers count at the next sweep.
void Controller::probe(std::vector<Liveness::Probe> probes) {
  if (probes.empty()) return;
  const std::string lane = "probes with " + probes.front().node.name;
  probes_->post(lane, [this, probes = std::move(probes)] {
    std::vector<std::string> addresses;
    for (const Liveness::Probe& probe : probes) addresses.push_back(probe.address);
    const auto answers = probe_holders(addresses, kProbePatience);
    for (size_t i = 0; i < probes.size(); ++i) {
      if (!liveness_.probed(probes[i], answers[i])) continue;
      log_info("the holder of " + probes[i].node.name + " answers probes at " + probes[i].address);
    }
  });
}

std::vector<core::EventBody> Controller::sweep(int64_t now_ms) {
  std::vector<core::EventBody> events;
  for (core::NodeDeparts& told :
       agents_->told_nodes().take(now_ms, !mode_.accepts_jobs(),
                                  [&](JobId job) { return liveness_.heard_nodes(job, now_ms); })) {
    events.emplace_back(std::move(told));
  }
  if (scheduler_->suspends()) {
    for (const JobId job : liveness_.take_silent_jobs(now_ms)) ask_whether_suspended(job);
  }
  for (core::BeatOrder& order : progress_.take_beats(now_ms))
    agents_->order_beats(std::move(order));
  auto silence = liveness_.judge(now_ms, [&](JobId job, const std::set<std::string>& silent) {
    return progress_.sight(job, silent, now_ms);
  });
  probe(std::move(silence.probes));
  for (core::NodeLost& lost : silence.lost) {
    if (const auto news = progress_.news(lost.job)) events.emplace_back(*news);
    events.emplace_back(std::move(lost));
  }
  for (core::ControllerNoted& note : progress_.take_notes(now_ms))
    events.emplace_back(std::move(note));
  for (core::CheckpointRoomNeeded& needed : progress_.take_room_needed()) {
    events.emplace_back(std::move(needed));
  }
  // The rest looks at every rank and job, and is less urgent than the silence of a node.
  if (now_ms < look_at_all_ms_) return events;
  look_at_all_ms_ = now_ms + kLookAtAllMs;
  audit_->tick();
  for (core::ActionFailed& failed : launches_.take_held_up()) {
    events.emplace_back(std::move(failed));
  }
  for (core::HangDetected& hang : progress_.take_hangs(now_ms)) {
    if (const auto news = progress_.news(hang.job)) events.emplace_back(*news);
    events.emplace_back(std::move(hang));
  }
  for (core::EventBody& news : progress_.take_stragglers()) events.push_back(std::move(news));
  // Steps go on without any commit: once a second the status files follow.
  loop_->ask([this, now_ms](const core::State* state) {
    if (state == nullptr) return;
    for (auto& [id, shown] : shown_) {
      if (!is_to_be_shown(shown, now_ms)) continue;
      const bool live = !core::has_ended(state->jobs.at(id).state);
      if (live || shown.stale) show(*state, id);
    }
  });
  return events;
}

std::vector<core::TrainingSeen> Controller::confirm(std::vector<core::TrainingSeen> doubted,
                                                    int64_t now_ms) {
  std::erase_if(doubted, [&](const core::TrainingSeen& seen) {
    return !progress_.has_moved(seen.job, seen.generation, seen.within_ms, now_ms);
  });
  return doubted;
}

}  // namespace hpctl
