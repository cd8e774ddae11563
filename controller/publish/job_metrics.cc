// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/job_metrics.h"

#include <map>
#include <string>
#include <utility>

namespace hpctl {
namespace {

void add_standbys(MetricFamilies& out, const MetricLabels& node, const StandbyView& standbys) {
  constexpr auto kHelp = "Processes of a node that wait for a part, by whether they can take it";
  out.gauge("hpctl_standbys", kHelp, with(node, "state", "ready"), standbys.ready);
  out.gauge("hpctl_standbys", kHelp, with(node, "state", "loading"), standbys.loading);
  out.gauge("hpctl_standbys_wanted", "Standby processes that a node should have", node,
            standbys.wanted);
  if (standbys.memory_bytes == 0) return;
  out.gauge("hpctl_standbys_memory_bytes", "Memory of a node's ready standby processes", node,
            static_cast<double>(standbys.memory_bytes));
}

void add_storage(MetricFamilies& out, const MetricLabels& job, const StorageView& storage,
                 int64_t away_ms) {
  out.gauge("hpctl_job_storage_away_seconds",
            "For how long it has waited for storage; 0: it does not", job,
            static_cast<double>(away_ms) / 1000);
  out.counter("hpctl_job_storage_wait_seconds_total",
              "Without training because storage could not be used", job,
              static_cast<uint64_t>(storage.waited_ms / 1000));
  constexpr auto kHelp = "Attempts at a generation that ended because storage could not be used";
  out.counter("hpctl_job_storage_errors_total", kHelp, with(job, "kind", "directory"),
              static_cast<uint64_t>(storage.errors_directory));
  out.counter("hpctl_job_storage_errors_total", kHelp, with(job, "kind", "worker"),
              static_cast<uint64_t>(storage.errors_worker));
  std::map<std::string, int64_t> exits = storage.exits;
  exits.try_emplace("unknown", 0);  // a rate needs a sample before the first one
  for (const auto& [error, count] : exits) {
    out.counter("hpctl_job_storage_exits_total",
                "Workers that ended because they could not read, by errno",
                with(job, "errno", error), static_cast<uint64_t>(count));
  }
  if (!storage.verified_at.is_known()) return;
  out.gauge("hpctl_job_checkpoint_verified_timestamp_seconds",
            "When the newest checkpoint was last read again and found sound", job,
            static_cast<double>(storage.verified_at.unix_ms()) / 1000);
}

void add_mirror(MetricFamilies& out, const MetricLabels& job, const MirrorView& mirror) {
  if (mirror.dir.empty()) return;
  out.gauge("hpctl_job_mirror_step", "Newest verified checkpoint in its mirror; 0: none", job,
            static_cast<double>(mirror.step));
  out.gauge("hpctl_job_mirror_behind_seconds",
            "For how long a copy to its mirror has been due; 0: none is", job,
            static_cast<double>(mirror.behind_ms) / 1000);
}

}  // namespace

void JobMetrics::show(const JobView& view) {
  Shown shown{view.name,    view.state, view.restarts, view.ended_at, {},
              view.storage, 0,          view.mirror};
  if (view.margins) shown.storage_away_ms = view.margins->storage_ms;
  if (!view.ended_at.is_known()) shown.nodes = view.nodes;
  const std::lock_guard lock(mutex_);
  std::swap(jobs_[view.job], shown);  // what was shown goes after the lock
}

void JobMetrics::add_to(MetricFamilies& out) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, shown] : jobs_) {
    const MetricLabels job = {{"job", std::to_string(id)}, {"name", shown.name}};
    out.counter("hpctl_job_restarts_total", "Recoveries begun, under former controllers too", job,
                static_cast<uint64_t>(shown.restarts));
    add_storage(out, job, shown.storage, shown.storage_away_ms);
    add_mirror(out, job, shown.mirror);
    if (shown.ended_at.is_known()) {
      out.gauge("hpctl_job_ended_timestamp_seconds", "When it ended, and how",
                with(job, "state", shown.state),
                static_cast<double>(shown.ended_at.unix_ms()) / 1000);
    }
    for (const NodeView& view : shown.nodes) {
      const MetricLabels node = with(job, "node", view.name);
      out.gauge("hpctl_job_node_info", "1 for each node of the job, with its part",
                with(node, "role", view.role), 1);
      if (view.standbys) add_standbys(out, node, *view.standbys);
    }
  }
}

}  // namespace hpctl
