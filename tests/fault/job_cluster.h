// SPDX-License-Identifier: Apache-2.0
// One job of a cluster without Slurm, for tests: a job directory as `hpctl submit` leaves it, real
// controllers of that one job and one real holder per node, all on the loopback of this machine.
// Node names tell them apart: each node's local state is in a directory named after it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/job/endpoint.h"
#include "common/job/job_spec.h"
#include "common/job/paths.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"
#include "tests/fault/live_controller.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::test {

// Two nodes. Its command runs until open_gate(), and exits then: where with another code than 0,
// for good.
JobSpec gated_job(int exit_code = 0);

class JobCluster {
 public:
  // Writes job.json and the token; `spec` may leave its checkpoint directory to the default. A
  // second one of a test needs another number than own_job().
  explicit JobCluster(const JobSpec& spec, JobId job = own_job());
  ~JobCluster();
  JobCluster(const JobCluster&) = delete;
  JobCluster& operator=(const JobCluster&) = delete;

  // Kills whatever carries this cluster's mark in its environment, until nothing is left. So does
  // the destructor; earlier where such processes write into what is removed before this.
  void end_processes() const;

  // This test's own: nodes' local directories are named after it.
  static JobId own_job();
  JobId job() const { return job_; }
  const std::string& job_dir() const { return job_dir_; }
  HomePaths paths(const std::string& node) const { return HomePaths::of_job(job_dir_, job_, node); }
  std::string checkpoints() const { return job_dir_ + "/checkpoints"; }
  void open_gate() const;  // of a gated_job()

  // Any program, as our child and with this cluster's mark; `ready_fd` becomes its descriptor 3.
  pid_t spawn(std::vector<std::string> argv, const std::string& log, int ready_fd = -1);
  // Our child, on `node`. Returns when it serves or has ended before.
  pid_t start_controller(const std::string& node, std::vector<std::string> arguments = {});
  void start_agent(const std::string& node);
  // "n0", "n1", ...: as many as the spec wants, spares included.
  std::vector<std::string> nodes() const;
  // start_controller on n0, then an agent on each node.
  pid_t start_all();
  // SIGKILL, and waits until it is gone; also for controllers that agents have started.
  void kill_controller(uint64_t epoch);
  void kill_holder(const std::string& node);

  // Exit code of our child; nullopt when it goes on after the deadline.
  std::optional<int> wait_for(pid_t child, int timeout_ms);
  // The record of an epoch >= `epoch`; nullopt after the deadline.
  std::optional<ControllerRecord> wait_for_epoch(uint64_t epoch, int timeout_ms) const;
  std::unique_ptr<v1::Controller::Stub> stub() const;  // to the newest controller
  // Of the newest controller; nullopt when it does not answer.
  std::optional<v1::JobStatus> status() const;
  // Likewise, of one that is to answer: where it has not within a minute, the test has failed.
  v1::JobStatus shown() const;
  bool wait_for_status(const std::function<bool(const v1::JobStatus&)>& wanted,
                       int timeout_ms) const;
  std::optional<int> verdict() const;
  std::vector<pid_t> processes() const;  // of this cluster, alive
  std::string logs() const;              // of controllers and agents, for a failed test

 private:
  std::string mark() const;

  TemporaryDirectory directory_;
  const JobSpec spec_;
  const JobId job_;
  std::string job_dir_;
};

}  // namespace hpctl::test
