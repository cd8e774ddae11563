// SPDX-License-Identifier: Apache-2.0
#include "hpctl/cluster_placement.h"

#include "common/rpc/cluster_client.h"
#include "common/rpc/cluster_conf.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kTimeout{5};

}  // namespace

Result<Placement> place_controller() {
  HP_TRY_ASSIGN(const std::string cluster, cluster_address());
  if (cluster.empty()) return Placement{};
  const auto answer = list_cluster_jobs(cluster, kTimeout);
  if (answer.ok()) return Placement{cluster, ""};
  return Placement{
      "", answer.error().message + "; the job's controller will run on its first node instead"};
}

}  // namespace hpctl
