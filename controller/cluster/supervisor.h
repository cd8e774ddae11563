// SPDX-License-Identifier: Apache-2.0
// The controllers of many jobs of many users, one process each: started as their owners, watched,
// restarted when they die, and found again after a restart of this service.
//
// Order of steps: a process is started and waits; its row is made durable; then it gets the order
// to begin (job_row.h, child_protocol.h). So a service that dies at any point leaves no controller
// that the next one does not find, and starts none twice. The job's directory decides, as always,
// which files belong to a job and which controller of it counts (common/job/endpoint.h); a mistake
// here costs a start, not the job.
//
// One thread waits for reports, ends and pauses; admissions come from the server's threads. The
// mutex guards all state and is held while a process is started (a posix_spawn, one small file).
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/net/role_token.h"
#include "controller/cluster/job_process.h"
#include "controller/cluster/job_row.h"
#include "controller/cluster/life_policy.h"
#include "controller/cluster/summaries.h"
#include "controller/publish/metrics.h"
#include "proto/hpctl/v1/cluster.pb.h"

namespace hpctl::cluster {

inline constexpr size_t kMaxJobs = 10'000;
inline constexpr size_t kMaxJobsOfUser = 256;
inline constexpr size_t kMaxStartingOfUser = 4;  // at once
// The end of an appointment takes effect after this time at the latest; hpctl gets a new token for
// each command.
inline constexpr int64_t kTokenLastsMs = 3'600'000;

class Supervisor {
 public:
  // The ports on this machine of the jobs whose controllers serve metrics.
  using MetricsPorts = std::map<JobKey, uint16_t>;
  // `metrics` may be null; it gets the number of jobs and outlives this. `tell_ports` is called on
  // this class's thread whenever the ports change, and may write a small file.
  Supervisor(JobProcessSettings settings, JobRows rows, Metrics* metrics,
             std::function<void(const MetricsPorts&)> tell_ports);
  ~Supervisor();  // leaves the controllers alone
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Finds the controllers of the rows again and starts those that are gone. Once, first.
  Outcome start();
  void stop();

  // Any thread; waits until the controller that it starts serves, at most as long as `admission`,
  // which has been checked, says, and then describes one without an address; where it says nothing,
  // kServeTimeoutMs, and kUnavailable then. One that was admitted before is not waited for.
  Result<v1::ClusterJob> admit(uid_t uid, gid_t gid, const v1::Admission& admission);
  std::vector<v1::ClusterJob> jobs_of(uid_t uid);
  // The jobs of all users with that number, each with a token for `asker` as `role`, kReader or
  // kOperator, that is valid for kTokenLastsMs. kNotFound: there is none. kFailedPrecondition: its
  // controller is of a release that knows no such tokens.
  Result<std::vector<v1::ClusterJob>> open(uint64_t job, uid_t asker, TokenRole role);
  // The existing jobs, without data that only the owner may know, in order, at most `most`: those
  // after `after`, and of that user alone.
  std::vector<v1::ClusterJob> outlines(std::optional<uid_t> uid, const JobKey& after, size_t most);
  // Of every job.
  std::vector<JobAddress> addresses();

 private:
  struct Job {
    JobRow row;
    std::optional<JobProcess> process;  // nullopt = a pause
    LifePolicy policy;
    int64_t began_ms = 0;     // this life
    int64_t due_ms = 0;       // the next one; without a process
    bool has_served = false;  // in whatever life
    bool serves = false;      // in this one, as it has said; one that was found alive is taken to
    std::optional<Error> refusal;  // why the admission failed; the job is forgotten then
  };
  using JobPtr = std::shared_ptr<Job>;
  using Lock = std::unique_lock<std::mutex>;
  using Lives = std::vector<JobPtr>;

  Result<JobPtr> add(const JobRow& row);
  Outcome check_limits(uid_t uid) const;
  Outcome begin_life(Job& job);
  void forget(JobPtr job, const std::string& why);
  void refuse(const JobPtr& job, Error error);
  void read_report(const JobPtr& job);
  void finish_life(const JobPtr& job);
  void begin_due_lives();
  void run();
  void show();
  int next_pause_ms() const;
  void await(Lock& lock, int timeout_ms);
  static v1::ClusterJob outline(const Job& job);
  v1::ClusterJob describe(const Job& job) const;
  std::string log_of(const Job& job) const;

  const JobProcessSettings settings_;
  const JobRows rows_;
  Metrics* const metrics_;
  const std::function<void(const MetricsPorts&)> tell_ports_;
  MetricsPorts told_ports_;
  const SystemClock clock_;
  const UniqueFd wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::map<JobKey, JobPtr> jobs_;
  std::list<JobProcess> condemned_;  // of a job that was refused or requeued; to be reaped
  std::thread thread_;
};

}  // namespace hpctl::cluster
