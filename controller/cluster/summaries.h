// SPDX-License-Identifier: Apache-2.0
// The state of every job of the cluster controller: asked of the jobs' controllers every kRoundMs,
// over hpctl's channel and as a reader (decision 1602). A controller that an earlier service
// started gets the same query, and one of an older release answers with name and state.
//
// A summary comes from a process of the job's owner. It is bounded and made plausible, and counts
// only for that job of that user. A controller that does not answer within kAnswerMs delays only
// the 31 others of its batch.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/watch/job_watch.h"
#include "controller/cluster/ended_jobs.h"
#include "controller/cluster/fleet_lemons.h"
#include "controller/cluster/job_reports.h"
#include "controller/cluster/job_row.h"
#include "controller/publish/metrics.h"
#include "proto/hpctl/v1/cluster.pb.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl::cluster {

// Where a job's controller serves, and a token with which it may be looked at.
struct JobAddress {
  JobKey key;
  std::string address;  // "" = it does not serve now
  std::string certificate;
  std::string token;
};

class Summaries {
 public:
  static constexpr int kRoundMs = 2'000;
  static constexpr int kAnswerMs = 2'000;
  static constexpr size_t kAtOnce = 32;

  using ListJobs = std::function<std::vector<JobAddress>()>;

  // `jobs` is called on a thread of this class and returns all jobs, serving or not. The answers of
  // a job are forgotten when it is no longer listed, except its end (job_reports.h), which stays
  // for `metrics`. `metrics` may be null, and outlives this. The nodes that jobs blame go to
  // `lemons`, which outlives this as well. The ends of jobs that an earlier service kept in the
  // file `ended` are there from the beginning.
  Summaries(ListJobs jobs, FleetLemons& lemons, Metrics* metrics, std::string ended);
  ~Summaries();
  Summaries(const Summaries&) = delete;
  Summaries& operator=(const Summaries&) = delete;

  void start();
  void stop();

  // Any thread. Adds to `job` the last answer of its controller and its age; without an answer, the
  // time since the first query.
  void describe(const JobKey& key, v1::ClusterJob& job) const;
  // Any thread. Jobs after this one that have said how they ended, of this user or of all, by key:
  // what JobReports keeps of those that are gone, and those that are there still.
  std::vector<v1::ClusterJob> ended(std::optional<uid_t> whose, const JobKey& after) const;

 private:
  struct Peer {
    std::string address;
    std::string certificate;
    std::unique_ptr<v1::Controller::Stub> stub;
  };
  struct Call;
  using Calls = std::vector<std::unique_ptr<Call>>;

  void run();
  void ask_all(const std::vector<JobAddress>& jobs);
  void forget_others(const std::vector<JobAddress>& jobs);
  void keep();
  v1::Controller::Stub* stub_of(const JobAddress& job);
  bool begin(Calls calls);
  void take(const Call& call);
  void show();

  const ListJobs jobs_;
  FleetLemons& lemons_;
  Metrics* const metrics_;
  const SystemClock clock_;
  const EndedJobs kept_;          // the thread's
  std::map<JobKey, Peer> peers_;  // the thread's
  FleetWatch watch_{false};       // the thread's
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  Calls calls_;  // under way
  JobReports heard_;
  std::thread thread_;
};

}  // namespace hpctl::cluster
