// SPDX-License-Identifier: Apache-2.0
#include "controller/controller.h"

#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/net/host_port.h"
#include "common/net/node_address.h"
#include "common/process/descriptor_limit.h"
#include "controller/access/tcp_access.h"
#include "controller/leadership/home_lock.h"
#include "controller/publish/scrape_targets.h"

namespace hpctl {
namespace {

// So many directories may hang before the next has to wait: no more than there are live jobs.
constexpr size_t kDirectoryThreads = 64;
constexpr size_t kStartThreads = 4;
constexpr size_t kProbeThreads = 4;
// A plan is tried again when it takes too long; of what is tried only the newest counts.
constexpr size_t kTasksInALane = 16;
constexpr auto kStopPatience = std::chrono::seconds(5);
constexpr auto kShutdownGrace = std::chrono::milliseconds(500);

// What one job's controller gets from the disk of its machine. Shared storage that fails is waited
// for with all nodes of the job (run_controller.cc), and a disk that only this machine has is not.
template <typename Done>
Done from_own_disk(const HomePaths& paths, Done done) {
  if (done.ok() || !paths.is_one_job()) return done;
  Error error = done.error();
  for (const ErrorCode of_storage :
       {ErrorCode::kStorage, ErrorCode::kPermissionDenied, ErrorCode::kResourceExhausted}) {
    if (error.code == of_storage) error.code = ErrorCode::kInternal;
  }
  return error;
}

}  // namespace

Controller::Controller(const HomePaths& paths, const ControllerOptions& options,
                       ControllerMode& mode)
    : paths_(paths), options_(options), mode_(mode) {}

Controller::~Controller() { stop(); }

Outcome Controller::take_lock() {
  if (!paths_.is_one_job()) HP_TRY(make_directories(paths_.jobs(), 0700));
  HP_TRY(prepare_socket_directory(paths_));  // for one job its state too
  HP_TRY_ASSIGN(lock_, take_home_lock(paths_, clock_));
  return Ok{};
}

// Training needs no metrics: a problem with them is written to the log and to the history of the
// existing jobs, and has no other effect.
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
  HP_TRY(from_own_disk(paths_, take_lock()));
  HP_TRY(mode_.prepare());
  HP_TRY_ASSIGN(auto store,
                from_own_disk(paths_, Store::open(paths_.database(), Store::Mode::kOwner)));
  HP_TRY_ASSIGN(auto state, from_own_disk(paths_, store->load()));
  HP_TRY_ASSIGN(auto reader,
                from_own_disk(paths_, Store::open(paths_.database(), Store::Mode::kReader)));
  mode_.adjust(state);
  OpenedMetrics opened = open_metrics(options_.metrics, [this] { scrape_linger_.scraped(); });
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
    in_targets_lane([job_dir = paths_.home()] { sweep_scrape_targets(job_dir); });
  }
  log_info("serving " + paths_.home() + " on " + paths_.controller_socket() +
           (address_.empty() ? "" : " and " + address_));
  return Ok{};
}

