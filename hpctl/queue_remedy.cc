// SPDX-License-Identifier: Apache-2.0
#include "hpctl/queue_remedy.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hpctl {
namespace {

struct Remedy {
  std::string_view reason;  // Slurm's JobReason
  std::string_view before;  // of the job's number
  std::string_view behind;
};

constexpr auto kRemedies = std::to_array<Remedy>({
    {"JobHeldUser", "scontrol release ", ""},
    {"JobHeldAdmin", "an operator of Slurm holds it: scontrol release ", ""},
    {"JobHoldMaxRequeue", "Slurm requeued it too often (MaxBatchRequeue): scontrol release ", ""},
    {"BadConstraints",
     "no node has what it asks for (slurm.constraint, slurm.gres, slurm.mem): scontrol update "
     "JobId=",
     " Features=..., or cancel it and submit it with other values"},
    {"PartitionDown",
     "its partition is down; another one: scontrol update JobId=", " Partition=..."},
    {"PartitionInactive",
     "its partition is inactive; another one: scontrol update JobId=", " Partition=..."},
    {"PartitionNodeLimit",
     "its partition gives a job fewer or more nodes; another one: scontrol update JobId=",
     " Partition=..."},
    {"PartitionTimeLimit",
     "its partition gives a job less time: scontrol update JobId=", " TimeLimit=..."},
    {"InvalidAccount", "Slurm does not know its account: scontrol update JobId=", " Account=..."},
    {"AccountNotAllowed",
     "its partition does not take its account: scontrol update JobId=", " Account=..."},
    {"InvalidQOS", "Slurm does not know its QOS: scontrol update JobId=", " QOS=..."},
    {"QOSNotAllowed",
     "its partition or account does not take its QOS: scontrol update JobId=", " QOS=..."},
    {"ReservationDeleted", "its reservation is gone: scontrol update JobId=", " ReservationName="},
    {"DependencyNeverSatisfied",
     "what it depends on has failed: scontrol update JobId=", " Dependency="},
    {"ReqNodeNotAvail",
     "nodes that it names are not usable (sinfo -R says why); others: scontrol update JobId=",
     " ReqNodeList="},
});

}  // namespace

std::string queue_remedy(const SlurmJob& job) {
  const std::string id = to_string(job.id);
  const auto* known = std::find_if(kRemedies.begin(), kRemedies.end(),
                                   [&](const Remedy& one) { return one.reason == job.reason; });
  if (known != kRemedies.end()) {
    return std::string(known->before) + id + std::string(known->behind);
  }
  // "QOSMaxWallDurationPerJobLimit", "AssocMaxNodePerJobLimit"
  if (job.reason.ends_with("PerJobLimit")) {
    return "it asks for more than a job of its account or QOS may have: cancel it and submit it "
           "with less, or raise the limit (sacctmgr show qos)";
  }
  return "";
}

}  // namespace hpctl
