// SPDX-License-Identifier: Apache-2.0
// The caller's side of the cluster controllers (proto/hpctl/v1/cluster.proto). MUNGE credentials
// identify the caller and the service. If an authority is configured, the service also proves
// itself by its certificate before any request (common/rpc/cluster_trust.h). Any thread; blocks at
// most for the time limit and the time that munged takes (common/rpc/munge.h).
//
// `cluster` is a list, "HOST:PORT,HOST:PORT": one per head node, in the order of the calls. A call
// skips a service that cannot be reached, or cannot serve it, for the next; the time limit is for
// all. Two services may get a request about one job without harm: its directory decides which
// controller counts (decision 1516).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/ids.h"
#include "proto/hpctl/v1/cluster.pb.h"

namespace hpctl {

// The job's controller, started if none runs there. `admission` without its nonce. kAlreadyExists:
// the job has a controller elsewhere, which answers. kResourceExhausted: the first service that
// answered is overloaded; the next gets no request, because a limit is a limit.
Result<v1::ClusterJob> admit_to_cluster(const std::string& cluster, v1::Admission admission,
                                        std::chrono::milliseconds timeout);

// Returns whether the machine of one of the list accepts connections there, which it also does for
// a process that gets no CPU time, or is stopped. Blocks for `patience`, besides the look-up of
// names.
bool cluster_takes_connections(const std::string& cluster, std::chrono::milliseconds patience);

// The caller's jobs at the first that answers. Also the question whether one serves this user.
Result<v1::ClusterJobs> list_cluster_jobs(const std::string& cluster,
                                          std::chrono::milliseconds timeout);

// The caller's jobs at each that answers, in the order of the list.
std::vector<v1::ClusterJobs> list_jobs_of_each(const std::string& cluster,
                                               std::chrono::milliseconds timeout);

// Any user's jobs of that number, for who is appointed a reader or an operator there, with a token
// of the caller's own; of each of the list, in its order. kPermissionDenied: he is not.
std::vector<Result<v1::ClusterJobs>> open_job_at_each(const std::string& cluster, JobId job,
                                                      std::chrono::milliseconds timeout);

// From one of the list: every job that the caller may see, including jobs that ended within the
// last hour (summary.ended_wall_ms). `jobs` is in order of uid and job, without addresses and
// tokens. A service of an older release returns the caller's jobs, without summaries.
struct ClusterListing {
  std::string address;
  Result<v1::ClusterJobs> jobs;
};
// From each of the list, in its order.
std::vector<ClusterListing> list_summaries(const std::string& cluster,
                                           std::chrono::milliseconds timeout);

// The evidence of all users' jobs against machines (`lemons`), at each of the list, in its order.
// kFailedPrecondition: its release knows none.
std::vector<ClusterListing> list_fleet_lemons(const std::string& cluster,
                                              std::chrono::milliseconds timeout);

// A link to the page of all jobs that the caller may see (`page_url`, `node`), at each of the list,
// in its order. kFailedPrecondition: it is of a release that has none.
std::vector<ClusterListing> open_page_at_each(const std::string& cluster,
                                              std::chrono::milliseconds timeout);

// Tells each of the list what an operator's check has found; `judgement` without its nonce.
// kPermissionDenied: the caller is no operator there.
Outcome judge_node_at_each(const std::string& cluster, v1::NodeJudgement judgement,
                           std::chrono::milliseconds timeout);

}  // namespace hpctl
