// SPDX-License-Identifier: Apache-2.0
// All jobs to show together: the jobs of HPCTL_HOME, and the jobs of all users at the cluster
// controllers that the caller may see. Blocks at most for the time limits of the calls.
#pragma once

#include <string>
#include <vector>

#include "common/job/paths.h"
#include "common/rpc/cluster_client.h"
#include "hpctl/job_table.h"

namespace hpctl {

struct Fleet {
  std::vector<ListedJob> jobs;     // ascending by job, then user
  bool all_users = false;          // nobody's are left out at the cluster controllers
  std::vector<std::string> notes;  // for people: what is missing, and why
};

// The age of the record of the job's controller; 0 = there is none.
int64_t record_age_ms(const HomePaths& paths, JobId job);

// Those of HPCTL_HOME.
Result<Fleet> list_home();
// And those at the cluster controllers. kUnavailable where there is none, or none answers.
Result<Fleet> list_everywhere();

// {"jobs": [...]} of `hpctl ps --json`; `everywhere` as -A. Pure.
std::string fleet_json(const Fleet& fleet, bool everywhere, WallTime now);

// The answers of cluster controllers, joined. If two of them have a job, the one with the newer
// answer of its controller counts. `self`: the caller's uid, whose jobs a service of an older
// release lists. Pure, except the names of users.
Fleet join_listings(const std::vector<ClusterListing>& listings, uid_t self);

// Where -A asks. kUnavailable says how to name one.
Result<std::string> cluster_to_ask();

}  // namespace hpctl
