// SPDX-License-Identifier: Apache-2.0
#include "controller/controller.h"

#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/descriptor_limit.h"
#include "common/base/file.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/node_address.h"
#include "controller/access/tcp_access.h"
#include "controller/agents/holder_probe.h"
#include "controller/agents/worker_order.h"
#include "controller/engine/checkpoint_dir_actions.h"
#include "controller/engine/damage.h"
#include "controller/leadership/home_lock.h"
#include "controller/publish/job_view.h"
#include "controller/publish/scrape_targets.h"

namespace hpctl {
namespace {

// So many directories may hang before the next has to wait: no more than there are live jobs.
constexpr size_t kDirectoryThreads = 64;
constexpr size_t kStartThreads = 4;
constexpr size_t kProbeThreads = 4;
constexpr auto kProbePatience = std::chrono::milliseconds(300);
// A plan is tried again when it takes too long; of what is tried only the newest counts.
constexpr size_t kTasksInALane = 16;
constexpr auto kStopPatience = std::chrono::seconds(5);
constexpr int64_t kProgressFileMs = 1'000;
constexpr int64_t kSeldomFileMs = 5'000;
constexpr int64_t kShowsShare = 50;  // one part in so many of the owner's time goes into pictures
constexpr int64_t kLookAtAllMs = 200;
constexpr auto kShutdownGrace = std::chrono::milliseconds(500);

}  // namespace

Controller::Controller(const HomePaths& paths, const ControllerOptions& options,
                       ControllerMode& mode)
    : paths_(paths), options_(options), mode_(mode) {}

Controller::~Controller() { stop(); }

Outcome Controller::take_lock() {
  HP_TRY(make_directories(paths_.jobs(), 0700));
  HP_TRY(prepare_socket_directory(paths_));  // for one job its state too
  HP_TRY_ASSIGN(lock_, take_home_lock(paths_, clock_));
  return Ok{};
}

// Training needs no metrics: whatever is wrong with them is said, in the log and in the history of
// the jobs that are there, and nothing more.
void Controller::tell_about_metrics(const core::State& loaded) {
  if (metrics_note_.empty()) return;
  std::set<JobId> jobs;
  if (options_.job != 0) jobs.insert(JobId{options_.job});
  for (const auto& [id, job] : loaded.jobs) {
    if (!core::has_ended(job.state)) jobs.insert(id);
  }
  for (const JobId id : jobs) loop_->post(core::ControllerNoted{id, metrics_note_});
}

Outcome Controller::start() {
  raise_descriptor_limit();
  HP_TRY(take_lock());
  HP_TRY(mode_.prepare());
  HP_TRY_ASSIGN(auto store, Store::open(paths_.database(), Store::Mode::kOwner));
  HP_TRY_ASSIGN(auto state, store->load());
  HP_TRY_ASSIGN(auto reader, Store::open(paths_.database(), Store::Mode::kReader));
  mode_.adjust(state);
  OpenedMetrics opened = open_metrics(options_.metrics, [this] { last_look_.scraped(); });
  metrics_ = std::move(opened.metrics);
  metrics_note_ = std::move(opened.trouble);
  const core::State loaded = state;
  build(std::move(state), std::move(store), std::move(reader));
  if (loaded.jobs.empty()) begin_job();  // first in the queue, before any agent registers
  tell_about_metrics(loaded);
  HP_TRY(build_server());
  // Calls wait in the loop's queue until we know that we are the one.
  HP_TRY(mode_.claim(address_));
  for (const auto& [id, job] : loaded.jobs) {  // the former process may not have come so far
    if (core::has_ended(job.state)) conclude(loaded, id);
  }
  scheduler_->resume(loaded);  // before anything is asked of it
  loop_->start();
  HP_TRY(open_door());
  HP_TRY(publish());
  if (metrics_ && options_.job != 0) {
    directories_->post("scrape targets of other jobs",
                       [job_dir = paths_.home()] { sweep_scrape_targets(job_dir); });
  }
  log_info("serving " + paths_.home() + " on " + paths_.controller_socket() +
           (address_.empty() ? "" : " and " + address_));
  return Ok{};
}

void Controller::build(core::State state, std::unique_ptr<Store> store,
                       std::unique_ptr<Store> reader) {
  feed_ = std::make_unique<EventFeed>(std::move(reader));
  status_files_ =
      std::make_unique<StatusFileWriter>(paths_, [this] { return !mode_.is_superseded(); });
  history_ =
      std::make_unique<NodeHistory>(paths_, clock_, [this] { return !mode_.is_superseded(); });
  history_->add_fleet(options_.fleet_lemons);
  history_->load();
  directories_ = std::make_unique<TaskLanes>(kDirectoryThreads, kTasksInALane);
  starts_ = std::make_unique<TaskLanes>(kStartThreads, kTasksInALane);
  probes_ = std::make_unique<TaskLanes>(kProbeThreads, kTasksInALane);
  recall(state);
  loop_ = std::make_unique<OwnerLoop>(std::move(store), std::move(state), clock_, *this);
  notifier_ = std::make_unique<Notifier>(
      NotifierLimits{}, !options_.run_as.empty(), [this] { return !mode_.is_superseded(); },
      [this](JobId job, const std::string& what) {
        loop_->post(core::ControllerNoted{job, what});
      });
  scheduler_ = mode_.make_scheduler([this](JobId job, Scheduler::MakeEvent make) {
    if (const auto news = progress_.news(job)) loop_->post(*news);
    loop_->post(std::move(make));
  });
  page_answers_ =
      std::make_unique<PageAnswers>(*loop_, *feed_, progress_, mode_.node(), HPCTL_VERSION);
  page_ = std::make_unique<StatusPage>(
      [this](uint32_t uid, const auto& request) { return page_answers_->answer(uid, request); },
      options_.page, clock_);
  const ControllerMode::Access access = mode_.access();
  // The machine's log is for what belongs to its cluster, and not for a home of somebody's.
  audit_ = std::make_unique<AuditLog>(paths_.audit_log(), options_.job != 0, clock_);
  authenticator_ =
      std::make_unique<Authenticator>(access.secrets, access.owner, access.older_agents);
  gate_ = std::make_unique<Gate>(*authenticator_,
                                 [this](AuditEntry entry) { audit_->record(std::move(entry)); });
  agents_ = std::make_unique<AgentLink>(
      paths_, *gate_, *loop_, liveness_, progress_, *scheduler_, ports_,
      [this](const std::string& node, const std::string& instance) {
        // Virtual nodes share a machine: no choice among them.
        return !mode_.accepts_jobs() && history_->is_lemon(node, instance);
      });
  const ControllerIdentity identity{HPCTL_VERSION, mode_.node(),
                                    metrics_ ? metrics_->address() : "", mode_.accepts_jobs()};
  service_ = std::make_unique<ControllerService>(
      paths_, identity, *gate_, *loop_, *feed_, progress_, *agents_,
      [this](const core::LogEntry& told) { to_damage_.insert_or_assign(told.job, told); },
      [this](uint32_t uid) { return page_->link(uid); }, [this] { return history_->scores(); },
      [this] { last_look_.listed(); });
}

// What is only in the status files: values of the last step, for display until heartbeats come.
void Controller::recall(const core::State& state) {
  feed_->load(state);
  for (const auto& [id, action] : state.outbox) {
    const auto* start = std::get_if<core::StartWorkers>(&action.body);
    if (start != nullptr) ports_.learn(paths_, start->job, start->generation);
  }
  for (const auto& [id, job] : state.jobs) {
    progress_.observe(job, 0);
    shown_[id].losses.recall(job);
    shown_[id].spec_written = true;
    shown_[id].notices.recall(job, clock_.wall_ms());
    if (const auto view = read_status(paths_, id); view.ok()) {
      progress_.remember(id, view->loss, view->tokens_per_second);
    }
  }
  has_work_ = std::any_of(state.nodes.begin(), state.nodes.end(), [](const auto& node) {
    return node.second.state != core::NodeState::kEnded;
  });
}

Outcome Controller::build_server() {
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  builder.RegisterService(agents_.get());
  const ControllerMode::Access access = mode_.access();
  const std::string& listen = access.listen;
  TcpListener::Accepted accepted;
  if (!listen.empty()) {
    auto opened = TcpListener::open(listen, authenticator_->handshakes());
    if (!opened.ok()) {
      return Error{opened.error().code,
                   "cannot listen on " + listen + ": " + opened.error().message + "; see --listen"};
    }
    tcp_listener_ = std::move(*opened);
    accepted = add_tcp_acceptor(builder, server_credentials(access.identity));
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return Error{ErrorCode::kUnavailable, "gRPC did not start"};
  if (tcp_listener_ == nullptr) return Ok{};
  tcp_listener_->start(std::move(accepted));
  address_ = HostPort::parse(listen).value().with_port(tcp_listener_->port());
  return Ok{};
}

Outcome Controller::open_door() {
  HP_TRY_ASSIGN(listener_,
                LocalListener::open(
                    paths_.controller_socket(), [this] { return prepare_socket_directory(paths_); },
                    [this](UniqueFd connection, uid_t uid) {
                      authenticator_->local().remember(connection.get(), uid);
                      grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
                    },
                    [this](uid_t uid, pid_t pid) { gate_->refused_connection(uid, pid); }));
  return Ok{};
}

void Controller::begin_job() {
  auto first = mode_.first_event();
  if (!first) return;
  if (auto* submitted = std::get_if<core::JobSubmitted>(&*first)) {
    for (const LemonScore& score : history_->scores()) {
      if (score.is_lemon()) submitted->lemons.push_back(score.node);
    }
  }
  loop_->post(std::move(*first), [this](const core::StepResult* result, const core::State* state) {
    if (result == nullptr) return;
    if (!result->refusal.empty()) {
      directories_->post(paths_.home(), [this, why = result->refusal] { mode_.refused(why); });
    } else if (const auto former = mode_.former_controller()) {
      const JobId job{options_.job};
      liveness_.expect({job, former->node}, state->jobs.at(job).spec.recovery.heartbeat_timeout_ms,
                       loop_->now_ms(), former->address);
    }
  });
}

Outcome Controller::publish() const {
  const nlohmann::json document = {{"pid", ::getpid()},
                                   {"socket", paths_.controller_socket()},
                                   {"metrics", metrics_ ? metrics_->address() : ""}};
  HP_TRY(write_file_atomic(paths_.controller_json(), document.dump() + "\n"));
  publish_targets(metrics_ ? metrics_->address() : "");
  return Ok{};
}

void Controller::publish_targets(const std::string& metrics) const {
  // Where there are none and never were, no file says so.
  if (metrics.empty() && !path_exists(scrape_targets_path(paths_.home()))) return;
  std::map<std::string, std::string> labels = {{"hpctl_node", mode_.node()}};
  if (options_.job != 0) labels["hpctl_job"] = std::to_string(options_.job);
  publish_scrape_targets(scrape_targets_path(paths_.home()),
                         scrape_targets({{metrics, labels}}, node_address()),
                         [this] { return !mode_.is_superseded(); });
}

bool Controller::is_idle() const {
  return !has_work_ && agents_->connected() == 0 && feed_->subscribers() == 0;
}

void Controller::complete(int exit_code) {
  is_complete_ = true;
  scheduler_->complete(exit_code);
}

std::vector<std::string> Controller::stop() {
  if (listener_) listener_->stop();
  if (tcp_listener_) tcp_listener_->stop();
  if (agents_) agents_->close_all();
  if (scheduler_) scheduler_->stop();
  std::vector<std::string> hung;
  const auto note = [&](std::vector<std::string> lanes) {
    hung.insert(hung.end(), lanes.begin(), lanes.end());
  };
  if (directories_) note(directories_->stop(kStopPatience, TaskLanes::AtStop::kDropped));
  if (starts_) note(starts_->stop(kStopPatience, TaskLanes::AtStop::kDropped));
  if (probes_) note(probes_->stop(kStopPatience, TaskLanes::AtStop::kDropped));
  if (loop_) loop_->stop();  // answers what waits, so that gRPC can end
  if (notifier_) note(notifier_->stop(kStopPatience));
  if (server_) {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
    server_.reset();
  }
  if (page_) page_->stop();
  if (status_files_) note(status_files_->stop());
  if (history_) note(history_->stop());
  if (audit_) note(audit_->stop());
  if (metrics_) {
    if (hung.empty() && is_complete_) {
      remove_scrape_targets(scrape_targets_path(paths_.home()));
    } else if (hung.empty()) {
      publish_targets("");
    }
    metrics_.reset();
  }
  return hung;
}

void Controller::perform(const core::Action& action, const core::State& state) {
  if (mode_.stands_back()) return;
  if (agent_of(action)) {
    agents_->perform(action, state);
    return;
  }
  if (const auto* launch = std::get_if<core::LaunchNode>(&action.body)) {
    starts_->post(
        "the start of node " + launch->node + " of job " + to_string(launch->job),
        [this, id = action.id, launch = *launch] { loop_->post(scheduler_->launch(id, launch)); });
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
    directories_->post(job.spec.checkpoint.dir, [this, id = action.id, find = *find,
                                                 spec = job.spec, ordered = take_damage(job)] {
      core::EventBody found = find_checkpoint(id, find, spec);
      if (ordered) damage(*ordered, found, spec.checkpoint.dir);
      loop_->post(std::move(found));
    });
  } else if (const auto* record = std::get_if<core::RecordGeneration>(&action.body)) {
    const std::string& directory = state.jobs.at(record->job).spec.checkpoint.dir;
    directories_->post(
        directory, [this, id = action.id, record = *record,
                    content = make_record(*record, state, clock_.wall_ms()), directory] {
          if (!mode_.may_record()) return;
          core::EventBody done = record_generation(id, record, content, directory, paths_);
          ports_.learn(paths_, record.job, record.generation);
          loop_->post(std::move(done));
        });
  }
}

// Of the generation that has just ended; one that survived is not meant any more.
std::optional<core::LogEntry> Controller::take_damage(const core::Job& job) {
  const auto ordered = to_damage_.extract(job.id);
  if (ordered.empty() || ordered.mapped().generation != job.generation) return std::nullopt;
  return ordered.mapped();
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
  if (metrics_) shown.losses.count(job, *metrics_);
}

void Controller::append_event_files(const Committed& batch) {
  std::map<JobId, std::vector<EventView>> by_job;
  for (const StoredEntry& stored : batch.entries) {
    by_job[stored.entry.job].push_back(make_event_view(stored));
  }
  for (auto& [id, events] : by_job) {
    const auto job = batch.state.jobs.find(id);
    if (job == batch.state.jobs.end()) continue;
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
  const int64_t wall_ms = clock_.wall_ms();
  Shown& shown = shown_[id];
  shown.at_ms = loop_->now_ms();
  JobProgress progress = progress_.of(id);
  JobView view = make_job_view(state, id, progress, mode_.node(), shown.at_ms);
  note_totals(view, state, progress, shown.at_ms, wall_ms);
  shown.stale = false;
  shown.state = job.state;
  shown.generation = job.generation;
  const std::vector<LemonScore> lemons = history_->scores();
  note_lemons(view, lemons);
  const std::vector<Finding> found = shown.watch.look(snapshot_of(view, wall_ms), wall_ms);
  notify(job, shown.notices.take(found, job, view.step, wall_ms));
  if (page_answers_) page_answers_->sample(view, found, lemons, wall_ms);
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
  if (core::has_ended(shown.state)) last_look_.shown(shown.state == core::JobState::kFailed);
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

// The last word comes before any node is told to end, and may be to a directory that blocks.
void Controller::conclude(const core::State& state, JobId id) {
  Shown& shown = shown_[id];
  if (shown.is_being_said) return;
  if (!mode_.has_last_word()) {
    let_nodes_end(state, id);
    return;
  }
  shown.is_being_said = true;
  if (!shown.is_said) agents_->hold_ends(id);
  directories_->post(paths_.job(id), [this, id, job = state.jobs.at(id),
                                      view = make_job_view(state, id, progress_.of(id),
                                                           mode_.node(), loop_->now_ms())] {
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

// When the job's end is complete, rendezvous files are of no more use.
void Controller::let_nodes_end(const core::State& state, JobId id) {
  if (mode_.stands_back()) return;
  for (auto it = state.nodes.lower_bound({id, ""}); it != state.nodes.end() && it->first.job == id;
       ++it) {
    if (it->second.state != core::NodeState::kEnded) return;
  }
  mode_.nodes_ended(id);
  directories_->post(paths_.job(id), [directory = paths_.job(id) + "/rdzv"] {
    if (const auto removed = remove_tree(directory); !removed.ok()) {
      log_warning(removed.error().message);
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
  for (core::ControllerNoted& note : progress_.take_notes()) events.emplace_back(std::move(note));
  // What follows looks at every rank and job, and is in no such hurry as the silence of a node.
  if (now_ms < look_at_all_ms_) return events;
  look_at_all_ms_ = now_ms + kLookAtAllMs;
  audit_->tick();
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
