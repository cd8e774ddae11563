// SPDX-License-Identifier: Apache-2.0
// The progress of each rank, and the standbys, from heartbeats: a soft table, never stored. Three
// transitions of it are events: the first completed step of a generation, the step that ends a loss
// (core/lost_time.h), and a hang. The core judges whether ranks hang and which are to blame
// (controller/core/hang.h); this table has the facts. Clocks of hosts are never compared.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job/hang_rule.h"
#include "common/job/step_figures.h"
#include "common/job/time_spent.h"
#include "common/worker/worker_abi.h"
#include "controller/core/beats.h"
#include "controller/core/events.h"
#include "controller/core/failure_detector.h"
#include "controller/core/hang.h"
#include "controller/core/hang_rules.h"
#include "controller/core/straggler.h"
#include "controller/core/types.h"

namespace hpctl {

inline constexpr size_t kMedianSteps = 32;  // the median is over the newest so many steps

// The collectives of one group of a rank.
struct GroupReport {
  GroupKind kind = GroupKind::kNone;
  int32_t first = 0;
  int32_t last = 0;
  uint64_t begun = 0;
  uint64_t completed = 0;
  bool waits = false;  // the rank is held there
};

// One rank's part of a heartbeat (WorkerProgress of the wire contract).
struct RankReport {
  int32_t rank = 0;
  uint64_t generation = 0;
  uint64_t pid = 0;
  uint32_t phase = 0;
  uint64_t step = 0;
  uint64_t collective = 0;
  float loss = 0;
  uint64_t tokens = 0;
  uint64_t step_ns = 0;
  uint64_t first_step_unix_ns = 0;
  std::string process_state;  // of /proc/PID/stat, of a worker that stands still; else ""
  float grad_norm = 0;
  std::optional<StepFigures> figures = {};  // absent before the first step
  uint32_t open_collectives = 0;            // begun and not completed
  bool computing = false;                   // in the passes of a step
  // Where ranks may begin different collectives; otherwise empty, also from an older agent.
  std::vector<GroupReport> groups = {};
  // For each of recovery.hang_rules: how long ago it printed a line that matches; -1 = it has not.
  std::vector<int64_t> line_ages_ms = {};
};

// In the middle of a step.
bool waits_for_storage(const RankReport& report);

struct RankProgress {
  RankReport report;
  std::string node;
  // When its step or its collectives last changed. With a longer heartbeat interval the exact time
  // is unknown, and the earlier heartbeat counts.
  int64_t moved_ms = 0;
  int64_t heard_ms = 0;     // when it was last reported
  int64_t compared_ms = 0;  // when its step was last taken to look for stragglers
  int64_t still_ms = 0;  // for so long it was reported as it is; pauses of the reports count little
};

// Processes of a node that wait for a part, as its agent told last.
struct StandbyReport {
  std::string boot_id;  // of the life of the node that told it
  uint32_t ready = 0;
  uint32_t loading = 0;
  uint64_t memory_bytes = 0;  // of those that are ready
};

struct JobProgress {
  uint64_t generation = 0;
  uint64_t step = 0;       // of the generation; its start step before the first
  int64_t stepped_ms = 0;  // when that was completed; 0 = not seen
  double loss = NAN;       // newest known, also across generations
  double tokens_per_second = 0;
  double step_ms = 0;  // median of the newest kMedianSteps; 0 = none was timed
  std::map<int32_t, RankProgress> ranks;
  uint64_t data_waits_ns = 0;  // of those: StepFigures, summed
  uint64_t save_waits_ns = 0;
  std::map<std::string, StandbyReport> standbys;  // by node
  std::string hang_warning;  // what a rule of recovery.hang_rules warns of; "" = nothing
  // Of a job that has ended under an earlier process of the controller: waits that no event told
  // are in it, so goodput stays as it was.
  std::optional<TimeSpent> ended_spent;

  // "rank 2 on n1" that waits for storage; "" = no rank does.
  std::string waiting_rank() const;
  StepWaits waits() const;  // mean of the ranks
};

// Any thread.
class ProgressTable {
 public:
  // The job's row after a commit.
  void observe(const core::Job& job, int64_t now_ms);
  // Values from before a restart of the controller, for display until heartbeats arrive.
  void remember(JobId job, double loss, double tokens_per_second,
                std::optional<TimeSpent> ended_spent);
  // Returns the transition to post, if any.
  std::optional<core::GenerationProgressed> report(JobId job, const std::string& node,
                                                   const std::vector<RankReport>& ranks,
                                                   int64_t now_ms);
  // `node`: one of the job's.
  void report(JobId job, const std::string& node, StandbyReport standbys);
  // The core needs this before it judges a lost node: the furthest step, if it is new.
  std::optional<core::GenerationProgressed> news(JobId job);
  std::vector<core::HangDetected> take_hangs(int64_t now_ms);
  // For each silent node: the state of the ranks on nodes that report, and when it last trained.
  std::map<std::string, core::NodeObservation> sight(JobId job, const std::set<std::string>& silent,
                                                     int64_t now_ms);
  // Returns whether any of its ranks moved in the last `within_ms`.
  bool has_moved(JobId job, Generation generation, int64_t within_ms, int64_t now_ms);
  // For the jobs whose nodes get another heartbeat interval from now on.
  std::vector<core::BeatOrder> take_beats(int64_t now_ms);
  // Nodes that hold the others up, and those that do no more.
  std::vector<core::EventBody> take_stragglers();
  // The disk of the checkpoints has become full, or has room again.
  std::vector<core::ControllerNoted> take_notes(int64_t now_ms);
  // One for each save that has found the disk full since the last call.
  std::vector<core::CheckpointRoomNeeded> take_room_needed();
  void rearm(int64_t now_ms);
  JobProgress of(JobId job);

