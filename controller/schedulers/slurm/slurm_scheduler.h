// SPDX-License-Identifier: Apache-2.0
// The backend of one Slurm job. The batch script's srun starts the agents of all nodes, so the
// first launch of a node in an allocation is that; later ones are an srun of ours. A poll every few
// seconds (no call per heartbeat) tells what Slurm knows: what it takes out of the allocation is
// lost, everything else is for the history. Slurm may be away for minutes: only the poll and the
// launches wait for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "common/job/paths.h"
#include "common/slurm/hpslurm.h"
#include "controller/schedulers/scheduler.h"
#include "controller/schedulers/slurm/slurm_observer.h"
#include "controller/schedulers/slurm/srun_launcher.h"

namespace hpctl {

struct SlurmSchedulerSettings {
  JobId job;
  std::string node;  // this machine's name in Slurm
  std::string agent_program;
  uint64_t restart_count = 0;      // of this life of the job
  std::vector<std::string> nodes;  // of the job, as it began
  std::function<void()> requeued;  // told once Slurm has begun another life
  bool outside = false;            // we are no part of the job: nodes take JOBDIR/environment
  bool bulk_started = true;   // the batch script starts agents for this controller's first launches
  std::string srun = "srun";  // found in PATH
  std::vector<std::string> srun_options;  // of the container
  SlurmClientOptions slurm;
  int64_t poll_ms = 3'000;
};

class SlurmScheduler final : public Scheduler {
 public:
  SlurmScheduler(const HomePaths& paths, SlurmSchedulerSettings settings, Post post);
  ~SlurmScheduler() override;  // as stop()

  void resume(const core::State& state) override;
  core::EventBody launch(ActionId id, const core::LaunchNode& action) override;
  void registered(const core::NodeKey& node, uint64_t holder_pid) override;
  core::EventBody requeue(ActionId id, const core::RequeueJob& action) override;
  // Asks HyperPod for another machine, or a reboot, and lets the node go: that is what it waits
  // for.
  core::EventBody replace(ActionId id, const core::ReplaceNode& action) override;
  bool suspends() const override { return true; }
  std::optional<bool> is_suspended(JobId job) override;
  // Where no batch script is left to report the verdict, the allocation is ended with it.
  void complete(int exit_code) override;
  void stop() override;

 private:
  SrunSettings srun_settings() const;
  struct StepEnd {
    bool was_up = false;
    std::string cause;
  };
  void step_ended(const std::string& node, bool was_up, const std::string& cause);
  void tell_step_ended(const std::string& node, const StepEnd& end);
  void poll();
  bool look(SlurmObserver& observer);
  void tell_suspension(bool suspended);
  void tell(const SlurmObservation& observation);
  void let_go(const std::string& node);
  void say(const std::string& node, const std::string& what);
  bool has_ended_by_itself();

  const HomePaths paths_;
  const SlurmSchedulerSettings settings_;
  const Post post_;
  SlurmClient slurm_;
  SrunLauncher launcher_;
  std::atomic<bool> may_be_suspended_{true};  // as the rows have it
  std::mutex mutex_;
  std::condition_variable poll_changed_;
  bool stopping_ = false;
  std::set<std::string> names_;               // of the job's nodes; the poll asks for these
  std::map<std::string, ActionId> launches_;  // newest of each node
  std::map<std::string, StepEnd> ended_;      // steps whose end is told after the next look
  std::map<std::string, int64_t> marked_ms_;  // poll only: since when Slurm shows it as FAIL
  std::thread thread_;                        // last: uses the above
};

}  // namespace hpctl
