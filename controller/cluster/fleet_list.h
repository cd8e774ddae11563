// SPDX-License-Identifier: Apache-2.0
// The jobs of the cluster controller as they are shown: those that are there with what each has
// said last, and those that have said how they ended. Any thread.
#pragma once

#include <optional>
#include <vector>

#include "controller/cluster/summaries.h"
#include "controller/cluster/supervisor.h"

namespace hpctl::cluster {

inline JobKey key_of(const v1::ClusterJob& job) { return {job.uid(), job.job()}; }

// The jobs after this one, of this user or of all, ascending by uid and job, without addresses and
// tokens; at most `most`.
std::vector<v1::ClusterJob> list_fleet(Supervisor& supervisor, const Summaries& summaries,
                                       std::optional<uid_t> whose, const JobKey& after, size_t most,
                                       bool with_ended);

}  // namespace hpctl::cluster
