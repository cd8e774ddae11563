// SPDX-License-Identifier: Apache-2.0
// How an agent reaches its controller and what it does where none answers: on the local backend the
// one of the home, over its socket; on a cluster the newest of the job, over TCP, which is looked
// up again for each attempt, and may have a successor on this node.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "agent/core/reconnect.h"
#include "common/base/ids.h"
#include "common/base/paths.h"

namespace hpctl::agent {

// One thread at a time. connect(), is_succeeded() and start() may block for as long as a file
// server does; the others do not.
class ControllerAccess {
 public:
  virtual ~ControllerAccess() = default;
  ControllerAccess(const ControllerAccess&) = delete;
  ControllerAccess& operator=(const ControllerAccess&) = delete;

  // A lazy channel, and how long the attempt to connect it may take by that patience.
  // kFailedPrecondition: the job has ended and nobody will ever answer; other errors may pass.
  struct Dialled {
    std::shared_ptr<grpc::Channel> channel;
    int64_t attempt_ms = 0;
  };
  virtual Result<Dialled> connect(Patience& patience) = 0;
  // Whether another controller has the job than the one of the last connect(). What it cannot read
  // it does not know of.
  virtual bool is_succeeded() const = 0;
  // How often that is to be looked at.
  virtual int64_t look_every_ms() const = 0;
  // Of the last connect().
  virtual StartPlan start_plan() const = 0;
  // How long the job allows an agent to be without any controller, which a Welcome repeats. Of the
  // last connect(); before it, and where that could not read it, what a job allows by default.
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
