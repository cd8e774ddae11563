// SPDX-License-Identifier: Apache-2.0
// Command line of hpcontroller.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/node_record.h"
#include "common/job/paths.h"

namespace hpctl {

inline constexpr char kSchedulerSlurm[] = "slurm";
inline constexpr char kSchedulerNone[] = "none";

struct ControllerOptions {
  std::string home;                // "" = from the environment
  std::string metrics;             // HOST:PORT; "" = none. Default: $HPCTL_METRICS
  std::string page;                // HOST:PORT of the status page; "" = loopback, any free port.
                                   // Default: $HPCTL_PAGE
  int64_t idle_exit_seconds = 60;  // 0 = never
  // One job of a cluster; job_dir "" = a home.
  std::string job_dir;
  uint64_t job = 0;
  std::string node;                // of this machine. Default: $SLURMD_NODENAME, else its name
  std::vector<std::string> nodes;  // of the job; empty = as its last controller had them
  std::string scheduler;           // kSchedulerSlurm, kSchedulerNone; "" = as the last one, slurm
  std::string listen;              // IP:PORT; "" = the node's address, any port
  bool told_to_end = false;        // a signal that was meant for it came before it did
  bool successor = false;          // of a controller that does not answer; never the first
  std::string programs;            // where the job's nodes find hpagent; "" = beside this program
  std::string cluster_at;          // HOST:PORT,...: one of these is to run it; "" = this process
  // The cluster controller.
  bool cluster = false;
  std::string state_dir = kClusterStateDir;
  std::string operators;  // of nodes: NAME,UID,%GROUP (controller/cluster/operator_acl.h).
                          // Default: $HPCTL_OPERATORS
  std::string readers;    // likewise. Default: $HPCTL_READERS
  std::string ca_dir;     // of its authority (common/authority/authority.h); "" = none, and no TLS.
                          // Default: $HPCTL_CA
  std::string plain_listen;  // IP:PORT without TLS, beside `listen`; "" = none. Default:
                             // $HPCTL_PLAIN_LISTEN
  // One that the cluster controller has started (controller/cluster/child.h).
  std::string run_as;                    // UID:GID:GROUPS; "" = it was somebody else
  int report_fd = -1;                    // controller/leadership/starter.h
  std::string cluster_token;             // that it gives out for the job
  std::vector<LemonScore> fleet_lemons;  // by what all users' jobs say
  bool older_agents = false;             // of a release without tokens of their own may come
  bool detach = false;                   // fork first and leave the caller
  int ready_fd = -1;                     // told when serving (common/rpc/controller_process.h)
  bool list_failpoints = false;
  bool version = false;
  bool help = false;
};

extern const char kControllerUsage[];

Result<ControllerOptions> parse_controller_options(int argc, const char* const* argv);

}  // namespace hpctl
