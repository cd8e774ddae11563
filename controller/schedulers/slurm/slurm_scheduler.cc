// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/slurm/slurm_scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/exclusion.h"
#include "common/job/job_files.h"
#include "common/job/lineage.h"
#include "common/job/srun_environment.h"
#include "controller/schedulers/slurm/node_replacement.h"

namespace hpctl {
namespace {

constexpr char kSuspended[] = "SUSPENDED";
constexpr int64_t kBatchScriptMs = 10'000;  // to end the job itself once its agents have ended
constexpr int64_t kLookAgainMs = 500;
constexpr int64_t kCompleteMs = 120'000;  // while slurmctld does not answer
constexpr int64_t kCompletePauseMs = 2'000;

// There is a request to replace or reboot the node.
core::EventBody recovery_seen(const core::Node& node, const std::string& what, bool reboot) {
  if (node.quarantine.hardware) {
    return core::NodeReplacementRequested{{}, node.key.job, node.key.name, what, reboot};
  }
  return core::HardwareFaultFound{
      node.key.job, node.key.name,
      node.boot_id, reboot ? "it is to be rebooted" : "it is to be replaced",
      what,         reboot};
}

std::string what_was_done(const core::ReplaceNode& action, ReplacementStep step) {
  if (step == ReplacementStep::kStandBack) return "another request is under way; hpctl stands back";
  if (step == ReplacementStep::kRebooted) return "it has rebooted since; hpctl requests nothing";
  return std::string("state FAIL, reason ") + (action.reboot ? kRebootReason : kReplaceReason);
}

std::string minutes_text(int64_t ms) {
  const int64_t seconds = ms / 1000;
  return std::to_string(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
}

// Ours, without what srun would take for its options.
std::vector<std::string> environment_of_step() {
  std::vector<std::string> words = {"/usr/bin/env"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (is_srun_option(name)) words.insert(words.end(), {"-u", std::string(name)});
  }
  return words;
}

// None of ours but what srun needs; the node takes the job's (agent/holder/job_node.h).
std::vector<std::string> environment_of_job(const std::string& job_dir) {
  std::vector<std::string> words = {"/usr/bin/env", "-i",
                                    std::string(kTakeEnvironment) + "=" + job_dir};
  for (const char* name : {"PATH", "SLURM_CONF", "SLURM_RESTART_COUNT"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) words.push_back(std::string(name) + "=" + value);
  }
  return words;
}

}  // namespace

SlurmScheduler::SlurmScheduler(const HomePaths& paths, SlurmSchedulerSettings settings, Post post)
    : paths_(paths),
      settings_(std::move(settings)),
      post_(std::move(post)),
      slurm_(settings_.slurm),
      launcher_(srun_settings(),
                [this](const std::string& node, bool was_up, const std::string& cause) {
                  step_ended(node, was_up, cause);
                }) {}

SlurmScheduler::~SlurmScheduler() { stop(); }

SrunSettings SlurmScheduler::srun_settings() const {
  const std::string job = to_string(settings_.job);
  SrunSettings srun;
  srun.command = settings_.outside ? environment_of_job(paths_.home()) : environment_of_step();
  srun.command.insert(
      srun.command.end(),
      {"HPCTL_AUTO_RESUME=0", settings_.srun, "--jobid=" + job, "--overlap", "--no-kill",
       "--kill-on-bad-exit=0", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--mem=0",
       "--input=none", "--mpi=none", "--cpu-bind=none"});
  srun.command.insert(srun.command.end(), settings_.srun_options.begin(),
                      settings_.srun_options.end());
  srun.command.emplace_back("--nodelist");
  srun.program = {
      settings_.agent_program, "--holder", "--job-dir", paths_.home(), "--job", job, "--node"};
  srun.log_path = [this](const std::string& node) {
    return paths_.node(settings_.job, node) + "/srun.log";
  };
  return srun;
}

void SlurmScheduler::resume(const core::State& state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, node] : state.nodes) {
    if (key.job != settings_.job) continue;
    names_.insert(key.name);
    launches_[key.name] = {};  // the batch script's srun was an earlier launch
  }
  for (const auto& [id, action] : state.outbox) {
    if (const auto* launch = std::get_if<core::LaunchNode>(&action.body)) {
      const auto row = state.nodes.find({launch->job, launch->node});
      if (row != state.nodes.end() && row->second.launches <= 1) launches_.erase(launch->node);
    }
  }
  thread_ = std::thread([this] { poll(); });
}

