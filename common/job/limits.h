// SPDX-License-Identifier: Apache-2.0
// How long the parts of a job may take before hpctl reacts (limits of job.yaml). The backend
// supplies the values that the job leaves open: a program starts at once on this machine, a
// container image is imported for minutes.
//
// A limit is for a process that answers and is slow. Heartbeats find a process that does not answer
// long before.
#pragma once

#include <array>
#include <cstdint>

namespace hpctl {

// In ms; 0 = what the backend says.
struct Limits {
  int64_t launch_ms = 0;      // a node was asked for -> its agent has registered
  int64_t register_ms = 0;    // another controller, or this one again -> an agent has registered
  int64_t start_ms = 0;       // StartWorkers -> they run; without hooks and checks
  int64_t abort_ms = 0;       // the built-in trainer was told to leave its generation -> it has
  int64_t stop_ms = 0;        // SIGKILL -> none is left
  int64_t first_step_ms = 0;  // they run -> the first step
  int64_t last_checkpoint_ms = 0;  // SIGTERM -> SIGKILL of a job that ends early
  int64_t end_ms = 0;              // the job has ended -> a node has; without hooks
  int64_t directory_ms = 0;        // an answer of the checkpoint directory
  int64_t orphan_ms = 0;           // an agent without any controller ends its node
  int64_t storage_ms = 0;          // storage that cannot be read or written is waited for
};

// 30 days fit the wire contract's milliseconds.
inline constexpr int64_t kLeastLimitMs = 100;
inline constexpr int64_t kMostLimitMs = int64_t{30} * 86'400'000;

struct LimitKey {
  const char* name;  // below `limits`
  int64_t Limits::*ms;
};
inline constexpr std::array<LimitKey, 11> kLimitKeys = {
    {{"launch", &Limits::launch_ms},
     {"register", &Limits::register_ms},
     {"start", &Limits::start_ms},
     {"abort", &Limits::abort_ms},
     {"stop", &Limits::stop_ms},
     {"first_step", &Limits::first_step_ms},
     {"last_checkpoint", &Limits::last_checkpoint_ms},
     {"end", &Limits::end_ms},
     {"directory", &Limits::directory_ms},
     {"orphan", &Limits::orphan_ms},
     {"storage", &Limits::storage_ms}}};

constexpr Limits local_limits() {
  return {20'000, 15'000, 30'000, 3'000,  60'000,    600'000,
          25'000, 30'000, 60'000, 60'000, 86'400'000};
}

// `imports`: agents are started in a container whose image may have to be imported first.
constexpr Limits cluster_limits(bool imports) {
  Limits limits = local_limits();
  limits.launch_ms = imports ? 900'000 : 60'000;
  limits.start_ms = 60'000;
  limits.stop_ms = 300'000;
  limits.orphan_ms = 600'000;
  return limits;
}

// `wanted`, completed.
constexpr Limits resolve(Limits wanted, const Limits& defaults) {
  for (const LimitKey& key : kLimitKeys) {
    if (wanted.*key.ms == 0) wanted.*key.ms = defaults.*key.ms;
  }
  return wanted;
}

}  // namespace hpctl
