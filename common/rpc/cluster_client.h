// SPDX-License-Identifier: Apache-2.0
// The caller's side of the cluster controller (proto/hpctl/v1/cluster.proto): who asks is shown by
// a MUNGE credential, who answers as well. Any thread; blocks at most for the time limit and what
// munged takes (common/rpc/munge.h).
#pragma once

#include <chrono>
#include <string>

#include "common/base/result.h"
#include "proto/hpctl/v1/cluster.pb.h"

namespace hpctl {

// "HOST:PORT" of the cluster controller: $HPCTL_CLUSTER where it is set, else the line
// HPCTL_CLUSTER=HOST:PORT of /etc/hpctl/cluster.conf (under $HPCTL_SYSROOT). "" = there is none,
// which an empty HPCTL_CLUSTER says, too. kInvalidArgument names file and line.
Result<std::string> cluster_address();

// The job's controller, started if none runs there. `admission` without its nonce.
// kAlreadyExists: the job has a controller elsewhere, which answers.
Result<v1::ClusterJob> admit_to_cluster(const std::string& cluster, v1::Admission admission,
                                        std::chrono::milliseconds timeout);

// The caller's jobs there. Also the question whether the cluster controller serves this user.
Result<v1::ClusterJobs> list_cluster_jobs(const std::string& cluster,
                                          std::chrono::milliseconds timeout);

}  // namespace hpctl
