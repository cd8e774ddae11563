// SPDX-License-Identifier: Apache-2.0
// How an agent reaches its controller, and its reaction if none answers. On the local backend it is
// the controller of the home, over its socket. On a cluster it is the newest controller of the job,
// over TCP, which is looked up again for each attempt, and may have a successor on this node.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "agent/core/reconnect.h"
#include "common/job/ids.h"
#include "common/job/paths.h"

namespace hpctl::agent {

// One thread at a time. connect(), is_succeeded() and start() may block for as long as a file
// server does; the others do not.
class ControllerAccess {
 public:
  virtual ~ControllerAccess() = default;
  ControllerAccess(const ControllerAccess&) = delete;
  ControllerAccess& operator=(const ControllerAccess&) = delete;

  // A lazy channel, and how long the attempt to connect it may take by that patience.
  // kFailedPrecondition: the job has ended and no controller will ever answer; other errors may be
  // transient.
  struct Dialled {
    std::shared_ptr<grpc::Channel> channel;
    int64_t attempt_ms = 0;
  };
  virtual Result<Dialled> connect(Patience& patience) = 0;
  // Returns whether another controller has the job than in the last connect(). false if it cannot
  // read the records.
  virtual bool is_succeeded() const = 0;
  // The interval of that check.
  virtual int64_t look_every_ms() const = 0;
  // For the last connect().
  virtual StartPlan start_plan() const = 0;
  // How long the job allows an agent to be without any controller, which a Welcome repeats. For the
  // last connect(); before it, and if that could not read it, the default.
  virtual int64_t orphan_timeout_ms() const = 0;
  // Starts a controller and waits until it serves, at most some seconds.
  virtual Outcome start() = 0;
  // This node's address as the controller and other nodes reach it; "" = no other node does.
  virtual std::string address() const = 0;

 protected:
  ControllerAccess() = default;
};

std::unique_ptr<ControllerAccess> make_controller_access(const HomePaths& paths, JobId job,
                                                         const std::string& node);

}  // namespace hpctl::agent
