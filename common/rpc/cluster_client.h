// SPDX-License-Identifier: Apache-2.0
// The caller's side of the cluster controllers (proto/hpctl/v1/cluster.proto): who asks is shown by
// a MUNGE credential, who answers as well, and where an authority is configured by its certificate
// before anything is said (common/rpc/cluster_trust.h). Any thread; blocks at most for the time
// limit and what munged takes (common/rpc/munge.h).
//
// `cluster` is a list, "HOST:PORT,HOST:PORT": one per head node, in the order in which they are
// asked. One that cannot be reached, or cannot do what is asked, is passed over for the next; the
// time limit is for all. That two of them are asked about one job does no harm: its directory
// decides which controller counts (decision 1516).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "proto/hpctl/v1/cluster.pb.h"

namespace hpctl {

// The job's controller, started if none runs there. `admission` without its nonce.
// kAlreadyExists: the job has a controller elsewhere, which answers. kResourceExhausted: the first
// that answered has too much to do; the next is not asked, for a limit is a limit.
Result<v1::ClusterJob> admit_to_cluster(const std::string& cluster, v1::Admission admission,
                                        std::chrono::milliseconds timeout);

// Whether the machine of one of the list takes connections there, as it does also where the process
// has no turn for them, or is stopped. Blocks for `patience`, besides the look-up of names.
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

// What every job does that the caller may see, and how those ended that did within the last hour
// (summary.ended_wall_ms), of one of the list. `jobs` is in order of uid and
// job, without addresses and tokens; of a service of an older release the caller's, without
// summaries.
struct ClusterListing {
  std::string address;
  Result<v1::ClusterJobs> jobs;
};
// Of each of the list, in its order.
std::vector<ClusterListing> list_summaries(const std::string& cluster,
                                           std::chrono::milliseconds timeout);

// What the jobs of all users say against machines (`lemons`), at each of the list, in its order.
// kFailedPrecondition: it is of a release that knows none.
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
