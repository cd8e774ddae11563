// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/job_mode.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <future>
#include <utility>

#include "common/base/checksum.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/temporary_file.h"
#include "common/job/container_options.h"
#include "common/job/controller_beat.h"
#include "common/job/start_failure.h"
#include "common/net/node_address.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/job_channel.h"
#include "common/slurm/hyperpod.h"
#include "controller/leadership/ask_owner.h"
#include "controller/leadership/requeue_carryover.h"
#include "controller/publish/scrape_targets.h"
#include "controller/schedulers/external_agents.h"
#include "controller/schedulers/slurm/slurm_scheduler.h"

namespace hpctl {
namespace {

constexpr auto kPingTimeout = std::chrono::milliseconds(1'500);

constexpr size_t kMaxEpochText = 256;

// Whose rows these are. The certificate tells it from controllers of an earlier job with the same
// number: the directory on the node's disk is named after the number, and clusters give them again.
std::string epoch_text(const ControllerRecord& controller) {
  Sha256 certificate;
  certificate.update(controller.certificate);
  return std::to_string(controller.epoch) + " " + std::to_string(controller.restart_count) + " " +
         certificate.hex_digest() + "\n";
}

// A requeue would end in the same way: every restart that the job was allowed is spent.
bool is_hopeless(const core::Job& job) {
  return job.restarts_without_progress > core::kMaxRestartsWithoutProgress ||
         static_cast<int64_t>(job.restart_times_ms.size()) >= job.spec.recovery.max_restarts;
}

std::vector<GenerationRecord> records_of(std::vector<GenerationRecord> records, JobId job,
                                         const std::string& uuid) {
  std::erase_if(records, [&](const GenerationRecord& record) {
    return !is_recorded_by(record, job.value, uuid);
  });
  return records;
}

int verdict_of(const core::Job& job) {
  if (job.state == core::JobState::kFinished) return kVerdictFinished;
  const bool failed = job.state == core::JobState::kFailed;
  return failed && is_hopeless(job) ? kVerdictFailedForGood : kVerdictFailed;
}

}  // namespace

JobMode::JobMode(const HomePaths& paths, const ControllerOptions& options)
    : paths_(paths),
      options_(options),
      job_{options.job},
      node_(options.node),
      restart_count_(restart_count()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

bool JobMode::answers(const ControllerRecord& controller) const {
  const auto channel = connect_address(controller.address, controller.certificate, token_);
  return channel.ok() &&
         ping_controller(**channel, std::chrono::steady_clock::now() + kPingTimeout, false).ok();
}

// It ran on this machine since its last boot, and its process is no more: no beat can move.
bool JobMode::is_gone_from_here(const ControllerRecord& controller) const {
  return controller.node == node_ && controller.boot_id == identify_machine().boot_id &&
         ::kill(static_cast<pid_t>(controller.pid), 0) != 0 && errno == ESRCH;
}

// Rows of an epoch that is over tell what was, not what is.
Outcome JobMode::take_over_rows(const std::optional<ControllerRecord>& newest) {
  HP_TRY_ASSIGN(const auto own, read_file_if_there(own_epoch_path(), kMaxEpochText));
  const bool follows = newest && newest->restart_count == restart_count_;
  if (follows && own && *own == epoch_text(*newest)) return Ok{};
  for (const char* suffix : {"", "-wal", "-shm"}) {
    const std::string path = paths_.database() + suffix;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error("cannot remove " + path);
  }
  return Ok{};
}

Outcome JobMode::refuse_ended_job() const {
  HP_TRY_ASSIGN(const auto verdict, standing_verdict(paths_.home(), restart_count_));
  if (!verdict) return Ok{};
  return Error{ErrorCode::kAlreadyExists,
               "the job has ended before with " + std::to_string(*verdict)};
}

// Asked and watched at the same time: a machine that is gone costs the longer of the two.
Outcome JobMode::refuse_living(const ControllerRecord& controller) const {
  const std::string who = "controller " + std::to_string(controller.epoch) + " of this job";
  std::atomic<bool> has_answered{false};
  auto asked = std::async(std::launch::async, [&] { return has_answered = answers(controller); });
  HP_TRY_ASSIGN(const bool lives, is_gone_from_here(controller) ? Result<bool>(false)
                                                                : beat_moves(paths_.home(), [&] {
                                                                    return has_answered.load();
                                                                  }));
  if (asked.get()) {
    return Error{ErrorCode::kAlreadyExists,
                 who + " answers on " + controller.node + " (" + controller.address + ")"};
  }
  if (!lives) return Ok{};
  return Error{ErrorCode::kAlreadyExists,
               who + " on " + controller.node + " (" + controller.address +
                   ") serves most of the job's nodes, but does not answer here: this node is cut "
                   "off"};
}

std::optional<FormerController> JobMode::former_controller() const {
  const bool was_a_nodes = former_ && std::find(record_.nodes.begin(), record_.nodes.end(),
                                                former_->node) != record_.nodes.end();
  if (!was_a_nodes || former_->node == node_) return std::nullopt;
  return FormerController{former_->node, former_->address};
}

Outcome JobMode::prepare() {
  HP_TRY_ASSIGN(const std::string programs, program_directory());
  programs_ = options_.programs.empty() ? programs : options_.programs;
  HP_TRY_ASSIGN(token_, read_token(paths_.home()));
  HP_TRY_ASSIGN(identity_, make_tls_identity());
  HP_TRY_ASSIGN(document_, read_job_document(paths_.home()));
  if (document_.spec.checkpoint.dir.empty()) {
    document_.spec.checkpoint.dir = paths_.default_checkpoints(job_);
  }
  HP_TRY_ASSIGN(const auto newest, newest_controller(paths_.home()));
  if (newest && newest->restart_count > restart_count_) {
    return Error{ErrorCode::kAlreadyExists,
                 "the job was requeued and has a controller on " + newest->node +
                     ": what is started here belongs to its start before that"};
  }
  const bool follows = newest && newest->restart_count == restart_count_;
  if (options_.successor && !follows) {
    return Error{ErrorCode::kFailedPrecondition,
                 "there is no controller to succeed: none has run in this allocation"};
  }
  record_.epoch = newest ? newest->epoch + 1 : 1;
  record_.node = node_;
  record_.restart_count = restart_count_;
  record_.nodes = options_.nodes;
  record_.scheduler = options_.scheduler;
  record_.agent_tokens = true;
  record_.owner_tokens = true;
  // They run since a controller of their release has started them, or have asked for this one.
  record_.older_agents =
      options_.older_agents || (follows && (!newest->agent_tokens || newest->older_agents));
  if (follows) {
    HP_TRY(refuse_living(*newest));
    former_ = *newest;
    HP_TRY(refuse_ended_job());  // it may have ended, and its controller with it, meanwhile
    follows_ = "controller " + std::to_string(newest->epoch) + " on " + newest->node;
    if (record_.nodes.empty()) record_.nodes = newest->nodes;
    if (record_.scheduler.empty()) record_.scheduler = newest->scheduler;
  }
  if (record_.scheduler.empty()) record_.scheduler = kSchedulerSlurm;
  if (record_.nodes.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "the job's nodes are not known: no controller of this allocation has said them, "
                 "and there is no --nodes"};
  }
  HP_TRY_ASSIGN(lineage_, read_lineage(document_.spec.checkpoint.dir));
  return take_over_rows(newest);
}

void JobMode::adjust(core::State& state) {
  if (state.jobs.empty()) state.last_seq = core::seq_before_epoch(record_.epoch);
}

ControllerMode::Access JobMode::access() const {
  const std::string listen = options_.listen.empty() ? node_address() + ":0" : options_.listen;
  std::vector<std::string> secrets = {token_};
  if (!options_.cluster_token.empty()) secrets.push_back(options_.cluster_token);
  return {listen, identity_, std::move(secrets), document_.uid, record_.older_agents};
}

std::unique_ptr<Scheduler> JobMode::make_scheduler(Scheduler::Post post) {
  if (record_.scheduler != kSchedulerSlurm) return std::make_unique<ExternalAgents>();
  SlurmSchedulerSettings settings;
  settings.job = job_;
  settings.node = node_;
  settings.agent_program = programs_ + "/hpagent";
  const char* home = std::getenv("HPCTL_HOME");  // set by the batch script
  settings.srun_options =
      container_options(document_.spec, programs_, home == nullptr ? paths_.home() : home);
  settings.bulk_started = follows_.empty();
  settings.outside = !options_.run_as.empty();
  settings.restart_count = restart_count_;
  settings.nodes = record_.nodes;
  settings.requeued = [this] {
    log_info("Slurm requeues the job; its next start goes on");
    over(kExitRequeued);
  };
  return std::make_unique<SlurmScheduler>(paths_, std::move(settings), std::move(post));
}

Outcome JobMode::claim(const std::string& address) {
  record_.address = address;
  record_.certificate = identity_.certificate;
  record_.pid = static_cast<uint64_t>(::getpid());
  record_.boot_id = identify_machine().boot_id;
  record_.started_wall_ms = SystemClock().wall_ms();
  if (const auto created = create_controller_record(paths_.home(), record_); !created.ok()) {
    if (created.error().code != ErrorCode::kAlreadyExists) return created.error();
    return Error{ErrorCode::kAlreadyExists,
                 "another controller became number " + std::to_string(record_.epoch)};
  }
  // A late write of the former controller cannot come after this, or is already there.
  HP_TRY(remove_unfinished(paths_.job_status(job_)));
  HP_TRY(remove_unfinished(verdict_path(paths_.home())));
  HP_TRY(remove_unfinished(scrape_targets_path(paths_.home())));
  HP_TRY(refuse_ended_job());
  if (const auto forgotten = forget_start_failure(paths_.home()); !forgotten.ok()) {
    log_warning(forgotten.error().message);
  }
  log_info("controller " + std::to_string(record_.epoch) + " of job " + to_string(job_) + " on " +
           node_ + " (" + address + ")");
  return write_file_atomic(own_epoch_path(), epoch_text(record_));
}

std::optional<core::EventBody> JobMode::first_event() {
  core::Backend backend;
  backend.restart_count = static_cast<int64_t>(restart_count_);
  backend.requeues = record_.scheduler == kSchedulerSlurm;
  backend.replaces = backend.requeues && is_hyperpod();
  backend.limits = cluster_limits(!document_.spec.slurm.container.image.empty());
  const std::string& uuid = document_.submit_key;
  const auto own = records_of(lineage_, job_, uuid);
  if (lineage_.empty() || !is_recorded_by(lineage_.back(), job_.value, uuid)) {
    core::JobSubmitted submitted;
    submitted.spec = document_.spec;
    submitted.uid = document_.uid;
    submitted.submit_key = document_.submit_key;
    submitted.job = job_;
    submitted.nodes = record_.nodes;
    submitted.backend = backend;
    submitted.former = read_former_life(paths_.home(), job_, restart_count_, own);
    submitted.totals = read_totals(paths_, job_, own);
    return submitted;
  }
  core::JobAdopted adopted;
  adopted.job = job_;
  adopted.spec = document_.spec;
  adopted.uid = document_.uid;
  adopted.submit_key = document_.submit_key;
  adopted.nodes = record_.nodes;
  adopted.backend = backend;
  adopted.cause = follows_.empty() ? "the job was requeued" : follows_ + " did not answer";
  core::fill_from_lineage(adopted, lineage_, SystemClock().wall_ms());
  auto former = read_former_life(paths_.home(), job_, restart_count_, own);
  if (former.quarantined.empty()) former.quarantined = std::move(adopted.former.quarantined);
  adopted.former = std::move(former);
  adopted.totals = read_totals(paths_, job_, own);
  const auto newest = latest_valid_checkpoint(document_.spec.checkpoint.dir, {});
  if (newest.ok() && *newest) adopted.committed_step = (*newest)->step;
  return adopted;
}

JobIdentity JobMode::identify(const core::Job& job) const {
  const bool of_slurm = record_.scheduler == kSchedulerSlurm;
  return identify_job(paths_.home(), job_, {job.submit_key, job.spec.name, job.owner_uid},
                      of_slurm ? cluster_of(paths_.home()) : "");
}

// The home of the job's directory, HPCTL_HOME/jobs/submit-KEY.
HomePaths JobMode::users_home() const { return HomePaths(parent_of(parent_of(paths_.home()))); }

void JobMode::refused(const std::string& reason) {
  log_error("job " + to_string(job_) + " cannot start: " + reason);
  if (const auto noted = note_start_failure(paths_.home(), node_, reason); !noted.ok()) {
    log_warning(noted.error().message);
  }
  ends_ = true;
  say_last_word(kVerdictFailedForGood);
  over(kVerdictFailedForGood);
}

bool JobMode::is_superseded() {
  if (stands_back()) return true;
  if (verdict_written_) return false;  // whoever follows finds it
  const auto newest = newest_controller_epoch(paths_.home());
  if (!newest.ok() || *newest <= record_.epoch) return false;
  if (over(kExitSuperseded)) {
    log_warning("controller " + std::to_string(*newest) + " has taken over; this one, number " +
                std::to_string(record_.epoch) + ", stands back");
  }
  return stands_back();
}

bool JobMode::is_ended_by_another() {
  const auto verdict = standing_verdict(paths_.home(), restart_count_);
  if (!verdict.ok() || !*verdict || ends_) return false;  // in this order
  read_preemption();
  if (over(**verdict)) {
    log_warning("a controller before this one has ended the job with " + std::to_string(**verdict));
  }
  return true;
}

bool JobMode::may_record() { return exit_code_ < 0 && !is_superseded() && !is_ended_by_another(); }

void JobMode::say_last_word(int verdict) {
  const auto written =
      write_verdict(paths_.home(), verdict, restart_count_, [this] { return !is_superseded(); });
  if (!written.ok()) {
    log_error(written.error().message);
  } else if (*written) {
    verdict_written_ = true;
  } else {
    over(kExitSuperseded);
  }
}

void JobMode::job_ended(const core::Job& job, const JobView& view) {
  if (verdict_written_) return;
  ends_ = true;
  verdict_ = verdict_of(job);
  note_preemption();
  read_preemption();
  // A time limit is TIMEOUT, and of a preemption Slurm itself says how the job ended.
  if (job.state == core::JobState::kCancelled && !is_preempted_) {
    const auto noted = note_cancellation(paths_.home(), restart_count_);
    if (!noted.ok()) log_warning(noted.error().message + "; Slurm shows the job as FAILED");
  }
  const auto shown = write_status(paths_, view, [this] { return !is_superseded(); });
  if (!shown.ok()) log_error(shown.error().message);
  say_last_word(verdict_);
}

void JobMode::nodes_ended(JobId) { over(verdict_); }

TerminationCause JobMode::termination_cause() const {
  if (record_.scheduler != kSchedulerSlurm) return TerminationCause::kSomebody;
  return ask_termination_cause(job_, document_.spec.slurm);
}

// The batch script's own process may have noted it. A note that cannot be read says nothing: the
// job may be preempted, and then its batch script must not cancel it.
void JobMode::read_preemption() {
  if (is_preempted_) return;
  const auto noted = hpctl::is_preempted(paths_.home(), restart_count_);
  is_preempted_ = !noted.ok() || *noted;
  preemption_was_noted_ = is_preempted_.load();
  if (!noted.ok()) log_warning(noted.error().message + "; Slurm says how the job ended");
}

void JobMode::note_preemption() {
  if (!is_preempted_ || preemption_was_noted_) return;
  const auto noted = hpctl::note_preemption(paths_.home(), restart_count_);
  preemption_was_noted_ = noted.ok();
  if (!noted.ok()) log_error(noted.error().message + "; Slurm may not requeue the job");
}

core::EventBody JobMode::cancellation(TerminationCause why) const {
  return core::CancelRequested{job_, document_.uid,
                               last_words(why, document_.spec, paths_.default_checkpoints(job_)),
                               why == TerminationCause::kTimeLimit};
}

void JobMode::look(const std::function<std::set<std::string>()>& heard) {
  note_preemption();
  if (exit_code_ >= 0 || is_superseded() || is_ended_by_another()) return;
  // Asked now: the look may have waited for the directory.
  if (!is_majority(heard(), record_.nodes)) return;
  const auto written = write_beat(paths_.home(), record_.epoch, ++beats_);
  const std::string problem = written.ok() ? "" : written.error().message;
  const bool is_known = std::exchange(beat_problem_, problem) == problem;
  if (!problem.empty() && !is_known) log_warning(problem);
}

bool JobMode::over(int exit_code) {
  int goes_on = -1;
  const bool is_first = exit_code_.compare_exchange_strong(goes_on, exit_code);
  ::eventfd_write(wake_.get(), 1);
  return is_first;
}

std::optional<int> JobMode::wait(int interrupt, int timeout_ms) const {
  std::array<pollfd, 2> ready{{{wake_.get(), POLLIN, 0}, {interrupt, POLLIN, 0}}};
  ::poll(ready.data(), ready.size(), timeout_ms);
  return exit_code_ < 0 ? std::nullopt : std::optional<int>(exit_code_);
}

}  // namespace hpctl
