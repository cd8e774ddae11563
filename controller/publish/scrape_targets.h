// SPDX-License-Identifier: Apache-2.0
// Where the metrics are, in the form of Prometheus's file_sd: the port may be any (metrics.h), and
// the controller of a job moves from node to node. So a scrape names files and no addresses:
//
//   file_sd_configs: [{files: ["HPCTL_HOME/metrics-targets*.json"]}]
//
// [{"targets":["HOST:PORT"],"labels":{"hpctl_job":"7","hpctl_node":"n1"}}], or [] where there is
// nothing to scrape.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/job/fenced_file.h"

namespace hpctl {

// `directory`: HPCTL_HOME, the directory of a job that has its own controller, or the state of the
// cluster controller. The file is in it. For HPCTL_HOME/jobs/JOB it is in HPCTL_HOME, with the
// job's number in its name: file_sd refuses a pattern in a directory's name, and it sees changes at
// once in a directory that it watches.
std::string scrape_targets_path(const std::string& directory);

struct ScrapeTarget {
  std::string bound;  // "HOST:PORT" as Metrics::address(), "" = no metrics: it is left out
  std::map<std::string, std::string> labels;
};
// In place of an address that means all of this machine's stands `reachable`.
std::string scrape_targets(const std::vector<ScrapeTarget>& targets, const std::string& reachable);

// Best effort, as the metrics are: what fails is logged.
void publish_scrape_targets(
    const std::string& path, const std::string& document,
    const IsOurs& is_ours = [] { return true; });

// For a job that has ended: there will be nothing to scrape any more. Best effort, too.
void remove_scrape_targets(const std::string& path);

// Removes files of other jobs in the home of the job with that directory whose controllers had no
// time to do so: the job has had its verdict for a minute, or has no directory any more, or its
// controller has not moved its beat (common/job/controller_beat.h) for a day. Looks at
// kSweptTargets of them. Best effort, too.
inline constexpr size_t kSweptTargets = 1'000;
void sweep_scrape_targets(const std::string& job_dir);

}  // namespace hpctl
