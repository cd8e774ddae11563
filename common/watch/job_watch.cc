// SPDX-License-Identifier: Apache-2.0
#include "common/watch/job_watch.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/job/duration_text.h"

namespace hpctl {
namespace {

// It has had nodes: a job in the queue has nothing that could be missing.
bool is_on_nodes(const JobSummary& job) {
  return job.state == "RUNNING" || job.state == "RECOVERING";
}
// Whether a controller should answer for it: a job without any known state existed a moment ago.
bool has_controller(const JobSummary& job) {
  return job.state.empty() || is_on_nodes(job) || job.state == "STARTING" ||
         job.state == "STOPPING";
}

std::string why_of(const std::string& reason) { return reason.empty() ? "" : ": " + reason; }

}  // namespace

std::string runbook_of(FindingKind kind) {
  const std::string page = std::string(kRunbook) + "#";
  switch (kind) {
    case FindingKind::kFailed:
      return page + "hpctljobfailed";
    case FindingKind::kRecoversForLong:
      return page + "hpctljobrecoversforlong";
    case FindingKind::kStandsStill:
      return page + "hpctlstepsstandstill";
    case FindingKind::kControllerSilent:
      return page + "controller_silent";
    case FindingKind::kLossNotFinite:
      return page + "loss_not_finite";
    case FindingKind::kBudgetLow:
      return page + "budget_low";
    case FindingKind::kRestartsOften:
      return page + "hpctljobrestartsoften";
    case FindingKind::kSparesExhausted:
      return page + "spares_exhausted";
    case FindingKind::kRequeueRefused:
      return page + "requeue_refused";
    case FindingKind::kNodeQuarantined:
      return page + "node_quarantined";
    case FindingKind::kNodeSlow:
      return page + "hpctlslowrank";
    case FindingKind::kNodeLemon:
      return page + "hpctllemonnode";
    case FindingKind::kGenerationOrphaned:
      return page + "generation_orphaned";
    case FindingKind::kGoodputFell:
      return page + "hpctlgoodputfell";
    case FindingKind::kStorageAway:
      return page + "hpctlstorageaway";
    case FindingKind::kMirrorLags:
      return page + "hpctlmirrorlags";
    case FindingKind::kQueueBlocked:
      return page + "queue_blocked";
    case FindingKind::kDirectoryGone:
      return page + "directory_gone";
    case FindingKind::kHangSuspected:
      return page + "hang_suspected";
  }
  return page;
}

std::vector<Finding> JobWatch::look(const JobSnapshot& snapshot, WallTime now) {
  now_ = std::max(now_, now);
  found_.clear();
  if (snapshot.silent_ms >= kSilentMs && has_controller(snapshot.summary)) {
    add_silence(snapshot);  // what it said last is no news; how it ended stays so
  } else if (snapshot.summary.is_told()) {
    add_end(snapshot);
    add_queue(snapshot);
    add_directory(snapshot);
    add_standstill(snapshot);
    add_storage(snapshot);
    add_mirror(snapshot);
    add_loss(snapshot);
    add_orphans(snapshot);
    add_goodput(snapshot);
    add_restarts(snapshot);
    add_nodes(snapshot);
  }
  std::sort(found_.begin(), found_.end(),
            [](const Finding& a, const Finding& b) { return key_of(a) < key_of(b); });
  std::map<std::pair<FindingKind, std::string>, WallTime> since;
  for (Finding& found : found_) {
    // Since when it is so is found out once.
    const auto before = since_.find({found.kind, found.node});
    if (before != since_.end()) found.since = before->second;
    since[{found.kind, found.node}] = found.since;
  }
  since_ = std::move(since);
  return found_;
}

Finding& JobWatch::add(const JobSnapshot& snapshot, FindingKind kind, std::string what,
                       std::string action) {
  const JobSummary& job = snapshot.summary;
  found_.push_back({kind, Severity::kWarn, job.job, job.name, job.owner, snapshot.user, "", now_,
                    std::move(what), std::move(action)});
  return found_.back();
}

void JobWatch::add_silence(const JobSnapshot& snapshot) {
  Finding& found =
      add(snapshot, FindingKind::kControllerSilent,
          "its controller has not answered for " + format_duration(snapshot.silent_ms) +
              "; what trains goes on, the next fault waits for a controller",
          "look at its controller.log, and whether its machine is there");
  found.since = now_.before(snapshot.silent_ms);
  if (snapshot.silent_ms >= kSilentForLongMs) found.severity = Severity::kCritical;
}

void JobWatch::add_end(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (job.state != "FAILED" && job.state != "TIMEOUT") return;
  // A job whose end nobody recorded may have ended at any time.
  const auto ago_ms = elapsed_ms(job.ended_at, now_);
  if (!tells_old_failures_ && ago_ms.value_or(kToldOfFailureMs) >= kToldOfFailureMs) return;
  Finding& found =
      add(snapshot, FindingKind::kFailed,
          (job.state == "FAILED" ? "it failed" : "its time limit ended it") + why_of(job.reason),
          "`hpctl why " + to_string(job.job) +
              "`; submitted again, it goes on from its newest checkpoint");
  found.severity = Severity::kCritical;
  if (ago_ms) found.since = job.ended_at;
}

// A queue that only takes time is no finding.
void JobWatch::add_queue(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (job.state != "PENDING" || job.queue_remedy.empty()) return;
  add(snapshot, FindingKind::kQueueBlocked, "Slurm will not start it" + why_of(job.reason),
      job.queue_remedy);
}

// A job that starts may not have one yet, and the directory of an ended job may be removed.
void JobWatch::add_directory(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  const bool is_queued = job.state == "PENDING";
  const bool needs_it = is_on_nodes(job) || is_queued || job.state == "SUSPENDED";
  if (snapshot.lost_directory.empty() || !needs_it) return;
  add(snapshot, FindingKind::kDirectoryGone,
      "its directory is gone: " + snapshot.lost_directory +
          " was deleted, or its file system is away; " +
          (is_queued ? "it cannot start"
                     : "it goes on without records and logs, and its next recovery waits"),
      "bring the directory back; or `hpctl cancel " + to_string(job.job) +
          "`, and submit it again: it continues from its newest checkpoint")
      .severity = Severity::kCritical;
}

void JobWatch::add_standstill(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (!job.margins) return;
  const std::string id = to_string(job.job);
  const int64_t recovering_ms = job.margins->recovering_ms;
  if (job.state == "RECOVERING" && recovering_ms >= kRecoversForLongMs) {
    Finding& found =
        add(snapshot, FindingKind::kRecoversForLong,
            "it has not trained for " + format_duration(recovering_ms) + why_of(job.reason),
            "`hpctl status " + id + "` says which nodes it waits for");
    found.severity = Severity::kCritical;
    found.since = now_.before(recovering_ms);
  }
  if (job.state == "RUNNING" && !job.margins->hang_warning.empty()) {
    add(snapshot, FindingKind::kHangSuspected, job.margins->hang_warning,
        "`hpctl logs " + id + "` shows what the ranks printed last");
  }
  const auto steps_ms = static_cast<int64_t>(std::min(kStandsStillSteps * job.step_ms, 1e15));
  const int64_t still_ms = job.margins->still_ms;
  if (job.state == "RUNNING" && still_ms >= std::max(kStandsStillMs, steps_ms)) {
    Finding& found = add(snapshot, FindingKind::kStandsStill,
                         "it runs, and has completed no step for " + format_duration(still_ms) +
                             "; the last was step " + std::to_string(job.step),
                         "`hpctl status " + id + "` shows the rank that is behind");
    found.since = now_.before(still_ms);
  }
}

// A job has at most one of the two: a job that waits does not train.
void JobWatch::add_storage(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (!job.margins || !is_on_nodes(job)) return;
  const std::string repair =
      "repair the file system or the mount, or make room; the job goes on by itself";
  const JobMargins& margins = *job.margins;
  if (margins.storage_ms >= kStorageAwayMs) {
    Finding& found = add(snapshot, FindingKind::kStorageAway,
                         "storage does not answer: it has waited for " +
                             format_duration(margins.storage_ms) + why_of(job.reason),
                         repair);
    found.since = now_.before(margins.storage_ms);
    if (margins.storage_ms >= kStorageAwayForLongMs) found.severity = Severity::kCritical;
  } else if (margins.failed_saves >= kFailedSavesWarn) {
    Finding& found = add(snapshot, FindingKind::kStorageAway,
                         "storage takes no checkpoints: " + std::to_string(margins.failed_saves) +
                             " saves in a row failed" + why_of(snapshot.saves_problem) +
                             "; what it computes lives in memory only",
                         "`hpctl logs " + to_string(job.job) + "` has the error; " + repair);
    if (margins.failed_saves >= kFailedSavesCritical) found.severity = Severity::kCritical;
  }
}

void JobWatch::add_mirror(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (!job.margins || !is_on_nodes(job) || job.margins->mirror_behind_ms < kMirrorLagsMs) return;
  const int64_t behind_ms = job.margins->mirror_behind_ms;
  Finding& found = add(snapshot, FindingKind::kMirrorLags,
                       "its mirror lags: a copy has been due for " + format_duration(behind_ms),
                       "`hpctl status " + to_string(job.job) + "` tells why; training goes on");
  found.since = now_.before(behind_ms);
}

// Where a loss is known at all: commands tell none, and a controller that has just begun has heard
// none yet. Within one generation what was finite does not become unknown.
void JobWatch::add_loss(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (std::isfinite(snapshot.loss)) {
    finite_generation_ = job.generation;
    finite_step_ = job.step;
  }
  const bool is_lost = job.state == "RUNNING" && !std::isfinite(snapshot.loss) &&
                       job.generation == finite_generation_ && job.step > finite_step_;
  if (finite_generation_ == 0 || !is_lost) return;
  Finding& found =
      add(snapshot, FindingKind::kLossNotFinite,
          "its loss is not finite any more; it was at step " + std::to_string(finite_step_),
          "cancel it, and go on from an earlier checkpoint with a lower lr, or with "
          "workload.train.stability");
  found.severity = Severity::kCritical;
}

void JobWatch::add_orphans(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (job.state != "RUNNING" || snapshot.orphans.empty()) {
    orphaned_since_.reset();
    return;
  }
  if (!orphaned_since_) orphaned_since_ = now_;
  if (now_.before(kOrphanMs) < *orphaned_since_) return;
  const OrphanedRank& first = snapshot.orphans.front();
  const size_t more = snapshot.orphans.size() - 1;
  Finding& found = add(snapshot, FindingKind::kGenerationOrphaned,
                       "rank " + std::to_string(first.rank) + " on " + first.node +
                           " runs in generation " + std::to_string(first.generation) +
                           ", and the job in " + std::to_string(job.generation) +
                           (more == 0 ? "" : "; " + std::to_string(more) + " more like it"),
                       "end that process: what it writes is ignored, what it holds is not free");
  found.since = *orphaned_since_;
}

void JobWatch::add_goodput(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (!is_on_nodes(job) || job.spent.start_ms == 0) return;
  const auto share = goodput_.look(account_of(job));
  if (!share) return;
  goodput_fell_ = share->trained < (goodput_fell_ ? kGoodputIsBack : kGoodputFell);
  if (!goodput_fell_) return;
  add(snapshot, FindingKind::kGoodputFell,
      "it trained for " + std::to_string(static_cast<int>(share->trained * 100)) +
          " % of the last " + format_duration(share->of_ms),
      "`hpctl goodput " + to_string(job.job) + "` says where the time went");
}

void JobWatch::add_restarts(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (!job.margins || !is_on_nodes(job)) return;
  const JobMargins& margins = *job.margins;
  const std::string last = job.last_fault.empty() ? "" : "; last: " + job.last_fault;
  const std::string events = "`hpctl events " + to_string(job.job) + "`: ";
  const int64_t left = std::max<int64_t>(0, margins.max_restarts - margins.recent_restarts);
  const double few = kBudgetLowShare * static_cast<double>(margins.max_restarts);
  if (margins.recent_restarts > 0 && static_cast<double>(left) <= few) {
    Finding& found =
        add(snapshot, FindingKind::kBudgetLow,
            (left == 0 ? "the next fault fails it" : "few restarts are left") + std::string(": ") +
                std::to_string(left) + " of " + std::to_string(margins.max_restarts) + " within " +
                format_duration(margins.window_ms) + last,
            events + "repair what the faults have in common");
    if (left == 0) found.severity = Severity::kCritical;
    found.since = now_.before(margins.since_restart_ms);
  }
  if (margins.hour_restarts >= kRestartsOften) {
    Finding& found = add(
        snapshot, FindingKind::kRestartsOften,
        "it recovered " + std::to_string(margins.hour_restarts) + " times within an hour" + last,
        events + "whether they name one node or one rank");
    found.since = now_.before(margins.since_restart_ms);
  }
  if (margins.requeue_refusal.empty()) return;
  add(snapshot, FindingKind::kRequeueRefused, "it cannot be requeued: " + margins.requeue_refusal,
      "a lost node that nothing else makes good now costs restarts; `hpctl nodes`");
}

void JobWatch::add_nodes(const JobSnapshot& snapshot) {
  const JobSummary& job = snapshot.summary;
  if (!job.margins || !is_on_nodes(job)) return;
  const JobMargins& margins = *job.margins;
  const std::string nodes = "`hpctl nodes " + to_string(job.job) + "`: ";
  if (margins.spares_wanted > 0 && margins.spares_left == 0) {
    add(snapshot, FindingKind::kSparesExhausted,
        "no spare is left of " + std::to_string(margins.spares_wanted) +
            ": the next loss of a node waits for another",
        nodes + "repair or release the nodes that are lost or in quarantine");
  }
  add_each(snapshot, FindingKind::kNodeQuarantined, margins.quarantined, "is in quarantine",
           nodes + "why; `hpctl nodes release` when it is repaired");
  add_each(snapshot, FindingKind::kNodeSlow, margins.slow, "holds all others up in every step",
           "`hpagent check` on it");
  add_each(snapshot, FindingKind::kNodeLemon, margins.lemons,
           "is a lemon: jobs before this one speak against it",
           "`hpctl nodes lemons` has why; `hpctl nodes check` makes a deep check");
}

void JobWatch::add_each(const JobSnapshot& snapshot, FindingKind kind,
                        const std::vector<std::string>& nodes, const std::string& what,
                        const std::string& action) {
  const std::set<std::string> named(nodes.begin(), nodes.end());
  size_t told = 0;
  for (const std::string& node : named) {
    if (told++ == kMostNodesTold) return;
    add(snapshot, kind, node + " " + what, action).node = node;
  }
}

WatchChanges FleetWatch::look(const std::vector<JobSnapshot>& jobs, WallTime now) {
  std::map<JobKey, JobWatch> watches;
  std::map<FindingKey, Finding> found;
  for (const JobSnapshot& job : jobs) {
    const JobKey key{job.summary.owner, job.summary.job};
    auto known = watches_.extract(key);
    if (known.empty()) {
      watches.try_emplace(key, tells_old_failures_);
    } else {
      watches.insert(std::move(known));
    }
    for (Finding& finding : watches.at(key).look(job, now)) {
      const FindingKey named = key_of(finding);
      found.insert_or_assign(named, std::move(finding));
    }
  }
  WatchChanges changes;
  for (const auto& [key, finding] : found) {
    const auto before = present_.find(key);
    if (before == present_.end() || before->second.severity != finding.severity) {
      changes.begun.push_back(finding);
    }
  }
  for (const auto& [key, finding] : present_) {
    if (!found.contains(key)) changes.ended.push_back(finding);
  }
  watches_ = std::move(watches);
  present_ = std::move(found);
  return changes;
}

std::vector<Finding> FleetWatch::present() const {
  std::vector<Finding> findings;
  for (const auto& [key, finding] : present_) findings.push_back(finding);
  return findings;
}

std::optional<Severity> FleetWatch::worst() const {
  std::optional<Severity> worst;
  for (const auto& [key, finding] : present_)
    worst = std::max(worst, std::optional(finding.severity));
  return worst;
}

}  // namespace hpctl
