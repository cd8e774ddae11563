// SPDX-License-Identifier: Apache-2.0
// The data of the cluster's status page, as JSON: for each job that a uid may see, the last answer
// of its controller and its findings, and the nodes of all of them (docs/status-page.md). Details
// that only a job's own controller knows are on that controller's page; the JSON has the commands
// that lead there.
//
// A snapshot of all jobs is taken once a second at most, for any number of viewers; each gets a
// part of it. Any thread. Errors: kNotFound (or a job that the uid may not see), kInvalidArgument.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/job/job_summary.h"
#include "common/watch/job_watch.h"
#include "controller/cluster/job_row.h"
#include "controller/cluster/node_claims.h"
#include "controller/page/page_server.h"
#include "proto/hpctl/v1/cluster.pb.h"

namespace hpctl::cluster {

class FleetAnswers {
 public:
  static constexpr int64_t kPictureMs = 1'000;
  static constexpr size_t kMostLemonsShown = 200;
  static constexpr size_t kMostNodesShown = 20'000;  // of all jobs; a user may name what he likes

  // For all users, ascending by uid and job, as list_fleet() has them; including ended ones.
  using Jobs = std::function<std::vector<v1::ClusterJob>()>;
  // Evidence of jobs against machines, highest first.
  using Lemons = std::function<std::vector<FleetLemon>()>;
  // Returns whether that user sees the jobs of all users; may ask a directory service.
  using SeesAll = std::function<bool(uid_t uid)>;

  // `clock` outlives this.
  FleetAnswers(Jobs jobs, Lemons lemons, SeesAll sees_all, const Clock& clock, std::string node,
               std::string version)
      : jobs_(std::move(jobs)),
        lemons_(std::move(lemons)),
        sees_all_(std::move(sees_all)),
        clock_(clock),
        node_(std::move(node)),
        version_(std::move(version)) {}

  Result<std::string> answer(uint32_t uid, const PageServer::Request& request);

 private:
  struct Row {
    JobKey key;
    JobSummary summary;
    int64_t heard_ms = 0;  // so long ago
    std::vector<Finding> found;
  };
  using Picture = std::vector<Row>;

  std::shared_ptr<const Picture> picture();
  Picture take_picture();
  static std::vector<const Row*> seen(const Picture& picture, uid_t uid, bool all);
  Result<std::string> jobs(uid_t uid);
  Result<std::string> job(uid_t uid, const std::string& key);

  const Jobs jobs_;
  const Lemons lemons_;
  const SeesAll sees_all_;
  const Clock& clock_;
  const std::string node_;
  const std::string version_;
  std::mutex mutex_;
  FleetWatch watch_{false};
  std::shared_ptr<const Picture> picture_;
  int64_t taken_ms_ = 0;
};

}  // namespace hpctl::cluster
