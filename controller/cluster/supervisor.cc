// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "common/base/log.h"
#include "common/base/random_hex.h"
#include "controller/cluster/identity.h"

namespace hpctl::cluster {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr int kLivesAtOnce =
    8;  // begun under one lock; with a thousand jobs others want their turn

constexpr int kKilledPatienceMs = 1'000;

JobRow make_row(const Identity& owner, const v1::Admission& admission) {
  JobRow row;
  row.key = {owner.uid, admission.job()};
  row.gid = owner.gid;
  row.groups = owner.groups;
  row.job_dir = admission.job_dir();
  row.nodes.assign(admission.nodes().begin(), admission.nodes().end());
  row.restart_count = admission.restart_count();
  row.programs = admission.programs();
  row.scheduler = admission.scheduler();
  row.older_agents = !admission.agent_tokens();
  return row;
}

std::string how_it_ended(std::optional<int> code) {
  if (!code) return "ended";
  return *code >= 128 ? "was killed by signal " + std::to_string(*code - 128)
                      : "ended with " + std::to_string(*code);
}

}  // namespace

Supervisor::Supervisor(JobProcessSettings settings, JobRows rows, Metrics* metrics,
                       std::function<void(const MetricsPorts&)> tell_ports)
    : settings_(std::move(settings)),
      rows_(std::move(rows)),
      metrics_(metrics),
      tell_ports_(std::move(tell_ports)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Supervisor::~Supervisor() { stop(); }

Outcome Supervisor::start() {
  HP_TRY_ASSIGN(const std::vector<JobRow> rows, rows_.load());
  for (const JobRow& row : rows) {
    const auto job = std::make_shared<Job>();
    job->row = row;
    job->process = JobProcess::find(row);
    job->serves = job->process.has_value();
    job->has_served = true;  // nobody waits for it; it is started again like any other
    job->began_ms = clock_.monotonic_ms();
    log_info(to_text(row.key) + (job->process
                                     ? ": its controller runs, process " + std::to_string(row.pid)
                                     : ": its controller is gone, starting it again"));
    jobs_[row.key] = job;
  }
  thread_ = std::thread([this] { run(); });
  return Ok{};
}

void Supervisor::stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    ::eventfd_write(wake_.get(), 1);
  }
  if (thread_.joinable()) thread_.join();
}

Outcome Supervisor::check_limits(uid_t uid) const {
  size_t all = 0;
  size_t starting = 0;
  for (const auto& [key, job] : jobs_) {
    if (key.uid != uid) continue;
    ++all;
    if (!job->has_served) ++starting;
  }
  if (jobs_.size() >= kMaxJobs || all >= kMaxJobsOfUser || starting >= kMaxStartingOfUser) {
    return Error{ErrorCode::kResourceExhausted,
                 "it has " + std::to_string(jobs_.size()) + " jobs, " + std::to_string(all) +
                     " of uid " + std::to_string(uid) + ", " + std::to_string(starting) +
                     " of those starting; it takes " + std::to_string(kMaxJobs) + ", " +
                     std::to_string(kMaxJobsOfUser) + " and " + std::to_string(kMaxStartingOfUser)};
  }
  return Ok{};
}

Outcome Supervisor::begin_life(Job& job) {
  job.began_ms = clock_.monotonic_ms();
  job.serves = false;
  HP_TRY_ASSIGN(job.process, JobProcess::start(settings_, job.row));
  Outcome ready = rows_.write(job.row);
  if (ready.ok()) ready = job.process->order(settings_, job.row);
  if (!ready.ok()) job.process->kill();  // its end is seen like any other
  return ready;
}

Result<Supervisor::JobPtr> Supervisor::add(const JobRow& row) {
  HP_TRY(check_limits(row.key.uid));
  const auto job = std::make_shared<Job>();
  job->row = row;
  HP_TRY_ASSIGN(job->row.token, random_hex(kTokenBytes));
  const Outcome begun = begin_life(*job);
  if (!begun.ok()) {
    if (job->process) condemned_.push_back(std::move(*job->process));
    (void)rows_.remove(row.key);
    return begun.error();
  }
  jobs_[row.key] = job;
  log_info(to_text(row.key) + ": admitted, process " + std::to_string(job->row.pid) + ", " +
           row.job_dir);
  return job;
}