core::EventBody SlurmScheduler::launch(ActionId id, const core::LaunchNode& action) {
  const std::string directory = paths_.node(action.job, action.node);
  const auto made = make_directories_below(paths_.job(action.job), directory);
  if (!made.ok()) {
    return launch_failed(id, action, made.error());
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_.insert(action.node);
    ended_.erase(action.node);  // of the life before
    const auto [newest, is_first] = launches_.try_emplace(action.node, id);
    const bool again = !is_first && newest->second >= id;
    newest->second = std::max(newest->second, id);
    if (again || (is_first && settings_.bulk_started)) {
      return core::NodeLaunched{id, action.job, action.node, 0};
    }
  }
  launcher_.launch(action.node);
  return core::NodeLaunched{id, action.job, action.node, 0};
}

void SlurmScheduler::registered(const core::NodeKey& node, uint64_t) {
  launcher_.registered(node.name);
}

void SlurmScheduler::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    poll_changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  launcher_.stop();
}

void SlurmScheduler::step_ended(const std::string& node, bool was_up, const std::string& cause) {
  log_warning("node " + node + ": " + cause);
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_[node] = {was_up, cause};
  poll_changed_.notify_all();
}

void SlurmScheduler::tell_step_ended(const std::string& node, const StepEnd& end) {
  const core::NodeKey key{settings_.job, node};
  post_(settings_.job,
        [key, was_up = end.was_up,
         cause = end.cause](const core::State& state) -> std::optional<core::EventBody> {
          const auto row = state.nodes.find(key);
          if (row == state.nodes.end()) return std::nullopt;
          const bool launching = row->second.state == core::NodeState::kLaunching;
          const bool up = row->second.state == core::NodeState::kUp ||
                          row->second.state == core::NodeState::kEnding;
          // A launch that failed says nothing about a life that came by another way.
          if (!launching && !(was_up && up)) return std::nullopt;
          return core::NodeLost{.job = key.job,
                                .node = key.name,
                                .boot_id = row->second.boot_id,
                                .cause = cause,
                                .refused = launching && is_refused_for_job(cause)};
        });
}

// A requeue ends steps and refuses new ones before the next regular look finds it. So Slurm is
// queried first when a step has ended: in a session that is over no node was lost.
void SlurmScheduler::poll() {
  SlurmObserver observer(settings_.nodes);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    poll_changed_.wait_for(lock, std::chrono::milliseconds(settings_.poll_ms),
                           [this] { return stopping_ || !ended_.empty(); });
    if (stopping_) return;
    const auto ended = ended_;
    lock.unlock();
    const bool is_over = !look(observer);
    lock.lock();
    for (const auto& [node, end] : ended) {
      if (ended_.erase(node) == 0 || is_over) continue;
      lock.unlock();
      tell_step_ended(node, end);
      lock.lock();
    }
  }
}

// False: this life of the job is over.
bool SlurmScheduler::look(SlurmObserver& observer) {
  const auto job = slurm_.job(settings_.job);
  if (!job.ok()) return true;  // Slurm is away: the job goes on without it
  if (settings_.requeued && (job->is_requeued() || job->restart_count > settings_.restart_count)) {
    settings_.requeued();
    return false;
  }
  const bool suspended = job->state == kSuspended;
  if (may_be_suspended_.exchange(suspended) || suspended) tell_suspension(suspended);
  std::vector<std::string> names;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_.insert(settings_.nodes.begin(), settings_.nodes.end());
    names_.insert(job->nodes.begin(), job->nodes.end());
    names.assign(names_.begin(), names_.end());
  }
  const auto nodes = slurm_.nodes(names);
  if (!nodes.ok()) return true;
  for (const SlurmObservation& observation : observer.compare(*job, *nodes)) tell(observation);
  return true;
}

std::optional<bool> SlurmScheduler::is_suspended(JobId job) {
  const auto found = slurm_.job(job);
  if (!found.ok()) return std::nullopt;
  const bool suspended = found->state == kSuspended;
  if (suspended) may_be_suspended_ = true;  // the next look tells when that is over
  return suspended;
}

// The rows know whether it is news.
void SlurmScheduler::tell_suspension(bool suspended) {
  const JobId id = settings_.job;
  post_(id, [id, suspended](const core::State& state) -> std::optional<core::EventBody> {
    const auto job = state.jobs.find(id);
    const bool known =
        job == state.jobs.end() || (job->second.suspended_since_ms != 0) == suspended;
    if (known) return std::nullopt;
    return core::SuspensionChanged{id, suspended};
  });
}

