// SPDX-License-Identifier: Apache-2.0
// The MASTER_PORT of the generation whose workers each job may start. A file has it
// (engine/checkpoint_dir_actions.h), which is read on a thread that may block, so the owner thread
// only looks here.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "controller/engine/checkpoint_dir_actions.h"

namespace hpctl {

// Any thread.
class RendezvousPorts {
 public:
  // Reads the file; may block. For each job only the newest generation is kept.
  void learn(const HomePaths& paths, JobId job, Generation generation) {
    const uint16_t port = rendezvous_port(paths, job, generation);
    const std::lock_guard<std::mutex> lock(mutex_);
    Port& known = ports_[job];
    if (generation >= known.generation) known = {generation, port};
  }
  // 0 = there is none.
  uint16_t of(JobId job, Generation generation) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = ports_.find(job);
    const bool is_known = known != ports_.end() && known->second.generation == generation;
    return is_known ? known->second.port : 0;
  }

 private:
  struct Port {
    Generation generation;
    uint16_t port = 0;
  };
  mutable std::mutex mutex_;
  std::map<JobId, Port> ports_;
};

}  // namespace hpctl
