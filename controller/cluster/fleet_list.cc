// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/fleet_list.h"

#include <algorithm>
#include <iterator>

namespace hpctl::cluster {

std::vector<v1::ClusterJob> list_fleet(Supervisor& supervisor, const Summaries& summaries,
                                       std::optional<uid_t> whose, const JobKey& after, size_t most,
                                       bool with_ended) {
  // Those that are there come first: one that ends meanwhile has said so, and is not missed.
  std::vector<v1::ClusterJob> jobs = supervisor.outlines(whose, after, most);
  for (v1::ClusterJob& job : jobs) summaries.describe(key_of(job), job);
  if (!with_ended) return jobs;
  std::vector<v1::ClusterJob> ended = summaries.ended(whose, after);
  std::vector<v1::ClusterJob> all;
  const auto precedes = [](const v1::ClusterJob& a, const v1::ClusterJob& b) {
    return key_of(a) < key_of(b);
  };
  std::set_union(std::make_move_iterator(jobs.begin()), std::make_move_iterator(jobs.end()),
                 std::make_move_iterator(ended.begin()), std::make_move_iterator(ended.end()),
                 std::back_inserter(all), precedes);
  return all;
}

}  // namespace hpctl::cluster