void SlurmScheduler::tell(const SlurmObservation& observation) {
  using Kind = SlurmObservation::Kind;
  const SystemClock clock;
  const auto marked = marked_ms_.find(observation.node);
  std::string what = observation.what;
  if (observation.kind == Kind::kMarked && marked == marked_ms_.end()) {
    marked_ms_[observation.node] = clock.monotonic_ms();
  } else if (observation.kind == Kind::kReturned && marked != marked_ms_.end()) {
    what += ", " + minutes_text(clock.monotonic_ms() - marked->second) + " after it was marked";
    marked_ms_.erase(marked);
  }
  log_info(what);
  const core::NodeKey key{settings_.job, observation.node};
  const auto make = [key, what,
                     observation](const core::State& state) -> std::optional<core::EventBody> {
    const auto row = state.nodes.find(key);
    const bool known = row != state.nodes.end();
    const bool ended = known && row->second.state == core::NodeState::kEnded;
    const bool over = ended || (known && row->second.state == core::NodeState::kDown);
    if (observation.kind == Kind::kTaken && known && !ended) {
      return core::NodeLost{key.job, key.name, row->second.boot_id,
                            what,    true,     observation.unresponsive};
    }
    if (observation.kind == Kind::kMarked && observation.recovery_requested && known && !ended) {
      return recovery_seen(row->second, what, observation.reboot_requested);
    }
    const bool expected = known && row->second.recovery_wall_ms != 0;
    if (observation.kind == Kind::kReturned && observation.in_allocation && (over || expected)) {
      return core::NodeReturned{key.job, key.name, what};
    }
    const bool unusable = observation.kind != Kind::kReturned && observation.in_allocation;
    return core::SchedulerObserved{key.job, key.name, what, unusable};
  };
  post_(settings_.job, make);
}

void SlurmScheduler::say(const std::string& node, const std::string& what) {
  log_info(what);
  post_(settings_.job, [job = settings_.job, node, what](const core::State&) {
    return core::SchedulerObserved{job, node, what};
  });
}

core::EventBody SlurmScheduler::requeue(ActionId id, const core::RequeueJob& action) {
  const auto life = static_cast<uint64_t>(action.expected_restart_count);
  if (const auto kept = write_quarantined(paths_.home(), life, action.quarantined); !kept.ok()) {
    return core::ActionFailed{id, action.job, "", kept.error().message, true};
  }
  if (const auto kept = write_exclusion(paths_.home(), life, {action.exclude, action.attempt});
      !kept.ok()) {
    return core::ActionFailed{id, action.job, "", kept.error().message, true};
  }
  const auto done = slurm_.requeue(action.job, static_cast<uint32_t>(action.expected_restart_count),
                                   action.exclude);
  // Done before, by us or by others: what counts is that this life ends.
  if (done.ok() || done.error().code == ErrorCode::kFailedPrecondition) {
    return core::JobRequeued{id, action.job};
  }
  return core::ActionFailed{id, action.job, "", done.error().message, true};
}

core::EventBody SlurmScheduler::replace(ActionId id, const core::ReplaceNode& action) {
  const auto asked = request_recovery(
      slurm_, action.node, {action.reboot, action.instance_id, action.since_wall_ms}, false);
  if (!asked.ok()) {
    return core::ActionFailed{id, action.job, action.node, asked.error().message, true};
  }
  if (action.leaves) let_go(action.node);
  return core::NodeReplacementRequested{id, action.job, action.node, what_was_done(action, *asked),
                                        action.reboot};
}

void SlurmScheduler::let_go(const std::string& node) {
  const auto job = slurm_.job(settings_.job);
  if (!job.ok() || !job->has_node(node)) return;
  const std::string consequence = "; " + node + " is replaced when the job ends";
  if (job->batch_host == node) {
    say(node, "the batch script's node cannot leave the allocation" + consequence);
    return;
  }
  std::vector<std::string> others = job->nodes;
  std::erase(others, node);
  if (const auto kept = slurm_.keep_nodes(settings_.job, others); !kept.ok()) {
    say(node, kept.error().message + consequence);
  }
}

// A batch script that lives reports the verdict itself, in its own time.
bool SlurmScheduler::has_ended_by_itself() {
  const SystemClock clock;
  const int64_t deadline_ms = clock.monotonic_ms() + kBatchScriptMs;
  for (;;) {
    const auto job = slurm_.job(settings_.job);
    if (job.ok() && (job->state != "RUNNING" || job->batch_host == settings_.node)) return true;
    if (job.ok() && !job->has_node(job->batch_host)) return false;
    if (clock.monotonic_ms() >= deadline_ms) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookAgainMs));
  }
}

void SlurmScheduler::complete(int exit_code) {
  if (has_ended_by_itself()) return;
  log_info("no batch script is left to end job " + to_string(settings_.job) + ": ending it with " +
           std::to_string(exit_code));
  const SystemClock clock;
  const int64_t deadline_ms = clock.monotonic_ms() + kCompleteMs;
  Outcome ended = slurm_.complete(settings_.job, exit_code);
  while (!ended.ok() && ended.error().code == ErrorCode::kUnavailable &&
         clock.monotonic_ms() < deadline_ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kCompletePauseMs));
    ended = slurm_.complete(settings_.job, exit_code);
  }
  if (!ended.ok()) {
    log_error("the allocation of job " + to_string(settings_.job) +
              " is left behind; end it with " + "scancel " + to_string(settings_.job) + ": " +
              ended.error().message);
  }
}

}  // namespace hpctl
