// SPDX-License-Identifier: Apache-2.0
#include "controller/controller.h"

#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "common/base/log.h"
#include "controller/job_view.h"
#include "controller/lineage_executor.h"
#include "controller/local_scheduler.h"
#include "controller/worker_order.h"

namespace hpctl {
namespace {

constexpr int kTaskThreads = 4;
constexpr int64_t kDeadOwnerMs = 2'000;
constexpr int kLockRetryMs = 5;
constexpr int64_t kProgressMirrorMs = 1'000;
constexpr auto kShutdownGrace = std::chrono::milliseconds(500);

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// A thousand agents are a thousand descriptors.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Controller::Controller(const HomePaths& paths, const ControllerOptions& options)
    : paths_(paths), options_(options), host_(host_name()) {}

Controller::~Controller() { stop(); }

Outcome Controller::take_lock() {
  HP_TRY(make_directories(paths_.home()));
  HP_TRY(prepare_socket_directory(paths_));  // for one job its state too
  const int64_t deadline_ms = clock_.monotonic_ms() + kDeadOwnerMs;
  for (;;) {
    auto lock = lock_file(paths_.controller_lock());
    if (lock.ok()) {
      lock_ = std::move(*lock);
      break;
    }
    if (lock.error().code != ErrorCode::kAlreadyExists) return lock.error();
    const auto text = read_file(paths_.controller_lock(), 64);
    const long pid = text.ok() ? std::strtol(text->c_str(), nullptr, 10) : 0;
    // A controller that was killed while it started an agent leaves the lock to that child until
    // its exec, a few milliseconds later.
    if (process_lives(static_cast<pid_t>(pid)) || clock_.monotonic_ms() >= deadline_ms) {
      return Error{ErrorCode::kAlreadyExists, "another controller (pid " + std::to_string(pid) +
                                                  ") runs on " + paths_.home() +
                                                  "; use it, or end it first"};
    }
    ::poll(nullptr, 0, kLockRetryMs);
  }
  if (::ftruncate(lock_.get(), 0) != 0) return errno_error("cannot write the lock file");
  return write_all(lock_.get(), std::to_string(::getpid()) + "\n", paths_.controller_lock());
}

Outcome Controller::open_metrics() {
  if (options_.metrics.empty()) return Ok{};
  HP_TRY_ASSIGN(metrics_, Metrics::open(options_.metrics));
  return Ok{};
}

Outcome Controller::start() {
  raise_file_limit();
  HP_TRY(take_lock());
  HP_TRY_ASSIGN(auto store, Store::open(paths_.database(), Store::Mode::kOwner));
  HP_TRY_ASSIGN(auto state, store->load());
  HP_TRY_ASSIGN(auto reader, Store::open(paths_.database(), Store::Mode::kReader));
  HP_TRY_ASSIGN(const std::string programs, program_directory());
  HP_TRY(open_metrics());
  feed_ = std::make_unique<EventFeed>(std::move(reader));
  mirror_ = std::make_unique<MirrorWriter>(paths_);
  tasks_ = std::make_unique<TaskThreads>(kTaskThreads);
  recall(state);
  const core::State loaded = state;
  loop_ = std::make_unique<OwnerLoop>(std::move(store), std::move(state), clock_, *this);
  scheduler_ = std::make_unique<LocalScheduler>(paths_, programs + "/hpagent",
                                                [this](JobId job, Scheduler::MakeEvent make) {
                                                  if (const auto news = progress_.news(job))
                                                    loop_->post(*news);
                                                  loop_->post(std::move(make));
                                                });
  agents_ = std::make_unique<AgentLink>(paths_, *loop_, liveness_, progress_, *scheduler_);
  const ControllerIdentity identity{HPCTL_VERSION, host_, metrics_ ? metrics_->address() : ""};
  service_ =
      std::make_unique<ControllerService>(paths_, identity, peers_, *loop_, *feed_, progress_);
  loop_->start();
  scheduler_->resume(loaded);
  HP_TRY(serve());
  HP_TRY(publish());
  log_info("serving " + paths_.home() + " on " + paths_.controller_socket());
  return Ok{};
}

// What is only in the mirror: values of the last step, for display until heartbeats come.
void Controller::recall(const core::State& state) {
  feed_->load(state);
  for (const auto& [id, job] : state.jobs) {
    progress_.observe(job, 0);
    shown_[id].spec_written = true;
    if (const auto view = read_status(paths_, id); view.ok()) {
      progress_.remember(id, view->loss, view->tokens_per_second);
    }
  }
  has_work_ = std::any_of(state.nodes.begin(), state.nodes.end(), [](const auto& node) {
    return node.second.state != core::NodeState::kEnded;
  });
}

Outcome Controller::serve() {
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  builder.RegisterService(agents_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return Error{ErrorCode::kInternal, "gRPC did not start"};
  HP_TRY_ASSIGN(
      listener_,
      LocalListener::open(paths_.controller_socket(), [this](UniqueFd connection, uid_t uid) {
        peers_.remember(connection.get(), uid);
        grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
      }));
  return Ok{};
}

Outcome Controller::publish() const {
  const nlohmann::json document = {{"pid", ::getpid()},
                                   {"socket", paths_.controller_socket()},
                                   {"metrics", metrics_ ? metrics_->address() : ""}};
  return write_file_atomic(paths_.controller_json(), document.dump() + "\n");
}

bool Controller::is_idle() const {
  return !has_work_ && agents_->connected() == 0 && feed_->subscribers() == 0;
}

void Controller::wait() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  const UniqueFd signals(::signalfd(-1, &ends, SFD_CLOEXEC));
  const int64_t limit_ms = options_.idle_exit_seconds * 1000;
  uint64_t calls = 0;
  for (;;) {
    pollfd ready{signals.get(), POLLIN, 0};
    const int n = ::poll(&ready, 1, limit_ms == 0 ? -1 : static_cast<int>(limit_ms));
    if (n > 0) {
      log_info("ending: asked by a signal");
      return;
    }
    if (n < 0) continue;
    if (is_idle() && calls == service_->calls()) {
      log_info("ending: no live job and no client for " +
               std::to_string(options_.idle_exit_seconds) + " s");
      return;
    }
    calls = service_->calls();
  }
}

void Controller::stop() {
  if (listener_) listener_->stop();
  if (agents_) agents_->close_all();
  if (scheduler_) scheduler_->stop();
  if (tasks_) tasks_->stop();
  if (loop_) loop_->stop();  // answers what waits, so that gRPC can end
  if (server_) {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
    server_.reset();
  }
  if (mirror_) mirror_->stop();
}

void Controller::perform(const core::Action& action, const core::State& state) {
  if (agent_of(action)) {
    agents_->perform(action, state);
    return;
  }
  if (const auto* launch = std::get_if<core::LaunchNode>(&action.body)) {
    tasks_->post(
        [this, id = action.id, launch = *launch] { loop_->post(scheduler_->launch(id, launch)); });
  } else if (const auto* find = std::get_if<core::FindCheckpoint>(&action.body)) {
    tasks_->post([this, id = action.id, find = *find, spec = state.jobs.at(find->job).spec] {
      loop_->post(find_checkpoint(id, find, spec));
    });
  } else if (const auto* record = std::get_if<core::RecordGeneration>(&action.body)) {
    tasks_->post([this, id = action.id, record = *record,
                  content = make_record(*record, state, clock_.wall_ms()),
                  directory = state.jobs.at(record->job).spec.checkpoint.dir] {
      loop_->post(record_generation(id, record, content, directory, paths_));
    });
  }
}

void Controller::committed(const Committed& batch) {
  for (const JobId id : batch.dirty.jobs) observe_job(batch, id);
  std::set<JobId> changed = batch.dirty.jobs;
  for (const core::NodeKey& key : batch.dirty.nodes) changed.insert(key.job);
  for (const core::SlotKey& key : batch.dirty.slots) changed.insert(key.job);
  for (const JobId id : changed) {
    Shown& shown = shown_[id];
    const core::Job& job = batch.state.jobs.at(id);
    shown.stale = true;
    const bool transition = shown.state != job.state || shown.generation != job.generation ||
                            core::has_ended(job.state);
    const int64_t now = loop_ ? loop_->now_ms() : 0;
    if (transition || now - shown.at_ms >= kProgressMirrorMs) show(batch.state, id);
    if (core::has_ended(job.state)) clean_up_after(batch.state, id);
  }
  mirror_events(batch);
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
  Shown& shown = shown_[id];
  if (!std::exchange(shown.spec_written, true)) mirror_->spec(id, job.spec);
  if (metrics_ && job.lost_ms > shown.lost_ms && job.state == core::JobState::kRunning) {
    metrics_->recovery(id.value, job.spec.name,
                       static_cast<double>(job.lost_ms - shown.lost_ms) / 1000.0);
  }
  shown.lost_ms = job.lost_ms;
}

void Controller::mirror_events(const Committed& batch) {
  std::map<JobId, std::vector<EventView>> by_job;
  for (const StoredEntry& stored : batch.entries) {
    by_job[stored.entry.job].push_back(make_event_view(stored));
  }
  for (auto& [id, events] : by_job) {
    const auto job = batch.state.jobs.find(id);
    if (job == batch.state.jobs.end()) continue;
    mirror_->events(id, job->second.spec.checkpoint.dir, std::move(events));
  }
}

void Controller::show(const core::State& state, JobId id) {
  const JobView view = make_job_view(state, id, progress_.of(id), host_);
  Shown& shown = shown_[id];
  shown.at_ms = loop_->now_ms();
  shown.stale = false;
  shown.state = state.jobs.at(id).state;
  shown.generation = state.jobs.at(id).generation;
  if (metrics_) metrics_->job(view);
  mirror_->status(view);
}

// The job's end is complete: rendezvous files are of no more use.
void Controller::clean_up_after(const core::State& state, JobId id) {
  for (auto it = state.nodes.lower_bound({id, ""}); it != state.nodes.end() && it->first.job == id;
       ++it) {
    if (it->second.state != core::NodeState::kEnded) return;
  }
  tasks_->post([directory = paths_.job(id) + "/rdzv"] {
    if (const auto removed = remove_tree(directory); !removed.ok()) {
      log_warning(removed.error().message);
    }
  });
}

std::vector<core::EventBody> Controller::sweep(int64_t now_ms) {
  std::vector<core::EventBody> events;
  for (core::NodeLost& lost : liveness_.take_overdue(now_ms)) {
    if (const auto news = progress_.news(lost.job)) events.emplace_back(*news);
    events.emplace_back(std::move(lost));
  }
  for (core::HangDetected& hang : progress_.take_hangs(now_ms)) {
    if (const auto news = progress_.news(hang.job)) events.emplace_back(*news);
    events.emplace_back(std::move(hang));
  }
  // Steps go on without any commit: once a second the mirror follows.
  loop_->ask([this, now_ms](const core::State* state) {
    if (state == nullptr) return;
    for (auto& [id, shown] : shown_) {
      if (now_ms - shown.at_ms < kProgressMirrorMs) continue;
      const bool live = !core::has_ended(state->jobs.at(id).state);
      if (live || shown.stale) show(*state, id);
    }
  });
  return events;
}

void Controller::stalled(int64_t now_ms) {
  liveness_.rearm(now_ms);
  progress_.rearm(now_ms);
}

}  // namespace hpctl
