// SPDX-License-Identifier: Apache-2.0
// A private hpctl on this machine for one test: its own HPCTL_HOME, the real programs, real
// processes. Everything that a LocalCluster starts carries its HPCTL_HOME in the environment, which
// is how the destructor finds whatever is left, ends it, and how tests assert that nothing is.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/job/paths.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::testing {

using std::chrono::milliseconds;

struct CommandResult {
  int exit_code = -1;  // 128 + signal when it died of one
  std::string out;
  std::string err;
};

// Runs a program with `environment` added, waits at most `deadline`, then kills it (exit code 124).
CommandResult run_command(const std::vector<std::string>& argv,
                          const std::vector<std::string>& environment,
                          milliseconds deadline = std::chrono::seconds(60));

// Calls `done` whenever something in `directory` changes and every 50 ms, until it returns true or
// the deadline passes; returns its last answer.
bool wait_until(const std::string& directory, const std::function<bool()>& done,
                milliseconds deadline);

class LocalCluster {
 public:
  LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;
  ~LocalCluster();

  const HomePaths& paths() const { return paths_; }
  const std::string& directory() const { return directory_.path(); }

  CommandResult hpctl(const std::vector<std::string>& args,
                      milliseconds deadline = std::chrono::seconds(60)) const;
  // Submits a job.yaml given as text to the local backend; fails the test when refused.
  JobId submit(const std::string& yaml);
  // `hpctl status JOB --json`.
  nlohmann::json status(JobId job) const;
  // Lines of `hpctl events JOB --json`.
  std::vector<nlohmann::json> events(JobId job) const;
  // Waits until the newest line of the job's metrics file has a step >= `step`.
  bool wait_for_step(JobId job, uint64_t step, milliseconds deadline) const;
  // Waits until the job has ended; returns its state, or "" after the deadline.
  std::string wait_for_end(JobId job, milliseconds deadline) const;
  // The SHA-256 line of `hpctl checkpoint digest` of the job's newest checkpoint.
  std::string digest(JobId job) const;

  // Running processes that carry this cluster's HPCTL_HOME.
  std::vector<pid_t> processes() const;
  // Stops the controller and waits until every process has exited. A process that is left breaks a
  // promise.
  void stop_and_expect_no_leftovers(milliseconds deadline);

 private:
  std::string mark() const;

  TemporaryDirectory directory_;
  HomePaths paths_;
};

}  // namespace hpctl::testing
