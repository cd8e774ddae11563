// SPDX-License-Identifier: Apache-2.0
// Finding the controller of an HPCTL_HOME, and starting one if none answers.
//
// hpcontroller is started as `hpcontroller --detach --ready-fd 3 --home HOME`: it forks before it
// has any thread, the caller reaps the first process at once, and the controller proper is the
// orphaned child of a session leader. It writes kControllerReady to the pipe when it serves,
// kAnotherControllerRuns when it found the lock held, and closes the pipe without a byte when it
// gave up. Racing starters are harmless: all but one controller end at the lock file, and their
// starters then wait for the winner.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/job/paths.h"

namespace hpctl {

inline constexpr char kControllerReady = 'r';
inline constexpr char kAnotherControllerRuns = 'l';

using SteadyTime = std::chrono::steady_clock::time_point;

// A channel on the controller's socket. Lazy: nothing is connected yet, and it reconnects by itself
// with a back-off between 20 ms and 500 ms.
std::shared_ptr<grpc::Channel> connect_controller(const HomePaths& paths);

// kUnavailable when no controller answers GetVersion before the deadline. With `wait` an absent
// controller is waited for, otherwise it is an answer at once.
absl::Status ping_controller(grpc::Channel& channel, SteadyTime deadline, bool wait);
// Returns whether a call failed because the peer did not prove by TLS that it is the controller;
// then nothing of the call has left this process. gRPC has no code for it, only words.
bool is_unproven(const absl::Status& status);

// A channel on which a controller has answered. Starts one when none does; `program` "" = the
// hpcontroller beside the running program. The error carries the last line of the controller's log.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ensure_controller(const HomePaths& paths,
                                                                 SteadyTime deadline,
                                                                 const std::string& program = "");

// For one job of a cluster: starts `hpcontroller --successor` on this node and waits until it
// serves or knows that another controller has the job; both are Ok. The error carries the last line
// of its log. `paths` are HomePaths::of_job.
absl::Status start_successor(const HomePaths& paths, JobId job, const std::string& node,
                             SteadyTime deadline);

}  // namespace hpctl