Result<v1::ClusterJob> Supervisor::admit(uid_t uid, gid_t gid, const v1::Admission& admission) {
  const Identity owner = identity_of(uid, gid);  // may wait for a directory service
  const JobKey key{uid, admission.job()};
  Lock lock(mutex_);
  if (const auto known = jobs_.find(key); known != jobs_.end()) {
    const JobRow& row = known->second->row;
    if (row.job_dir != admission.job_dir()) {
      return Error{ErrorCode::kFailedPrecondition,
                   to_text(key) + " runs here in " + row.job_dir + ", not in " +
                       admission.job_dir() + "; one cluster controller serves one cluster"};
    }
    if (admission.restart_count() <= row.restart_count) return describe(*known->second);
    // The life before a requeue is over, whatever its controller knows.
    if (known->second->process) {
      known->second->process->kill();
      // It holds the lock on the job's state until it is gone, for which the next would be refused.
      known->second->process->await_end(kKilledPatienceMs);
      condemned_.push_back(std::move(*known->second->process));
      known->second->process.reset();
    }
    forget(known->second, "requeued by Slurm");
  }
  HP_TRY_ASSIGN(const JobPtr job, add(make_row(owner, admission)));
  ::eventfd_write(wake_.get(), 1);
  const bool is_patient = admission.wait_ms() == 0;
  const int64_t wait_ms =
      is_patient ? kServeTimeoutMs : std::min<int64_t>(admission.wait_ms(), kServeTimeoutMs);
  const bool told = changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                                      [&] { return stopping_ || job->has_served || job->refusal; });
  if (job->refusal) return *job->refusal;
  if (stopping_ || (!told && is_patient)) {
    return Error{ErrorCode::kUnavailable,
                 "the job's controller does not serve yet; its log: " + log_of(*job)};
  }
  return describe(*job);
}

std::string Supervisor::log_of(const Job& job) const {
  return job.row.job_dir + "/nodes/" + settings_.node + "/controller.log";
}

std::vector<v1::ClusterJob> Supervisor::jobs_of(uid_t uid) {
  const Lock lock(mutex_);
  std::vector<v1::ClusterJob> list;
  for (auto job = jobs_.lower_bound({uid, 0}); job != jobs_.end() && job->first.uid == uid; ++job) {
    list.push_back(describe(*job->second));
  }
  return list;
}

Result<std::vector<v1::ClusterJob>> Supervisor::open(uint64_t number, uid_t asker, TokenRole role) {
  const int64_t until_s = (clock_.wall_ms() + kTokenLastsMs) / 1000;
  const Lock lock(mutex_);
  std::vector<v1::ClusterJob> list;
  Error error{ErrorCode::kNotFound,
              "no job " + std::to_string(number) + " has its controller here"};
  for (const auto& [key, job] : jobs_) {
    if (key.job != number) continue;
    if (!job->row.takes_roles) {
      error = {ErrorCode::kFailedPrecondition,
               to_text(key) + (job->row.address.empty()
                                   ? " has no controller that serves at the moment; ask again"
                                   : " has a controller of an older release, which knows the "
                                     "job's owner only")};
      continue;
    }
    v1::ClusterJob& opened = list.emplace_back(describe(*job));
    opened.set_token(person_token(job->row.token, role, asker, until_s));
    opened.set_role(to_word(role));
  }
  if (list.empty()) return error;
  return list;
}

std::vector<v1::ClusterJob> Supervisor::outlines(std::optional<uid_t> uid, const JobKey& after,
                                                 size_t most) {
  const Lock lock(mutex_);
  std::vector<v1::ClusterJob> list;
  for (auto job = jobs_.upper_bound(after); job != jobs_.end() && list.size() < most; ++job) {
    if (uid && job->first.uid != *uid) continue;
    list.push_back(outline(*job->second));
  }
  return list;
}

std::vector<JobAddress> Supervisor::addresses() {
  const Lock lock(mutex_);
  std::vector<JobAddress> list;
  for (const auto& [key, job] : jobs_) {
    const std::string address = job->process ? job->row.address : "";
    // To look is all that is needed, but a controller of an older release knows the owner only.
    const std::string token = job->row.takes_roles
                                  ? person_token(job->row.token, TokenRole::kReader, ::geteuid(), 0)
                                  : job->row.token;
    list.push_back({key, address, job->row.certificate, token});
  }
  return list;
}

v1::ClusterJob Supervisor::outline(const Job& job) {
  v1::ClusterJob outline;
  outline.set_job(job.row.key.job);
  outline.set_uid(job.row.key.uid);
  outline.set_pid(job.process ? static_cast<uint64_t>(job.row.pid) : 0);
  outline.set_restarts(job.row.restarts);
  return outline;
}

v1::ClusterJob Supervisor::describe(const Job& job) const {
  v1::ClusterJob description = outline(job);
  description.set_job_dir(job.row.job_dir);
  description.set_address(job.row.address);
  description.set_certificate(job.row.certificate);
  description.set_token(job.row.token);
  return description;
}

// By value: the table's own pointer may be the argument.
void Supervisor::forget(JobPtr job, const std::string& why) {
  log_info(to_text(job->row.key) + ": " + why);
  if (const auto removed = rows_.remove(job->row.key); !removed.ok()) {
    log_error(removed.error().message);
  }
  jobs_.erase(job->row.key);
}

// The process, which ends by itself, belongs to no job any more.
void Supervisor::refuse(const JobPtr& job, Error error) {
  job->refusal = std::move(error);
  condemned_.push_back(std::move(*job->process));
  job->process.reset();
  forget(job, "refused: " + job->refusal->message);
  changed_.notify_all();
}