void Controller::build(core::State state, std::unique_ptr<Store> store,
                       std::unique_ptr<Store> reader) {
  feed_ = std::make_unique<EventFeed>(std::move(reader));
  job_directories_ = std::make_unique<JobDirectories>(
      paths_, !paths_.is_one_job(), [this](JobId job, const std::string& what) {
        log_warning("job " + to_string(job) + ": " + what);
        loop_->post(core::ControllerNoted{job, what});
      });
  status_files_ = std::make_unique<StatusFileWriter>(paths_, *job_directories_,
                                                     [this] { return !mode_.is_superseded(); });
  history_ =
      std::make_unique<NodeHistory>(paths_, clock_, [this] { return !mode_.is_superseded(); });
  history_->add_fleet(options_.fleet_lemons);
  history_->load();
  directories_ = std::make_unique<TaskLanes>(kDirectoryThreads, kTasksInALane);
  starts_ = std::make_unique<TaskLanes>(kStartThreads, kTasksInALane);
  probes_ = std::make_unique<TaskLanes>(kProbeThreads, kTasksInALane);
  targets_ = std::make_unique<TaskLanes>(1, kTasksInALane);
  recall(state);
  loop_ = std::make_unique<OwnerLoop>(std::move(store), std::move(state), clock_, *this);
  notifier_ = std::make_unique<Notifier>(
      // Without a look: a notification may be about the silent directory.
      NotifierLimits{}, !options_.run_as.empty(), [this] { return !mode_.stands_back(); },
      [this](JobId job, const std::string& what) {
        loop_->post(core::ControllerNoted{job, what});
      });
  scheduler_ = mode_.make_scheduler([this](JobId job, Scheduler::MakeEvent make) {
    if (const auto news = progress_.news(job)) loop_->post(*news);
    loop_->post(std::move(make));
  });
  page_answers_ =
      std::make_unique<PageAnswers>(paths_, *loop_, *feed_, progress_, mode_.node(), HPCTL_VERSION);
  page_ = std::make_unique<StatusPage>(
      [this](uint32_t uid, const auto& request) { return page_answers_->answer(uid, request); },
      options_.page, clock_);
  const ControllerMode::Access access = mode_.access();
  // The machine's log is for the controllers of its cluster, not for a user's home.
  audit_ = std::make_unique<AuditLog>(paths_.home(), paths_.audit_log(), options_.job != 0, clock_);
  authenticator_ =
      std::make_unique<Authenticator>(access.secrets, access.owner, access.older_agents);
  gate_ = std::make_unique<Gate>(*authenticator_,
                                 [this](AuditEntry entry) { audit_->record(std::move(entry)); });
  agents_ = std::make_unique<AgentLink>(
      paths_, *gate_, *loop_, liveness_, progress_, *scheduler_, ports_,
      [this](const std::string& node, const std::string& instance) {
        // Virtual nodes share a machine: no choice among them.
        return !mode_.accepts_jobs() && history_->is_lemon(node, instance);
      },
      mode_.node());
  const ControllerIdentity identity{HPCTL_VERSION, mode_.node(),
                                    metrics_ ? metrics_->address() : "", mode_.accepts_jobs()};
  service_ = std::make_unique<ControllerService>(
      paths_, identity, *gate_, *loop_, *feed_, progress_, *agents_,
      [this](InjectedFault fault, const core::LogEntry& told) {
        directory_faults_.insert_or_assign(told.job, DirectoryFault{fault, told});
      },
      [this](uint32_t uid) { return page_->link(uid); }, [this] { return history_->scores(); },
      [this] { scrape_linger_.listed(); });
}

// Values that only the status files have: of the last step, for display until heartbeats come.
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
    // The former process may not have come so far.
    if (job.generation != Generation{}) job_directories_->was_made(id);
    shown_[id].notices.recall(job, clock_.wall_ms());
    if (const auto view = read_status(paths_, id); view.ok()) {
      const bool is_final = job.ended_wall_ms != 0 && view->ended_at.unix_ms() == job.ended_wall_ms;
      progress_.remember(id, view->loss, view->tokens_per_second,
                         is_final ? std::optional(view->spent) : std::nullopt);
      shown_[id].losses.go_on_from(view->losses);
    }
  }
  // Of an epoch; a takeover has none before.
  if (metrics_) metrics_->former_events(state.last_seq.value & UINT32_MAX);
  if (options_.job != 0 && state.jobs.empty()) {
    if (auto view = read_status(paths_, JobId{options_.job}); view.ok()) {
      former_losses_ = std::move(view->losses);
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

Outcome Controller::publish() {
  const std::string metrics = metrics_ ? metrics_->address() : "";
  const nlohmann::json document = {
      {"pid", ::getpid()}, {"socket", paths_.controller_socket()}, {"metrics", metrics}};
  HP_TRY(write_file_atomic(paths_.controller_json(), json_text(document) + "\n"));
  in_targets_lane([this, metrics] { publish_targets(metrics); });
  return Ok{};
}

// The job's directory, where the file is, may not answer.
void Controller::in_targets_lane(TaskLanes::Task task) {
  targets_->post("the scrape targets of " + paths_.home(), std::move(task));
}

void Controller::publish_targets(const std::string& metrics) const {
  // Where there are none and never were, no file says so.
  if (metrics.empty() && !is_accessible(scrape_targets_path(paths_.home()))) return;
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
  if (page_answers_) note(page_answers_->stop(kStopPatience));
  if (status_files_) note(status_files_->stop());
  if (history_) note(history_->stop());
  if (audit_) note(audit_->stop());
  if (metrics_ && targets_ && hung.empty()) {
    in_targets_lane([this] {
      if (is_complete_) {
        remove_scrape_targets(scrape_targets_path(paths_.home()));
      } else {
        publish_targets("");
      }
    });
  }
  if (targets_) note(targets_->stop(kStopPatience, TaskLanes::AtStop::kDone));
  metrics_.reset();
  return hung;
}

}  // namespace hpctl
