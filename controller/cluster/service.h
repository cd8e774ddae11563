// SPDX-License-Identifier: Apache-2.0
// The cluster controller's TCP side. munged identifies the caller, rules.h and the lists of the
// configuration give its permissions, and the request is checked; only then does the supervisor get
// it. Any process on the cluster's network may connect; without a genuine credential a call costs
// one query to munged.
#pragma once

#include <optional>
#include <string>

#include "controller/access/audit_entry.h"
#include "controller/access/rules.h"
#include "controller/cluster/fleet_list.h"
#include "controller/cluster/fleet_page.h"
#include "controller/cluster/operator_acl.h"
#include "controller/cluster/supervisor.h"
#include "proto/hpctl/v1/cluster.grpc.pb.h"

namespace hpctl::cluster {

// A page of summaries: so many jobs, fewer where they are large. A credential takes 1 MiB.
inline constexpr size_t kMaxPageJobs = 500;
inline constexpr size_t kMaxPageBytes = 256U << 10;
inline constexpr size_t kMaxLemons = 1'000;

// The problem of an admission; nullopt = none. Pure.
std::optional<std::string> find_problem(const v1::Admission& admission);

// Calls come on the server's threads, a bounded number; each may wait for munged and for a job's
// controller to serve.
class ClusterService final : public v1::Cluster::Service {
 public:
  // `node`: this machine's name, for people.
  ClusterService(Supervisor& supervisor, const Summaries& summaries, FleetLemons& lemons,
                 FleetPage& page, std::string node, Appointed appointed, Audit audit)
      : supervisor_(supervisor),
        summaries_(summaries),
        lemons_(lemons),
        page_(page),
        node_(std::move(node)),
        appointed_(std::move(appointed)),
        audit_(std::move(audit)) {}

  grpc::Status Admit(grpc::ServerContext* context, const v1::ClusterCall* call,
                     v1::ClusterAnswer* answer) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ClusterCall* call,
                        v1::ClusterAnswer* answer) override;

  grpc::Status OpenJob(grpc::ServerContext* context, const v1::ClusterCall* call,
                       v1::ClusterAnswer* answer) override;

  grpc::Status OpenPage(grpc::ServerContext* context, const v1::ClusterCall* call,
                        v1::ClusterAnswer* answer) override;

  grpc::Status JudgeNode(grpc::ServerContext* context, const v1::ClusterCall* call,
                         v1::ClusterAnswer* answer) override;

 private:
  // The user who made the credential of a call.
  struct Asker {
    uid_t uid = 0;
    gid_t gid = 0;
    Role role = Role::kUser;
  };
  // The asker, and the request in the credential. A caller without permission is refused and
  // recorded: this is the service's gate.
  template <typename Request>
  Result<Asker> enter(const grpc::ServerContext& context, Rpc rpc, const v1::ClusterCall& call,
                      Request& request) const;
  void note(const grpc::ServerContext& context, Rpc rpc, const std::optional<Asker>& asker,
            uint64_t job, std::string arguments, const grpc::Status& status) const;
  grpc::Status reply(uid_t reader, const std::string& nonce, v1::ClusterJobs jobs,
                     v1::ClusterAnswer* answer) const;
  v1::ClusterJobs lemons_for(const Asker& asker) const;
  v1::ClusterJobs page(const v1::ClusterQuestion& question, const Asker& asker) const;

  Supervisor& supervisor_;
  const Summaries& summaries_;
  FleetLemons& lemons_;
  FleetPage& page_;
  const std::string node_;
  const Appointed appointed_;
  const Audit audit_;
};

}  // namespace hpctl::cluster