void Supervisor::read_report(const JobPtr& job) {
  const auto report = job->process->read_report();
  if (!report) return;
  if (!report->ok()) {
    if (!job->has_served) refuse(job, report->error());
    return;  // it ends by itself
  }
  job->row.address = (*report)->address;
  job->row.certificate = (*report)->certificate;
  job->row.metrics_port = (*report)->metrics_port;
  job->row.takes_roles = (*report)->takes_roles;
  job->has_served = job->serves = true;
  if (const auto written = rows_.write(job->row); !written.ok()) log_error(written.error().message);
  log_info(to_text(job->row.key) + ": process " + std::to_string(job->row.pid) + " serves on " +
           job->row.address);
  changed_.notify_all();
}

void Supervisor::finish_life(const JobPtr& job) {
  if (job->process->report_fd() >= 0) read_report(job);  // its last words
  if (!job->process) return;                             // it was refused by them
  const auto code = job->process->reap();
  if (!job->has_served) {
    refuse(job,
           {ErrorCode::kFailedPrecondition, "the job's controller cannot start: it " +
                                                how_it_ended(code) + "; its log: " + log_of(*job)});
    return;
  }
  job->process.reset();
  const std::string how = "its controller " + how_it_ended(code);
  if (is_over(code)) {
    forget(job, how);
    return;
  }
  const int64_t now = clock_.monotonic_ms();
  const auto pause = job->policy.ended(now - job->began_ms);
  if (!pause) {
    forget(job, how + ", once too often; the job's agents start a successor on its nodes");
    return;
  }
  job->due_ms = now + *pause;
  log_warning(to_text(job->row.key) + ": " + how + "; starting it again in " +
              std::to_string(*pause) + " ms");
}

void Supervisor::begin_due_lives() {
  const int64_t now = clock_.monotonic_ms();
  int begun_now = 0;
  for (const auto& [key, job] : jobs_) {
    if (job->process || job->due_ms > now) continue;
    if (++begun_now > kLivesAtOnce) return;  // the others are due still
    ++job->row.restarts;
    const Outcome begun = begin_life(*job);
    if (begun.ok()) continue;
    log_error(to_text(key) + ": " + begun.error().message);
    job->due_ms = now + LifePolicy::kLongestPauseMs;
  }
}

int Supervisor::next_pause_ms() const {
  int64_t due = INT32_MAX;
  const int64_t now = clock_.monotonic_ms();
  for (const auto& [key, job] : jobs_) {
    if (!job->process) due = std::min(due, std::max<int64_t>(0, job->due_ms - now));
  }
  return due == INT32_MAX ? -1 : static_cast<int>(due);
}

void Supervisor::run() {
  Lock lock(mutex_);
  while (!stopping_) {
    begin_due_lives();
    show();
    await(lock, next_pause_ms());
  }
}

void Supervisor::show() {
  if (metrics_ == nullptr) return;
  MetricsPorts ports;
  for (const auto& [key, job] : jobs_) {
    if (job->process && job->row.metrics_port != 0) ports.emplace(key, job->row.metrics_port);
  }
  if (ports != told_ports_) {
    tell_ports_(ports);
    told_ports_ = std::move(ports);
  }
  const auto serving = std::count_if(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return entry.second->process && entry.second->serves;
  });
  metrics_->cluster(jobs_.size(), static_cast<size_t>(serving));
}

// Waits without the lock, then handles what has happened to the processes that were waited for.
void Supervisor::await(Lock& lock, int timeout_ms) {
  Lives lives;
  std::vector<pollfd> ready{{wake_.get(), POLLIN, 0}};
  for (const JobProcess& process : condemned_) ready.push_back({process.ended_fd(), POLLIN, 0});
  const size_t first = ready.size();
  for (const auto& [key, job] : jobs_) {
    if (!job->process) continue;
    lives.push_back(job);
    ready.push_back({job->process->ended_fd(), POLLIN, 0});
    ready.push_back({job->process->report_fd(), POLLIN, 0});
  }
  lock.unlock();
  ::poll(ready.data(), ready.size(), timeout_ms);
  lock.lock();
  uint64_t rung = 0;
  ::eventfd_read(wake_.get(), &rung);
  condemned_.remove_if([](JobProcess& process) {
    pollfd ended{process.ended_fd(), POLLIN, 0};
    return ::poll(&ended, 1, 0) == 1 && (process.reap(), true);
  });
  for (size_t i = 0; i < lives.size(); ++i) {
    const JobPtr& job = lives[i];
    const pollfd& ended = ready[first + 2 * i];
    const pollfd& report = ready[first + 2 * i + 1];
    // A requeue may have replaced it meanwhile; a descriptor may then be another's.
    if (!job->process || job->process->ended_fd() != ended.fd) continue;
    if (ended.revents != 0) {
      finish_life(job);
    } else if (report.revents != 0) {
      read_report(job);
    }
  }
}

}  // namespace hpctl::cluster
