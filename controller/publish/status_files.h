// SPDX-License-Identifier: Apache-2.0
// The view of a job for people and tools, and its copy on disk: `hpctl status|events|why` answer
// from these files when no controller runs, with the same fields as when one does (design §13).
//
//   HOME/jobs/J/status.json    one JobView, replaced atomically
//   HOME/jobs/J/events.jsonl   one EventView per line, appended; also CHECKPOINT_DIR/events.jsonl
//   HOME/jobs/J/job.json       the job's spec (common/job/job_spec.h), written once
//
// Status files are best effort: the store is the truth. No gRPC and no SQLite here, so that hpctl
// can use it offline. Free functions without state; safe from any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/wall_time.h"
#include "common/job/fenced_file.h"
#include "common/job/ids.h"
#include "common/job/job_margins.h"
#include "common/job/job_spec.h"
#include "common/job/job_summary.h"
#include "common/job/paths.h"
#include "common/job/time_spent.h"
#include "common/watch/job_snapshot.h"
#include "controller/publish/loss_counts.h"

namespace hpctl {

// Processes of a node that wait for a part (recovery.standbys, recovery.standby_imports).
struct StandbyView {
  uint32_t wanted = 0;
  uint32_t ready = 0;    // can take one at once
  uint32_t loading = 0;  // not yet
  uint64_t memory_bytes =
      0;  // of those that are ready, what is shared divided by those who share it; 0 = not known
};

struct NodeView {
  std::string name;
  std::string role;   // active | spare | lost | quarantined
  std::string state;  // launching | up | down | ending | ended
  std::string instance_id;
  std::string boot_id;
  uint64_t holder_pid = 0;
  uint64_t agent_pid = 0;
  // The scheduler's, of a node that it drains or cannot use; why its agent is still awaited; why it
  // is quarantined; "" = none.
  std::string note = {};
  // Absent if none are wanted or present, or if the node's agent has not reported.
  std::optional<StandbyView> standbys = {};
};

struct WorkerView {
  int32_t rank = 0;
  std::string node;
  uint64_t pid = 0;
  uint64_t generation = 0;
  std::string state;  // pending | running | exited
  std::string phase;  // starting | loading | rendezvous | training | saving | finished
  uint64_t step = 0;
};

// A node that holds the others up in every step.
struct StragglerView {
  std::string node;
  int32_t rank = -1;  // -1 = all that it has, or several
  double slowdown = 0;
  std::string evidence;
};

// Storage failures of a job, under former controllers too.
struct StorageView {
  int64_t waited_ms = 0;         // without training, the present wait with it
  int64_t errors_directory = 0;  // attempts at a generation that ended for the checkpoint directory
  int64_t errors_worker = 0;     // likewise, for a worker that could not read
  WallTime verified_at;          // when a checkpoint was last verified; unknown = never
  std::map<std::string, int64_t> exits = {};  // of workers that could not read, by errno
};

// The second place for checkpoints.
struct MirrorView {
  std::string dir;        // "" = the job has none
  uint64_t step = 0;      // of the newest verified checkpoint there; 0 = none is known
  int64_t behind_ms = 0;  // a copy has been due for so long; 0 = none is
  std::string problem;    // of the newest copy; "" = none
};

struct JobView {
  uint64_t job = 0;
  std::string name;
  std::string state;  // PENDING ...
  uint64_t generation = 0;
  uint64_t step = 0;
  double loss = NAN;  // NaN before the first step; null in JSON
  int64_t restarts = 0;
  uint64_t controller_pid = 0;
  std::string controller_node;
  std::vector<NodeView> nodes;
  std::vector<WorkerView> workers;
  // Beyond design §13.
  std::string reason;
  uint64_t total_steps = 0;  // 0 = unknown
  double tokens_per_second = 0;
  double mfu = 0;  // 0..1, causal attention counted whole; 0 = unknown
  uint64_t checkpoint_step = 0;
  uint64_t snapshot_step = 0;  // newest in the memory of two nodes; 0 = none
  std::vector<StragglerView> stragglers;
  std::string checkpoint_dir;
  MirrorView mirror;
  std::string job_uuid;  // names it in its checkpoint directory; "" in what older releases wrote
  WallTime submitted_at;
  WallTime ended_at;  // unknown = not ended, or nobody recorded when
  int64_t lost_ms = 0;
  TimeSpent spent;
  int32_t faults = 0;
  std::string owner;              // uid as text
  bool chaos = false;             // debug.chaos; of a live controller only
  StorageView storage;            // likewise
  double step_ms = 0;             // median of the newest steps, while it is RUNNING; 0 = unknown
  std::string last_fault;         // cause of the newest recovery; "" = none
  std::string queue_remedy = {};  // JobSummary; not in the file
  ChosenValues chosen;            // of keys that the job file left to auto
  std::optional<JobMargins> margins;  // absent from what older releases wrote or say
  // In the file only, for the controller that follows (core::JobTotals). Unknown = nothing to tell
  // it.
  WallTime counted_at;
  bool interrupted = false;
  uint64_t furthest_step = 0;
  StepWaits told_waits;
  LossCounts losses;  // likewise, for its metrics
};

// `taken_at`: when the view was so; of a job that has ended it says nothing.
JobSummary summarize(const JobView& view, WallTime taken_at);
// Where its time went until `now`, or until it ended.
TimeAccount account_of(const JobView& view, WallTime now);
// With what only a view knows.
JobSnapshot snapshot_of(const JobView& view, WallTime taken_at);

struct EventView {
  uint64_t seq = 0;
  int64_t wall_ms = 0;  // "time" in JSON: "2026-11-21T09:30:00.123Z"
  std::string type;
  uint64_t job = 0;
  uint64_t generation = 0;  // 0 = none
  std::string node;         // "" = none
  int32_t rank = -1;        // -1 = none
  std::string cause;
  uint64_t because = 0;  // seq of the event that led to this one; 0 = outside
  uint64_t step = 0;     // that was reached, or from which a generation starts; 0 = not told
};

// One JSON object each, without a newline. The inverse accepts what was written.
std::string to_json_text(const JobView& view);
std::string to_json_text(const EventView& event);
Result<JobView> job_view_from_json(const std::string& text);
Result<EventView> event_view_from_json(const std::string& text);

// The job's directory must exist. False: a newer controller has the job (common/job/fenced_file.h).
Result<bool> write_status(
    const HomePaths& paths, const JobView& view, const IsOurs& is_ours = [] { return true; });
Result<JobView> read_status(const HomePaths& paths, JobId job);

// Appends one line per event to `path`; the directory must exist. Not synced: best effort.
Outcome append_events(const std::string& path, const std::vector<EventView>& events);
// All whole lines of the file; a torn last line (a crash while appending) is left out, and so are
// repetitions of a (seq, type, node, rank, cause) written again after a crash. A missing file is an
// empty list.
Result<std::vector<EventView>> read_events(const std::string& path);

// Jobs that have a status.json, ascending.
Result<std::vector<JobId>> jobs_with_status_files(const HomePaths& paths);

}  // namespace hpctl
