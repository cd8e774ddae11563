// SPDX-License-Identifier: Apache-2.0
// The controller of one job on a cluster: `hpcontroller --job-dir DIR --job N`, started by the
// batch script, or by a surviving agent as the successor of one that does not answer.
//
// The job's directory decides which process is the controller: each start claims the next epoch K
// (common/job/endpoint.h) after it listens and before it decides anything, and a controller that
// finds a higher K than its own yields. The rows on this node's disk are of use only to the holder
// of the newest epoch after a restart. Any other start is built from the job's document, the
// lineage and the agents' reports, and numbers its events after core::seq_before_epoch(K), because
// agents know actions by these numbers.
//
// The verdict is final. It and the record are fenced (common/job/fenced_file.h): a controller with
// a successor does not write them any more, and a successor finds the written ones. That requires a
// file system that shows a directory as it is. With cached listings it may be wrong for as long,
// and a controller that finds the job ended by another ends with it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>

#include "common/base/fd.h"
#include "common/job/endpoint.h"
#include "common/job/job_files.h"
#include "common/job/lineage.h"
#include "controller/engine/owner_loop.h"
#include "controller/leadership/controller_mode.h"
#include "controller/leadership/options.h"
#include "controller/leadership/termination_cause.h"

namespace hpctl {

// Exit codes besides the job's verdict (common/job/job_files.h).
inline constexpr int kExitUsage = 2;
inline constexpr int kExitSuperseded = 3;            // another controller has the job
inline constexpr int kExitFault = kExitStoreFailed;  // of this process; start it again
inline constexpr int kExitRequeued = 5;  // Slurm will start the job again, in a new allocation

class JobMode final : public ControllerMode {
 public:
  JobMode(const HomePaths& paths, const ControllerOptions& options);

  Outcome prepare() override;
  void adjust(core::State& state) override;
  Access access() const override;
  std::unique_ptr<Scheduler> make_scheduler(Scheduler::Post post) override;
  Outcome claim(const std::string& address) override;
  std::optional<core::EventBody> first_event() override;
  std::optional<FormerController> former_controller() const override;
  std::string node() const override { return node_; }
  JobIdentity identify(const core::Job& job) const override;
  HomePaths users_home() const override;
  bool accepts_jobs() const override { return false; }
  void refused(const std::string& reason) override;
  bool may_record() override;
  bool is_superseded() override;
  bool stands_back() const override { return exit_code_ == kExitSuperseded; }
  bool has_last_word() const override { return true; }
  void job_ended(const core::Job& job, const JobView& view) override;
  void nodes_ended(JobId job) override;

  // As claimed.
  const ControllerRecord& record() const { return record_; }
  // After a signal that ends our processes.
  TerminationCause termination_cause() const;
  // Before the cancellation. The next look, or the end of the job if that comes first, writes what
  // the batch script reads then.
  void note_told_to_end(TerminationCause why) {
    if (why == TerminationCause::kPreempted) is_preempted_ = true;
  }
  // Once the job has ended. Touches no file.
  bool is_preempted() const { return is_preempted_; }
  // Looks whether another controller has taken over, or has ended the job. If not, and `heard` are
  // most of the job's nodes, it moves the beat, so that a node that is cut off does not take over
  // (common/job/controller_beat.h). One thread at a time; may block.
  void look(const std::function<std::set<std::string>()>& heard);
  // The cancellation that a signal asks for.
  core::EventBody cancellation(TerminationCause why) const;
  // Waits at most `timeout_ms`, or until `interrupt` is readable. Touches no file. The exit code
  // once this process has nothing more to do.
  std::optional<int> wait(int interrupt, int timeout_ms) const;

 private:
  void note_preemption();
  void read_preemption();
  bool over(int exit_code);  // the first reason counts; false = this is another
  bool is_ended_by_another();
  void say_last_word(int verdict);
  bool answers(const ControllerRecord& controller) const;
  bool is_gone_from_here(const ControllerRecord& controller) const;
  // kAlreadyExists where it answers here, or serves most of the job's nodes.
  Outcome refuse_living(const ControllerRecord& controller) const;
  Outcome refuse_ended_job() const;
  Outcome take_over_rows(const std::optional<ControllerRecord>& newest);
  std::string own_epoch_path() const { return paths_.state() + "/epoch"; }

  const HomePaths paths_;
  const ControllerOptions options_;
  const JobId job_;
  const std::string node_;
  const uint64_t restart_count_;
  const UniqueFd wake_;
  JobDocument document_;
  std::string token_;
  TlsIdentity identity_;     // of this epoch
  std::string programs_;     // directory
  ControllerRecord record_;  // ours
  std::vector<GenerationRecord> lineage_;
  std::optional<ControllerRecord> former_;  // whom it succeeds in this allocation
  std::string follows_;                     // whom, for people; "" = the first of this allocation
  uint64_t beats_ = 0;                      // of look()
  std::string beat_problem_;                // likewise, as it was logged; "" = none
  std::atomic<int> verdict_{kVerdictFailed};
  std::atomic<bool> ends_{false};             // the verdict in the directory may be ours
  std::atomic<bool> verdict_written_{false};  // it is
  std::atomic<bool> is_preempted_{false};
  std::atomic<bool> preemption_was_noted_{false};
  std::atomic<int> exit_code_{-1};  // -1 = goes on
};

}  // namespace hpctl