 private:
  // One of recovery.hang_rules, and what is known of it in this generation.
  struct PrintedRule {
    HangRule rule;
    int64_t first_ms = 0;                  // core::first_limit_ms()
    std::optional<int64_t> matched_ms;     // when a rank last printed a line that matches
    std::string warning;                   // that has not ended; "" = none
    bool is_noted = false;                 // it is in the history
    std::optional<int64_t> noted_ms = {};  // when the newest was
  };

  struct Entry {
    JobProgress shown;
    bool trains = false;        // the built-in trainer runs
    bool running = false;       // RUNNING and nothing is being prepared
    bool meets = false;         // taken over: who of the generation is alive is being found out
    core::NodeObservation row;  // what it says of training
    bool progressed = false;    // GenerationProgressed was made
    bool hang_reported = false;
    core::PlainHangs plain_hangs;
    bool told_fail = false;
    std::optional<int64_t> fail_note_ms;  // when that was last told
    std::string told_waiting;             // JobProgress::waiting_rank()
    uint64_t saves_out_of_space = 0;      // rank 0's, when it was last asked for
    uint64_t told_step = 0;               // furthest step the core knows
    StepWaits told_waits;                 // likewise
    int32_t world_size = 0;
    uint64_t regain_step = 0;  // the core wants to know when it is completed; 0 = nothing
    uint64_t former_step = 0;  // of the job before this controller; shown until a rank reports
    int64_t configured_hang_ms = 0;
    // When `shown.step` or `fewest_collectives` last rose, or a wait for storage ended.
    int64_t moved_ms = 0;
    std::optional<int64_t> rank_moved_ms;  // any rank, between two of its reports
    uint64_t fewest_collectives = 0;
    std::map<uint64_t, size_t> ranks_by_collectives;  // how many ranks began so many
    size_t stopped_ranks = 0;                         // whose processes are
    int64_t news_ms = 0;  // of any rank: the newest RankProgress::moved_ms
    std::deque<uint64_t> step_ns;
    std::deque<int64_t> pauses_ms;  // of a command: between the newest steps, as they were told
    core::BeatWatch beats;
    int64_t heartbeat_timeout_ms = 0;
    bool finds_stragglers = false;  // recovery.straggler
    core::StragglerWatch stragglers;
    std::vector<PrintedRule> printed;  // of a command
    int64_t ran_ms = 0;                // since then `running`
  };

  // The facts that need no look at every rank.
  static core::PrintedLines lines_of(const Entry& entry, const PrintedRule& printed,
                                     int64_t now_ms);
  static void take_lines(Entry& entry, const RankReport& report, int64_t now_ms);
  // What its rule expects and no rank has printed in time; "" = it is not overdue, or not known.
  static std::string find_overdue(const Entry& entry, const PrintedRule& printed, int64_t now_ms);
  static std::vector<std::string> hang_notes(Entry& entry, int64_t now_ms);
  static std::optional<core::HangDetected> printed_hang(JobId job, Entry& entry, int64_t now_ms);
  // True where it has moved since its report before.
  static bool take(Entry& entry, const std::string& node, const RankReport& report, int64_t now_ms);
  // 0 = not known.
  static int64_t longest_pause_ms(const Entry& entry);
  // Facts about a command from its steps, except still_ms.
  static void add_steps(const Entry& entry, const std::set<std::string>& silent,
                        core::NodeObservation& seen);
  // For a rank that has begun or ended to wait for storage.
  static std::optional<std::string> storage_note(JobId job, Entry& entry);
  static std::vector<std::string> nodes_of(const Entry& entry);  // in the order of their ranks
  // Without the ranks, which add_ranks() copies.
  static core::JobSight look_at(const Entry& entry, int64_t now_ms);
  static void add_ranks(const Entry& entry, int64_t now_ms, core::JobSight& job);

  std::mutex mutex_;
  std::map<JobId, Entry> jobs_;
};

}  // namespace hpctl
