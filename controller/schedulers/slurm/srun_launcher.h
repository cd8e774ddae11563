// SPDX-License-Identifier: Apache-2.0
// Brings an agent to one node of a running allocation, by `srun --overlap` as a child of ours. The
// child lives as long as the agent's step and is watched by pidfd; one that fails because slurmctld
// does not answer is tried again for a while. One thread; nothing here blocks its caller.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/job/ids.h"
#include "controller/schedulers/process_watch.h"

namespace hpctl {

struct SrunSettings {
  std::vector<std::string> command;  // srun and its options, up to the node's name
  std::vector<std::string> program;  // what runs there; the node's name follows as last argument
  // Where srun's own words go; must be in a directory that exists.
  std::function<std::string(const std::string& node)> log_path;
  int64_t first_pause_ms = 500;  // after a failure that may pass; doubles up to the next
  int64_t longest_pause_ms = 8'000;
  int64_t patience_ms = 60'000;  // then it has failed
};

class SrunLauncher {
 public:
  // The agent's step could not be started, or has ended although it had been started. On the
  // launcher's thread.
  using Ended = std::function<void(const std::string& node, bool was_up, const std::string& cause)>;

  SrunLauncher(SrunSettings settings, Ended ended);
  ~SrunLauncher();  // as stop()
  SrunLauncher(const SrunLauncher&) = delete;
  SrunLauncher& operator=(const SrunLauncher&) = delete;

  // Any thread. While an earlier launch of the node is under way this one is the same.
  void launch(const std::string& node);
  // Any thread. The node's agent has registered: from now on srun's end is the step's end.
  void registered(const std::string& node);
  // No call of Ended begins after this. Steps that run go on, and their sruns with them.
  void stop();

 private:
  struct Attempt {
    pid_t srun = 0;      // 0 = waits for its time
    int64_t due_ms = 0;  // of the next try
    int64_t until_ms = 0;
    int64_t pause_ms = 0;
    long log_size = 0;  // before this try
    bool up = false;    // the agent has registered
  };
  using Lock = std::unique_lock<std::mutex>;

  void run();
  void start(Lock& lock, const std::string& node);
  void finish(Lock& lock, pid_t srun, const std::string& cause);
  void fail(Lock& lock, const std::string& node, const std::string& cause);
  int64_t next_due(const Lock& lock) const;

  const SrunSettings settings_;
  const Ended ended_;
  const SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Attempt> attempts_;
  std::vector<std::pair<pid_t, std::string>> exits_;
  bool stopping_ = false;
  ProcessWatch watch_;
  std::thread thread_;  // last: uses the above
};

// Returns whether srun's message is about a Slurm that does not answer now, not about the request.
bool may_pass(const std::string& words);
// Returns whether Slurm refuses the step for what the job asks, as it would on any node.
bool is_refused_for_job(const std::string& words);

}  // namespace hpctl
